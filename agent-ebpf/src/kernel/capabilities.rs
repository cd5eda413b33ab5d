//! Capabilities of the process.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use super::error::KernelError;

/// Capabilities that the sampler uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities;

impl Capabilities {
    /// Without these there are no samples, or none of other users' processes.
    pub const REQUIRED: CapabilitySet =
        CapabilitySet::BPF.union(CapabilitySet::PERFMON).union(CapabilitySet::SYS_PTRACE);
}

/// Returns the effective capabilities of the calling thread.
///
/// # Errors
///
/// Fails if the kernel refuses the call.
pub fn effective_capabilities() -> Result<CapabilitySet, KernelError> {
    let sets = capabilities(None).map_err(|error| KernelError::call("read capabilities", error.into()))?;
    Ok(sets.effective)
}

/// Drops all capabilities but those of `kept`, also for programs that the process starts. Capabilities belong to
/// threads: the caller drops them before it starts any.
///
/// # Errors
///
/// Fails if the kernel refuses the call.
pub fn drop_capabilities_except(kept: CapabilitySet) -> Result<(), KernelError> {
    let sets = capabilities(None).map_err(|error| KernelError::call("read capabilities", error.into()))?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(kept).iter() {
            // A kernel that does not know the capability does not grant it.
            remove_capability_from_bounding_set(capability).ok();
        }
    }
    clear_ambient_capability_set()
        .map_err(|error| KernelError::call("clear ambient capabilities", error.into()))?;
    let reduced = CapabilitySets {
        effective: sets.effective.intersection(kept),
        permitted: sets.permitted.intersection(kept),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, reduced).map_err(|error| KernelError::call("drop capabilities", error.into()))
}
