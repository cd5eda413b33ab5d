//! Loading of the BPF object, and the reasons why a kernel refuses it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use aya::maps::{Map, MapData, MapError};
use aya::programs::{PerfEvent, ProgramError};
use aya::{Ebpf, EbpfError, EbpfLoader};
use rustix::thread::CapabilitySet;

use super::capabilities::effective_capabilities;
use super::config::{KernelConfig, ring_bytes};
use super::error::KernelError;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../prebuilt/sampler.bpf.o");

const PROGRAM: &str = "on_cpu_clock";
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const PERF_EVENT_PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Kernels of Debian and Ubuntu have levels above, where CAP_PERFMON is not enough.
const MAX_UPSTREAM_PARANOIA: i32 = 2;
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// Last lines of the verifier's output in an error.
const MAX_LOG_LINES: usize = 6;

/// Loaded program and its maps.
pub(super) struct LoadedObject {
    bpf: Ebpf,
    /// Program, not attached.
    pub(super) program: OwnedFd,
    /// Instructions that the verifier processed, if the kernel counts them.
    pub(super) verified_instructions: Option<u32>,
    /// Descriptors of all maps.
    pub(super) descriptors: Vec<OwnedFd>,
}

impl LoadedObject {
    /// Creates the maps and loads the program.
    pub(super) fn load(config: &KernelConfig, possible_cpus: u32) -> Result<Self, KernelError> {
        let mut loader = EbpfLoader::new();
        loader
            .map_max_entries("cpu_states", possible_cpus)
            .map_max_entries("counts_0", config.max_stacks.max(1))
            .map_max_entries("counts_1", config.max_stacks.max(1))
            .map_max_entries("pages", config.max_pages.max(1))
            .map_max_entries("processes", config.max_processes.max(1))
            .map_max_entries("mappings", config.max_mappings.max(1))
            .map_max_entries("stacks", ring_bytes(config.stacks_ring_bytes))
            .map_max_entries("requests", ring_bytes(config.requests_ring_bytes));
        let mut bpf = loader.load(OBJECT).map_err(explain_object_error)?;
        let program: &mut PerfEvent = bpf
            .program_mut(PROGRAM)
            .ok_or_else(|| KernelError::Object(format!("the object has no program {PROGRAM}")))?
            .try_into()
            .map_err(explain_program_error)?;
        program.load().map_err(explain_program_error)?;
        let verified_instructions =
            program.info().ok().and_then(|information| information.verified_instruction_count());
        let descriptor = program.fd().map_err(explain_program_error)?;
        let program = duplicate(descriptor.as_fd())?;
        let descriptors =
            bpf.maps().map(|(_, map)| duplicate(map_data(map)?.fd().as_fd())).collect::<Result<_, _>>()?;
        Ok(Self { bpf, program, verified_instructions, descriptors })
    }

    /// Takes a map out of the object.
    pub(super) fn take<M: TryFrom<Map, Error = MapError>>(&mut self, name: &str) -> Result<M, KernelError> {
        let map = self.take_map(name)?;
        map.try_into().map_err(|error| KernelError::Map { operation: "open a map of the BPF object", error })
    }

    /// Takes the descriptor of a map out of the object.
    pub(super) fn take_descriptor(&mut self, name: &str) -> Result<OwnedFd, KernelError> {
        let map = self.take_map(name)?;
        duplicate(map_data(&map)?.fd().as_fd())
    }

    /// Returns the descriptor of a map that is still in the object.
    pub(super) fn duplicate_descriptor(&self, name: &str) -> Result<OwnedFd, KernelError> {
        let map =
            self.bpf.map(name).ok_or_else(|| KernelError::Object(format!("the object has no map {name}")))?;
        duplicate(map_data(map)?.fd().as_fd())
    }

    fn take_map(&mut self, name: &str) -> Result<Map, KernelError> {
        self.bpf.take_map(name).ok_or_else(|| KernelError::Object(format!("the object has no map {name}")))
    }
}

fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, KernelError> {
    descriptor.try_clone_to_owned().map_err(|error| KernelError::call("duplicate a descriptor", error))
}

fn map_data(map: &Map) -> Result<&MapData, KernelError> {
    match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::LpmTrie(data)
        | Map::PerCpuArray(data)
        | Map::RingBuf(data) => Ok(data),
        _ => Err(KernelError::Object("the object has a map of an unknown type".into())),
    }
}

/// Explains the failure of an operation that needs privileges.
pub(super) fn explain_refusal(operation: String, error: io::Error) -> KernelError {
    if !is_permission_error(&error) {
        return KernelError::call(operation, error);
    }
    let mode = lockdown_mode(&read_text(LOCKDOWN));
    if mode == "confidentiality" {
        return KernelError::Lockdown { mode, operation };
    }
    let effective = effective_capabilities().unwrap_or(CapabilitySet::empty());
    KernelError::MissingCapability { operation, missing: missing_capabilities(effective), error }
}

/// Explains the failure to open a perf event.
pub(super) fn explain_event_refusal(operation: String, error: io::Error) -> KernelError {
    let effective = effective_capabilities().unwrap_or(CapabilitySet::empty());
    let has_perfmon = effective.contains(CapabilitySet::PERFMON);
    let level = read_text(PERF_EVENT_PARANOID).parse().unwrap_or(0);
    let is_restricted = level > MAX_UPSTREAM_PARANOIA && !effective.contains(CapabilitySet::SYS_ADMIN);
    if is_permission_error(&error) && has_perfmon && is_restricted {
        return KernelError::PerfEventsRestricted { operation, level };
    }
    explain_refusal(operation, error)
}

fn is_permission_error(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

fn missing_capabilities(effective: CapabilitySet) -> String {
    let needed = [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];
    let missing: Vec<_> =
        needed.iter().filter(|(set, _)| !effective.contains(*set)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return "no capability, so a user namespace, a seccomp filter or a security module forbids it".into();
    }
    missing.join(" and ")
}

/// Returns the mode in brackets, empty if there is none.
fn lockdown_mode(text: &str) -> String {
    let after = text.split_once('[').map_or("", |(_, after)| after);
    after.split_once(']').map_or("", |(mode, _)| mode).to_owned()
}

fn read_text(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn explain_object_error(error: EbpfError) -> KernelError {
    match error {
        EbpfError::MapError(MapError::CreateError { name, io_error }) => {
            explain_refusal(format!("create the BPF map {name}"), io_error)
        }
        EbpfError::ProgramError(error) => explain_program_error(error),
        _ if !Path::new(KERNEL_TYPES).exists() => KernelError::MissingBtf,
        EbpfError::BtfError(aya_btf_error) => explain_btf_error(&aya_btf_error),
        other => KernelError::Object(error_chain(&other)),
    }
}

/// Explains the failure to load type information, the first call that needs a capability.
fn explain_btf_error(error: &aya::BtfError) -> KernelError {
    match error {
        aya::BtfError::LoadError { io_error, .. } => {
            let copy = io::Error::from_raw_os_error(io_error.raw_os_error().unwrap_or(libc::EINVAL));
            explain_refusal("load type information of the BPF program".into(), copy)
        }
        other => KernelError::Object(error_chain(other)),
    }
}

fn explain_program_error(error: ProgramError) -> KernelError {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            explain_load_error(io_error, &verifier_log.to_string(), &read_text(RELEASE))
        }
        ProgramError::SyscallError(call) => explain_refusal(format!("call {}", call.call), call.io_error),
        other => KernelError::Object(error_chain(&other)),
    }
}

/// Finds the reason in the output of the verifier.
fn explain_load_error(error: io::Error, log: &str, release: &str) -> KernelError {
    const BPF_LOOP_NUMBER: &str = "#181";
    let release = release.to_owned();
    if log.contains(BPF_LOOP_NUMBER) {
        return KernelError::OldKernel { release, feature: "the helper bpf_loop" };
    }
    if log.contains("preallocated") {
        return KernelError::OldKernel {
            release,
            feature: "hash maps without preallocation in perf event programs",
        };
    }
    if log.contains("#113") || log.contains("#115") {
        let mode = lockdown_mode(&read_text(LOCKDOWN));
        return KernelError::Lockdown { mode, operation: "read kernel memory in BPF programs".into() };
    }
    if log.contains("unknown func") || log.contains("invalid func") {
        return KernelError::OldKernel { release, feature: "a helper of BPF programs" };
    }
    if is_permission_error(&error) && log.trim().is_empty() {
        return explain_refusal("load the BPF program".into(), error);
    }
    KernelError::ProgramRefused { release, error, log: log_end(log) }
}

fn log_end(log: &str) -> String {
    let lines: Vec<_> = log.trim().lines().collect();
    let start = lines.len().saturating_sub(MAX_LOG_LINES);
    lines.get(start..).unwrap_or_default().join(" | ")
}

/// Joins an error and its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(log: &str) -> KernelError {
        explain_load_error(io::Error::from_raw_os_error(libc::EINVAL), log, "5.15.0")
    }

    #[test]
    fn load_error_of_old_kernel_names_kernels_that_have_the_feature() {
        let no_loop = explain("57: (85) call unknown#181\ninvalid func unknown#181\n").to_string();
        assert!(
            no_loop.contains("5.15.0 lacks the helper bpf_loop") && no_loop.contains("5.17"),
            "{no_loop}"
        );
        let no_hash = explain("perf_event programs can only use preallocated hash map\n").to_string();
        assert!(no_hash.contains("without preallocation") && no_hash.contains("6.1"), "{no_hash}");
        let other = explain(&format!("{}\ninvalid mem access 'scalar'\n", "line\n".repeat(1000))).to_string();
        assert!(other.ends_with("| invalid mem access 'scalar'") && other.len() < 200, "{other}");
    }

    #[test]
    fn lockdown_mode_is_the_one_in_brackets() {
        assert_eq!(lockdown_mode("none integrity [confidentiality]"), "confidentiality");
        assert_eq!(lockdown_mode("[none] integrity confidentiality"), "none");
        assert_eq!(lockdown_mode(""), "");
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing_capabilities(CapabilitySet::empty()), "CAP_BPF and CAP_PERFMON");
        assert_eq!(missing_capabilities(CapabilitySet::BPF), "CAP_PERFMON");
        assert!(missing_capabilities(CapabilitySet::BPF | CapabilitySet::PERFMON).contains("seccomp"));
    }
}
