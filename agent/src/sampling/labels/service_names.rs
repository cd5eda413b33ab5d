//! Default of the label `service_name` of a sampled process.

use athanor_agent_ebpf::processes::ProcessFacts;
use athanor_profile::Labels;

use super::process_labels::{WORKLOAD_NAME_LABEL, clean_value, executable_name};
use crate::targets::service_name_of_container;

/// Service name of the threads of the kernel.
pub(in crate::sampling) const KERNEL_SERVICE: &str = "kernel";
/// Service name of processes outside of the PID namespace of the agent, and of those of which nothing is known.
const UNKNOWN_SERVICE: &str = "unknown";
/// End of the names of units that are services. Other units, such as sessions, are no services.
const SERVICE_UNIT_SUFFIX: &str = ".service";
/// Start of the name of the unit of a user's own service manager.
const USER_MANAGER_PREFIX: &str = "user@";

/// Returns the name of the service of a process. `labels` are the labels before or after relabeling.
///
/// The first that exists is the name: annotation of the pod, namespace and container, namespace and workload,
/// Docker name, systemd unit, name of the executable, name of the process.
pub(in crate::sampling) fn default_service_name(facts: &ProcessFacts, labels: &Labels) -> String {
    if facts.is_kernel_thread {
        return KERNEL_SERVICE.to_owned();
    }
    if let Some(name) = service_name_of_container(labels) {
        return name;
    }
    let namespace = labels.get("__meta_kubernetes_namespace");
    let workload = labels.get(WORKLOAD_NAME_LABEL).or_else(|| labels.get("__meta_kubernetes_pod_name"));
    if let (Some(namespace), Some(workload)) = (namespace, workload) {
        return format!("{namespace}/{workload}");
    }
    // A unit inside a container is that of the container's scope, or of an init inside.
    let unit = clean_value(&facts.systemd_unit);
    let is_service = unit.ends_with(SERVICE_UNIT_SUFFIX) && !unit.starts_with(USER_MANAGER_PREFIX);
    if is_service && facts.container.is_none() {
        return unit;
    }
    // Each hidden process would be a service of its own, with a name that it chooses.
    if facts.identity.pid == 0 {
        return UNKNOWN_SERVICE.to_owned();
    }
    let executable = clean_value(executable_name(&facts.executable));
    let names = [executable, clean_value(&facts.comm)];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| UNKNOWN_SERVICE.to_owned())
}
