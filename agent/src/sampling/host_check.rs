//! The command `check --host`: what the host lacks to be sampled, and the way to get it.

use std::path::Path;

use athanor_agent_ebpf::kernel::{CapabilitySet, effective_capabilities};
use athanor_chassis::{ErrorCode, Status};

use super::labels::read_text;
use crate::privileges::missing_capabilities;

/// Inode of the initial PID namespace, which the kernel fixes.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Architecture that the BPF program unwinds.
const SUPPORTED_ARCHITECTURE: &str = "x86_64";
/// Mode of lockdown that forbids to read memory of the kernel.
const STRICT_LOCKDOWN: &str = "[confidentiality]";
/// Highest `kernel.perf_event_paranoid` that kernels without changes of distributions have.
const MAX_UPSTREAM_PARANOIA: i32 = 2;
/// Lines of kallsyms that are looked at.
const MAX_KALLSYMS_LINES: usize = 100;

/// State of a host that matters to the sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostState {
    /// Architecture of the agent.
    pub architecture: String,
    /// Capabilities in effect.
    pub capabilities: CapabilitySet,
    /// The kernel has type information.
    pub has_btf: bool,
    /// `kernel.perf_event_paranoid`. Empty without perf events.
    pub perf_event_paranoid: String,
    /// Modes of lockdown, with the one in force in brackets. Empty without lockdown.
    pub lockdown: String,
    /// A hierarchy of cgroups is mounted.
    pub has_cgroups: bool,
    /// Addresses of kernel functions are readable.
    pub has_kernel_addresses: bool,
    /// `/proc` is that of the PID namespace of the agent.
    pub is_own_proc: bool,
    /// PID namespace of the agent. Empty if it is unknown.
    pub pid_namespace: String,
}

/// Finding about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFinding {
    /// The host cannot be sampled. Otherwise profiles lack something.
    pub is_fatal: bool,
    /// Cause and way out.
    pub message: String,
}

impl HostState {
    /// Reads the state below a folder, usually `/`. `pid` is the process id of the agent.
    ///
    /// # Errors
    ///
    /// Capabilities cannot be read.
    pub fn read(root: &Path, pid: u32) -> Result<Self, Status> {
        let capabilities = effective_capabilities();
        let capabilities =
            capabilities.map_err(|error| Status::new(ErrorCode::Unavailable, error.to_string()))?;
        let link = |path: &str| {
            let target = std::fs::read_link(root.join(path)).unwrap_or_default();
            target.to_string_lossy().into_owned()
        };
        let mounts = read_text(&root.join("proc/self/mounts"));
        let file_system = |line: &str| line.split(' ').nth(2).unwrap_or_default().to_owned();
        let kallsyms = read_text(&root.join("proc/kallsyms"));
        let address = |line: &str| u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16);
        let setting = |name: &str| {
            let text = read_text(&root.join("proc/sys/kernel").join(name));
            text.trim().to_owned()
        };
        let perf_event_paranoid = setting("perf_event_paranoid");
        let mut addresses = kallsyms.lines().take(MAX_KALLSYMS_LINES).map(address);
        Ok(Self {
            architecture: std::env::consts::ARCH.to_owned(),
            capabilities,
            has_btf: root.join("sys/kernel/btf/vmlinux").exists(),
            perf_event_paranoid,
            lockdown: read_text(&root.join("sys/kernel/security/lockdown")).trim().to_owned(),
            has_cgroups: mounts.lines().any(|line| matches!(&*file_system(line), "cgroup" | "cgroup2")),
            has_kernel_addresses: addresses.any(|address| address.is_ok_and(|address| address != 0)),
            is_own_proc: link("proc/self") == pid.to_string(),
            pid_namespace: link("proc/self/ns/pid"),
        })
    }

    /// Returns what the host lacks, fatal findings first.
    pub fn findings(&self) -> Vec<HostFinding> {
        let mut findings = self.fatal_findings();
        findings.extend(self.limits());
        findings
    }

    fn fatal_findings(&self) -> Vec<HostFinding> {
        let mut messages = Vec::new();
        if self.architecture != SUPPORTED_ARCHITECTURE {
            messages.push(format!(
                "architecture {}: the sampler runs on {SUPPORTED_ARCHITECTURE} only; set sampler.enabled to false",
                self.architecture
            ));
        }
        messages.extend(missing_capabilities(self.capabilities).into_iter().map(|name| {
            format!(
                "capability {name}: run the agent as root, or add it to AmbientCapabilities of the systemd unit or to \
                 securityContext.capabilities.add of the container"
            )
        }));
        if self.perf_event_paranoid.is_empty() {
            messages.push(
                "perf events: kernel.perf_event_paranoid does not exist; use a kernel with CONFIG_PERF_EVENTS, and \
                 mount /proc"
                    .to_owned(),
            );
        } else if !self.capabilities.contains(CapabilitySet::PERFMON) && self.perf_event_paranoid != "-1" {
            messages.push(format!(
                "perf_event_paranoid is {}: without CAP_PERFMON no other process may be sampled; add the capability \
                 rather than lowering the setting",
                self.perf_event_paranoid
            ));
        }
        if !self.has_btf {
            messages.push(
                "BTF: /sys/kernel/btf/vmlinux does not exist; use a kernel with CONFIG_DEBUG_INFO_BTF, and mount /sys"
                    .to_owned(),
            );
        }
        if self.lockdown.contains(STRICT_LOCKDOWN) {
            messages.push(
                "lockdown is in mode confidentiality, which forbids to read memory of the kernel; boot with \
                 lockdown=integrity"
                    .to_owned(),
            );
        }
        if !self.is_own_proc {
            messages.push(
                "/proc belongs to another PID namespace than the agent; set hostPID: true, or mount proc in the \
                 container of the agent"
                    .to_owned(),
            );
        }
        messages.into_iter().map(|message| HostFinding { is_fatal: true, message }).collect()
    }

    fn limits(&self) -> Vec<HostFinding> {
        let mut messages = Vec::new();
        if self.is_own_proc && self.pid_namespace != INITIAL_PID_NAMESPACE {
            messages.push(
                "PID namespace: processes outside of the agent's container have neither names nor user frames; set \
                 hostPID: true, or start the container with --pid=host"
                    .to_owned(),
            );
        }
        let level = self.perf_event_paranoid.parse().unwrap_or(0);
        if level > MAX_UPSTREAM_PARANOIA && self.capabilities.contains(CapabilitySet::PERFMON) {
            messages.push(format!(
                "perf_event_paranoid is {level}, and some kernels of distributions then refuse CAP_PERFMON; if the \
                 sampler does not start, run sysctl kernel.perf_event_paranoid={MAX_UPSTREAM_PARANOIA}"
            ));
        }
        if !self.has_cgroups {
            messages.push(
                "cgroups: no hierarchy is mounted, so containers and units have no names; mount cgroup2 at \
                 /sys/fs/cgroup"
                    .to_owned(),
            );
        }
        if !self.has_kernel_addresses {
            messages.push(
                "kallsyms is restricted, so kernel functions have no names; start the agent with CAP_SYSLOG, or set \
                 kernel.kptr_restrict to 0 and kernel.perf_event_paranoid to 1"
                    .to_owned(),
            );
        }
        messages.into_iter().map(|message| HostFinding { is_fatal: false, message }).collect()
    }
}

/// Returns a line for each finding, and a last one with the result.
pub fn format_findings(findings: &[HostFinding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let kind = if finding.is_fatal { "missing" } else { "limited" };
        text.push_str(&format!("{kind}: {}\n", finding.message));
    }
    let fatal = findings.iter().filter(|finding| finding.is_fatal).count();
    text.push_str(&match fatal {
        0 => "the host can be sampled\n".to_owned(),
        count => format!("the host cannot be sampled: {count} missing\n"),
    });
    text
}
