//! Labels of a process before relabeling: meta labels with the names of Parca, and a few that profiles keep.
//!
//! All texts come from the host and are hostile. Control characters are escaped, and long values are shortened.

use athanor_agent_ebpf::processes::ProcessFacts;
use athanor_profile::Labels;
use athanor_profile::render::printable::escape_control;

use super::host_facts::HostFacts;

/// End of the path of an executable that was deleted or replaced.
const DELETED_MARK: &str = " (deleted)";
pub(in crate::sampling) const WORKLOAD_NAME_LABEL: &str = "__meta_kubernetes_workload_name";
const WORKLOAD_KIND_LABEL: &str = "__meta_kubernetes_workload_kind";
const POD_UID_LABEL: &str = "__meta_kubernetes_pod_uid";
const DOCKER_NAME_LABEL: &str = "__meta_docker_container_name";
/// Label of a pod of a ReplicaSet. It is also the end of the ReplicaSet's name.
const TEMPLATE_HASH_LABEL: &str = "__meta_kubernetes_pod_label_pod_template_hash";
/// Minimum digits at the end of the name of a job that a CronJob made: minutes since 1970.
const MIN_CRON_JOB_DIGITS: usize = 8;
/// Maximum bytes of a value. Servers reject longer ones by default.
pub(in crate::sampling) const MAX_VALUE_BYTES: usize = 2048;

/// Process with what is known of its surroundings.
pub(in crate::sampling) struct ProcessContext<'a> {
    pub(in crate::sampling) facts: &'a ProcessFacts,
    /// Name of the thread, if stacks are counted by it.
    pub(in crate::sampling) thread: Option<&'a str>,
    /// Meta labels of its container.
    pub(in crate::sampling) container: Option<&'a Labels>,
    pub(in crate::sampling) host: &'a HostFacts,
}

impl ProcessContext<'_> {
    /// Returns the labels before relabeling.
    pub(in crate::sampling) fn labels(&self) -> Labels {
        let mut labels = self.container_labels();
        self.set_process_labels(&mut labels);
        self.set_host_labels(&mut labels);
        set_workload(&mut labels);
        self.set_kept_labels(&mut labels);
        labels
    }

    /// Returns the labels of the container, cleaned.
    fn container_labels(&self) -> Labels {
        let mut labels = Labels::default();
        for (name, value) in self.container.into_iter().flat_map(Labels::iter) {
            labels.set(name, &clean_value(value));
        }
        let Some(container) = &self.facts.container else { return labels };
        labels.set("__meta_container_id", &clean_value(&container.id));
        labels.set("__meta_container_runtime", container.runtime.name());
        if let Some(uid) = &container.pod_uid {
            labels.set(POD_UID_LABEL, &clean_value(uid));
        }
        labels
    }

    fn set_process_labels(&self, labels: &mut Labels) {
        let facts = self.facts;
        let identity = facts.identity;
        let pid = if identity.pid == 0 { identity.host_pid } else { identity.pid };
        labels.set("__meta_process_pid", &pid.to_string());
        if facts.parent_pid != 0 {
            labels.set("__meta_process_ppid", &facts.parent_pid.to_string());
        }
        let texts = [
            ("__meta_process_cmdline", &facts.command_line),
            ("__meta_process_comm", &facts.comm),
            ("__meta_process_cgroup", &facts.cgroup),
            ("__meta_process_executable_path", &facts.executable),
            ("__meta_process_executable_build_id", &facts.build_id),
            ("__meta_process_executable_compiler", &facts.compiler),
            ("__meta_systemd_unit", &facts.systemd_unit),
            ("__meta_systemd_slice", &facts.systemd_slice),
        ];
        for (name, value) in texts {
            labels.set(name, &clean_value(value));
        }
        labels.set("__meta_process_executable_name", &clean_value(executable_name(&facts.executable)));
        let truths = [
            ("__meta_process_executable_static", facts.is_static),
            ("__meta_process_executable_stripped", facts.is_stripped),
            ("__meta_process_kernel_thread", Some(facts.is_kernel_thread)),
        ];
        for (name, truth) in truths {
            labels.set(name, truth.map(|truth| if truth { "true" } else { "false" }).unwrap_or_default());
        }
        labels.set("__meta_thread_name", &clean_value(self.thread.unwrap_or_default()));
        if let Some(user) = facts.user_id {
            labels.set("__meta_process_user_id", &user.to_string());
            // A container has users of its own.
            let name = self.host.users.get(&user).filter(|_| facts.container.is_none());
            labels.set("__meta_process_user", &clean_value(name.map(String::as_str).unwrap_or_default()));
        }
        for (name, value) in &facts.environment {
            labels.set(&format!("__meta_env_var_{name}"), &clean_value(value));
        }
    }

    fn set_host_labels(&self, labels: &mut Labels) {
        let host = self.host;
        labels.set("__meta_system_kernel_release", &clean_value(&host.kernel_release));
        labels.set("__meta_system_kernel_machine", &clean_value(&host.kernel_machine));
        labels.set("__meta_system_cpu_model", &clean_value(&host.cpu_model));
        labels.set("__meta_system_numa_nodes", &clean_value(&host.numa_nodes));
        labels.set("__meta_system_node_name", &clean_value(&host.node));
        if host.is_cluster_node {
            labels.set("__meta_kubernetes_node_name", &clean_value(&host.node));
        }
    }

    /// Sets the labels that profiles keep unless a rule removes them.
    fn set_kept_labels(&self, labels: &mut Labels) {
        let value = |labels: &Labels, name: &str| labels.get(name).unwrap_or_default().to_owned();
        let docker = value(labels, DOCKER_NAME_LABEL);
        let container = match value(labels, "__meta_kubernetes_pod_container_name") {
            name if name.is_empty() => docker.trim_start_matches('/').to_owned(),
            name => name,
        };
        let kept = [
            ("namespace", value(labels, "__meta_kubernetes_namespace")),
            ("pod", value(labels, "__meta_kubernetes_pod_name")),
            ("container", container),
            ("node", value(labels, "__meta_system_node_name")),
            ("thread_name", value(labels, "__meta_thread_name")),
        ];
        for (name, value) in kept {
            labels.set(name, &value);
        }
    }
}

/// Sets the workload of a pod: the owner of its controller if the name of the controller shows it, else the
/// controller.
fn set_workload(labels: &mut Labels) {
    let kind = labels.get("__meta_kubernetes_pod_controller_kind").unwrap_or_default();
    let name = labels.get("__meta_kubernetes_pod_controller_name").unwrap_or_default();
    let deployment = labels
        .get(TEMPLATE_HASH_LABEL)
        .and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'))
        .filter(|_| kind == "ReplicaSet");
    let cron_job = name.rsplit_once('-').filter(|(_, minutes)| {
        kind == "Job" && minutes.len() >= MIN_CRON_JOB_DIGITS && minutes.bytes().all(|b| b.is_ascii_digit())
    });
    let workload_kind = match cron_job {
        _ if deployment.is_some() => "Deployment",
        Some(_) => "CronJob",
        None => kind,
    };
    let workload_name = deployment.or(cron_job.map(|(name, _)| name)).unwrap_or(name);
    let workload =
        [(WORKLOAD_KIND_LABEL, workload_kind.to_owned()), (WORKLOAD_NAME_LABEL, workload_name.to_owned())];
    for (label, value) in workload {
        labels.set(label, &value);
    }
}

/// Returns the last part of the path of an executable.
pub(in crate::sampling) fn executable_name(path: &str) -> &str {
    let path = path.strip_suffix(DELETED_MARK).unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns a text of the host as a value of a label: escaped and shortened.
pub(in crate::sampling) fn clean_value(text: &str) -> String {
    shorten(escape_control(shorten_text(text)))
}

/// Shortens a value to the maximum.
pub(in crate::sampling) fn shorten(mut value: String) -> String {
    let end = shorten_text(&value).len();
    value.truncate(end);
    value
}

fn shorten_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_VALUE_BYTES)]
}
