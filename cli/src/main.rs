//! The `athanor` binary.

use std::process::ExitCode;

#[global_allocator]
static GLOBAL_ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    athanor_cli::run_command_line()
}
