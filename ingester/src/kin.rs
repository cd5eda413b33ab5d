//! What the shards of a slot ask each other: the ids that the one before remembers, and which records the one that serves
//! holds already.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, ShardId, slot_and_epoch};
use athanor_chassis::{Code, Status};
use athanor_consensus::Replicated;
use athanor_profile::hash::Hash;
use bytes::Bytes;

use crate::entry::{Entry, Inherit, Source};
use crate::group::Group;
use crate::ingester::Ingester;
use crate::machine::{Applied, Machine, lock};
use crate::window::Window;

/// The most ids that one message has.
pub const MOST_IDS: usize = 100_000;

/// The way to other shards of a slot, wherever they are.
#[async_trait]
pub trait Kin: Send + Sync + 'static {
    /// A page of what a shard remembers: from [`Ingester::window`] of one of its members; of another one, where that says
    /// that it cannot answer or does not lead.
    async fn window(&self, of: &ShardEntry, ask: WindowAsk) -> Result<WindowPage, Status>;

    /// Has a shard take over ids, at most [`MOST_IDS`]: [`Ingester::settle`] of the node that leads it.
    async fn settle(&self, with: &ShardEntry, by: ShardId, ids: Vec<Hash>) -> Result<Vec<bool>, Status>;
}

/// Which page of what a shard remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowAsk {
    /// Ids behind this one.
    pub after: Option<Hash>,
    /// Those only that came at this age or later: the [`WindowPage::age`] of the first page of an earlier copy.
    pub since: u32,
    /// The member must have applied this entry.
    pub upto: u64,
    /// Who asks has a whole copy already, and asks for what came since.
    pub again: bool,
    /// Instead of ids, what series have counted: what the first entry behind this one says of it.
    pub counted: Option<u64>,
}

/// A page of what a shard remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowPage {
    /// Ids, ascending; at most [`MOST_IDS`].
    pub ids: Vec<Hash>,
    /// Places of those that were taken over from shards that settled, and from which.
    pub taken: Vec<(u32, ShardId)>,
    /// Shards from which ids were taken over whose rows may lie in no block yet.
    pub holds: Vec<ShardId>,
    /// There may be more behind the last one.
    pub more: bool,
    /// The shard's log time, about seconds.
    pub age: u32,
    /// How long ids are remembered, nanoseconds.
    pub span: u64,
    /// What series have counted, and the entry that says so; none if no other does.
    pub counted: Option<(u64, Bytes)>,
}

impl WindowPage {
    /// Whether it goes on behind an id, so that asking for the next ones comes to an end.
    pub(crate) fn goes_on(&self, after: Option<Hash>) -> bool {
        let ascend = self.ids.is_sorted_by(|one, next| one < next);
        let behind = self.ids.first().is_none_or(|&first| after.is_none_or(|after| after < first));
        ascend && behind && self.ids.len() <= MOST_IDS && !(self.more && self.ids.is_empty())
    }
}

impl Ingester {
    /// Answers [`Kin::window`]. Any member does, with all that was acknowledged before it was asked; but whoever has a copy
    /// and asks what came since is answered by the one that leads, which seals the shard then.
    pub async fn window(&self, of: ShardId, ask: WindowAsk) -> Result<WindowPage, Status> {
        let group = self.member(of)?;
        group.log.read_index().await.map_err(|error| Status::of(&error))?;
        if group.log.applied() < Some(ask.upto) {
            let message =
                format!("this member of shard {of} has not applied entry {} yet; try again", ask.upto);
            return Err(Status::new(Code::Unavailable, message));
        }
        if ask.again && ask.upto == 0 {
            let not_here = |moved: crate::Moved| Status::new(Code::NotLeader, moved.to_string());
            group.lead().map_err(not_here)?;
            group.copied.store(true, Ordering::SeqCst);
        }
        let log = group.log.clone();
        let read = move || {
            if let Some(after) = ask.counted {
                let counted = counted(&log, after)?;
                return Ok(WindowPage { counted, ..WindowPage::default() });
            }
            let window = log.with(crate::Machine::window);
            let page = Window::page(&window, ask.after, ask.since, MOST_IDS);
            let page = page.map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
            let (taken, holds) = log.with(|machine| {
                (machine.taken(&page.ids), machine.standing().holds.iter().copied().collect())
            });
            let (ids, more, age, span) = (page.ids, page.more, page.age, page.span);
            Ok(WindowPage { ids, taken, holds, more, age, span, counted: None })
        };
        self.compute().run(read).await.map_err(|error| Status::of(&error))?
    }

    /// Answers [`Kin::settle`]: takes over the ids of a shard that was lost; for each, whether a record of it is here.
    pub async fn settle(&self, with: ShardId, by: ShardId, ids: Vec<Hash>) -> Result<Vec<bool>, Status> {
        if ids.len() > MOST_IDS {
            let message = format!("{} ids at once, the limit is {MOST_IDS}: ask for fewer", ids.len());
            return Err(Status::new(Code::TooLarge, message));
        }
        let slot = |shard| slot_and_epoch(shard).map(|(slot, _)| slot);
        if slot(by).is_none() || slot(by) != slot(with) {
            let message = format!("shard {by} does not settle with shard {with}, which is of another slot");
            return Err(Status::new(Code::Invalid, message));
        }
        let group = self.member(with)?;
        group.takes().map_err(|moved| Status::new(Code::NotLeader, moved.to_string()))?;
        let mut held = Vec::with_capacity(ids.len());
        for ids in ids.chunks(group.ids_in_an_entry()) {
            let (stamp, span) = group.time();
            let (source, first, last) = (Source::Settle, false, false);
            let (ids, taken, holds) = (ids.to_vec(), Vec::new(), Vec::new());
            let inherit = Inherit { source, of: by, first, last, stamp, span, ids, taken, holds };
            held.append(&mut group.inherits(inherit).await?);
        }
        Ok(held)
    }

    fn member(&self, shard: ShardId) -> Result<std::sync::Arc<Group>, Status> {
        let unknown = || format!("this node is no member of shard {shard}, or has not opened it");
        self.group(shard).ok_or_else(|| Status::new(Code::NotLeader, unknown()))
    }
}

impl Group {
    /// How many ids fit into an entry, with all that is said of each.
    pub(crate) fn ids_in_an_entry(&self) -> usize {
        ((self.entry_bytes() - 1024) / 28).clamp(1, MOST_IDS)
    }

    /// The log's time by its last entry, and how long ids are remembered.
    pub(crate) fn time(&self) -> (u64, u64) {
        let window = self.log.with(crate::Machine::window);
        let window = lock(&window);
        (window.stamp(), window.span())
    }

    /// Has the log take over ids; for each whether it was known.
    pub(crate) async fn inherits(&self, inherit: Inherit) -> Result<Vec<bool>, Status> {
        match self.proposes(inherit.encode()).await? {
            Applied::Inherited(held) => Ok(held),
            Applied::Refused(why) => Err(Status::new(Code::NotLeader, why)),
            other => Err(Status::new(Code::Internal, format!("ids were answered with {other:?}"))),
        }
    }

    /// Has the log say something of the shard as a whole.
    pub(crate) async fn proposes(&self, entry: Vec<u8>) -> Result<Applied, Status> {
        let proposed = self.log.propose_needed(entry.into()).await;
        proposed.map(|(_, applied)| applied).map_err(|error| Status::of(&error))
    }
}

/// What the first entry behind one says that series have counted, and which it is.
fn counted(log: &Replicated<Machine>, after: u64) -> Result<Option<(u64, Bytes)>, Status> {
    let Some(index) = log.with(Machine::counted).into_iter().find(|&index| index > after) else {
        return Ok(None);
    };
    let entry = log.read(index).map_err(|error| Status::of(&error))?;
    match entry.map(|entry| Entry::decode(&entry)) {
        Some(Ok(Entry::Counted(piece))) => Ok(Some((index, piece.into()))),
        _ => Err(Status::new(Code::Unavailable, "what series have counted cannot be read here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that says the same again and again must not keep its successor asking for ever.
    #[test]
    fn pages_go_on_or_are_refused() {
        let goes_on = |ids: &[Hash], more, after| {
            WindowPage { ids: ids.to_vec(), more, ..WindowPage::default() }.goes_on(after)
        };
        assert!(
            goes_on(&[1, 5], true, None) && goes_on(&[1, 5], true, Some(0)) && goes_on(&[], false, Some(9))
        );
        for (ids, more, after) in [
            (&[1, 5][..], true, Some(1)),
            (&[1, 5], false, Some(7)),
            (&[5, 1], true, None),
            (&[5, 5], false, None),
        ] {
            assert!(!goes_on(ids, more, after), "{ids:?} behind {after:?}");
        }
        assert!(!goes_on(&[], true, Some(9)), "there is more of nothing");
        assert!(!goes_on(&(0..=MOST_IDS as Hash).collect::<Vec<_>>(), true, None), "too many at once");
    }
}
