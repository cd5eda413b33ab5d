//! Profiles that lie in two places: what is known of them before a question is asked, and what its answers tell.
//!
//! Places that may hold the same profiles tell the ids of those that are meant. Where an answer counted one twice, the
//! question is asked again, and all but one place leave it out; what was found is remembered for the next question, whose
//! answers are held to the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::{Activity, Status, TenantId, Timestamp};
use athanor_profile::Source;
use athanor_query::{Ask, AskError, Doubles, Held, Lying, Partial, Place, Without};

use crate::gather::Merging;
use crate::{Querier, Reader};

/// Of which time heads elsewhere are thought to have profiles, unless it is seen that they have older ones.
const RECENT: Duration = Duration::from_hours(1);
/// How often a question is asked again for profiles that counted twice.
const AGAIN: u32 = 4;
/// Profiles that one question leaves out somewhere: they are named in each.
const MOST: usize = 1 << 16;
/// Tenants of which it is remembered what lies in two places, and how much of all of them.
const TENANTS: usize = 1 << 12;
const REMEMBERED: usize = 1 << 20;

/// What is known of profiles that lie in two places, when a plan is made.
#[derive(Clone, Debug)]
pub struct Doubts {
    /// Those that do not count in some places.
    pub doubles: Arc<Doubles>,
    /// Heads of other nodes are thought to hold nothing older: Unix nanoseconds.
    pub since: i64,
    /// How often the question was asked.
    asked: u32,
}

/// A source in memory.
#[derive(Clone)]
pub struct InMemory {
    /// It.
    pub source: Arc<dyn Source>,
    /// Where its profiles lie, if they are to be told: others may hold the same ones.
    pub tells: Option<Place>,
    /// Those of its profiles that count elsewhere.
    pub without: Without,
}

/// What was seen while a question was answered.
#[derive(Debug, Default)]
pub(crate) struct Met(Mutex<Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The first moment of profiles that peers have in memory.
    afar: Option<i64>,
    /// The last moment of profiles of which a place did not tell.
    untold: Option<i64>,
}

/// Whether each profile counted once.
pub(crate) enum Once {
    /// This is the answer; none where nothing came.
    Counted(Option<Held>),
    /// The question is to be asked again.
    Again,
}

/// What was found so far, by tenant.
#[derive(Default)]
pub(crate) struct Twice {
    known: Mutex<BTreeMap<TenantId, Known>>,
    again: AtomicU64,
}

#[derive(Clone, Default)]
struct Known {
    doubles: Arc<Doubles>,
    /// How many that are.
    profiles: usize,
    /// The first moment of what heads elsewhere were seen to have, if it is not recent.
    since: Option<i64>,
}

impl Default for Doubts {
    fn default() -> Self {
        Doubts { doubles: Arc::default(), since: i64::MIN, asked: 0 }
    }
}

impl Doubts {
    /// Whether the question was not asked before.
    pub(crate) fn is_first(&self) -> bool {
        self.asked == 0
    }
}

impl From<Arc<dyn Source>> for InMemory {
    /// One whose profiles lie nowhere else.
    fn from(source: Arc<dyn Source>) -> Self {
        InMemory { source, tells: None, without: Without::default() }
    }
}

impl Known {
    /// What is left out where, by all that is known; where that is too much, by what was just found.
    fn with(&self, found: &Doubles) -> Self {
        let mut doubles = Doubles::clone(&self.doubles);
        doubles.learn(found);
        if doubles.profiles() > MOST {
            doubles = found.clone();
        }
        Known { profiles: doubles.profiles(), doubles: Arc::new(doubles), since: self.since }
    }
}

impl InMemory {
    pub(crate) fn run(&self, ask: &Ask) -> Result<Partial, AskError> {
        let InMemory { source, tells, without } = self;
        Lying { source: source.as_ref(), tells: *tells, without }.run(ask)
    }
}

impl Met {
    /// A peer has profiles in memory, the first of this moment.
    pub(crate) fn afar(&self, first: i64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.afar = Some(seen.afar.map_or(first, |before| before.min(first)));
    }

    /// A place did not tell of profiles, the last of this moment.
    pub(crate) fn untold(&self, last: Option<i64>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.untold = seen.untold.max(last);
    }

    /// Whether peers have nothing in memory that is older than this.
    fn is_recent(&self, since: i64) -> bool {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.afar.is_none_or(|first| first >= since)
    }

    /// Since when places should have told of their profiles, where one did not.
    fn late(&self) -> Option<i64> {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.afar.filter(|first| seen.untold.is_some_and(|last| *first <= last))
    }
}

impl Twice {
    /// How often a question was asked again.
    pub(crate) fn again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    /// What is known before any answer.
    pub(crate) fn doubts(&self, tenants: &[TenantId], now: Timestamp) -> Doubts {
        let known: Vec<Known> = {
            let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            tenants.iter().filter_map(|tenant| all.get(tenant).cloned()).collect()
        };
        let since = known.iter().filter_map(|of| of.since).min().unwrap_or(i64::MAX);
        let since = since.min(now.minus(RECENT).nanos());
        let doubles = match <[Known; 1]>::try_from(known) {
            Ok([of_one]) => of_one.doubles,
            // What is of several takes a while to put together, longer than to find it.
            Err(_) => Arc::default(),
        };
        Doubts { doubles, since, asked: 0 }
    }

    /// Remembers what was found.
    fn learn(&self, tenants: &[TenantId], find: impl FnOnce(&mut Known)) {
        self.again.fetch_add(1, Ordering::Relaxed);
        // What is of several tenants would name profiles of one to the others.
        let [tenant] = tenants else { return };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        find(known.entry(tenant.clone()).or_default());
        // Whatever is forgotten is found again.
        let all: usize = known.values().map(|of| of.profiles).sum();
        if known.len() > TENANTS || all > REMEMBERED {
            known.retain(|of, _| of == tenant);
        }
    }

    /// Heads elsewhere have nothing that is older than what is recent, as far back as was asked.
    fn all_recent(&self, tenants: &[TenantId], from: i64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for tenant in tenants {
            if let Some(of_tenant) = known.get_mut(tenant)
                && of_tenant.since.is_some_and(|since| from <= since)
            {
                of_tenant.since = None;
            }
        }
    }
}

impl Querier {
    /// Whether each profile counted once; else the question is asked again, as doubts say then.
    pub(crate) async fn once(
        &self,
        reader: &Reader,
        merging: &Arc<Merging>,
        doubts: &mut Doubts,
    ) -> Result<Once, Status> {
        if !merging.ask.counts() {
            return Ok(Once::Counted(merging.meeting.take()));
        }
        doubts.asked += 1;
        let may_ask = doubts.asked <= AGAIN;
        if let Some(since) = merging.met.late().filter(|_| may_ask) {
            doubts.since = since;
            self.twice.learn(reader.tenants(), |known| known.since = Some(since));
            return Ok(Once::Again);
        }
        if merging.met.is_recent(self.deps.clock.wall().minus(RECENT).nanos()) {
            self.twice.all_recent(reader.tenants(), merging.ask.selection.time.from);
        }
        let Some(Held { partial, mut taken }) = merging.meeting.take() else {
            return Ok(Once::Counted(None));
        };
        let (partial, ids) = partial.told();
        if ids.places().is_empty() && merging.met.late().is_none() {
            return Ok(Once::Counted(Some(Held { partial, taken })));
        }
        // Ids are held until they are compared, and once more in their order.
        let sorted = merging.meeting.room().take(ids.bytes())?;
        let (known, tenants) = (Arc::clone(&doubts.doubles), reader.tenants().to_vec());
        let twice = Arc::clone(&self.twice);
        let job = move || {
            let once = match ids.once(&known) {
                Err(found) if may_ask && found.profiles_of(&ids) <= MOST => {
                    twice.learn(&tenants, |known| *known = known.with(&found));
                    Err(Some(found))
                }
                Err(_) => Err(None),
                Ok(()) => Ok(()),
            };
            drop((ids, sorted));
            taken.shrink(partial.bytes());
            (once, Held { partial, taken })
        };
        let compared = merging.compute.run_as(Activity::Query, job).await;
        let (once, held) = compared.map_err(|error| Status::of(&error))?;
        match once {
            Ok(()) if merging.met.late().is_none() => {}
            Err(Some(found)) => {
                doubts.doubles = Arc::new(found);
                return Ok(Once::Again);
            }
            Ok(()) | Err(None) => merging.miss([format!(
                "more than {MOST} profiles that are asked for lie in two places each, or ever others; some may \
                 count twice until blocks are merged: select a shorter time"
            )]),
        }
        Ok(Once::Counted(Some(held)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn doubles(block: u128, ids: impl IntoIterator<Item = u128>) -> Doubles {
        [(Place::Block(block), Without::new(BTreeSet::from_iter(ids)))].into_iter().collect()
    }

    #[test]
    fn what_was_found_is_remembered_of_each_tenant_within_bounds() {
        let (twice, now) = (Twice::default(), Timestamp::EPOCH.plus(RECENT));
        let [shop, other]: [TenantId; 2] = ["shop", "other"].map(|name| name.parse().unwrap());
        let known =
            |tenant: &TenantId| Doubles::clone(&twice.doubts(std::slice::from_ref(tenant), now).doubles);
        let learn =
            |tenants: &[TenantId], found: Doubles| twice.learn(tenants, |known| *known = known.with(&found));
        learn(std::slice::from_ref(&shop), doubles(1, [7]));
        learn(std::slice::from_ref(&shop), doubles(1, [8]));
        assert_eq!((known(&shop), known(&other)), (doubles(1, [7, 8]), Doubles::default()));
        learn(&[shop.clone(), other.clone()], doubles(2, [9]));
        assert_eq!(known(&other), Doubles::default(), "whose it is was not said");
        // More than one question may name: what is newest is kept.
        learn(std::slice::from_ref(&shop), doubles(3, 0..MOST as u128));
        assert_eq!(known(&shop).profiles(), MOST);
        let since = || twice.doubts(std::slice::from_ref(&shop), now).since;
        assert_eq!(since(), 0);
        twice.learn(std::slice::from_ref(&shop), |known| known.since = Some(-5));
        assert_eq!(since(), -5);
        twice.all_recent(std::slice::from_ref(&shop), -4);
        assert_eq!(since(), -5, "nobody has looked so far back");
        twice.all_recent(std::slice::from_ref(&shop), -5);
        assert_eq!(since(), 0);
        for tenant in 0..TENANTS {
            learn(&[format!("t{tenant}").parse().unwrap()], doubles(1, [1]));
        }
        assert_eq!(twice.known.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_peer_with_older_profiles_than_others_have_told_of_is_late() {
        let met = Met::default();
        met.untold(Some(10));
        assert_eq!(met.late(), None);
        met.afar(11);
        assert_eq!(met.late(), None);
        met.untold(None);
        met.afar(4);
        met.afar(20);
        assert_eq!(met.late(), Some(4));
    }
}
