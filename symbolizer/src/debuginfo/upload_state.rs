//! State machine of debug information uploads, as pure functions: upload phases, and decisions on new
//! uploads.
//!
//! ```text
//!  started ─► received ─┬─► complete   usable file
//!     │          │        └─► invalid    no ELF file: an upload of a file with another hash is accepted
//!     └──────────┴──────────► stale      exceeded the time limit: another upload is accepted
//! ```

use std::time::Duration;

use athanor_storage::path::FileName;

/// Maximum number of pending uploads of one file. Each forced upload runs concurrently with the others.
pub const MAX_PENDING_UPLOADS: usize = 16;
/// Random bits of an upload number. The bits above them are the start time, in milliseconds.
const RANDOM_NUMBER_BITS: u32 = 80;
/// Grace period for clock skew between nodes and for the response to the last message.
const STALE_UPLOAD_GRACE: Duration = Duration::from_secs(120);

/// Kinds of files of a binary. Each is stored separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebuginfoKind {
    /// Debug sections of the binary.
    Debuginfo,
    /// The binary itself.
    Executable,
    /// Archive of the source files.
    Sources,
    /// Source map of minified code.
    SourceMap,
}

/// Phases of an upload, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UploadPhase {
    /// Only remainders of a removed upload exist.
    Gone,
    /// The upload was announced.
    Started,
    /// All bytes are stored.
    Received,
    /// The client completed the upload and the file is usable.
    Complete,
    /// The client completed the upload and the file is not of its kind.
    Invalid,
}

/// Status of an upload, derived from its markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadStatus {
    /// Number of the upload. Later uploads have larger numbers.
    pub number: u128,
    /// Phase of the upload.
    pub phase: UploadPhase,
}

/// Decision on an upload, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadDecision {
    /// Accepted: no upload exists.
    First,
    /// Accepted: the previous upload is stale.
    Stale,
    /// Rejected: an upload is pending.
    InProgress,
    /// Accepted: an upload is pending, but the client forces another one.
    InProgressForced,
    /// Rejected: a usable file exists.
    Exists,
    /// Accepted: a usable file exists, but the client forces another one.
    ExistsForced,
    /// Accepted: the existing file is not of its kind, and the client sent no hash to compare.
    Invalid,
    /// Rejected: the existing file is not of its kind, and the new hash is equal.
    Equal,
    /// Accepted: the existing file is not of its kind, and the new hash differs.
    NotEqual,
}

/// Intent of a client to upload a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct UploadIntent<'a> {
    /// Hash of the new file; empty if unknown.
    pub hash: &'a str,
    /// True if the client forces the upload.
    pub force: bool,
}

/// Current time and time limit, the inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub struct DecisionContext {
    /// Current time in milliseconds since 1970.
    pub millis: i64,
    /// Maximum duration of an upload, from the tenant's limits.
    pub longest: Duration,
}

// === impl DebuginfoKind ===

impl DebuginfoKind {
    /// All kinds of files.
    pub const ALL: [Self; 4] = [Self::Debuginfo, Self::Executable, Self::Sources, Self::SourceMap];

    /// Returns the name of the kind in object keys.
    pub(crate) fn name(self) -> FileName {
        let name = match self {
            Self::Debuginfo => "debuginfo",
            Self::Executable => "executable",
            Self::Sources => "sources",
            Self::SourceMap => "source-map",
        };
        FileName::new(name).expect("letters and a dash")
    }

    /// Parses the name of a kind from an object key.
    pub(crate) fn from_name(name: &FileName) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == *name)
    }

    /// Returns whether files of this kind are ELF files.
    pub const fn is_elf(self) -> bool {
        matches!(self, Self::Debuginfo | Self::Executable)
    }
}

// === impl UploadStatus ===

impl UploadStatus {
    /// Returns the start time in milliseconds since 1970.
    pub fn started_millis(&self) -> i64 {
        i64::try_from(self.number >> RANDOM_NUMBER_BITS).unwrap_or(i64::MAX)
    }

    /// Returns whether the upload is unfinished and within its time limit.
    pub fn is_pending(&self, now: DecisionContext) -> bool {
        matches!(self.phase, UploadPhase::Started | UploadPhase::Received) && !self.is_expired(now)
    }

    /// Returns whether the objects are removable once a later upload is finished or pending.
    pub fn is_removable(&self, now: DecisionContext) -> bool {
        !self.is_pending(now)
    }

    fn is_expired(&self, now: DecisionContext) -> bool {
        let longest = i64::try_from((now.longest + STALE_UPLOAD_GRACE).as_millis()).unwrap_or(i64::MAX);
        self.started_millis().saturating_add(longest) < now.millis
    }
}

/// Returns the number of a new upload. It is larger than all present numbers, even if the clocks of nodes
/// differ.
pub fn next_upload_number(seen: &[UploadStatus], millis: i64, chance: u128) -> u128 {
    let last = seen.iter().map(UploadStatus::started_millis).max();
    let millis = last.map_or(millis, |last| millis.max(last.saturating_add(1)));
    let moment = u128::try_from(millis).unwrap_or_default() << RANDOM_NUMBER_BITS;
    moment | (chance >> (u128::BITS - RANDOM_NUMBER_BITS))
}

/// Returns the newest relevant upload. An expired upload is returned only if no other exists.
pub fn current_upload(seen: &[UploadStatus], now: DecisionContext) -> Option<UploadStatus> {
    let known = || seen.iter().filter(|upload| upload.phase != UploadPhase::Gone);
    let is_late = |upload: &UploadStatus| {
        matches!(upload.phase, UploadPhase::Started | UploadPhase::Received) && upload.is_expired(now)
    };
    let timely = known().filter(|upload| !is_late(upload)).max_by_key(|upload| upload.number);
    timely.or_else(|| known().max_by_key(|upload| upload.number)).copied()
}

/// Decides whether to accept an upload beside the current one. `invalid` is the current file's hash, if that
/// file is known to be invalid.
pub fn decide_upload(
    current: Option<UploadStatus>,
    invalid: &str,
    asked: UploadIntent<'_>,
    now: DecisionContext,
) -> UploadDecision {
    let Some(current) = current else { return UploadDecision::First };
    match (current.phase, asked.force) {
        (UploadPhase::Gone, _) => UploadDecision::First,
        (UploadPhase::Started | UploadPhase::Received, _) if current.is_expired(now) => UploadDecision::Stale,
        (UploadPhase::Started | UploadPhase::Received, true) => UploadDecision::InProgressForced,
        (UploadPhase::Started | UploadPhase::Received, false) => UploadDecision::InProgress,
        (UploadPhase::Complete, true) => UploadDecision::ExistsForced,
        (UploadPhase::Complete, false) => UploadDecision::Exists,
        (UploadPhase::Invalid, _) if asked.hash.is_empty() => UploadDecision::Invalid,
        (UploadPhase::Invalid, _) if asked.hash == invalid => UploadDecision::Equal,
        (UploadPhase::Invalid, _) => UploadDecision::NotEqual,
    }
}

impl UploadDecision {
    /// Returns whether the upload is accepted.
    pub const fn is_accepted(self) -> bool {
        !matches!(self, Self::InProgress | Self::Exists | Self::Equal)
    }

    /// Returns the reason as the text that agents expect.
    pub const fn reason_text(self) -> &'static str {
        match self {
            Self::First => "First time we see this Build ID, therefore please upload!",
            Self::Stale => {
                "A previous upload was started but not finished and is now stale, so it can be retried."
            }
            Self::InProgress => {
                "A previous upload is still in-progress and not stale yet (only stale uploads can be retried)."
            }
            Self::InProgressForced => {
                "A previous upload is in-progress, but accepting restart because it's requested to be forced."
            }
            Self::Exists => {
                "Debuginfo already exists and is not marked as invalid, therefore no new upload is needed."
            }
            Self::ExistsForced => {
                "Debuginfo already exists and is not marked as invalid, therefore wouldn't have accepted a new upload, but \
                 accepting it because it's requested to be forced."
            }
            Self::Invalid => {
                "Debuginfo already exists but is marked as invalid, therefore a new upload is needed. Hash the debuginfo \
                 and initiate the upload."
            }
            Self::Equal => {
                "Debuginfo already exists and is marked as invalid, but the proposed hash is the same as the one already \
                 available, therefore the upload is not accepted as it would result in the same invalid debuginfos."
            }
            Self::NotEqual => {
                "Debuginfo already exists but is marked as invalid, therefore a new upload will be accepted."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: DecisionContext = DecisionContext { millis: 1_000_000_000, longest: Duration::from_secs(900) };
    const LATE: i64 = 1_020_000;

    fn seen(phase: UploadPhase, age_millis: i64, chance: u128) -> UploadStatus {
        UploadStatus {
            number: next_upload_number(
                &[],
                NOW.millis - age_millis,
                chance << (u128::BITS - RANDOM_NUMBER_BITS),
            ),
            phase,
        }
    }

    fn asked(hash: &str, force: bool) -> UploadIntent<'_> {
        UploadIntent { hash, force }
    }

    #[test]
    fn each_state_has_its_reason() {
        use UploadDecision::*;
        let judged = |phase, age, hash, force| {
            decide_upload(Some(seen(phase, age, 0)), "old", asked(hash, force), NOW)
        };
        assert_eq!(decide_upload(None, "", asked("", false), NOW), First);
        for phase in [UploadPhase::Started, UploadPhase::Received] {
            assert_eq!(judged(phase, LATE, "", false), InProgress);
            assert_eq!(judged(phase, LATE, "", true), InProgressForced);
            assert_eq!(judged(phase, LATE + 1, "", false), Stale);
            assert_eq!(judged(phase, LATE + 1, "", true), Stale);
        }
        assert_eq!(judged(UploadPhase::Complete, LATE * 9, "", false), Exists);
        assert_eq!(judged(UploadPhase::Complete, 0, "", true), ExistsForced);
        assert_eq!(judged(UploadPhase::Invalid, 0, "", false), Invalid);
        assert_eq!(judged(UploadPhase::Invalid, 0, "old", true), Equal);
        assert_eq!(judged(UploadPhase::Invalid, 0, "new", false), NotEqual);
        let refused = [InProgress, Exists, Equal];
        let all =
            [First, Stale, InProgress, InProgressForced, Exists, ExistsForced, Invalid, Equal, NotEqual];
        assert!(all.into_iter().all(|reason| reason.is_accepted() != refused.contains(&reason)));
    }

    #[test]
    fn an_upload_that_was_given_up_does_not_hide_what_is_there() {
        let there = seen(UploadPhase::Complete, 2 * LATE, 1);
        let given_up = seen(UploadPhase::Started, LATE + 1, 1);
        let under_way = seen(UploadPhase::Started, 5, 1);
        assert_eq!(current_upload(&[there, given_up], NOW), Some(there));
        assert_eq!(current_upload(&[given_up, seen(UploadPhase::Gone, 1, 1)], NOW), Some(given_up));
        assert_eq!(current_upload(&[there, under_way, given_up], NOW), Some(under_way));
        assert_eq!(current_upload(&[seen(UploadPhase::Gone, 1, 1)], NOW), None);
    }

    #[test]
    fn a_later_upload_has_a_greater_number_by_any_clock() {
        let ahead = seen(UploadPhase::Complete, -60_000, 3);
        let behind =
            UploadStatus { number: next_upload_number(&[ahead], NOW.millis, 0), phase: UploadPhase::Started };
        assert!(behind.number > ahead.number);
        assert_eq!(behind.started_millis(), NOW.millis + 60_001);
    }

    fn any_seen() -> impl Strategy<Value = UploadStatus> {
        let phase = prop::sample::select(vec![
            UploadPhase::Gone,
            UploadPhase::Started,
            UploadPhase::Received,
            UploadPhase::Complete,
            UploadPhase::Invalid,
        ]);
        (phase, 0..2 * LATE, 0..4u128).prop_map(|(phase, age, chance)| seen(phase, age, chance))
    }

    proptest! {
        /// Whatever uploads there are: what is refused can be forced or waits for nothing but time or other bytes.
        #[test]
        fn nobody_is_refused_for_ever(uploads in prop::collection::vec(any_seen(), 0..6), hash in "[ab]?") {
            let reason = |asked: UploadIntent<'_>, millis| {
                let now = DecisionContext { millis, ..NOW };
                decide_upload(current_upload(&uploads, now), "a", asked, now)
            };
            let first = reason(asked(&hash, false), NOW.millis);
            let later = NOW.millis + LATE + 1;
            match first {
                UploadDecision::InProgress => {
                    prop_assert!(reason(asked(&hash, true), NOW.millis).is_accepted());
                    prop_assert_ne!(reason(asked(&hash, false), later), UploadDecision::InProgress);
                }
                UploadDecision::Exists => prop_assert!(reason(asked(&hash, true), NOW.millis).is_accepted()),
                UploadDecision::Equal => prop_assert!(reason(asked("other", false), NOW.millis).is_accepted()),
                accepted => prop_assert!(accepted.is_accepted()),
            }
            // What can be used stays so, however long one waits.
            if uploads.iter().any(|upload| upload.phase == UploadPhase::Complete) {
                let last = reason(asked(&hash, false), later);
                prop_assert!(![UploadDecision::First, UploadDecision::Stale].contains(&last), "{last:?}");
            }
        }
    }
}
