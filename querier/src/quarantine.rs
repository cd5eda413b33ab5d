//! Questions that crashed whoever computed them are not asked a third time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::{Code, Status, TenantId};
use athanor_profile::hash::{self, Hash};
use athanor_query::{Ask, Heat, Points, TimeRange, What};

/// Crashes after which a question is refused.
const CRASHES: u32 = 2;
/// For how long.
const KEEP: Duration = Duration::from_secs(60 * 60);
/// Questions that are remembered.
const MOST: usize = 256;

/// Which questions crash.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// The latest at the end.
    crashed: Mutex<VecDeque<Crashed>>,
}

#[derive(Debug)]
struct Crashed {
    question: Question,
    times: u32,
    last: Duration,
}

/// A question, whatever its time: a dashboard asks again and again with a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question(Hash);

/// Whether a failure is that of a computation that panicked, here or at another node.
pub(crate) fn is_crash(status: &Status) -> bool {
    status.code == Code::Internal && status.message.starts_with("computation panicked")
}

impl Question {
    pub(crate) fn of(tenants: &[TenantId], ask: &Ask) -> Result<Self, Status> {
        let mut timeless = ask.clone();
        timeless.selection.time = TimeRange { from: 0, to: 0 };
        if let What::Points(Points { steps, .. }) | What::Heat(Heat { steps, .. }) = &mut timeless.what {
            (steps.start, steps.count) = (0, 0);
        }
        let packed = timeless.pack().map_err(|error| Status::of(&error))?;
        let names: Vec<Hash> = tenants.iter().map(|tenant| hash::bytes(tenant.as_str().as_bytes())).collect();
        Ok(Question(hash::list(&[hash::bytes(&packed), hash::list(&names)])))
    }
}

impl Quarantine {
    /// Refuses a question that has crashed too often.
    pub(crate) fn admit(&self, question: Question, now: Duration) -> Result<(), Status> {
        let mut crashed = self.crashed.lock().unwrap_or_else(PoisonError::into_inner);
        crashed.retain(|one| now.saturating_sub(one.last) < KEEP);
        match crashed.iter().find(|one| one.question == question) {
            Some(Crashed { times, last, .. }) if *times >= CRASHES => {
                let left = (KEEP - now.saturating_sub(*last)).as_secs().div_ceil(60);
                let message = format!(
                    "this query crashed {times} times, the limit is {CRASHES}: it is refused for {left} more minutes; \
                     ask differently, and report the crash that the log tells of"
                );
                Err(Status::new(Code::Internal, message))
            }
            _ => Ok(()),
        }
    }

    /// Remembers that a question crashed.
    pub(crate) fn crashed(&self, question: Question, now: Duration) {
        let mut crashed = self.crashed.lock().unwrap_or_else(PoisonError::into_inner);
        let at = crashed.iter().position(|one| one.question == question);
        let times = at.and_then(|at| crashed.remove(at)).map_or(0, |one| one.times);
        if crashed.len() >= MOST {
            crashed.pop_front();
        }
        crashed.push_back(Crashed { question, times: times + 1, last: now });
    }
}

#[cfg(test)]
mod tests {
    use athanor_query::{Bounds, Selection, Steps};

    use super::*;

    fn question(tenant: &str, to: i64) -> Question {
        let selection = Selection { time: TimeRange { from: 1, to }, ..Selection::default() };
        // A dashboard's grid moves with its time.
        let steps = Steps { start: to, step: 10, count: to.unsigned_abs() };
        let what = What::Points(Points { steps, ..Points::default() });
        let ask = Ask { selection, what, bounds: Bounds::default() };
        Question::of(&[tenant.parse().unwrap()], &ask).unwrap()
    }

    #[test]
    fn what_crashed_twice_is_refused_for_a_while() {
        let quarantine = Quarantine::default();
        let admit =
            |tenant, to, now| quarantine.admit(question(tenant, to), Duration::from_secs(now)).is_ok();
        quarantine.crashed(question("a", 5), Duration::from_secs(10));
        assert!(admit("a", 5, 11));
        quarantine.crashed(question("a", 6), Duration::from_secs(20));
        assert_eq!([admit("a", 7, 21), admit("b", 7, 21), admit("a", 7, 3619)], [false, true, false]);
        assert!(admit("a", 7, 3620));
        quarantine.crashed(question("a", 6), Duration::from_secs(4000));
        assert!(admit("a", 5, 4001), "it is forgotten by then");
    }

    #[test]
    fn a_panic_is_a_crash() {
        let panicked = athanor_chassis::compute::ComputeError::Panicked("index out of bounds".to_owned());
        assert!(is_crash(&Status::of(&panicked)));
        assert!(!is_crash(&Status::new(Code::Internal, "a row has no series")));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let quarantine = Quarantine::default();
        let (first, now) = (question("first", 1), Duration::from_secs(1));
        (0..CRASHES).for_each(|_| quarantine.crashed(first, now));
        for n in 0..MOST {
            quarantine.crashed(question(&format!("t{n}"), 1), now);
        }
        assert!(quarantine.admit(first, now).is_ok());
        assert_eq!(quarantine.crashed.lock().unwrap().len(), MOST);
    }
}
