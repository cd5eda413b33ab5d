//! A voter of the catalogue's group.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{
    AgeReport, Answer, BlockEntry, BlockId, Catalog, CatalogError, Command, Listing, Logged, Notes, View,
};
use athanor_chassis::{ByteSize, Clock, Code, Status, TenantId, Timestamp};
use athanor_cluster::NodeId;
use athanor_consensus::Replicated;
use athanor_consensus::replicated::{LeadError, Leader, Leadership};
use tokio::sync::Semaphore;

use crate::catalog_clock::CatalogClock;
use crate::facts::{Facts, Told};
use crate::shelf::Copy;

/// Bytes of a command.
pub const MAX_COMMAND: ByteSize = ByteSize::mib(1);
/// Proposals that wait for their answers.
const WAITING: usize = 1024;
/// The log is cut after so many entries.
const COMPACT_EVERY: u64 = 1024;
/// For so long one reading of the log's end says to all who watch that this voter is not cut off.
const CONFIRMED: Duration = Duration::from_millis(2500);
/// How long a change of the voters may take: a new one gets the log first.
const CHANGE: Duration = Duration::from_secs(30);

/// A voter of the catalogue's group. Cheap to clone.
#[derive(Clone)]
pub struct Metastore {
    shared: Arc<Shared>,
}

/// A node that votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The node.
    pub node: NodeId,
    /// Where it takes calls; empty if that was not written down yet.
    pub address: String,
}

/// A change of who votes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Add(Seat),
    Remove(NodeId),
}

struct Shared {
    group: Replicated<Facts>,
    clock: Clock,
    /// Stamps commands.
    catalog_clock: CatalogClock,
    told: Arc<Told>,
    compacted: AtomicU64,
    waiting: Semaphore,
    /// What every node must know, at the revision that somebody asked for last.
    view: Mutex<Arc<View>>,
    confirmed: tokio::sync::Mutex<Option<Confirmed>>,
    /// Held while the voters are changed, by whoever does it here.
    changing: tokio::sync::Mutex<()>,
}

/// Whether this voter had a majority behind it.
struct Confirmed {
    begun: Duration,
    ended: Duration,
    found: Result<(), Status>,
}

impl Metastore {
    /// On an open group.
    pub fn new(group: Replicated<Facts>, clock: Clock) -> Self {
        let told = group.with(Facts::told);
        let shared = Shared {
            group,
            catalog_clock: CatalogClock::new(clock.clone()),
            clock,
            told,
            compacted: AtomicU64::new(0),
            waiting: Semaphore::new(WAITING),
            view: Mutex::default(),
            confirmed: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Who leads, now and whenever that changes. What only one node should do is done where this says `here`.
    pub fn leadership(&self) -> Leadership {
        self.shared.group.leadership()
    }

    pub(crate) fn leader(&self) -> Leader {
        self.leadership().now()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(crate) fn catalog_clock(&self) -> &CatalogClock {
        &self.shared.catalog_clock
    }

    pub(crate) fn node(&self) -> NodeId {
        self.leadership().node()
    }

    /// Returns the catalog's time: what a command is stamped with now.
    pub fn time(&self) -> Timestamp {
        let newest_command = self.shared.group.with(|facts| facts.state().time());
        self.shared.catalog_clock.now(newest_command, self.node(), &self.voters())
    }

    /// Has the catalog's time catch up with this machine's clock at once, on an operator's word. Only a sole voter
    /// needs that: of several a majority decides.
    pub fn confirm_clock(&self) -> Result<Timestamp, Status> {
        let voters = self.voters().len();
        if voters > 1 {
            let message = format!(
                "the catalog has {voters} voters, whose clocks a majority decides; set the clocks of the others right"
            );
            return Err(Status::new(Code::Invalid, message));
        }
        let confirmed = self.shared.catalog_clock.confirm();
        tracing::info!(seconds = confirmed.millis() / 1000, "an operator confirmed the clock");
        Ok(confirmed)
    }

    pub(crate) fn told(&self) -> &Told {
        &self.shared.told
    }

    /// What every node must know, as far as this voter does.
    pub fn view(&self) -> Arc<View> {
        let mut held = self.shared.view.lock().unwrap_or_else(PoisonError::into_inner);
        if held.revision != self.shared.told.revision() {
            *held = Arc::new(self.shared.group.with(|facts| facts.state().view()));
        }
        Arc::clone(&held)
    }

    /// That this voter is not cut off: it has applied what was acknowledged a moment ago. All who ask at once share one
    /// answer.
    pub(crate) async fn confirm(&self) -> Result<(), Status> {
        let Shared { clock, confirmed, .. } = &*self.shared;
        let asked = clock.monotonic();
        let mut confirmed = confirmed.lock().await;
        if let Some(Confirmed { begun, ended, found }) = &*confirmed {
            let holds = match found {
                Ok(()) => *begun + CONFIRMED > asked,
                Err(_) => *ended >= asked,
            };
            if holds {
                return found.clone();
            }
        }
        let begun = clock.monotonic();
        let found = self.current().await.map_err(|error| Status::of(&error));
        *confirmed = Some(Confirmed { begun, ended: clock.monotonic(), found: found.clone() });
        found
    }

    async fn current(&self) -> Result<(), CatalogError> {
        let read = self.shared.group.read_index().await;
        read.map(|_| ()).map_err(|error| CatalogError::Unavailable(Status::of(&error)))
    }

    /// Who votes, by the group's own word; addresses are those that were written down.
    pub async fn seats(&self) -> Result<Vec<Seat>, CatalogError> {
        self.current().await?;
        Ok(self.seated())
    }

    fn seated(&self) -> Vec<Seat> {
        let (voters, view) = (self.voters(), self.view());
        let address = |node| view.voters.get(node).map(|voter| voter.address.clone()).unwrap_or_default();
        voters.iter().map(|node| Seat { node: *node, address: address(node) }).collect()
    }

    pub(crate) fn voters(&self) -> BTreeSet<NodeId> {
        self.shared.group.members().voters
    }

    /// Adds a voter, which was started to join. Only the leader can. Doing it again does no harm.
    pub async fn add_voter(&self, seat: Seat) -> Result<(), Status> {
        let Seat { node, address } = seat;
        let one = self.shared.changing.lock().await;
        let added = self.shared.group.add_voter(node, CHANGE).await;
        drop(one);
        added.map_err(|error| Status::of(&error))?;
        self.change(Command::AddVoter { node, address }).await.map_err(|error| Status::of(&error))
    }

    /// Takes a voter out. Only the leader can; it hands the lead over first where it is the one to leave, and whoever
    /// leads then has to be asked. Doing it again does no harm.
    pub async fn remove_voter(&self, node: NodeId) -> Result<(), Status> {
        let group = &self.shared.group;
        let leader = self.leader();
        if leader.here && leader.node == Some(node) {
            let voters = self.voters();
            let others = group.progress().into_iter();
            let others = others.filter(|(other, _)| *other != node && voters.contains(other));
            if let Some((to, _)) = others.max_by_key(|(_, has)| *has) {
                group.hand_over(to, CHANGE).await.map_err(|error| Status::of(&error))?;
                let message = format!("node {node} has handed the lead over to node {to}; ask that one");
                return Err(Status::new(Code::NotLeader, message));
            }
        }
        let one = self.shared.changing.lock().await;
        let removed = group.remove_voter(node, CHANGE).await;
        drop(one);
        removed.map_err(|error| match error {
            // No other voter would do it.
            LeadError::LastVoter { .. } => Status::new(Code::Invalid, error.to_string()),
            error => Status::of(&error),
        })?;
        self.change(Command::RemoveVoter { node }).await.map_err(|error| Status::of(&error))
    }

    /// Changes who votes, if that is asked, and says who does.
    pub(crate) async fn vote(&self, change: Option<Change>) -> Result<Vec<Seat>, Status> {
        match change {
            None => {}
            Some(Change::Add(seat)) => self.add_voter(seat).await?,
            Some(Change::Remove(node)) => self.remove_voter(node).await?,
        }
        self.seats().await.map_err(status)
    }

    /// Finishes what a leader that died meanwhile began to change about the voters.
    pub(crate) async fn finish_change(&self) {
        let group = &self.shared.group;
        let Ok(_one) = self.shared.changing.try_lock() else { return };
        if group.members().changing
            && let Err(error) = group.finish_change(CHANGE).await
        {
            // The lead may have gone.
            tracing::debug!(%error, "a change of the catalogue's voters is not finished yet");
        }
    }

    /// Cuts this voter's log if it has grown. Each voter cuts its own.
    pub(crate) async fn compact(&self) {
        let Shared { group, compacted, .. } = &*self.shared;
        let (before, index) = (self.compacted(), self.applied());
        let claim = || compacted.compare_exchange(before, index, Ordering::Relaxed, Ordering::Relaxed);
        if index < before + COMPACT_EVERY || claim().is_err() {
            return;
        }
        if let Err(error) = group.compact(index).await {
            tracing::warn!(%error, "the catalogue's log was not cut");
        }
    }

    /// How far its log was cut.
    pub(crate) fn compacted(&self) -> u64 {
        self.shared.compacted.load(Ordering::Relaxed)
    }

    /// The last entry that this voter knows.
    pub(crate) fn applied(&self) -> u64 {
        self.shared.group.applied().unwrap_or_default()
    }

    /// All facts as they are now.
    pub(crate) fn copy(&self) -> Copy {
        self.shared.group.with(Facts::copy)
    }

    /// Why this voter takes nothing more until a restart, if it has failed.
    pub fn failed(&self) -> Option<String> {
        self.shared.group.failed()
    }
}

/// Whether a command may be needed to free a full disk: all but those by which there would be more to do.
fn frees_space(command: &Command) -> bool {
    !matches!(
        command,
        Command::OpenShard { .. }
            | Command::OpenSlots { .. }
            | Command::AddSlot { .. }
            | Command::ProposeTable { .. }
            | Command::Rates { .. }
            | Command::Note { .. }
    )
}

/// Refuses what is too large for a command.
pub(crate) fn fits(bytes: usize) -> Result<(), Status> {
    match bytes as u64 <= MAX_COMMAND.get() {
        true => Ok(()),
        false => {
            let seen = ByteSize::bytes(bytes as u64);
            let message = format!(
                "a command has {seen}, the limit is {MAX_COMMAND}; propose it in parts, or name fewer blocks in it"
            );
            Err(Status::new(Code::TooLarge, message))
        }
    }
}

/// As it goes to other nodes.
pub(crate) fn status(error: CatalogError) -> Status {
    match error {
        CatalogError::Unavailable(status) => status,
        refused @ CatalogError::Refused(_) => Status::of(&refused),
    }
}

#[async_trait]
impl Catalog for Metastore {
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError> {
        let Shared { group, waiting, .. } = &*self.shared;
        let frees = frees_space(&command);
        let entry = Logged { at: self.time(), command }.encode();
        fits(entry.len()).map_err(CatalogError::Unavailable)?;
        let Ok(_waiting) = waiting.try_acquire() else {
            let message = format!("{WAITING} proposals wait for the catalogue, the limit; try again");
            return Err(CatalogError::Unavailable(Status::new(Code::Exhausted, message)));
        };
        let proposed = match frees {
            true => group.propose_relief(entry.into()).await,
            false => group.propose(entry.into()).await,
        };
        let (_, applied) = proposed.map_err(|error| CatalogError::Unavailable(Status::of(&error)))?;
        self.compact().await;
        let unread = || Status::new(Code::Internal, "this voter cannot read what it has logged itself");
        applied.ok_or_else(|| CatalogError::Unavailable(unread()))
    }

    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError> {
        self.current().await?;
        Ok(self.shared.group.with(|facts| facts.state().listing(tenant, from, to)))
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.current().await?;
        Ok(self.shared.group.with(|facts| facts.state().blocks().cloned().collect()))
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        self.current().await?;
        Ok(self.shared.group.with(|facts| facts.state().tenants().cloned().collect()))
    }

    async fn notes(&self, tenant: &TenantId) -> Result<Notes, CatalogError> {
        self.current().await?;
        Ok(self.shared.group.with(|facts| facts.state().notes(tenant)))
    }

    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError> {
        self.current().await?;
        Ok(self.shared.group.with(|facts| facts.state().condemned().collect()))
    }

    async fn ages(&self, retention: Duration) -> Result<AgeReport, CatalogError> {
        self.current().await?;
        let time = self.time();
        Ok(self.shared.group.with(|facts| facts.state().ages(time, retention)))
    }
}
