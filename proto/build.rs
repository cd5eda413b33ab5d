//! Turns `protos/` into Rust, with a compiler that is itself Rust: no protoc has to be installed.

use std::error::Error;

/// Those that no other one imports.
const ROOTS: [&str; 2] = ["push/v1/push.proto", "querier/v1/querier.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=protos");
    let files = protox::compile(ROOTS, ["protos"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(files)?;
    Ok(())
}
