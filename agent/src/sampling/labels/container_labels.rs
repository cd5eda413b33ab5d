//! Labels of containers that discovery knows.

use athanor_agent_ebpf::processes::ContainerFacts;
use athanor_profile::Labels;

/// Directory of the containers of the host.
pub trait ContainerLabels: Send + Sync + 'static {
    /// Returns the meta labels of a container, `__meta_kubernetes_*` or `__meta_docker_*`. None if it is not known
    /// yet.
    fn container_labels(&self, container: &ContainerFacts) -> Option<Labels>;
}

/// Directory of a host whose containers are unknown.
impl ContainerLabels for () {
    fn container_labels(&self, _: &ContainerFacts) -> Option<Labels> {
        None
    }
}
