//! Encodes the stacks of a profile as pprof.

use athanor_agent_ebpf::profiles::{UnnamedFrames, encode_pprof};
use athanor_agent_ebpf::window::SampleWindow;

use crate::config::SymbolizeMode;

/// Encodes stacks of a window, by their indexes. All frames have their address and mapping, so the server can look up
/// better names. A frame without a name gets file and address as its name, unless names are left to the server.
pub fn encode_profile(window: &SampleWindow, stacks: &[usize], symbolize: SymbolizeMode) -> Vec<u8> {
    let stacks = stacks.iter().filter_map(|&index| window.stacks.get(index));
    let unnamed = match symbolize {
        SymbolizeMode::Local => UnnamedFrames::Display,
        SymbolizeMode::None => UnnamedFrames::AddressOnly,
    };
    encode_pprof(window, stacks, unnamed)
}
