//! Remote heads: the heads of shards that other nodes lead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, ShardId};
use athanor_chassis::{Backoff, Clock, ErrorCode, Random, Status, TaskGroup, TenantId};
use athanor_cluster::members::ClusterMember;
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::{NodeId, status_codec};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::shard_result::Outcome;
use athanor_querier::{PartialReceiver, RemoteSource, SourceKind, SourceQueryError, SourceReport};
use athanor_query::{DuplicateExclusions, ProfileQuery};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::read::shard_outages::{
    AttemptFailure, FailedAttempt, LEADERLESS_TIMEOUT, PROBE_INTERVAL, ProbePermit, ShardOutages,
};
use crate::rpc::dedup_ranges::encode_excluded_heads;
use crate::rpc::head_query_service::{HeadQueryService, enclosing_span, request_checksum};
use crate::rpc::ingester_client::IngesterClient;
use crate::rpc::result_stream::{ResultStreamError, decode_frames};
use crate::write::leader_cache::LeaderCache;

/// Time limit of a leader probe at each member.
const LEADER_PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of a query at one node.
const HEAD_QUERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Backoff between attempts.
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_millis(250));

/// Stream of result frames from one node.
type ResultFrameStream = BoxStream<'static, Result<wire::ResultFrame, Status>>;

/// Dependencies of queries to remote heads.
#[derive(Clone)]
pub struct RemoteHeadDeps {
    /// Cache of shard leaders.
    pub leaders: Arc<LeaderCache>,
    /// Client of ingesters, local and remote.
    pub ways: IngesterClient,
    /// Service for shards that this node leads by now. None if this node is no ingester.
    pub here: Option<HeadQueryService>,
    /// Clock for deadlines and backoff.
    pub clock: Clock,
    /// Random source for the jitter of the backoff.
    pub random: Random,
    /// Shards without a leader. Queries do not wait for them repeatedly.
    pub outages: Arc<ShardOutages>,
    /// Task group that runs probes of these shards.
    pub tasks: TaskGroup,
}

/// Group of shards that have the same cached leader.
pub struct RemoteHeads {
    asking: RemoteHeadDeps,
    shards: Vec<ShardEntry>,
    /// True if the leaders return ids of matching profiles.
    tells: bool,
    /// Ids of duplicates that are excluded from these shards.
    doubles: DuplicateExclusions,
}

/// Call to one node for some shards.
#[derive(Clone, Copy)]
struct ShardCall {
    node: NodeId,
    begun: Duration,
}

/// Result from remote shards, except for its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadMetadata {
    /// Count of log entries that were lost to damage.
    pub lost_entries: u64,
    /// True if ids of profiles were lost to damage and the catalog does not contain that loss yet.
    pub ids_lost: bool,
    /// Timestamps of the first and the last profile.
    pub times: Option<(i64, i64)>,
    /// Messages about shards that no node responds for.
    pub silent: Vec<String>,
    /// Messages about shards with rows that moved to blocks after the plan was made. The result lacks them.
    pub moved: Vec<String>,
}

impl RemoteHeadDeps {
    /// Groups shards by their cached leader. `tells` requests the ids of matching profiles, and `doubles` are
    /// excluded.
    pub fn group_by_leader(
        &self,
        shards: Vec<ShardEntry>,
        tells: bool,
        doubles: &DuplicateExclusions,
    ) -> Vec<RemoteHeads> {
        let mut by_leader: BTreeMap<NodeId, Vec<ShardEntry>> = BTreeMap::new();
        for shard in shards {
            by_leader.entry(self.leaders.candidate(&shard, 0)).or_default().push(shard);
        }
        let of_one = |shards| RemoteHeads { asking: self.clone(), shards, tells, doubles: doubles.clone() };
        by_leader.into_values().map(of_one).collect()
    }
}

impl RemoteHeads {
    /// Returns the metadata of the shards, including the time range of their profiles.
    pub async fn fetch_metadata(&self, tenant: &TenantId) -> Result<HeadMetadata, Status> {
        self.gather(tenant, &Bytes::new(), None).await
    }

    /// Queries the leaders until each shard has responded or is not worth the wait.
    async fn gather(
        &self,
        tenant: &TenantId,
        ask: &Bytes,
        mut inbox: Option<&mut PartialReceiver>,
    ) -> Result<HeadMetadata, Status> {
        let RemoteHeadDeps { leaders, clock, random, outages, .. } = &self.asking;
        // The wait ends before the query's deadline, so that a partial result is returned in time.
        let wanted = inbox.as_ref().map_or(Duration::MAX, |inbox| inbox.remaining_time(clock) / 4 * 3);
        let until = clock.monotonic() + LEADERLESS_TIMEOUT.min(wanted);
        let mut beside = HeadMetadata::default();
        let mut left = self.available_shards(tenant, &mut beside);
        for attempt in 0.. {
            let mut by_leader: BTreeMap<NodeId, Vec<ShardEntry>> = BTreeMap::new();
            for shard in left.drain(..) {
                by_leader.entry(leaders.candidate(&shard, attempt)).or_default().push(shard);
            }
            for (node, shards) in by_leader {
                let call = ShardCall { node, begun: clock.monotonic() };
                let answered = self.ask_one(node, &shards, tenant, ask, inbox.as_deref_mut()).await;
                left.extend(self.settle(call, shards, answered, &mut beside)?);
            }
            let now = clock.monotonic();
            // Each member is called once, regardless of the age of the outage.
            let is_waited_for = |shard: &ShardEntry| {
                now < until && (attempt < shard.members.len() || outages.is_worth_waiting(shard.id, now))
            };
            let (waiting, given_up): (Vec<_>, Vec<_>) = left.into_iter().partition(is_waited_for);
            for shard in &given_up {
                beside.silent.push(outages.reason(shard.id, now));
                if !outages.is_worth_waiting(shard.id, now) {
                    self.asking.probe(shard, tenant);
                }
            }
            left = waiting;
            if left.is_empty() {
                break;
            }
            RETRY_BACKOFF.wait(attempt, clock, random).await;
        }
        Ok(beside)
    }

    /// Returns the shards worth an attempt. The others are reported as silent, and probed in the background.
    fn available_shards(&self, tenant: &TenantId, beside: &mut HeadMetadata) -> Vec<ShardEntry> {
        let now = self.asking.clock.monotonic();
        let mut available = Vec::new();
        for shard in &self.shards {
            match self.asking.outages.unavailable(shard.id, now) {
                None => available.push(shard.clone()),
                Some(reason) => {
                    beside.silent.push(reason);
                    self.asking.probe(shard, tenant);
                }
            }
        }
        available
    }

    /// Records the response of one node. Returns the shards that the response lacks, for a retry.
    fn settle(
        &self,
        ShardCall { node, begun }: ShardCall,
        shards: Vec<ShardEntry>,
        results: Result<Vec<wire::ShardResult>, Status>,
        beside: &mut HeadMetadata,
    ) -> Result<Vec<ShardEntry>, Status> {
        let RemoteHeadDeps { leaders, clock, outages, .. } = &self.asking;
        let (failure, errors) = match results {
            Ok(results) => (AttemptFailure::NotLeader, beside.record_results(results, leaders)),
            Err(status) if may_pass(&status) => {
                shards.iter().for_each(|shard| leaders.record_leader(shard.id, None));
                let errors = shards.iter().map(|shard| (shard.id, status.message.clone())).collect();
                (attempt_failure(&status), errors)
            }
            Err(status) => return Err(status),
        };
        let errors: BTreeMap<ShardId, String> = errors.into_iter().collect();
        let now = clock.monotonic();
        let known = self.asking.known_members();
        let is_unanswered = |shard: &ShardEntry| match errors.get(&shard.id) {
            None => {
                outages.record_response(shard.id);
                false
            }
            Some(error) => {
                outages.record_failure(shard, FailedAttempt { node, failure, error, begun, now }, &known);
                true
            }
        };
        Ok(shards.into_iter().filter(is_unanswered).collect())
    }

    /// Calls each member in turn until one serves the shard. Returns whether an attempt proved anything.
    async fn find_leader(&self, tenant: &TenantId) -> bool {
        let RemoteHeadDeps { leaders, clock, .. } = &self.asking;
        let mut is_proven = false;
        for shard in &self.shards {
            for attempt in 0..shard.members.len().max(1) {
                let node = leaders.candidate(shard, attempt);
                let one = std::slice::from_ref(shard);
                let call = ShardCall { node, begun: clock.monotonic() };
                let asked = clock
                    .timeout(LEADER_PROBE_TIMEOUT, self.ask_one(node, one, tenant, &Bytes::new(), None))
                    .await;
                let answered = asked.unwrap_or_else(|late| {
                    Err(Status::new(ErrorCode::Deadline, format!("node {node} did not respond: {late}")))
                });
                match self.settle(call, one.to_vec(), answered, &mut HeadMetadata::default()) {
                    Ok(unanswered) if unanswered.is_empty() => return true,
                    Ok(_) => is_proven = true,
                    Err(error) => tracing::debug!(shard = shard.id, node, %error, "failed to probe a member"),
                }
            }
        }
        is_proven
    }

    /// Queries one node and adds its result to the inbox.
    async fn ask_one(
        &self,
        node: NodeId,
        shards: &[ShardEntry],
        tenant: &TenantId,
        ask: &Bytes,
        mut inbox: Option<&mut PartialReceiver>,
    ) -> Result<Vec<wire::ShardResult>, Status> {
        let encode = |shard: &ShardEntry| {
            let excluded = encode_excluded_heads(&self.doubles, shard.id);
            wire::ShardRequest {
                shard: shard.id,
                epoch: shard.epoch,
                watermark: shard.watermark,
                // If ids are excluded, the shard reports its ids, so that the querier can verify that another
                // source counts them.
                report_ids: self.tells || !excluded.is_empty(),
                excluded,
            }
        };
        let requests: Vec<wire::ShardRequest> = shards.iter().map(encode).collect();
        let checksum = request_checksum(tenant, ask, &requests);
        let left =
            inbox.as_ref().map_or(HEAD_QUERY_TIMEOUT, |inbox| inbox.remaining_time(&self.asking.clock));
        let limit = left.min(HEAD_QUERY_TIMEOUT);
        let begun = self.asking.clock.monotonic();
        let mut bytes = 0;
        let asked = async {
            let frames = self.result_frames(node, tenant, ask, requests, limit).await?;
            let on_partial = |partial: Bytes| match inbox.as_deref_mut() {
                Some(inbox) => {
                    bytes += partial.len() as u64;
                    inbox.push_chunk(&partial)
                }
                None => {
                    let message = "protocol error: peer returned data for a metadata-only request";
                    Err(Status::new(ErrorCode::Internal, message))
                }
            };
            decode_frames(frames, checksum, shards.len(), on_partial)
                .await
                .map_err(ResultStreamError::into_status)
        };
        let said = self.asking.ways.with_timeout(node, limit, asked).await;
        let said = said.and_then(|results| require_all_shards(results, shards));
        if let Some(inbox) = &inbox {
            inbox.report_source(SourceReport {
                kind: SourceKind::Shards(shards.iter().map(|shard| shard.id).collect()),
                node: Some(node),
                duration: self.asking.clock.monotonic().saturating_sub(begun),
                bytes,
                error: said.as_ref().err().map(|status| status.message.clone()),
                ..SourceReport::default()
            });
        }
        match (said, inbox) {
            // The inbox finishes only after each shard has reported. Otherwise a retry would count a shard
            // twice.
            (Ok(said), Some(inbox)) => inbox.finish().await.map(|()| said),
            (Err(status), Some(inbox)) => {
                inbox.discard();
                Err(status)
            }
            (said, None) => said,
        }
    }

    /// Returns the result frames of one node. The local service responds if this node has become the leader
    /// since the plan.
    async fn result_frames(
        &self,
        node: NodeId,
        tenant: &TenantId,
        ask: &Bytes,
        shards: Vec<wire::ShardRequest>,
        limit: Duration,
    ) -> Result<ResultFrameStream, Status> {
        let RemoteHeadDeps { ways, here, .. } = &self.asking;
        if node == ways.me {
            let none = || Status::new(ErrorCode::Unavailable, "this node is not an ingester");
            let frames = here.as_ref().ok_or_else(none)?.query_heads(tenant, ask, shards).await?;
            return Ok(stream::iter(frames.into_iter().map(Ok)).boxed());
        }
        let RpcClient { peers, handshake } = ways.remote_client()?;
        let header = Some(handshake.call_header(node, limit));
        let tenant = tenant.as_str().to_owned();
        let request = wire::QueryHeadsRequest { header, tenant, query: ask.clone(), shards };
        let response = peers.ingester(node).query_heads(request).await;
        let frames = response.map_err(|error| status_codec::from_grpc(&error))?.into_inner();
        Ok(frames.map_err(|error| status_codec::from_grpc(&error)).boxed())
    }
}

#[async_trait]
impl RemoteSource for RemoteHeads {
    async fn query(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        let packed = ask.pack().map_err(|error| Status::from_error(&error))?;
        let beside = self.gather(tenant, &packed.into(), Some(&mut *inbox)).await?;
        beside.silent.iter().for_each(|words| inbox.report_unreachable(words));
        beside.warnings().into_iter().for_each(|warning| inbox.add_warning(warning));
        inbox.report_memory_range(beside.times);
        // Rows of the other shards are in the inbox at this point. The last plan continues with them.
        match beside.moved.is_empty() {
            true => Ok(()),
            false => Err(SourceQueryError::Replan(beside.moved.join("; "))),
        }
    }
}

impl RemoteHeadDeps {
    /// Probes a shard for a leader in the background, until it has one or no further queries arrive. One task
    /// per shard.
    fn probe(&self, shard: &ShardEntry, tenant: &TenantId) {
        let Some(permit) = self.outages.begin_probe(shard, self.clock.monotonic()) else { return };
        let asking = self.clone();
        let id = shard.id;
        let tenant = tenant.clone();
        let token = self.tasks.shutdown_token();
        let probing = async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = asking.probe_until_led(&permit, &tenant) => {}
            }
        };
        if let Err(error) = self.tasks.spawn("leader probe", probing) {
            tracing::debug!(shard = id, %error, "failed to start a probe, will retry on the next query");
        }
    }

    /// Probes until the shard has a leader or no more queries miss it. Ends as well if no member's response
    /// proves anything, so that the next query shows their error.
    async fn probe_until_led(&self, permit: &ProbePermit, tenant: &TenantId) {
        while let Some(shard) = permit.next_probe(self.clock.monotonic()) {
            let far = RemoteHeads {
                asking: self.clone(),
                shards: vec![shard],
                tells: false,
                doubles: DuplicateExclusions::default(),
            };
            if !far.find_leader(tenant).await {
                break;
            }
            self.clock.sleep(PROBE_INTERVAL).await;
        }
    }

    /// Returns the gossip view of the other nodes.
    fn known_members(&self) -> Arc<BTreeMap<NodeId, ClusterMember>> {
        self.ways.remote.as_ref().map(|remote| remote.peers.members().current()).unwrap_or_default()
    }
}

/// Returns the results if they cover exactly the requested shards.
fn require_all_shards(
    mut results: Vec<wire::ShardResult>,
    shards: &[ShardEntry],
) -> Result<Vec<wire::ShardResult>, Status> {
    results.sort_unstable_by_key(|result| result.shard);
    let mut requested: Vec<ShardId> = shards.iter().map(|shard| shard.id).collect();
    requested.sort_unstable();
    if results.iter().map(|result| result.shard).eq(requested) {
        return Ok(results);
    }
    Err(Status::new(ErrorCode::Unavailable, "protocol error: response does not match the request"))
}

/// Returns whether another node may respond successfully.
fn may_pass(status: &Status) -> bool {
    matches!(
        status.code,
        ErrorCode::Unavailable | ErrorCode::Deadline | ErrorCode::NotLeader | ErrorCode::Cancelled
    )
}

fn attempt_failure(status: &Status) -> AttemptFailure {
    match status.code {
        ErrorCode::NotLeader => AttemptFailure::NotLeader,
        ErrorCode::Deadline | ErrorCode::Cancelled => AttemptFailure::TimedOut,
        _ => AttemptFailure::Unreachable,
    }
}

impl HeadMetadata {
    /// Records the results of a node. Returns the shards to retry, with reasons.
    fn record_results(
        &mut self,
        results: Vec<wire::ShardResult>,
        leaders: &LeaderCache,
    ) -> Vec<(ShardId, String)> {
        let mut retries = Vec::new();
        for result in results {
            match result.outcome {
                None => {
                    self.lost_entries += result.lost_entries;
                    self.ids_lost |= result.ids_lost;
                    let times = result.first_nanos.zip(result.last_nanos);
                    self.times = enclosing_span(self.times.into_iter().chain(times));
                }
                Some(Outcome::Error(error)) => {
                    let leader = Some(error.leader_node_id).filter(|leader| *leader != 0);
                    leaders.record_leader(result.shard, leader);
                    retries.push((result.shard, error.message));
                }
                Some(Outcome::Stale(_)) => {
                    let why = format!("the latest profiles of shard {} have moved to blocks", result.shard);
                    self.moved.push(why);
                }
            }
        }
        retries
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use athanor_catalog::ShardPhase;
    use athanor_chassis::Timestamp;

    use super::*;
    use crate::rpc::service_load::ServiceLoad;

    /// Two members of a shard that cannot be reached.
    fn unreachable_shard(clock: &Clock) -> RemoteHeads {
        let ways = IngesterClient {
            me: 9,
            ingester: None,
            loads: Arc::new(ServiceLoad::default()),
            remote: None,
            clock: clock.clone(),
        };
        let asking = RemoteHeadDeps {
            leaders: Arc::new(LeaderCache::new(9, None, None)),
            ways,
            here: None,
            clock: clock.clone(),
            random: Random::from_seed(1),
            outages: Arc::default(),
            tasks: TaskGroup::new(clock.clone(), 8),
        };
        let shard = ShardEntry {
            id: 1,
            slot: 0,
            epoch: 1,
            watermark: 0,
            members: BTreeSet::from([2, 3, 4]),
            phase: ShardPhase::Open,
            fenced: 1,
            since: Timestamp::UNIX_EPOCH,
        };
        RemoteHeads { asking, shards: vec![shard], tells: false, doubles: DuplicateExclusions::default() }
    }

    #[tokio::test]
    async fn only_the_first_query_waits_for_a_shard_without_quorum() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let (far, tenant) = (unreachable_shard(&clock), TenantId::default());
        let begun = clock.monotonic();
        let driving = async {
            loop {
                hand.wait_for_sleepers(1).await;
                hand.advance(Duration::from_millis(10));
            }
        };
        let first = tokio::select! {
            first = far.fetch_metadata(&tenant) => first,
            () = driving => unreachable!("it does not end"),
        };
        let waited = clock.monotonic() - begun;
        assert!(waited < Duration::from_secs(3), "no quorum is waited for 2 s, not {waited:?}");
        assert!(waited >= Duration::from_secs(2), "an election may end in {waited:?}");
        let silent = first.unwrap().silent;
        assert!(silent[0].contains("shard 1 has had no majority of members for 2."), "{silent:?}");
        let outages = &far.asking.outages;
        assert!(outages.begin_probe(&far.shards[0], clock.monotonic()).is_none(), "a task probes the shard");
        // The clock stands still: nothing may wait.
        let at = clock.monotonic();
        let second = far.fetch_metadata(&tenant).await.unwrap();
        assert_eq!((second.silent.len(), clock.monotonic()), (1, at));
        assert!(second.silent[0].contains("its latest profiles are left out"), "{second:?}");
    }

    #[test]
    fn stale_shard_hides_no_result_of_other_shards() {
        let result = |shard, outcome| wire::ShardResult { shard, outcome, ..wire::ShardResult::default() };
        let error = wire::RpcStatus { message: "it leads no more".to_owned(), ..wire::RpcStatus::default() };
        let results = vec![
            result(1, Some(Outcome::Stale(true))),
            wire::ShardResult {
                lost_entries: 3,
                ids_lost: true,
                first_nanos: Some(5),
                last_nanos: Some(7),
                ..result(2, None)
            },
            result(3, Some(Outcome::Stale(true))),
            result(4, Some(Outcome::Error(error))),
        ];
        let (leaders, mut beside) = (LeaderCache::new(1, None, None), HeadMetadata::default());
        assert_eq!(beside.record_results(results, &leaders), [(4, "it leads no more".to_owned())]);
        assert_eq!((beside.lost_entries, beside.ids_lost, beside.times), (3, true, Some((5, 7))));
        assert_eq!(
            beside.moved,
            [1, 3].map(|shard| format!("the latest profiles of shard {shard} have moved to blocks"))
        );
    }
}
