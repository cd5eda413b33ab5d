//! One voter after the other, until one answers or the time is up.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use athanor_catalog::CatalogError;
use athanor_chassis::units::format_duration;
use athanor_chassis::{Clock, ErrorCode, Random, Status};
use athanor_cluster::NodeId;

/// How long all tries together may take: as long as an upload waits for a leader. On a busy machine several may stand for
/// election before one is chosen.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// And each of them: a voter that is cut off may not answer at all.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Before all are tried again.
const ATTEMPT_BACKOFF: Duration = Duration::from_millis(200);
/// Bytes of each reason that are told.
const MAX_REASON_BYTES: usize = 300;

/// Where somebody is who may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VoterEndpoint {
    /// In this process.
    Here,
    /// On another node.
    Node(NodeId),
}

/// What a try came to that got no answer.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) status: Status,
    /// Who is said to lead.
    pub(crate) leader: Option<VoterEndpoint>,
}

/// The tries of one question.
pub(crate) struct VoterAttempts<'a> {
    clock: &'a Clock,
    random: &'a Random,
    limit: Duration,
    each: Duration,
    until: Duration,
    /// Who is to be tried yet, before all are tried again.
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

    /// Whom to try next, and for how long. `doors` says who there is, the best first.
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
                self.clock.sleep(self.random.jitter(ATTEMPT_BACKOFF).min(left)).await;
            }
            self.laps = self.laps.saturating_add(1);
            self.tried.values_mut().for_each(|(of_this_lap, _)| *of_this_lap = false);
            self.lap = doors().into();
        }
    }

    /// Goes on after a try that failed, unless no other would be answered otherwise.
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
                "no voter of the catalogue was found within {limit}: gossip tells of no node with the role metastore; \
                 start one, or check cluster.seeds"
            )
        } else {
            let reason = |status: &Status| {
                let end = status.message.floor_char_boundary(MAX_REASON_BYTES);
                status.message[..end].to_owned()
            };
            let told = self.tried.iter().map(|(door, (_, status))| format!("{door}: {}", reason(status)));
            let told: Vec<String> = told.collect();
            format!("no voter of the catalogue answered within {limit}; tried {}", told.join("; "))
        };
        CatalogError::Unavailable(Status::new(ErrorCode::Unavailable, message))
    }
}
