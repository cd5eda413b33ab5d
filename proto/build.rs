//! Turns `protos/` into Rust, with a compiler that is itself Rust: no protoc has to be installed.

use std::error::Error;

use prost::Message;

/// Those that no other one imports.
const ROOTS: [&str; 11] = [
    "adhocprofiles/v1/adhocprofiles.proto",
    "capabilities/v1/feature_flags.proto",
    "settings/v1/recording_rules.proto",
    "settings/v1/setting.proto",
    "vcs/v1/vcs.proto",
    "version/v1/version.proto",
    "athanor/v1/explore.proto",
    "push/v1/push.proto",
    "querier/v1/querier.proto",
    "debuginfo/v1alpha1/debuginfo.proto",
    "grpc/health/v1/health.proto",
];

/// What nodes say to each other.
const INTERNAL: [&str; 5] = [
    "athanor/internal/v1/raft.proto",
    "athanor/internal/v1/shards.proto",
    "athanor/internal/v1/catalogue.proto",
    "athanor/internal/v1/gateways.proto",
    "athanor/internal/v1/queriers.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=protos");
    let files = protox::compile(ROOTS, ["protos"])?;
    let descriptors = files.encode_to_vec();
    prost_build::Config::new().bytes(["."]).compile_fds(files)?;
    // Clients of tomorrow send fields and names of enums that this one does not know.
    pbjson_build::Builder::new()
        .register_descriptors(&descriptors)?
        .ignore_unknown_fields()
        .ignore_unknown_enum_variants()
        .build(&[
            ".adhocprofiles",
            ".push",
            ".querier",
            ".types",
            ".google",
            ".debuginfo",
            ".grpc",
            ".athanor.v1",
            ".settings",
            ".capabilities",
            ".version",
            ".vcs",
        ])?;
    // Streams are not made here: whoever has one hands it in.
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .compile_fds(protox::compile(INTERNAL, ["protos"])?)?;
    Ok(())
}
