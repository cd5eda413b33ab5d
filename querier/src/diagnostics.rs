//! How single queries were answered: recorded for who asks for that, and read again by the ticket that the answer names.
//!
//! ```text
//!  Querier::watched ─► Reader ─► Watch ◄─ Scribe, one for each question: turn, plan, parts, merging
//!                                  │ ended, or everybody has left
//!                                  ▼
//!                              Diagnostics: JSON, within a bound of bytes ─► record, records
//! ```
//! A record tells a tenant's own question, and where its answer came from. It is for that tenant, or those that were read as
//! one. Of a question with many parts it has the slowest, and sums of all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, Code, Random, Status, TenantId, Timestamp};
use athanor_query::Ask;
use bytes::Bytes;
use serde::Serialize;

use crate::elsewhere::{Errand, Ticket};
use crate::shares::{self, Share};
use crate::{Plan, Querier, Reader};

mod record;

use record::{Asked, Record};
pub use record::{Part, PartOf};

/// Each record counts for at least this part of the room for all: so many there are at the most.
const MOST: usize = 256;

/// Records of queries.
pub(crate) struct Diagnostics {
    /// Whose they are.
    node: u64,
    random: Random,
    clock: Clock,
    /// Bytes of all together; one tenant has at most half of them.
    bytes: usize,
    records: Mutex<BTreeMap<Ticket, Written>>,
}

/// A record.
struct Written {
    tenants: Vec<TenantId>,
    since: Duration,
    summary: Summary,
    json: Bytes,
}

/// A record in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// By which it is asked for.
    pub id: String,
    /// When the query came, milliseconds since 1970.
    pub time_millis: i64,
    /// What was called.
    pub call: &'static str,
    /// `ok`, or the name of a code.
    pub outcome: &'static str,
    /// How long it took.
    pub milliseconds: f64,
}

/// What is written down of one request while it is answered.
pub(crate) struct Watch {
    diagnostics: Arc<Diagnostics>,
    ticket: Ticket,
    call: &'static str,
    tenants: Vec<TenantId>,
    time: Timestamp,
    begun: Duration,
    /// What is asked goes on when the request was answered.
    in_background: AtomicBool,
    /// None when it is recorded.
    asked: Mutex<Option<Asked>>,
}

/// Writes down how one question is answered; nothing where nobody asked for that.
#[derive(Clone, Default)]
pub(crate) struct Scribe(Option<(Arc<Watch>, usize)>);

impl Diagnostics {
    /// Of a node, at most so many bytes: with none, nothing is recorded.
    pub(crate) fn new(node: u64, random: Random, clock: Clock, bytes: ByteSize) -> Self {
        Self { node, random, clock, bytes: bytes.as_usize(), records: Mutex::default() }
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<Ticket, Written>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, ticket: Ticket, written: Written) {
        let least = self.bytes / MOST;
        let mut records = self.records();
        if written.json.len().max(least) > shares::of_one(self.bytes) {
            return;
        }
        records.insert(ticket, written);
        let shares = records.iter().map(|(key, written)| Share {
            key: *key,
            tenants: &written.tenants,
            bytes: written.json.len().max(least),
            since: written.since,
        });
        let gone = shares::to_go(shares.collect(), ticket, self.bytes);
        gone.iter().for_each(|gone| drop(records.remove(gone)));
    }

    /// A record of other tenants is as one that never was.
    fn find(&self, reader: &Reader, ticket: Ticket) -> Option<Bytes> {
        let records = self.records();
        let written = records.get(&ticket).filter(|written| written.tenants == reader.tenants())?;
        Some(written.json.clone())
    }
}

impl Querier {
    /// Has it recorded how what this reader asks is answered, if anything is recorded here.
    #[must_use]
    pub fn watched(&self, reader: Reader, call: &'static str) -> Reader {
        let of = self.standing.as_ref().map(|standing| &standing.diagnostics);
        let Some(diagnostics) = of.filter(|diagnostics| diagnostics.bytes > 0) else { return reader };
        let watch = Watch {
            diagnostics: Arc::clone(diagnostics),
            ticket: Ticket::draw(diagnostics.node, &diagnostics.random),
            call,
            tenants: reader.tenants().to_vec(),
            time: diagnostics.clock.wall(),
            begun: diagnostics.clock.monotonic(),
            in_background: AtomicBool::new(false),
            asked: Mutex::new(Some(Asked::default())),
        };
        reader.watched_by(Arc::new(watch))
    }

    /// What is recorded here of the queries of these tenants, the newest first.
    pub fn records(&self, reader: &Reader) -> Vec<Summary> {
        let Some(standing) = &self.standing else { return Vec::new() };
        let records = standing.diagnostics.records();
        let mut of: Vec<(Duration, &Summary)> = records
            .values()
            .filter(|written| written.tenants == reader.tenants())
            .map(|written| (written.since, &written.summary))
            .collect();
        of.sort_by_key(|(since, _)| std::cmp::Reverse(*since));
        of.into_iter().map(|(_, summary)| summary.clone()).collect()
    }

    /// What is recorded of a query, here or at the node that answered it: JSON.
    pub async fn record(&self, reader: &Reader, id: &str) -> Result<Bytes, Status> {
        let ticket = Ticket::parse(id).ok_or_else(|| unknown(id))?;
        match self.standing.as_ref().and_then(|standing| standing.other(ticket)) {
            Some(other) => {
                let errand = Errand { reader, room: &self.room, clock: &self.deps.clock };
                other.record(ticket, &errand).await
            }
            None => self.record_here(reader, id),
        }
    }

    /// What is recorded here of a query.
    pub fn record_here(&self, reader: &Reader, id: &str) -> Result<Bytes, Status> {
        let of = self.standing.as_ref().zip(Ticket::parse(id));
        of.and_then(|(standing, ticket)| standing.diagnostics.find(reader, ticket)).ok_or_else(|| unknown(id))
    }
}

/// What is said of a record that is not there.
fn unknown(id: &str) -> Status {
    let message = format!(
        "no record {id:?} is here: it made room for others, or its node was started again; ask with the header X-Pyroscope-Collect-Diagnostics: true for another one"
    );
    Status::new(Code::NotFound, message)
}

impl Watch {
    /// By which the record is asked for.
    pub(crate) fn id(&self) -> String {
        self.ticket.to_string()
    }

    /// It is recorded when what goes on in the background has ended.
    pub(crate) fn goes_on(&self) {
        self.in_background.store(true, Ordering::Relaxed);
    }

    /// Whether it goes on in the background.
    pub(crate) fn is_going_on(&self) -> bool {
        self.in_background.load(Ordering::Relaxed)
    }

    fn asked(&self) -> MutexGuard<'_, Option<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to an equal request was kept, and still holds: nothing is asked.
    pub(crate) fn was_told_before(&self) {
        if let Some(asked) = self.asked().as_mut() {
            asked.was_told_before = true;
        }
    }

    /// What was answered to an equal request that was under way is the answer: nothing is asked.
    pub(crate) fn was_told_along(&self) {
        if let Some(asked) = self.asked().as_mut() {
            asked.was_told_along = true;
        }
    }

    /// A question begins.
    pub(crate) fn question(self: &Arc<Self>, ask: &Ask) -> Scribe {
        let place = self.asked().as_mut().and_then(|asked| asked.begin(ask));
        Scribe(place.map(|place| (Arc::clone(self), place)))
    }

    /// It is answered, or why it is not: then it is recorded. Once.
    pub(crate) fn end(&self, failed: Option<&Status>, missing: &[String]) {
        let Some(asked) = self.asked().take() else { return };
        let Diagnostics { clock, node, .. } = &*self.diagnostics;
        let now = clock.monotonic();
        let record = Record {
            id: self.id(),
            node: *node,
            call: self.call,
            tenants: &self.tenants,
            time: self.time,
            took: now.saturating_sub(self.begun),
            shown: now.saturating_sub(asked.last_ended().unwrap_or(self.begun)),
            failed,
            missing,
            asked: &asked,
        };
        let summary = record.summary();
        let json = record.written(shares::of_one(self.diagnostics.bytes)).into();
        let written = Written { tenants: self.tenants.clone(), since: now, summary, json };
        self.diagnostics.keep(self.ticket, written);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end(Some(&Status::new(Code::Cancelled, "whoever asked left before the answer")), &[]);
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Scribe {
    /// What time it is, by the clock that goes on.
    pub(crate) fn now(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |(watch, _)| watch.diagnostics.clock.monotonic())
    }

    fn write(&self, write: impl FnOnce(&mut record::Question, Duration)) {
        let Some((watch, place)) = &self.0 else { return };
        let now = watch.diagnostics.clock.monotonic();
        if let Some(question) = watch.asked().as_mut().and_then(|asked| asked.at(*place)) {
            write(question, now);
        }
    }

    /// It was the question's turn.
    pub(crate) fn waited(&self, since: Duration) {
        self.write(|question, now| question.waited = now.saturating_sub(since));
    }

    /// A plan was made for one tenant.
    pub(crate) fn planned(&self, tenant: &TenantId, plan: &Plan, since: Duration) {
        self.write(|question, now| question.plan(tenant, plan, now.saturating_sub(since)));
    }

    /// A source has answered, or has not.
    pub(crate) fn part(&self, part: Part) {
        self.write(|question, _| question.part(part));
    }

    /// Merges, and writes down how long that took.
    pub(crate) fn merging<R>(&self, work: impl FnOnce() -> R) -> R {
        let since = self.now();
        let done = work();
        self.write(|question, now| question.merged += now.saturating_sub(since));
        done
    }

    /// The answers of all sources are merged, or one has failed.
    pub(crate) fn gathered(&self, since: Duration) {
        self.write(|question, now| {
            question.gathered = now.saturating_sub(since).saturating_sub(question.planned);
            question.ended = now;
        });
    }
}
