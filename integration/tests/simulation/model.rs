//! What a node must hold, as naively as can be said: how often each upload was sent, acknowledged and seen.
//!
//! Each upload has a leaf of its own, so that an answer tells how often it was counted; its other rows are shared, so
//! that sums are put together of several.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::{Random, Timestamp};
use athanor_distributor::PushSummary;
use athanor_profile::data_model::labels::SampleLabel;
use athanor_profile::formats::pprof::encode;
use athanor_profile::{Profile, ValueType};
use bytes::Bytes;

pub const TENANTS: [&str; 2] = ["acme", "umbrella"];
pub const SERVICES: [&str; 3] = ["checkout", "search", "mail"];
pub const METRIC: &str = "process_cpu";
/// What a profile may count: of the second only some do.
pub const KINDS: [(&str, &str); 2] = [("cpu", "nanoseconds"), ("samples", "count")];
/// How old and how young profiles may be.
pub const OLDER: Duration = Duration::from_secs(10 * 60);
pub const NEWER: Duration = Duration::from_secs(60);
/// How wrong the clock of a machine may be, either way.
pub const SKEW: Duration = Duration::from_secs(120);
/// How far profiles about a time are from it.
pub const ABOUT: Duration = Duration::from_secs(30);
/// An upload without a time is not sent again after this long: its id may be forgotten.
const TIMELESS: Duration = Duration::from_secs(15 * 60);
/// Rows that many uploads share, and what each of them adds.
const SHARED: usize = 3;
const SHARE: i64 = 2;

/// Which of the equal uploads of one content: the client's id (0: none) and the place among equals of a request.
type Identity = (u64, u32);

/// One content.
#[derive(Debug)]
pub struct Leaf {
    tenant: usize,
    service: usize,
    /// Some contents say no time.
    time: Option<i64>,
    made: Timestamp,
    /// By kind.
    weights: Vec<i64>,
    /// The same content in two encodings.
    bytes: [Bytes; 2],
    sent: BTreeSet<Identity>,
    /// How often it was sent, repeats included.
    tries: u64,
    /// What of that was sent before the disks were damaged: who repeats it is told that it is stored, which may be in
    /// a block that the catalogue has lost.
    old: BTreeSet<Identity>,
    /// Since the disks were damaged last.
    acknowledged: BTreeSet<Identity>,
    /// The newest table that was known to whoever stored it first.
    placed: Option<u64>,
    /// How many were seen at once since then.
    seen: u64,
    /// How many were acknowledged or seen before: they are there, or answers say that they may be lost.
    before: u64,
    /// Until when they must be there.
    until: Option<Timestamp>,
}

/// A leaf in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub leaf: usize,
    /// The client's id; 0 for none.
    pub client: u64,
}

/// What a client sends at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub tenant: usize,
    pub parts: Vec<Part>,
}

/// A request that was sent.
#[derive(Debug)]
pub struct Sent {
    identities: Vec<(usize, Identity)>,
    /// How many of these were acknowledged before: they must be repeats.
    known: usize,
    /// How many were never sent before: they must be new.
    unheard: usize,
}

/// A profile that was stored, or was stored before.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub service: usize,
    pub time: i64,
    /// A repeat says the newest table that was known to whoever stored it first.
    pub before: Option<u64>,
}

/// Times that profiles are of.
#[derive(Clone, Copy, Debug)]
struct Times {
    latest: Timestamp,
    span: Duration,
}

/// Why an acknowledgement may name other numbers.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// It was tried more than once, so that what is new may be called a repeat.
    pub tried_again: bool,
    /// What was stored may be known to nobody who can be asked, so that a repeat may be called new. It counts once.
    pub forgot: bool,
}

/// What a query asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub tenant: usize,
    pub service: Option<usize>,
    pub kind: usize,
    /// Milliseconds, both ends included; everything if none.
    pub range: Option<(i64, i64)>,
}

/// How often each leaf must be there at least.
#[derive(Debug, Default)]
pub struct Floors {
    /// In an answer that is whole.
    whole: BTreeMap<usize, u64>,
    /// In one that says what it lacks.
    partial: BTreeMap<usize, u64>,
}

/// What an answer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Something may be lost.
    pub partial: bool,
    /// Something may be there twice.
    pub twice: bool,
}

#[derive(Debug)]
pub struct Model {
    leaves: Vec<Leaf>,
    /// Requests without an answer that says that they are stored.
    pub pending: Vec<Request>,
    history: Vec<Request>,
    drawn: u64,
    retention: Duration,
    /// Disks were damaged.
    damaged: bool,
    /// Tables may change: who says no time is placed by when it came, so that a repeat of it may go elsewhere.
    pub tables_change: bool,
}

impl Model {
    pub fn new(retention: Duration) -> Self {
        Self {
            leaves: Vec::new(),
            pending: Vec::new(),
            history: Vec::new(),
            drawn: 0,
            retention,
            damaged: false,
            tables_change: false,
        }
    }

    /// Some request: one that waits for its answer, one that was sent before, or a new one.
    pub fn draw(&mut self, random: &Random, now: Timestamp) -> Request {
        let waits = self.pending.len() as u64;
        if waits > 0 && random.next_below(3) == 0 {
            let waiting = self.pending.swap_remove(random.next_below(waits) as usize);
            if !self.is_forgotten(&waiting, now) {
                return waiting;
            }
        }
        if !self.history.is_empty() && random.next_below(4) == 0 {
            let again = self.history[random.next_below(self.history.len() as u64) as usize].clone();
            if !self.is_forgotten(&again, now) {
                return again;
            }
        }
        let times = Times { latest: now, span: OLDER - Duration::from_nanos(1) };
        self.draw_new(random, now, times)
    }

    /// A new request, of profiles of which some are older than that and some are not.
    pub fn draw_about(&mut self, random: &Random, now: Timestamp, about: Timestamp) -> Request {
        self.draw_new(random, now, Times { latest: about.plus(ABOUT), span: 2 * ABOUT })
    }

    fn draw_new(&mut self, random: &Random, now: Timestamp, times: Times) -> Request {
        let tenant = random.next_below(TENANTS.len() as u64) as usize;
        let mut parts = Vec::new();
        for _ in 0..=random.next_below(3) {
            let leaf = self.content(random, now, times, tenant);
            let ids = random.next_below(6) == 0;
            let client = if ids { 1 + random.next_below(1 << 40) } else { 0 };
            parts.push(Part { leaf, client });
            match random.next_below(8) {
                // Equal ones in one request count each.
                0 => parts.push(Part { leaf, client }),
                // A client's id tells equal contents apart.
                1 if ids => parts.push(Part { leaf, client: client + 1 }),
                _ => {}
            }
        }
        let request = Request { tenant, parts };
        self.history.push(request.clone());
        request
    }

    /// Whether the ids of a request may be forgotten, and no time tells that it is old.
    pub fn is_forgotten(&self, request: &Request, now: Timestamp) -> bool {
        request.parts.iter().any(|part| {
            let leaf = &self.leaves[part.leaf];
            leaf.time.is_none() && (self.tables_change || now.since(leaf.made) > TIMELESS)
        })
    }

    fn content(&mut self, random: &Random, now: Timestamp, times: Times, tenant: usize) -> usize {
        let number = self.leaves.len();
        let mut service = random.next_below(SERVICES.len() as u64) as usize;
        let age = Duration::from_nanos(random.next_below(times.span.as_nanos() as u64));
        let mut time = (random.next_below(12) > 0).then(|| times.latest.minus(age).nanos());
        if number > 0 && random.next_below(4) == 0 {
            // Another profile with equal labels and time.
            let twin = &self.leaves[random.next_below(number as u64) as usize];
            let earliest = times.latest.minus(times.span).nanos();
            if twin.time.is_none_or(|time| time > earliest) {
                (service, time) = (twin.service, twin.time);
            }
        }
        let kinds = 1 + random.next_below(KINDS.len() as u64) as usize;
        let weights: Vec<i64> = (0..kinds).map(|_| 1 + random.next_below(1000) as i64).collect();
        let split = random.next_below(4) == 0;
        let bytes = [false, true].map(|turned| encoded(number, time, &weights, split, turned));
        self.leaves.push(Leaf {
            tenant,
            service,
            time,
            made: now,
            weights,
            bytes,
            sent: BTreeSet::new(),
            tries: 0,
            old: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            placed: None,
            seen: 0,
            before: 0,
            until: None,
        });
        number
    }

    /// Labels and bytes of a part, in one of its encodings.
    pub fn upload(&self, part: Part, encoding: usize) -> (usize, Bytes) {
        let leaf = &self.leaves[part.leaf];
        (leaf.service, leaf.bytes[encoding].clone())
    }

    /// A request is under way.
    pub fn send(&mut self, request: &Request) -> Sent {
        let mut equals: BTreeMap<(usize, u64), u32> = BTreeMap::new();
        let mut sent = Sent { identities: Vec::new(), known: 0, unheard: 0 };
        for part in &request.parts {
            let leaf = &mut self.leaves[part.leaf];
            leaf.tries += 1;
            let n = equals.entry((part.leaf, part.client)).or_default();
            let mut identity = (part.client, *n);
            *n += 1;
            if part.client == 0 && leaf.time.is_none() {
                // With neither id nor time each counts.
                self.drawn += 1;
                identity = (1 << 50 | self.drawn, 0);
            }
            sent.known += usize::from(leaf.acknowledged.contains(&identity));
            sent.unheard += usize::from(leaf.sent.insert(identity));
            sent.identities.push((part.leaf, identity));
        }
        sent
    }

    /// Profiles of a request that is about to be acknowledged, by whoever knew a table when it was sent; those that say
    /// their time.
    pub fn place(&mut self, sent: &Sent, table: u64) -> Vec<Placed> {
        let placed = sent.identities.iter().filter_map(|(number, identity)| {
            let leaf = &mut self.leaves[*number];
            let first = *leaf.placed.get_or_insert(table);
            let before = leaf.acknowledged.contains(identity).then_some(first);
            Some(Placed { service: leaf.service, time: leaf.time?, before })
        });
        placed.collect()
    }

    /// A request was acknowledged.
    pub fn acknowledge(
        &mut self,
        sent: &Sent,
        receipt: PushSummary,
        now: Timestamp,
        doubt: Doubt,
    ) -> Result<(), String> {
        let all = sent.identities.len();
        let least = if doubt.tried_again { 0 } else { sent.unheard };
        let most = if doubt.forgot { all } else { all - sent.known };
        if receipt.new + receipt.repeats != all || !(least..=most).contains(&receipt.new) {
            return Err(format!("of {sent:?} {least} to {most} are new, and it was answered {receipt:?}"));
        }
        let retention = self.retention;
        for &(number, identity) in &sent.identities {
            let leaf = &mut self.leaves[number];
            leaf.acknowledged.insert(identity);
            leaf.stays(retention, now);
        }
        Ok(())
    }

    /// Whether a request may be refused for the time of one of its profiles, by somebody whose clock is so far off. One
    /// that says no time has that of who took it.
    pub fn may_be_refused(
        &self,
        request: &Request,
        before: Timestamp,
        now: Timestamp,
        apart: Duration,
    ) -> bool {
        let oldest = now.plus(apart).minus(OLDER).nanos();
        let newest = before.minus(apart).plus(NEWER).nanos();
        request.parts.iter().any(|part| {
            let time = self.leaves[part.leaf].time;
            time.map_or(apart > NEWER, |time| time <= oldest || time >= newest)
        })
    }

    /// The disks were damaged: what was stored before is there, or it is said that it may be lost.
    pub fn damage(&mut self) {
        self.damaged = true;
        for leaf in &mut self.leaves {
            leaf.before = leaf.whole();
            leaf.old.clone_from(&leaf.sent);
            leaf.acknowledged.clear();
            leaf.seen = 0;
        }
    }

    /// Whether blocks are removed by age.
    pub fn has_retention(&self) -> bool {
        !self.retention.is_zero()
    }

    /// Whether disks were damaged: else no answer lacks anything, and all blocks are a chain.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// What must be there at least, from now on.
    pub fn floors(&self, asked: &Asked, now: Timestamp) -> Floors {
        let mut floors = Floors::default();
        for (number, leaf) in self.leaves.iter().enumerate() {
            if leaf.is_in(asked) != Some(true) || leaf.until.is_some_and(|until| now >= until) {
                continue;
            }
            for (of, floor) in [(&mut floors.partial, leaf.promised()), (&mut floors.whole, leaf.whole())] {
                of.extend((floor > 0).then_some((number, floor)));
            }
        }
        floors
    }

    /// Compares self values by function with what they should be.
    pub fn check(
        &mut self,
        asked: &Asked,
        floors: &Floors,
        found: &BTreeMap<String, i64>,
        said: Said,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        let mut shared = [0; SHARED];
        for (name, &value) in found {
            let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
            if let Some(place) = number("shared") {
                shared[place] = value;
                continue;
            }
            let leaf = number("leaf").and_then(|number| Some((number, self.leaves.get(number)?)));
            let Some((number, leaf)) = leaf.filter(|(_, leaf)| leaf.is_in(asked) != Some(false)) else {
                return Err(format!("{name} with {value} is not of {asked:?}"));
            };
            let (weight, most) = (leaf.weights[asked.kind], leaf.most(said));
            // Of what counts twice only a part may.
            if (value % weight != 0 && !said.twice) || !(1..=weight * most).contains(&value) {
                return Err(format!("{name} has {value}, not of {weight} a multiple up to {most}: {leaf:?}"));
            }
            counts.insert(number, (value / weight) as u64);
        }
        for (&number, &floor) in floors.of(said) {
            let count = counts.get(&number).copied().unwrap_or_default();
            if count < floor {
                return Err(format!(
                    "leaf{number} is there {count} times of {floor}: {:?}",
                    self.leaves[number]
                ));
            }
        }
        if said.twice {
            return Ok(());
        }
        for (&number, &count) in &counts {
            shared[number % SHARED] -= count as i64 * SHARE;
            let retention = self.retention;
            let leaf = &mut self.leaves[number];
            leaf.seen = leaf.seen.max(count);
            leaf.stays(retention, now);
        }
        match shared {
            [0, 0, 0] => Ok(()),
            other => Err(format!("shared rows differ by {other:?} from {counts:?}")),
        }
    }

    /// The least and the most that all of it sums up to, by service.
    pub fn sums(&self, asked: &Asked, floors: &Floors, said: Said) -> BTreeMap<usize, (i64, i64)> {
        let mut sums: BTreeMap<usize, (i64, i64)> = BTreeMap::new();
        for (number, leaf) in self.leaves.iter().enumerate() {
            if leaf.is_in(asked) == Some(false) {
                continue;
            }
            let each = leaf.weights[asked.kind] + SHARE;
            let sum = sums.entry(leaf.service).or_default();
            sum.0 += floors.of(said).get(&number).copied().unwrap_or_default() as i64 * each;
            sum.1 += leaf.most(said) * each;
        }
        sums.retain(|_, (_, most)| *most > 0);
        sums
    }

    /// Times of profiles of a tenant, to draw ranges from.
    pub fn times(&self, tenant: usize) -> Vec<i64> {
        self.leaves.iter().filter(|leaf| leaf.tenant == tenant).filter_map(|leaf| leaf.time).collect()
    }
}

impl Floors {
    fn of(&self, said: Said) -> &BTreeMap<usize, u64> {
        if said.partial { &self.partial } else { &self.whole }
    }
}

impl Leaf {
    /// How many were sent and acknowledged, or seen, since the disks were damaged last.
    fn promised(&self) -> u64 {
        self.seen.max(self.acknowledged.difference(&self.old).count() as u64)
    }

    /// How many were ever acknowledged or seen.
    fn whole(&self) -> u64 {
        self.before.max(self.seen).max(self.acknowledged.len() as u64)
    }

    /// How many there may be.
    fn most(&self, said: Said) -> i64 {
        if said.twice { self.tries as i64 } else { self.sent.len() as i64 }
    }

    /// Whether a query asks for it; none where that cannot be told.
    fn is_in(&self, asked: &Asked) -> Option<bool> {
        let of = self.tenant == asked.tenant
            && asked.service.is_none_or(|service| service == self.service)
            && asked.kind < self.weights.len();
        match (asked.range, self.time) {
            (Some(_), None) if of => None,
            (Some((from, to)), Some(time)) => Some(of && (from * 1_000_000..=to * 1_000_000).contains(&time)),
            _ => Some(of),
        }
    }

    /// From the first time that it is known to be there, it stays as long as blocks are kept.
    fn stays(&mut self, retention: Duration, now: Timestamp) {
        if !retention.is_zero() {
            // A clock far ahead moves the catalog's time by less than one more `SKEW`.
            self.until.get_or_insert(now.plus(retention).minus(3 * SKEW));
        }
    }
}

/// A profile with rows of its own and a shared one; two encodings have them in other orders.
fn encoded(number: usize, time: Option<i64>, weights: &[i64], split: bool, turned: bool) -> Bytes {
    let mut profile = Profile::default();
    profile.header.types =
        KINDS[..weights.len()].iter().map(|(kind, unit)| ValueType::new(kind, unit)).collect();
    profile.header.period_type = Some(ValueType::new(KINDS[0].0, KINDS[0].1));
    (profile.header.time_nanos, profile.header.duration_nanos, profile.header.period) =
        (time.unwrap_or_default(), 1_000, 100);
    let (leaf, work) = (format!("leaf{number}"), format!("work{}", number % 7));
    let own = profile.dictionary.intern_named_stack(["main", work.as_str(), leaf.as_str()].into_iter());
    let shared = format!("shared{}", number % SHARED);
    let shared = profile.dictionary.intern_named_stack(["main", shared.as_str()].into_iter());
    let set = if split { region(&mut profile) } else { 0 };
    let halves: Vec<i64> = weights.iter().map(|weight| weight / 2).collect();
    let rests: Vec<i64> = weights.iter().map(|weight| weight - weight / 2).collect();
    let mut rows = [(own, 0, halves), (shared, 0, vec![SHARE; weights.len()]), (own, set, rests)];
    if turned {
        rows.reverse();
    }
    rows.iter().for_each(|(stack, set, values)| profile.samples.push(*stack, *set, values));
    encode(&profile).into()
}

/// A label that makes a series of its own of the rows that have it.
fn region(profile: &mut Profile) -> u32 {
    let strings = &mut profile.dictionary.symbols.strings;
    let (key, text) = (strings.intern("region"), strings.intern("north"));
    let label = SampleLabel { key, text, number: 0, unit: 0 };
    profile.dictionary.label_sets.intern(&profile.dictionary.symbols.strings, &[label])
}
