//! How a shard begins that succeeds another, and how one comes back that was lost [INV-12, INV-13].
//!
//! ```text
//!  successor  copy all ─► copy what came since, again and again ─► (the other seals) ─► the rest ─► counters ─► fences ─► Opened
//!             or the ids in the slot's blocks, where the other is lost
//!  returned   Seal ─► ask who serves ─► look into blocks ─► Drop ─► Settled
//! ```
//! Whatever breaks off begins again: the first ids of a copy make forgotten what was copied before.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use athanor_catalog::{Command, Inherits, Phase, ShardEntry, ShardId};
use athanor_chassis::{Code, Status, TenantId};
use athanor_profile::hash::Hash;

use crate::counters::Counters;
use crate::entry::{Entry, FIRST_TABLE, Inherit, Source};
use crate::group::Group;
use crate::in_blocks;
use crate::kin::{Kin, MOST_IDS, WindowAsk, WindowPage};
use crate::machine::{Applied, Machine};
use crate::prepare::{ANY_AGE, MARGIN};
use crate::shard::PIECES;

/// Between two looks at whether the shard before has sealed.
const LOOK: Duration = Duration::from_millis(500);
/// Blocks are looked into that are named up to so much earlier than ids are remembered: clocks differ, and a block is
/// named before it is registered.
const EARLIER: Duration = Duration::from_secs(2 * 3600);

impl Group {
    /// Has a shard that opens take records: after it knows what it must, its log has the fences, and the catalogue says
    /// so.
    pub(crate) async fn open_up(&self, entry: &ShardEntry) -> Result<(), Status> {
        let Phase::Opening { inherits } = entry.phase else { return Ok(()) };
        let inherited = match inherits {
            Inherits::Nothing => inherits,
            Inherits::Window { of, upto } => {
                let at = self.copy(of, upto).await?;
                self.copy_counted(of, at).await?;
                Inherits::Window { of, upto: Some(at) }
            }
            Inherits::Blocks { of, .. } => {
                self.copy_blocks(entry, of).await?;
                inherits
            }
        };
        let fenced = self.fence_all().await?;
        let opened = Command::Opened { shard: self.id, inherited, fenced };
        self.deps().catalog.change(opened).await.map_err(|error| Status::of(&error))
    }

    fn kin(&self) -> Result<&dyn Kin, Status> {
        let none = || Status::new(Code::Unavailable, "this node knows of no other nodes");
        self.deps().kin.as_deref().ok_or_else(none)
    }

    /// What the catalogue says of a shard now.
    pub(crate) async fn known(&self, shard: ShardId) -> Result<ShardEntry, Status> {
        let listing = self.deps().catalog.listing(&TenantId::anonymous(), 0, 0).await;
        let shards = listing.map_err(|error| Status::of(&error))?.shards;
        let gone = || {
            Status::new(Code::NotFound, format!("the catalogue does not know shard {shard}, or it is over"))
        };
        shards.into_iter().find(|entry| entry.id == shard).ok_or_else(gone)
    }

    /// Copies the ids of the shard before, until that has sealed; says where.
    async fn copy(&self, of: ShardId, mut upto: Option<u64>) -> Result<u64, Status> {
        let whole = self.log.with(|machine| machine.standing().inherited == Some((Source::Window, of)));
        if let Some(at) = upto.filter(|_| whole) {
            return Ok(at);
        }
        let mut since = None;
        loop {
            let before = self.known(of).await?;
            since = Some(self.copy_pages(&before, since, upto).await?);
            if let Some(at) = upto {
                return Ok(at);
            }
            self.deps().clock.sleep(LOOK).await;
            match self.known(self.id).await?.phase {
                Phase::Opening { inherits: Inherits::Window { of: now, upto: at } } if now == of => upto = at,
                phase => {
                    let message = format!("the shard is {phase} by now; what it was to copy is another's");
                    return Err(Status::new(Code::Unavailable, message));
                }
            }
        }
    }

    /// Copies what another shard remembers, or what came since an age. Gives the age when that began.
    async fn copy_pages(
        &self,
        before: &ShardEntry,
        since: Option<u32>,
        upto: Option<u64>,
    ) -> Result<u32, Status> {
        let mut ask = WindowAsk {
            after: None,
            since: since.unwrap_or_default(),
            upto: upto.unwrap_or_default(),
            again: since.is_some(),
            counted: None,
        };
        let (mut first, mut age) = (since.is_none(), None);
        loop {
            let page = self.kin()?.window(before, ask).await?;
            if !page.goes_on(ask.after) {
                return Err(Status::new(Code::Internal, "the shard before gives pages that do not go on"));
            }
            let WindowPage { ids, taken, holds, more, age: now, span, counted: _ } = page;
            age.get_or_insert(now);
            ask.after = ids.last().copied().or(ask.after);
            let size = self.ids_in_an_entry();
            let chunks = ids.len().div_ceil(size).max(1);
            for (number, begin) in (1..=chunks).zip((0..).step_by(size)) {
                let ids = ids[begin..ids.len().min(begin + size)].to_vec();
                let here = |(place, of): &(u32, ShardId)| {
                    let place = (*place as usize).checked_sub(begin).filter(|place| *place < ids.len())?;
                    Some((place as u32, *of))
                };
                let taken = taken.iter().filter_map(here).collect();
                let last = number == chunks && !more && upto.is_some();
                let (stamp, source, holds) = (self.time().0, Source::Window, holds.clone());
                let inherit = Inherit { source, of: before.id, first, last, stamp, span, ids, taken, holds };
                self.inherits(inherit).await?;
                first = false;
            }
            if !more {
                return Ok(age.unwrap_or(now));
            }
        }
    }

    /// Copies what the series of the shard before have counted, as it said after its seal. In this log it stands before all
    /// batches.
    async fn copy_counted(&self, of: ShardId, at: u64) -> Result<(), Status> {
        let (before, now) = (self.known(of).await?, self.deps().clock.monotonic());
        let (counters, mut after) = (Counters::new(self.counting()), at);
        loop {
            let ask = WindowAsk { upto: at, counted: Some(after), ..WindowAsk::default() };
            let Some((index, piece)) = self.kin()?.window(&before, ask).await?.counted else { break };
            if index <= after {
                return Err(Status::new(Code::Internal, "the shard before gives pieces that do not go on"));
            }
            after = index;
            if let Err(error) = counters.read(&piece, now) {
                tracing::error!(shard = self.id, %error, "what series have counted cannot be read: they begin anew");
            }
        }
        counters.forget_entries();
        for piece in counters.write(self.entry_bytes() / PIECES) {
            self.proposes(Entry::counted(&piece)).await?;
        }
        Ok(())
    }

    /// Takes over the ids in the slot's blocks, and no others.
    async fn copy_blocks(&self, entry: &ShardEntry, of: ShardId) -> Result<(), Status> {
        if self.log.with(|machine| machine.standing().inherited == Some((Source::Blocks, of))) {
            return Ok(());
        }
        let deps = self.deps();
        let remembered = self.remembered();
        // A clock that is ahead must leave no block out, and the catalog says when the shard opened.
        let since = deps.clock.wall().min(entry.since).minus(remembered + EARLIER);
        let blocks = in_blocks::blocks(deps, entry.slot, since, None).await?;
        let span = u64::try_from(remembered.as_nanos()).unwrap_or(u64::MAX);
        let inherit = |first, last, ids| {
            let (stamp, source) = (self.time().0, Source::Blocks);
            Inherit { source, of, first, last, stamp, span, ids, taken: Vec::new(), holds: Vec::new() }
        };
        self.inherits(inherit(true, false, Vec::new())).await?;
        for block in &blocks {
            let ids: Vec<Hash> = in_blocks::ids(deps, block).await?.into_iter().collect();
            for ids in ids.chunks(self.ids_in_an_entry()) {
                self.inherits(inherit(false, false, ids.to_vec())).await?;
            }
        }
        self.inherits(inherit(false, true, Vec::new())).await?;
        Ok(())
    }

    /// How long any shard remembers ids, by what the catalogue goes by.
    fn remembered(&self) -> Duration {
        let settings = self.view().map(|view| view.settings.clone()).unwrap_or_default();
        let bounded = settings.oldest_accepted + settings.newest_possible() + MARGIN;
        if settings.oldest_accepted.is_zero() { ANY_AGE } else { bounded.max(ANY_AGE) }
    }

    /// Logs the fences of all tables; gives the newest version. A shard that has taken nothing refuses none.
    async fn fence_all(&self) -> Result<u64, Status> {
        let Some(view) = self.view() else { return Ok(FIRST_TABLE) };
        let published = view.tables.iter().flat_map(|tables| tables.in_force(i64::MIN, i64::MAX));
        let pending = view.pending.iter().map(|pending| (pending.table.version(), pending.table.from()));
        let all: Vec<(u64, i64)> =
            published.map(|table| (table.version(), table.from())).chain(pending).collect();
        let logged: BTreeSet<u64> =
            self.log.with(|machine| machine.standing().fences().map(|(version, _)| version).collect());
        let missing = all.iter().filter(|(version, _)| *version > FIRST_TABLE && !logged.contains(version));
        for (version, from) in missing {
            self.proposes(Entry::fence(*version, *from, view.revision)).await?;
        }
        Ok(all.iter().map(|(version, _)| *version).max().unwrap_or(FIRST_TABLE))
    }

    /// A shard that was lost seals its log, and drops the records that others hold, before it shows or cuts any.
    pub(crate) async fn come_back(&self, entry: &ShardEntry) -> Result<(), Status> {
        let Phase::Lost { kept } = entry.phase else { return Ok(()) };
        let at = self.seal().await?.0;
        let serves = self.deps().catalog.listing(&TenantId::anonymous(), 0, 0).await;
        let serves = serves.map_err(|error| Status::of(&error))?.shards;
        let serves = serves.into_iter().find(|other| other.slot == entry.slot && other.serves());
        let nobody =
            || Status::new(Code::Unavailable, "no shard serves the slot yet, so nobody can be asked");
        let with = serves.ok_or_else(nobody)?;
        let own = self.own(kept, at).await?;
        let mut held = HashSet::new();
        // It is asked first: what it lets go of meanwhile lies in a block by then.
        for ids in own.chunks(MOST_IDS) {
            let answers = self.kin()?.settle(&with, self.id, ids.to_vec()).await?;
            if answers.len() != ids.len() {
                return Err(Status::new(Code::Internal, "the shard that serves did not answer for each id"));
            }
            held.extend(ids.iter().zip(answers).filter(|(_, held)| *held).map(|(id, _)| *id));
        }
        if !own.is_empty() {
            let since = entry.since.minus(self.remembered() + EARLIER);
            let mine: HashSet<Hash> = own.iter().copied().collect();
            for block in in_blocks::blocks(self.deps(), entry.slot, since, Some(self.id)).await? {
                let ids = in_blocks::ids(self.deps(), &block).await?;
                held.extend(ids.intersection(&mine).copied());
            }
        }
        let mut dropped: Vec<Hash> = held.into_iter().collect();
        dropped.sort_unstable();
        for ids in dropped.chunks(self.ids_in_an_entry()) {
            self.proposes(Entry::drop(ids)).await?;
        }
        let (own, dropped) = (own.len(), dropped.len());
        tracing::warn!(shard = self.id, own, dropped, with = with.id, "the shard was lost and has settled");
        let settled = Command::Settled { shard: self.id, at, with: with.id };
        self.deps().catalog.change(settled).await.map_err(|error| Status::of(&error))
    }

    /// Has the log end; says where, and the time of the latest profile.
    pub(crate) async fn seal(&self) -> Result<(u64, i64), Status> {
        match self.proposes(Entry::seal()).await? {
            Applied::Sealed { at, latest } => Ok((at, latest.unwrap_or(i64::MIN))),
            other => Err(Status::new(Code::Internal, format!("a seal was answered with {other:?}"))),
        }
    }

    /// The ids of the records that the log has after one index and up to another.
    async fn own(&self, from: u64, to: u64) -> Result<Vec<Hash>, Status> {
        let log = self.log.clone();
        let read = move || {
            let (repeats, dropped) =
                log.with(|machine: &Machine| (machine.repeats(from + 1..to + 1), machine.dropped()));
            let mut ids = Vec::new();
            for (index, repeats) in repeats {
                let entry = log.read(index).map_err(|error| Status::of(&error))?;
                let Some(Ok(Some(head))) = entry.map(|entry| Entry::head(&entry)) else { continue };
                let repeats: BTreeSet<(u32, u32)> = repeats.into_iter().collect();
                for (upload, said) in (0..).zip(head.uploads) {
                    let new = (0..).zip(said.ids).filter(|(place, _)| !repeats.contains(&(upload, *place)));
                    ids.extend(new.map(|(_, id)| id).filter(|id| !dropped.contains(id)));
                }
            }
            Ok(ids)
        };
        self.deps().compute.run(read).await.map_err(|error| Status::of(&error))?
    }
}
