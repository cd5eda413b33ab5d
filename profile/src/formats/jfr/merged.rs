//! Conversion of a recording to one profile for file viewers, with a column for each value type of each
//! profile.

use super::profile_kinds::JfrProfileKind;
use super::{JfrError, JfrLimits, LabelsSnapshot, RecordingInfo, read};
use crate::data_model::model::{Profile, ValueType};
use crate::data_model::stack_copier::StackCopier;
use crate::formats::pprof::{self, DecodeError};

/// Default sampling rate of async-profiler and the JDK, in samples per second.
const DEFAULT_SAMPLE_RATE_HZ: u32 = 100;

/// Reason why a recording cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// The recording cannot be decoded.
    #[error(transparent)]
    Recording(#[from] JfrError),
    /// The merged profile exceeds a limit.
    #[error("flight recording: {0}")]
    Limit(String),
}

/// Decodes all profiles of a recording into one.
pub fn read_merged(raw: &[u8], limits: &pprof::DecodeLimits) -> Result<Profile, RecordingError> {
    let bytes = limits.bytes;
    // Each row has a column of eight bytes for every value type of all kinds, of which there are fewer than
    // 16.
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
        let mut copier = StackCopier::new(&one.dictionary);
        for (stack, labels, values) in one.samples.rows(one.header.types.len()) {
            row[first..first + values.len()].copy_from_slice(values);
            let stack = copier.copy_stack(stack, &mut whole.dictionary);
            let labels = whole.dictionary.adopt_labels(&one.dictionary, labels);
            whole.samples.push(stack, labels, &row);
        }
    }
    whole.compact();
    Ok(whole)
}

/// Returns a type name that is unique across kinds. Both kinds of waiting use the same type names, so the
/// metric is prepended.
fn unique_type_name(kind: &JfrProfileKind, name: &str) -> String {
    match name {
        "contentions" | "delay" => format!("{}_{name}", kind.metric),
        _ => name.to_owned(),
    }
}
