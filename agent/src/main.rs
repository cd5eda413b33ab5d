//! The `athanor-agent` binary.

use std::process::ExitCode;

#[global_allocator]
static GLOBAL_ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    athanor_agent::command_line::run_command_line()
}
