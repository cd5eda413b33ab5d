//! Turns `protos/` into Rust, with a compiler that is itself Rust: no protoc has to be installed.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use prost::Message;

/// Those that no other one imports.
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

/// A moment is JSON in a form of its own: see `src/moment.rs`.
const TIMESTAMP_MAPPING: [&str; 2] = [".google.protobuf.Timestamp", "crate::google::protobuf::Timestamp"];

/// Messages whose Rust types are written by hand: see `src/sandwich.rs`.
const HANDWRITTEN_MESSAGES: [[&str; 2]; 2] = [
    [".querier.v1.SandwichTree", "crate::sandwich::SandwichTree"],
    [".querier.v1.SandwichNode", "crate::sandwich::SandwichNode"],
];
/// Read from JSON by hand, so that a name that is not known is told from none: see `src/profile_format.rs`.
const PROFILE_FORMAT_ENUM: &str = ".querier.v1.ProfileFormat";

/// What nodes say to each other.
const INTERNAL_PROTOS: [&str; 5] = [
    "athanor/internal/v1/raft.proto",
    "athanor/internal/v1/shards.proto",
    "athanor/internal/v1/catalogue.proto",
    "athanor/internal/v1/gateways.proto",
    "athanor/internal/v1/queriers.proto",
];

/// What clients may also write and read as JSON.
const JSON_PACKAGES: [&str; 13] = [
    ".adhocprofiles",
    ".push",
    ".querier",
    ".types",
    ".google.v1",
    ".debuginfo",
    ".grpc",
    ".athanor.v1",
    ".settings",
    ".capabilities",
    ".version",
    ".vcs",
    ".parca",
];

/// Lets numbers of 64 bits, which JSON has in quotes, be written straight to where they go, rather than to a text each that
/// is then copied: most of a flame graph is numbers. See `src/quoted.rs`.
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

/// How the messages of these packages are JSON.
fn write_json(builder: &pbjson_build::Builder, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut quoted = 0;
    for (package, made) in builder.generate(&JSON_PACKAGES, |_| Ok(Vec::new()))? {
        let made = String::from_utf8(made)?;
        let lines: Vec<Cow<'_, str>> = made.lines().map(quoted_in_place).collect();
        quoted += lines.iter().filter(|line| matches!(line, Cow::Owned(_))).count();
        fs::write(folder.join(format!("{package}.serde.rs")), lines.join("\n"))?;
    }
    if quoted == 0 {
        return Err("numbers in quotes are made otherwise than before: see quoted_in_place".into());
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a build script is told by its environment where to write")]
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
    // Clients of tomorrow send fields and names of enums that this one does not know.
    let mut json = pbjson_build::Builder::new();
    json.register_descriptors(&descriptors)?.ignore_unknown_fields().ignore_unknown_enum_variants();
    json.extern_path(TIMESTAMP_MAPPING[0], TIMESTAMP_MAPPING[1]);
    for [message, made] in HANDWRITTEN_MESSAGES {
        json.extern_path(message, made);
    }
    json.exclude(HANDWRITTEN_MESSAGES.map(|[message, _]| message)).exclude([PROFILE_FORMAT_ENUM]);
    write_json(&json, Path::new(&env::var("OUT_DIR")?))?;
    // Streams are not made here: whoever has one hands it in.
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .compile_fds(protox::compile(INTERNAL_PROTOS, ["protos"])?)?;
    Ok(())
}
