//! Compiles `protos/` to Rust. The compiler is a Rust crate, so the build needs no installed protoc.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use prost::Message;

/// Files of the public packages that no other file imports.
const ROOT_PROTOS: [&str; 13] = [
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
    "parca/debuginfo/v1alpha1/debuginfo.proto",
    "parca/profilestore/v1alpha1/profilestore.proto",
];

/// Message with a JSON form of its own, and its Rust type: see `src/timestamp.rs`.
const TIMESTAMP_MAPPING: [&str; 2] = [".google.protobuf.Timestamp", "crate::google::protobuf::Timestamp"];

/// Messages whose Rust types are written by hand: see `src/sandwich.rs`.
const HANDWRITTEN_MESSAGES: [[&str; 2]; 2] = [
    [".querier.v1.SandwichTree", "crate::sandwich::SandwichTree"],
    [".querier.v1.SandwichNode", "crate::sandwich::SandwichNode"],
];
/// Enum with a handwritten JSON reader, which distinguishes an unknown name from a missing one: see
/// `src/profile_format.rs`.
const PROFILE_FORMAT_ENUM: &str = ".querier.v1.ProfileFormat";

/// Services between nodes.
const INTERNAL_PROTOS: [&str; 6] = [
    "athanor/internal/v1/raft.proto",
    "athanor/internal/v1/distributor.proto",
    "athanor/internal/v1/ingester.proto",
    "athanor/internal/v1/metastore.proto",
    "athanor/internal/v1/store_gateway.proto",
    "athanor/internal/v1/querier.proto",
];

/// Own packages whose messages have a JSON form. Unknown names and numbers of enums are errors.
const OWN_JSON_PACKAGES: [&str; 1] = [".athanor.v1"];

/// Packages of others whose messages have a JSON form. Unknown names and numbers of enums are the default, as on other
/// servers.
const JSON_PACKAGES: [&str; 12] = [
    ".adhocprofiles",
    ".push",
    ".querier",
    ".types",
    ".google.v1",
    ".debuginfo",
    ".grpc",
    ".settings",
    ".capabilities",
    ".version",
    ".vcs",
    ".parca",
];

/// Replaces the encoding of 64-bit numbers, which JSON has in quotes. The generated code allocates a text for each number,
/// the replacement writes to the output directly. Most of a flame graph is numbers. See `src/json_numbers.rs`.
fn quoted_in_place(line: &str) -> Cow<'_, str> {
    let list = (
        ".iter().map(ToString::to_string).collect::<Vec<_>>()",
        "&self.",
        "&crate::json_numbers::QuotedNumbers(&self.",
    );
    let one = (").as_str()", "ToString::to_string(&self.", "&crate::json_numbers::QuotedNumber(self.");
    for (end, begin, instead) in [list, one] {
        if line.contains(begin) && line.contains(end) && line.contains("ToString::to_string") {
            return line.replace(begin, instead).replace(end, ")").into();
        }
    }
    line.into()
}

/// Escapes the variant `Self` of an enum as prost does: pbjson writes the keyword as it is.
fn escape_self_variant(line: &str) -> String {
    line.replace("::Self =>", "::Self_ =>").replace("::Self)", "::Self_)")
}

/// Returns a generator of JSON code.
fn json_builder(descriptors: &[u8]) -> Result<pbjson_build::Builder, Box<dyn Error>> {
    // Newer clients may send unknown fields.
    let mut json = pbjson_build::Builder::new();
    json.register_descriptors(descriptors)?.ignore_unknown_fields();
    json.extern_path(TIMESTAMP_MAPPING[0], TIMESTAMP_MAPPING[1]);
    for [message, made] in HANDWRITTEN_MESSAGES {
        json.extern_path(message, made);
    }
    json.exclude(HANDWRITTEN_MESSAGES.map(|[message, _]| message)).exclude([PROFILE_FORMAT_ENUM]);
    Ok(json)
}

/// Writes the JSON code of all packages.
fn write_json(descriptors: &[u8], folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut quoted = 0;
    let own = json_builder(descriptors)?.generate(&OWN_JSON_PACKAGES, |_| Ok(Vec::new()))?;
    let mut others = json_builder(descriptors)?;
    others.ignore_unknown_enum_variants();
    let others = others.generate(&JSON_PACKAGES, |_| Ok(Vec::new()))?;
    for (package, made) in own.into_iter().chain(others) {
        let made = String::from_utf8(made)?;
        let made = escape_self_variant(&made);
        let lines: Vec<Cow<'_, str>> = made.lines().map(quoted_in_place).collect();
        quoted += lines.iter().filter(|line| matches!(line, Cow::Owned(_))).count();
        fs::write(folder.join(format!("{package}.serde.rs")), lines.join("\n"))?;
    }
    if quoted == 0 {
        return Err("generated code of 64-bit numbers has changed: see quoted_in_place".into());
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "cargo passes the output folder in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=protos");
    let files = protox::compile(ROOT_PROTOS, ["protos"])?;
    let descriptors = files.encode_to_vec();
    let mut messages = prost_build::Config::new();
    messages.bytes(["."]).extern_path(TIMESTAMP_MAPPING[0], TIMESTAMP_MAPPING[1]);
    for [message, made] in HANDWRITTEN_MESSAGES {
        messages.extern_path(message, made);
    }
    messages.compile_fds(files)?;
    write_json(&descriptors, Path::new(&env::var("OUT_DIR")?))?;
    // Callers pass their own channels to the clients.
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .compile_fds(protox::compile(INTERNAL_PROTOS, ["protos"])?)?;
    Ok(())
}
