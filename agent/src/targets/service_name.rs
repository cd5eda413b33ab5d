//! Inference of the label `service_name`, as Grafana Alloy infers it.

use athanor_profile::Labels;

/// Label with the annotation `pyroscope.io/service_name` of a pod.
const ANNOTATION_LABEL: &str = "__meta_kubernetes_pod_annotation_pyroscope_io_service_name";
/// Labels whose first present one is the name, after those of Kubernetes.
const CONTAINER_LABELS: [&str; 3] = [
    "__meta_docker_container_name",
    "__meta_dockerswarm_container_label_service_name",
    "__meta_dockerswarm_service_name",
];

/// Returns the name of the service from the labels after relabeling: that of its container, else the label `job` or
/// the name of the job.
pub(crate) fn infer_service_name(labels: &Labels, job_name: &str) -> String {
    let name = service_name_of_container(labels);
    name.unwrap_or_else(|| labels.get("job").unwrap_or(job_name).to_owned())
}

/// Returns the name of the service of a container from the labels after relabeling: the annotation of the pod, then
/// namespace and container, then the container or service of Docker.
pub(crate) fn service_name_of_container(labels: &Labels) -> Option<String> {
    if let Some(name) = labels.get(ANNOTATION_LABEL) {
        return Some(name.to_owned());
    }
    let namespace = labels.get("__meta_kubernetes_namespace");
    let container = labels.get("__meta_kubernetes_pod_container_name");
    if let (Some(namespace), Some(container)) = (namespace, container) {
        return Some(format!("{namespace}/{container}"));
    }
    CONTAINER_LABELS.iter().find_map(|label| labels.get(label)).map(str::to_owned)
}
