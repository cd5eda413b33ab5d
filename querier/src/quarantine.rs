//! Questions that crashed whoever computed them are not asked a third time, be it that they panicked or that the whole
//! process died over them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use athanor_chassis::deaths::{Alone, Deaths, UnderWay};
use athanor_chassis::{Code, Status, TenantId};
use athanor_profile::hash::{self, Hash};
use athanor_query::{Ask, Heat, Points, TimeRange, What};
use futures::lock::Mutex as AsyncMutex;

/// Crashes after which a question is refused.
const CRASHES: u32 = 2;
/// For how long.
const KEEP: Duration = Duration::from_secs(60 * 60);
/// Questions that are remembered.
const MOST: usize = 256;

/// Which questions crash.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    known: Mutex<Known>,
    /// What earlier processes died over; none where nothing is written down.
    deaths: Option<Deaths>,
}

/// What a reader has asked and is not answered yet, as is written down for the case that it kills the process.
#[derive(Default)]
pub(crate) struct Asking {
    /// Held while there is a question that was under way when the process died. Whoever waits for that keeps no other
    /// question of the reader waiting, which may have a turn.
    alone: AsyncMutex<Option<Alone>>,
    questions: Mutex<Vec<UnderWay>>,
}

/// Crashes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarantineStats {
    /// Questions that are refused at the moment.
    pub quarantined: usize,
    /// Those that were under way when the process died, and may have killed it: each is asked alone.
    pub suspected: usize,
    /// Crashes, so far.
    pub crashes: u64,
    /// Questions that were refused, so far.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// The latest at the end.
    crashed: VecDeque<Crashed>,
    crashes: u64,
    refused: u64,
}

#[derive(Debug)]
struct Crashed {
    question: Question,
    times: u32,
    last: Duration,
}

/// A question, or several that are answered together, whatever their time: a dashboard asks again and again with a later
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question(Hash);

impl Question {
    pub(crate) fn of(tenants: &[TenantId], asked: &[Arc<Ask>]) -> Result<Self, Status> {
        let mut all = asked.iter().map(|ask| timeless(ask)).collect::<Result<Vec<Hash>, Status>>()?;
        all.sort_unstable();
        all.dedup();
        let names: Vec<Hash> = tenants.iter().map(|tenant| hash::bytes(tenant.as_str().as_bytes())).collect();
        Ok(Question(hash::list(&[hash::list(&all), hash::list(&names)])))
    }
}

fn timeless(ask: &Ask) -> Result<Hash, Status> {
    let mut timeless = ask.clone();
    timeless.selection.time = TimeRange { from: 0, to: 0 };
    if let What::Points(Points { steps, .. }) | What::Heat(Heat { steps, .. }) = &mut timeless.what {
        (steps.start, steps.count) = (0, 0);
    }
    Ok(hash::bytes(&timeless.pack().map_err(|error| Status::of(&error))?))
}

impl Asking {
    /// All that was asked is answered, and kills nobody; or it is not, which says nothing.
    pub(crate) fn end(&self, well: bool) {
        let questions = std::mem::take(&mut *self.questions());
        if well {
            questions.iter().for_each(UnderWay::ended_well);
        }
        // Else a question of the reader still waits for that.
        if let Some(mut alone) = self.alone.try_lock() {
            *alone = None;
        }
    }

    fn questions(&self) -> MutexGuard<'_, Vec<UnderWay>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("questions", &self.questions().len()).finish_non_exhaustive()
    }
}

impl Quarantine {
    /// One that knows what earlier processes died over.
    pub(crate) fn of(deaths: Deaths) -> Self {
        Self { deaths: Some(deaths), ..Self::default() }
    }

    /// Before a question is worked on: where a process has died over it, it waits until it is the only such one at work.
    /// Else who runs beside one that kills would come to be suspected as often.
    pub(crate) async fn alone(
        &self,
        asking: &Asking,
        question: impl FnOnce() -> Result<Question, Status>,
    ) -> Result<(), Status> {
        let Some(deaths) = self.deaths.as_ref().filter(|deaths| !deaths.is_quiet()) else { return Ok(()) };
        let Question(key) = question()?;
        if deaths.of(key).is_some() {
            let mut alone = asking.alone.lock().await;
            if alone.is_none() {
                *alone = Some(deaths.alone().await);
            }
        }
        Ok(())
    }

    /// A question is worked on from now on, until its reader is answered or has left.
    pub(crate) async fn begin(
        &self,
        asking: &Asking,
        question: impl FnOnce() -> Result<Question, Status>,
    ) -> Result<(), Status> {
        let Some(deaths) = &self.deaths else { return Ok(()) };
        let Question(key) = question()?;
        asking.questions().extend(deaths.begin(key));
        Ok(())
    }

    /// Several questions are answered, and what is made of all of them together is worked on from now on.
    pub(crate) async fn begin_together(
        &self,
        asking: &Asking,
        question: impl FnOnce() -> Result<Question, Status> + Copy,
    ) -> Result<(), Status> {
        if self.deaths.is_none() {
            return Ok(());
        }
        asking.end(true);
        self.alone(asking, question).await?;
        self.begin(asking, question).await
    }

    /// Refuses a question that has crashed too often. It is put together only where there are such.
    pub(crate) fn admit(
        &self,
        now: Duration,
        question: impl FnOnce() -> Result<Question, Status>,
    ) -> Result<(), Status> {
        let is_quiet = self.deaths.as_ref().is_none_or(Deaths::is_quiet);
        if is_quiet && self.known(now).crashed.is_empty() {
            return Ok(());
        }
        let question = question()?;
        self.killed(question, now)?;
        let mut known = self.known(now);
        let Known { crashed, refused, .. } = &mut *known;
        match crashed.iter().find(|one| one.question == question) {
            Some(Crashed { times, last, .. }) if *times >= CRASHES => {
                *refused += 1;
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

    /// Refuses a question over which the process has died too often.
    fn killed(&self, Question(key): Question, now: Duration) -> Result<(), Status> {
        match self.deaths.as_ref().and_then(|deaths| deaths.of(key)) {
            Some((times, left)) if times >= CRASHES => {
                self.known(now).refused += 1;
                let left = left.as_secs().div_ceil(60);
                let message = format!(
                    "this query was under way {times} times when the process died, the limit is {CRASHES}: it is refused \
                     for {left} more minutes; ask differently, or look why the process died and have it answered again \
                     with `athanor lift`"
                );
                Err(Status::new(Code::Internal, message))
            }
            _ => Ok(()),
        }
    }

    /// Remembers that a question crashed.
    pub(crate) fn crashed(&self, question: Question, now: Duration) {
        let mut known = self.known(now);
        let Known { crashed, crashes, .. } = &mut *known;
        *crashes += 1;
        let at = crashed.iter().position(|one| one.question == question);
        let times = at.and_then(|at| crashed.remove(at)).map_or(0, |one| one.times);
        if crashed.len() >= MOST {
            crashed.pop_front();
        }
        crashed.push_back(Crashed { question, times: times + 1, last: now });
    }

    /// Forgets all. How many were refused by then.
    pub(crate) fn lift(&self, now: Duration) -> usize {
        let mut known = self.known(now);
        let quarantined = known.quarantined();
        known.crashed.clear();
        quarantined + self.deaths.as_ref().map_or(0, |deaths| deaths.forget(CRASHES))
    }

    /// The process ends in order: nothing that is under way kills it.
    pub(crate) fn close(&self) {
        if let Some(deaths) = &self.deaths {
            deaths.close();
        }
    }

    /// How many there are.
    pub(crate) fn stats(&self, now: Duration) -> QuarantineStats {
        let of_deaths = |least| self.deaths.as_ref().map_or(0, |deaths| deaths.count(least));
        let (killed, all) = (of_deaths(CRASHES), of_deaths(1));
        let known = self.known(now);
        let Known { crashes, refused, .. } = *known;
        let quarantined = known.quarantined() + killed;
        QuarantineStats { quarantined, suspected: all.saturating_sub(killed), crashes, refused }
    }

    /// What is remembered still.
    fn known(&self, now: Duration) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.crashed.retain(|one| now.saturating_sub(one.last) < KEEP);
        known
    }
}

impl Known {
    fn quarantined(&self) -> usize {
        self.crashed.iter().filter(|one| one.times >= CRASHES).count()
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
        Question::of(&[tenant.parse().unwrap()], &[Arc::new(ask)]).unwrap()
    }

    fn is_admitted(quarantine: &Quarantine, question: Question, now: Duration) -> bool {
        quarantine.admit(now, || Ok(question)).is_ok()
    }

    #[test]
    fn what_crashed_twice_is_refused_for_a_while() {
        let quarantine = Quarantine::default();
        let admit =
            |tenant, to, now| is_admitted(&quarantine, question(tenant, to), Duration::from_secs(now));
        quarantine.crashed(question("a", 5), Duration::from_secs(10));
        assert!(admit("a", 5, 11));
        quarantine.crashed(question("a", 6), Duration::from_secs(20));
        assert_eq!([admit("a", 7, 21), admit("b", 7, 21), admit("a", 7, 3619)], [false, true, false]);
        assert!(admit("a", 7, 3620));
        quarantine.crashed(question("a", 6), Duration::from_secs(4000));
        assert!(admit("a", 5, 4001), "it is forgotten by then");
    }

    #[test]
    fn questions_cost_nothing_as_long_as_none_crashed() {
        let quarantine = Quarantine::default();
        let now = Duration::from_secs(1);
        assert_eq!(quarantine.admit(now, || unreachable!("nobody compares it")), Ok(()));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let quarantine = Quarantine::default();
        let (first, now) = (question("first", 1), Duration::from_secs(1));
        (0..CRASHES).for_each(|_| quarantine.crashed(first, now));
        for n in 0..MOST {
            quarantine.crashed(question(&format!("t{n}"), 1), now);
        }
        assert!(is_admitted(&quarantine, first, now));
        assert_eq!(quarantine.known(now).crashed.len(), MOST);
    }
}
