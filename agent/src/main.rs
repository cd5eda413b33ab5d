//! The `athanor-agent` binary.

use std::process::ExitCode;

#[global_allocator]
static GLOBAL_ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Settings of the allocator, which reads them by this name. Its background threads would start before `main` and keep
/// the capabilities that the agent drops.
#[expect(unsafe_code, reason = "the allocator finds its settings by the name of a symbol")]
#[unsafe(export_name = "malloc_conf")]
pub static MALLOC_CONF: &[u8; 24] = b"background_thread:false\0";

fn main() -> ExitCode {
    athanor_agent::command_line::run_command_line()
}
