//! A recording as one profile, for those who look at a file: a column for each type of each of its profiles.

use super::profile_kinds::JfrProfileKind;
use super::{JfrError, JfrLimits, LabelsSnapshot, RecordingInfo, read};
use crate::model::{Profile, ValueType};
use crate::pprof::{self, DecodeError};

/// How often async-profiler and the JDK look at threads unless they are told otherwise.
const DEFAULT_SAMPLE_RATE_HZ: u32 = 100;

/// Why a recording is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error(transparent)]
    Recording(#[from] JfrError),
    /// What was made of it is over a limit.
    #[error("flight recording: {0}")]
    Limit(String),
}

/// Reads all profiles of a recording into one.
pub fn read_merged(raw: &[u8], limits: &pprof::DecodeLimits) -> Result<Profile, RecordingError> {
    let bytes = limits.bytes;
    // Each row has a column for every type, of which there are sixteen.
    let own = JfrLimits {
        samples: limits.samples.min(bytes / 128),
        profile: bytes / 4,
        ..JfrLimits::for_bytes(bytes)
    };
    let about = RecordingInfo { sample_rate: DEFAULT_SAMPLE_RATE_HZ, ..RecordingInfo::default() };
    let recording = read(raw, &about, &LabelsSnapshot::default(), &own)?;
    let mut parts = Vec::with_capacity(recording.profiles.len());
    for made in recording.profiles {
        parts.push((made.kind, made.pprof?));
    }
    parts.retain(|(_, pprof)| !pprof.is_empty());
    merge_profiles(&parts, limits).map_err(|error| RecordingError::Limit(error.to_string()))
}

fn merge_profiles(
    parts: &[(&'static JfrProfileKind, Vec<u8>)],
    limits: &pprof::DecodeLimits,
) -> Result<Profile, DecodeError> {
    let mut whole = Profile::default();
    let width: usize = parts.iter().map(|(kind, _)| kind.types.len()).sum();
    for (kind, pprof) in parts {
        let (one, _) = pprof::decode(pprof, limits)?;
        let first = whole.header.types.len();
        let types = kind.types.iter().map(|(name, unit)| ValueType::new(&unique_type_name(kind, name), unit));
        if first == 0 {
            whole.header = one.header.clone();
            whole.header.types.clear();
        }
        whole.header.types.extend(types);
        whole.header.default_type.clone_from(&whole.header.types[0].kind);
        let mut row = vec![0; width];
        for (stack, labels, values) in one.samples.rows(one.header.types.len()) {
            row[first..first + values.len()].copy_from_slice(values);
            let stack = whole.dictionary.adopt_stack(&one.dictionary, stack);
            let labels = whole.dictionary.adopt_labels(&one.dictionary, labels);
            whole.samples.push(stack, labels, &row);
        }
    }
    whole.compact();
    Ok(whole)
}

/// Both kinds of waiting have types of equal names, so these say for what.
fn unique_type_name(kind: &JfrProfileKind, name: &str) -> String {
    match name {
        "contentions" | "delay" => format!("{}_{name}", kind.metric),
        _ => name.to_owned(),
    }
}
