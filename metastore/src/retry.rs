//! Attempts at one request, voter after voter, until one responds or the timeout elapses.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use athanor_catalog::CatalogError;
use athanor_chassis::units::format_duration;
use athanor_chassis::{Backoff, Clock, ErrorCode, Random, Status};
use athanor_cluster::NodeId;

/// Timeout for all attempts together, as long as an upload waits for a leader. On a busy machine several
/// elections may fail before one elects a leader.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for one attempt, because a partitioned voter may never respond.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before another round over all voters.
const ATTEMPT_BACKOFF: Backoff = Backoff::constant(Duration::from_millis(200));
/// Upper bound, in bytes, of each reason in an error message.
const MAX_REASON_BYTES: usize = 300;

/// Location of a voter that may serve the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VoterEndpoint {
    /// Voter in this process.
    Here,
    /// Voter on another node.
    Node(NodeId),
}

/// Failure of one attempt.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) status: Status,
    /// Leader that the voter reported, if any.
    pub(crate) leader: Option<VoterEndpoint>,
}

/// State of the attempts at one request.
pub(crate) struct VoterAttempts<'a> {
    clock: &'a Clock,
    random: &'a Random,
    limit: Duration,
    each: Duration,
    until: Duration,
    /// Voters that this round has not tried yet.
    lap: VecDeque<VoterEndpoint>,
    tried: BTreeMap<VoterEndpoint, (bool, Status)>,
    laps: u32,
}

impl fmt::Display for VoterEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("this node"),
            Self::Node(node) => write!(f, "node {node}"),
        }
    }
}

impl From<Status> for AttemptError {
    fn from(status: Status) -> Self {
        Self { status, leader: None }
    }
}

impl<'a> VoterAttempts<'a> {
    pub(crate) fn with_timeout(limit: Duration, clock: &'a Clock, random: &'a Random) -> Self {
        let until = clock.monotonic() + limit;
        let each = if limit > REQUEST_TIMEOUT { limit } else { ATTEMPT_TIMEOUT };
        let lap = VecDeque::new();
        let tried = BTreeMap::new();
        Self { clock, random, limit, each, until, lap, tried, laps: 0 }
    }

    /// Returns the next voter and the timeout for the attempt. `doors` lists the voters, the best first.
    pub(crate) async fn next_endpoint(
        &mut self,
        doors: impl Fn() -> Vec<VoterEndpoint>,
    ) -> Result<(VoterEndpoint, Duration), CatalogError> {
        loop {
            let left = self.until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return Err(self.timeout_error());
            }
            if let Some(door) = self.lap.pop_front() {
                return Ok((door, left.min(self.each)));
            }
            if self.laps > 0 {
                self.clock.sleep(ATTEMPT_BACKOFF.delay(0, self.random).min(left)).await;
            }
            self.laps = self.laps.saturating_add(1);
            self.tried.values_mut().for_each(|(of_this_lap, _)| *of_this_lap = false);
            self.lap = doors().into();
        }
    }

    /// Records a failed attempt, so that the next voter is tried. Returns an error if every voter would
    /// reject the request.
    pub(crate) fn record_failure(
        &mut self,
        door: VoterEndpoint,
        failed: AttemptError,
    ) -> Result<(), CatalogError> {
        let AttemptError { status, leader } = failed;
        if matches!(status.code, ErrorCode::Invalid | ErrorCode::TooLarge) {
            return Err(CatalogError::Unavailable(status));
        }
        self.tried.insert(door, (true, status));
        let is_new =
            |leader: &VoterEndpoint| !self.tried.get(leader).is_some_and(|(of_this_lap, _)| *of_this_lap);
        if let Some(leader) = leader.filter(is_new) {
            self.lap.retain(|door| *door != leader);
            self.lap.push_front(leader);
        }
        Ok(())
    }

    fn timeout_error(&self) -> CatalogError {
        let limit = format_duration(self.limit);
        let message = if self.tried.is_empty() {
            format!(
                "no metastore voter was found within {limit}: gossip lists no node with the role metastore; \
                 start one, or check cluster.seed_nodes"
            )
        } else {
            let reason = |status: &Status| {
                let end = status.message.floor_char_boundary(MAX_REASON_BYTES);
                status.message[..end].to_owned()
            };
            let told = self.tried.iter().map(|(door, (_, status))| format!("{door}: {}", reason(status)));
            let told: Vec<String> = told.collect();
            format!("no metastore voter responded within {limit}; tried {}", told.join("; "))
        };
        CatalogError::Unavailable(Status::new(ErrorCode::Unavailable, message))
    }
}
