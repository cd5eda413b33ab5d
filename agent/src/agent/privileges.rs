//! Capabilities of the process: what the sampler needs, and what the agent gives up.
//!
//! A capability belongs to a thread, so [`prepare_privileges`] runs before the agent starts any. With a sampler, the
//! agent keeps the three capabilities of the sampler and drops all others. It keeps more in three cases:
//!
//! - `sampler.extra_capabilities` names `CAP_SYSLOG`, `CAP_DAC_READ_SEARCH` or `CAP_CHECKPOINT_RESTORE`.
//! - A configured port is below 1024: `CAP_NET_BIND_SERVICE`.
//! - The spool folder belongs to another user: `CAP_DAC_OVERRIDE`, since undelivered profiles are in it. Without the
//!   capability, root is a user like others.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use athanor_agent_ebpf::kernel::{Capabilities, drop_capabilities_except};
use athanor_agent_ebpf::symbols::KernelSymbolFile;
use athanor_chassis::{ErrorCode, Status};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::config::{AgentConfig, ExtraCapability, SamplerMode};
use crate::sampling::SamplerPhase;

const PROC_FOLDER: &str = "/proc";
/// Ports below need a capability.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;
/// Capabilities without which no host is sampled.
const SAMPLER_CAPABILITIES: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
];
const OWNER_WRITE: u32 = 0o300;
const GROUP_WRITE: u32 = 0o030;
const OTHERS_WRITE: u32 = 0o003;

/// Privileges of the process after its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedPrivileges {
    /// Phase that the sampler begins with. `Starting` if it may run.
    pub phase: SamplerPhase,
    /// Warnings for the log.
    pub warnings: Vec<String>,
    /// Kallsyms, opened while the process had all its capabilities.
    pub kernel_symbols: Option<KernelSymbolFile>,
}

/// Returns the names of the capabilities that a sampler lacks.
pub fn missing_capabilities(held: CapabilitySet) -> Vec<&'static str> {
    let missing = SAMPLER_CAPABILITIES.iter().filter(|(capability, _)| !held.contains(*capability));
    missing.map(|(_, name)| *name).collect()
}

/// Drops the capabilities that the agent does not need, if it samples. The calling thread must be the only one.
///
/// # Errors
///
/// The kernel refuses, or `sampler.enabled` is true and the process lacks privileges.
pub fn prepare_privileges(config: &AgentConfig) -> Result<PreparedPrivileges, Status> {
    let held = capabilities(None).map_err(|error| no_capabilities(error, "read"))?;
    let missing = missing_capabilities(held.effective);
    match config.sampler.mode {
        SamplerMode::Off => return Ok(PreparedPrivileges::default()),
        _ if missing.is_empty() => {}
        SamplerMode::On => {
            let message = format!("sampler.enabled is true, and {}", missing_message(&missing));
            return Err(Status::new(ErrorCode::PermissionDenied, message));
        }
        SamplerMode::Auto => {
            let message = format!("the host is not sampled: {}", missing_message(&missing));
            let warnings = vec![message.clone()];
            return Ok(PreparedPrivileges {
                phase: SamplerPhase::Unprivileged(message),
                warnings,
                ..PreparedPrivileges::default()
            });
        }
    }
    let kernel_symbols = KernelSymbolFile::open(Path::new(PROC_FOLDER)).ok();
    let mut kept = kept_capabilities(config, held.effective);
    let mut warnings = Vec::new();
    set_sets(CapabilitySets { effective: kept, ..held })?;
    let foreign = spool_folders(config).into_iter().find(|folder| !is_own_folder(folder));
    if let Some(folder) = foreign.filter(|_| held.permitted.contains(CapabilitySet::DAC_OVERRIDE)) {
        kept |= CapabilitySet::DAC_OVERRIDE;
        warnings.push(format!(
            "kept CAP_DAC_OVERRIDE, because the spool folder {} belongs to another user; change its owner to user {} \
             with chown -R",
            folder.display(),
            geteuid().as_raw()
        ));
    }
    // The sets must be whole again to drop capabilities of the bounding set.
    set_sets(held)?;
    drop_capabilities_except(kept)
        .map_err(|error| Status::new(ErrorCode::PermissionDenied, error.to_string()))?;
    Ok(PreparedPrivileges { phase: SamplerPhase::Starting, warnings, kernel_symbols })
}

/// Drops all capabilities but the three of the sampler, for a command that samples. Returns kallsyms, opened before.
/// The calling thread must be the only one.
///
/// # Errors
///
/// The kernel refuses.
pub fn keep_sampler_capabilities() -> Result<Option<KernelSymbolFile>, Status> {
    let kernel_symbols = KernelSymbolFile::open(Path::new(PROC_FOLDER)).ok();
    drop_capabilities_except(Capabilities::REQUIRED)
        .map_err(|error| Status::new(ErrorCode::PermissionDenied, error.to_string()))?;
    Ok(kernel_symbols)
}

fn missing_message(missing: &[&str]) -> String {
    format!(
        "the process lacks {}; start the agent as root, for example `sudo athanor-agent`, give it the capabilities \
         with systemd's AmbientCapabilities or a container's capabilities.add, or set sampler.enabled to false",
        missing.join(", ")
    )
}

/// Returns the held capabilities that an agent with a sampler needs.
fn kept_capabilities(config: &AgentConfig, held: CapabilitySet) -> CapabilitySet {
    let mut kept = SAMPLER_CAPABILITIES.iter().map(|(capability, _)| *capability).collect::<CapabilitySet>();
    for extra in &config.sampler.extra_capabilities {
        kept |= match extra {
            ExtraCapability::Syslog => CapabilitySet::SYSLOG,
            ExtraCapability::DacReadSearch => CapabilitySet::DAC_READ_SEARCH,
            ExtraCapability::CheckpointRestore => CapabilitySet::CHECKPOINT_RESTORE,
        };
    }
    let addresses = [config.receive.listen_address, Some(config.operator_address)];
    let is_privileged = |address: SocketAddr| (1..FIRST_UNPRIVILEGED_PORT).contains(&address.port());
    if addresses.into_iter().flatten().any(is_privileged) {
        kept |= CapabilitySet::NET_BIND_SERVICE;
    }
    kept & held
}

/// Returns the folder of the spool, and those of its servers that exist.
fn spool_folders(config: &AgentConfig) -> Vec<PathBuf> {
    let folder = &config.spool.folder;
    let servers = config.servers.iter().map(|server| folder.join(&server.name));
    let mut folders = vec![folder.clone()];
    folders.extend(servers.filter(|server| server.exists()));
    folders
}

/// Returns whether the process owns a folder, or may create it, with the capabilities in effect.
fn is_own_folder(folder: &Path) -> bool {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    match std::fs::metadata(folder) {
        Ok(found) => return found.uid() == user && found.mode() & OWNER_WRITE == OWNER_WRITE,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(_) => return false,
    }
    for parent in folder.ancestors().skip(1) {
        // The last ancestor of a relative path is empty.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match std::fs::metadata(parent) {
            Ok(found) => {
                let bits = match found.uid() == user {
                    true => OWNER_WRITE,
                    false if found.gid() == group => GROUP_WRITE,
                    false => OTHERS_WRITE,
                };
                return found.is_dir() && found.mode() & bits == bits;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return false,
        }
    }
    false
}

fn set_sets(sets: CapabilitySets) -> Result<(), Status> {
    set_capabilities(None, sets).map_err(|error| no_capabilities(error, "drop"))
}

fn no_capabilities(error: Errno, action: &str) -> Status {
    let message = format!("failed to {action} capabilities: {error}; set sampler.enabled to false");
    Status::new(ErrorCode::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, parse};

    fn config(text: &str) -> AgentConfig {
        parse(text, Path::new("/etc/agent.yml"), &Environment::default()).unwrap()
    }

    #[test]
    fn sampler_keeps_three_capabilities_unless_settings_need_more() {
        let all = CapabilitySet::all();
        let sampler = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE;
        assert_eq!(kept_capabilities(&config(""), all), sampler);
        let extra = config("sampler: {extra_capabilities: [SYSLOG, CAP_DAC_READ_SEARCH]}");
        let expected = sampler | CapabilitySet::SYSLOG | CapabilitySet::DAC_READ_SEARCH;
        assert_eq!(kept_capabilities(&extra, all), expected);
        assert_eq!(
            kept_capabilities(&extra, sampler | CapabilitySet::SYSLOG),
            sampler | CapabilitySet::SYSLOG
        );
        let deleted = config("sampler: {extra_capabilities: [CHECKPOINT_RESTORE]}");
        assert_eq!(kept_capabilities(&deleted, all), sampler | CapabilitySet::CHECKPOINT_RESTORE);
        let port = config("receive: {listen_address: '0.0.0.0:80'}");
        assert_eq!(kept_capabilities(&port, all), sampler | CapabilitySet::NET_BIND_SERVICE);
        let free = config("operator: {listen_address: '127.0.0.1:0'}");
        assert_eq!(kept_capabilities(&free, all), sampler);
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing_capabilities(CapabilitySet::all()), [""; 0]);
        let held = CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
        assert_eq!(missing_capabilities(held), ["CAP_PERFMON", "CAP_SYS_PTRACE"]);
        assert!(missing_message(&["CAP_BPF"]).contains("sudo athanor-agent"));
    }

    #[test]
    fn folder_is_own_if_it_can_be_created_or_belongs_to_the_user() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("state/spool");
        assert!(is_own_folder(&spool) && is_own_folder(folder.path()));
        let set_mode = |mode| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o500);
        assert!(!is_own_folder(&spool) && !is_own_folder(folder.path()));
        set_mode(0o700);
        std::fs::write(folder.path().join("state"), "no folder").unwrap();
        assert!(!is_own_folder(&spool));
    }

    #[test]
    fn folder_of_another_user_is_not_own() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("spool");
        std::fs::create_dir(&spool).unwrap();
        let other = Some(geteuid().as_raw() + 1);
        // Only root may give a folder away.
        if std::os::unix::fs::chown(&spool, other, None).is_err() {
            println!("skip: needs CAP_CHOWN");
            return;
        }
        assert!(!is_own_folder(&spool));
        std::os::unix::fs::chown(folder.path(), other, None).unwrap();
        assert!(!is_own_folder(&folder.path().join("new")));
    }
}
