//! State that one querier stores for clients: async queries and diagnostics records. Its id names the node,
//! so that every querier can forward a request to that node.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Clock, Random, Status, TaskGroup, TenantId};
use bytes::Bytes;

use crate::async_query::background::{
    AsyncQueryLimits, AsyncQueryRegistry, AsyncQueryReport, StoredAsyncResult,
};
use crate::async_query::query_handle::{PeerRequest, QueryHandleId};
use crate::config::QuerierConfig;
use crate::diagnostics::QueryDiagnostics;

/// Dependencies of a querier in a cluster.
pub struct QuerierClusterDeps {
    /// Id of this node.
    pub node: u64,
    /// Client of other queriers. None if there are none.
    pub others: Option<Arc<dyn PeerQueriers>>,
    /// Task group for async queries.
    pub tasks: TaskGroup,
    /// Random source for ids.
    pub random: Random,
}

/// State that this querier stores for clients, and the client of other queriers.
pub(crate) struct ClientState {
    node: u64,
    others: Option<Arc<dyn PeerQueriers>>,
    pub(crate) background: Arc<AsyncQueryRegistry<StoredAsyncResult>>,
    pub(crate) diagnostics: Arc<QueryDiagnostics>,
}

/// Client of other queriers.
#[async_trait]
pub trait PeerQueriers: Send + Sync {
    /// Polls an async query at the node that runs it.
    async fn poll_async_query(
        &self,
        ticket: QueryHandleId,
        errand: &PeerRequest<'_>,
    ) -> Result<AsyncQueryReport, Status>;

    /// Fetches the diagnostics record of a query from another node, as JSON.
    async fn query_record(&self, ticket: QueryHandleId, errand: &PeerRequest<'_>) -> Result<Bytes, Status>;
}

impl ClientState {
    pub(crate) fn new(place: QuerierClusterDeps, config: &QuerierConfig, clock: &Clock) -> Self {
        let QuerierClusterDeps { node, others, tasks, random } = place;
        let bounds = AsyncQueryLimits {
            most: config.max_async_queries_per_tenant,
            bytes: config.async_result_bytes(),
        };
        Self {
            node,
            others,
            background: Arc::new(AsyncQueryRegistry::new(node, tasks, random.split(), clock.clone(), bounds)),
            diagnostics: Arc::new(QueryDiagnostics::new(
                node,
                random.split(),
                clock.clone(),
                config.diagnostics_bytes,
            )),
        }
    }

    /// Returns the client for the node that stores the state, if that is another node.
    pub(crate) fn peer_of(&self, ticket: QueryHandleId) -> Option<&dyn PeerQueriers> {
        self.others.as_deref().filter(|_| ticket.node != self.node)
    }
}

impl PeerRequest<'_> {
    /// Returns the tenants that the state must belong to.
    pub fn tenants(&self) -> &[TenantId] {
        self.reader.tenants()
    }

    /// Returns the time until the deadline of the request.
    pub fn remaining_time(&self) -> Duration {
        self.reader.deadline(self.clock).saturating_sub(self.clock.monotonic())
    }

    /// Reserves memory for a part of the response, until the response is rendered.
    pub fn reserve_memory(&self, bytes: usize) -> Result<(), Status> {
        self.reader.hold_memory(self.room.for_tenants(self.reader.tenants()).reserve(bytes)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_name_their_node_and_nothing_else_is_one() {
        let ticket = QueryHandleId::generate(0x0123_4567_89ab_cdef, &Random::from_seed(1));
        let text = ticket.to_string();
        assert!(text.starts_with("01234567-89ab-cdef-"), "{text}");
        assert_eq!((text.len(), QueryHandleId::parse(&text)), (36, Some(ticket)));
        assert_eq!(QueryHandleId::parse(&text.to_uppercase()), Some(ticket));
        for odd in
            ["", "7", &text[1..], &text.replace('-', ""), &format!("{text}0"), &format!("+{}", &text[1..])]
        {
            assert_eq!(QueryHandleId::parse(odd), None, "{odd}");
        }
        assert_eq!(QueryHandleId::parse(&"é".repeat(18)), None);
    }
}
