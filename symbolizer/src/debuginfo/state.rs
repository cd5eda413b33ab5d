//! What may happen to debug information, as pure functions: how far its uploads are, and whether another one is wanted.
//!
//! ```text
//!  begun ─► sent ─┬─► finished     is there
//!    │       │    └─► invalid      is no ELF file: a file with another hash is wanted
//!    └───────┴──────► stale        took longer than it may: another one is wanted
//! ```

use std::time::Duration;

use athanor_storage::path::FileName;

/// Uploads that may be under way for one file: each forced one begins beside the others.
pub const PENDING: usize = 16;
/// Bits of an upload's number that are chance; those above are the moment at which it was begun, in milliseconds.
const CHANCE: u32 = 80;
/// Clocks of nodes differ, and the answer to what was sent last takes a while.
const GRACE: Duration = Duration::from_secs(120);

/// What of a binary. Each is kept by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Its debug sections.
    Debuginfo,
    /// The binary.
    Executable,
    /// An archive of what it was made of.
    Sources,
    /// Where its minified lines come from.
    SourceMap,
}

/// How far an upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing but remainders of it are there.
    Gone,
    /// It was announced.
    Begun,
    /// Its bytes are there.
    Sent,
    /// Its client knows that, and the file can be used.
    Finished,
    /// Its client knows that, and the file is none of its kind.
    Invalid,
}

/// An upload, as its notes tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Later ones have greater numbers.
    pub number: u128,
    /// How far it is.
    pub phase: Phase,
}

/// Why an upload is wanted or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    First,
    /// One was begun too long ago.
    Stale,
    /// One is under way.
    InProgress,
    /// One is under way, and another one is forced.
    InProgressForced,
    /// There is one.
    Exists,
    /// There is one, and another one is forced.
    ExistsForced,
    /// What there is is no file of its kind, and it is not said whether the other one differs.
    Invalid,
    /// It is, and the other one does not differ.
    Equal,
    /// It is, and the other one differs.
    NotEqual,
}

/// Who asks for an upload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Of the file that would come; empty if it is not known.
    pub hash: &'a str,
    /// Whether to take it in any case.
    pub force: bool,
}

/// When it is, and how long an upload may take.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Milliseconds since 1970.
    pub millis: i64,
    /// The limit of a tenant.
    pub longest: Duration,
}

// === impl Kind ===

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Debuginfo, Self::Executable, Self::Sources, Self::SourceMap];

    /// As part of a key.
    pub(crate) fn name(self) -> FileName {
        let name = match self {
            Self::Debuginfo => "debuginfo",
            Self::Executable => "executable",
            Self::Sources => "sources",
            Self::SourceMap => "source-map",
        };
        FileName::new(name).expect("letters and a dash")
    }

    /// Reads such a part.
    pub(crate) fn of(name: &FileName) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == *name)
    }

    /// Whether a file of this kind is an ELF file.
    pub const fn is_elf(self) -> bool {
        matches!(self, Self::Debuginfo | Self::Executable)
    }
}

// === impl Seen ===

impl Seen {
    /// Milliseconds since 1970 at which it was begun.
    pub fn begun_millis(&self) -> i64 {
        i64::try_from(self.number >> CHANCE).unwrap_or(i64::MAX)
    }

    /// Whether it waits for its client, and still may.
    pub fn is_pending(&self, now: Now) -> bool {
        matches!(self.phase, Phase::Begun | Phase::Sent) && !self.is_late(now)
    }

    /// Whether nobody needs its objects once there is a later upload that is finished, or one that is begun.
    pub fn is_over(&self, now: Now) -> bool {
        !self.is_pending(now)
    }

    fn is_late(&self, now: Now) -> bool {
        let longest = i64::try_from((now.longest + GRACE).as_millis()).unwrap_or(i64::MAX);
        self.begun_millis().saturating_add(longest) < now.millis
    }
}

/// The number of an upload that is begun now: later than those that are there, whichever clock these went by.
pub fn number(seen: &[Seen], millis: i64, chance: u128) -> u128 {
    let last = seen.iter().map(Seen::begun_millis).max();
    let millis = last.map_or(millis, |last| millis.max(last.saturating_add(1)));
    let moment = u128::try_from(millis).unwrap_or_default() << CHANCE;
    moment | (chance >> (u128::BITS - CHANCE))
}

/// The newest upload that counts: one that is late counts only if there is no other.
pub fn current(seen: &[Seen], now: Now) -> Option<Seen> {
    let known = || seen.iter().filter(|upload| upload.phase != Phase::Gone);
    let is_late = |upload: &Seen| matches!(upload.phase, Phase::Begun | Phase::Sent) && upload.is_late(now);
    let timely = known().filter(|upload| !is_late(upload)).max_by_key(|upload| upload.number);
    timely.or_else(|| known().max_by_key(|upload| upload.number)).copied()
}

/// Whether an upload is wanted beside the one that counts. `invalid` is the hash of that one, if it is known to be invalid.
pub fn judge(current: Option<Seen>, invalid: &str, asked: Asked<'_>, now: Now) -> Reason {
    let Some(current) = current else { return Reason::First };
    match (current.phase, asked.force) {
        (Phase::Gone, _) => Reason::First,
        (Phase::Begun | Phase::Sent, _) if current.is_late(now) => Reason::Stale,
        (Phase::Begun | Phase::Sent, true) => Reason::InProgressForced,
        (Phase::Begun | Phase::Sent, false) => Reason::InProgress,
        (Phase::Finished, true) => Reason::ExistsForced,
        (Phase::Finished, false) => Reason::Exists,
        (Phase::Invalid, _) if asked.hash.is_empty() => Reason::Invalid,
        (Phase::Invalid, _) if asked.hash == invalid => Reason::Equal,
        (Phase::Invalid, _) => Reason::NotEqual,
    }
}

impl Reason {
    /// Whether an upload is wanted.
    pub const fn accepts(self) -> bool {
        !matches!(self, Self::InProgress | Self::Exists | Self::Equal)
    }

    /// In the words by which agents know it.
    pub const fn text(self) -> &'static str {
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

    const NOW: Now = Now { millis: 1_000_000_000, longest: Duration::from_secs(900) };
    const LATE: i64 = 1_020_000;

    fn seen(phase: Phase, age_millis: i64, chance: u128) -> Seen {
        Seen { number: number(&[], NOW.millis - age_millis, chance << (u128::BITS - CHANCE)), phase }
    }

    fn asked(hash: &str, force: bool) -> Asked<'_> {
        Asked { hash, force }
    }

    #[test]
    fn each_state_has_its_reason() {
        use Reason::*;
        let judged =
            |phase, age, hash, force| judge(Some(seen(phase, age, 0)), "old", asked(hash, force), NOW);
        assert_eq!(judge(None, "", asked("", false), NOW), First);
        for phase in [Phase::Begun, Phase::Sent] {
            assert_eq!(judged(phase, LATE, "", false), InProgress);
            assert_eq!(judged(phase, LATE, "", true), InProgressForced);
            assert_eq!(judged(phase, LATE + 1, "", false), Stale);
            assert_eq!(judged(phase, LATE + 1, "", true), Stale);
        }
        assert_eq!(judged(Phase::Finished, LATE * 9, "", false), Exists);
        assert_eq!(judged(Phase::Finished, 0, "", true), ExistsForced);
        assert_eq!(judged(Phase::Invalid, 0, "", false), Invalid);
        assert_eq!(judged(Phase::Invalid, 0, "old", true), Equal);
        assert_eq!(judged(Phase::Invalid, 0, "new", false), NotEqual);
        let refused = [InProgress, Exists, Equal];
        let all =
            [First, Stale, InProgress, InProgressForced, Exists, ExistsForced, Invalid, Equal, NotEqual];
        assert!(all.into_iter().all(|reason| reason.accepts() != refused.contains(&reason)));
    }

    #[test]
    fn an_upload_that_was_given_up_does_not_hide_what_is_there() {
        let there = seen(Phase::Finished, 2 * LATE, 1);
        let given_up = seen(Phase::Begun, LATE + 1, 1);
        let under_way = seen(Phase::Begun, 5, 1);
        assert_eq!(current(&[there, given_up], NOW), Some(there));
        assert_eq!(current(&[given_up, seen(Phase::Gone, 1, 1)], NOW), Some(given_up));
        assert_eq!(current(&[there, under_way, given_up], NOW), Some(under_way));
        assert_eq!(current(&[seen(Phase::Gone, 1, 1)], NOW), None);
    }

    #[test]
    fn a_later_upload_has_a_greater_number_by_any_clock() {
        let ahead = seen(Phase::Finished, -60_000, 3);
        let behind = Seen { number: number(&[ahead], NOW.millis, 0), phase: Phase::Begun };
        assert!(behind.number > ahead.number);
        assert_eq!(behind.begun_millis(), NOW.millis + 60_001);
    }

    fn any_seen() -> impl Strategy<Value = Seen> {
        let phase = prop::sample::select(vec![
            Phase::Gone,
            Phase::Begun,
            Phase::Sent,
            Phase::Finished,
            Phase::Invalid,
        ]);
        (phase, 0..2 * LATE, 0..4u128).prop_map(|(phase, age, chance)| seen(phase, age, chance))
    }

    proptest! {
        /// Whatever uploads there are: what is refused can be forced or waits for nothing but time or other bytes.
        #[test]
        fn nobody_is_refused_for_ever(uploads in prop::collection::vec(any_seen(), 0..6), hash in "[ab]?") {
            let reason = |asked: Asked<'_>, millis| {
                let now = Now { millis, ..NOW };
                judge(current(&uploads, now), "a", asked, now)
            };
            let first = reason(asked(&hash, false), NOW.millis);
            let later = NOW.millis + LATE + 1;
            match first {
                Reason::InProgress => {
                    prop_assert!(reason(asked(&hash, true), NOW.millis).accepts());
                    prop_assert_ne!(reason(asked(&hash, false), later), Reason::InProgress);
                }
                Reason::Exists => prop_assert!(reason(asked(&hash, true), NOW.millis).accepts()),
                Reason::Equal => prop_assert!(reason(asked("other", false), NOW.millis).accepts()),
                accepted => prop_assert!(accepted.accepts()),
            }
            // What can be used stays so, however long one waits.
            if uploads.iter().any(|upload| upload.phase == Phase::Finished) {
                let last = reason(asked(&hash, false), later);
                prop_assert!(![Reason::First, Reason::Stale].contains(&last), "{last:?}");
            }
        }
    }
}
