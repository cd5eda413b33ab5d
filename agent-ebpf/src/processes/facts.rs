//! Facts of a process: the source of its labels.

use std::sync::Arc;

/// Identity of a process between two execs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Process id in the PID namespace of the agent. 0 if it is not visible there.
    pub pid: u32,
    /// Process id in the initial namespace.
    pub host_pid: u32,
    /// Start since boot.
    pub start_nanos: u64,
    /// Number that changes with each exec.
    pub exec_id: u32,
}

/// Facts of a process. Texts are as the host gave them: the agent escapes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Identity.
    pub identity: ProcessIdentity,
    /// Parent process. 0 if it is unknown.
    pub parent_pid: u32,
    /// Oldest ancestor to which records of forks lead: one that ran before the sampler. The process itself if it did.
    pub oldest_ancestor_pid: u32,
    /// Thread of the kernel, without memory of its own.
    pub is_kernel_thread: bool,
    /// Name of the process.
    pub comm: Arc<str>,
    /// Arguments, at most 4 KiB, separated by spaces.
    pub command_line: Arc<str>,
    /// Path of the executable as the process sees it. Empty if unknown.
    pub executable: Arc<str>,
    /// Build id of the executable in hex. Empty if unknown.
    pub build_id: Arc<str>,
    /// Compiler of the executable: `go1.22.1`, `GCC: (Debian …)`, `rustc …`. Empty if unknown.
    pub compiler: Arc<str>,
    /// The executable is statically linked. None if unknown.
    pub is_static: Option<bool>,
    /// The executable has no symbol table. None if unknown.
    pub is_stripped: Option<bool>,
    /// Path of the cgroup. Empty if unknown.
    pub cgroup: Arc<str>,
    /// Container, by the last container id in the path of the cgroup.
    pub container: Option<ContainerFacts>,
    /// Systemd unit of the cgroup. Empty if none.
    pub systemd_unit: Arc<str>,
    /// Systemd slice of the cgroup. Empty if none.
    pub systemd_slice: Arc<str>,
    /// Real user id. None if unknown.
    pub user_id: Option<u32>,
    /// Allowed environment variables.
    pub environment: Vec<(Arc<str>, Arc<str>)>,
}

/// Container of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Id: 64 hex digits. In ECS the 32 hex digits of the task, a dash and a number.
    pub id: Arc<str>,
    /// Runtime.
    pub runtime: ContainerRuntime,
    /// UID of the Kubernetes pod, with dashes. None outside of Kubernetes.
    pub pod_uid: Option<Arc<str>>,
}

/// Runtime of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerRuntime {
    /// containerd.
    Containerd,
    /// CRI-O.
    CriO,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// The path does not name it.
    Unknown,
}

impl ContainerRuntime {
    /// Returns the name in labels, as in the container ids of Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::CriO => "cri-o",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Unknown => "unknown",
        }
    }
}
