//! A recording as one profile, for those who look at a file: a column for each type of each of its profiles.

use super::kinds::Kind;
use super::{About, JfrError, Limits, Snapshot, read};
use crate::model::{Profile, ValueType};
use crate::pprof::{self, DecodeError};

/// How often async-profiler and the JDK look at threads unless they are told otherwise.
const SAMPLE_RATE: u32 = 100;

/// Why a recording is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WholeError {
    /// It cannot be read.
    #[error(transparent)]
    Recording(#[from] JfrError),
    /// What was made of it is over a limit.
    #[error("flight recording: {0}")]
    Limit(String),
}

/// Reads all profiles of a recording into one.
pub fn whole(raw: &[u8], limits: &pprof::Limits) -> Result<Profile, WholeError> {
    let bytes = limits.bytes;
    // Each row has a column for every type, of which there are sixteen.
    let own = Limits { samples: limits.samples.min(bytes / 128), profile: bytes / 4, ..Limits::of(bytes) };
    let about = About { sample_rate: SAMPLE_RATE, ..About::default() };
    let recording = read(raw, &about, &Snapshot::default(), &own)?;
    let mut parts = Vec::with_capacity(recording.profiles.len());
    for made in recording.profiles {
        parts.push((made.kind, made.pprof?));
    }
    parts.retain(|(_, pprof)| !pprof.is_empty());
    join(&parts, limits).map_err(|error| WholeError::Limit(error.to_string()))
}

fn join(parts: &[(&'static Kind, Vec<u8>)], limits: &pprof::Limits) -> Result<Profile, DecodeError> {
    let mut whole = Profile::default();
    let width: usize = parts.iter().map(|(kind, _)| kind.types.len()).sum();
    for (kind, pprof) in parts {
        let (one, _) = pprof::decode(pprof, limits)?;
        let first = whole.header.types.len();
        let types = kind.types.iter().map(|(name, unit)| ValueType::new(&shown(kind, name), unit));
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
fn shown(kind: &Kind, name: &str) -> String {
    match name {
        "contentions" | "delay" => format!("{}_{name}", kind.metric),
        _ => name.to_owned(),
    }
}
