//! What one querier keeps, and others are asked for: queries that it runs in the background, and records of how queries
//! were answered. Each is asked for by a ticket, which names the node, so that whoever is asked can ask that one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::memory_budget::MemoryBudget;
use athanor_chassis::{Clock, Random, Status, TaskGroup, TenantId};
use bytes::Bytes;

use crate::QueryContext;
use crate::background::{AsyncQueryLimits, AsyncQueryRegistry, AsyncQueryReport, StoredAsyncResult};
use crate::config::QuerierConfig;
use crate::diagnostics::QueryDiagnostics;
use crate::validate::format_uuid;

/// Names something that one querier keeps. Written, it is a UUID whose first half is the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryHandleId {
    /// Whose it is.
    pub node: u64,
    number: u64,
}

/// A querier's place among others.
pub struct QuerierClusterDeps {
    /// This node.
    pub node: u64,
    /// The way to others; none where there are none.
    pub others: Option<Arc<dyn PeerQueriers>>,
    /// What runs in the background.
    pub tasks: TaskGroup,
    /// Tickets are drawn from it.
    pub random: Random,
}

/// What a querier keeps, and the way to what others keep.
pub(crate) struct ClientState {
    node: u64,
    others: Option<Arc<dyn PeerQueriers>>,
    pub(crate) background: Arc<AsyncQueryRegistry<StoredAsyncResult>>,
    pub(crate) diagnostics: Arc<QueryDiagnostics>,
}

/// Other queriers.
#[async_trait]
pub trait PeerQueriers: Send + Sync {
    /// How far a query is that another node runs, by that node's word.
    async fn poll_async_query(
        &self,
        ticket: QueryHandleId,
        errand: &PeerRequest<'_>,
    ) -> Result<AsyncQueryReport, Status>;

    /// What another node has recorded of a query: JSON.
    async fn query_record(&self, ticket: QueryHandleId, errand: &PeerRequest<'_>) -> Result<Bytes, Status>;
}

/// Who has another querier asked.
pub struct PeerRequest<'a> {
    pub(crate) reader: &'a QueryContext,
    pub(crate) room: &'a Arc<MemoryBudget>,
    pub(crate) clock: &'a Clock,
}

impl QueryHandleId {
    pub(crate) fn generate(node: u64, random: &Random) -> Self {
        Self { node, number: random.next_u64() }
    }

    /// Reads what is written of one; anything else is none.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|letter| *letter != '-').collect();
        let id = u128::from_str_radix(&digits, 16).ok()?;
        let ticket = Self { node: (id >> 64) as u64, number: id as u64 };
        ticket.to_string().eq_ignore_ascii_case(text).then_some(ticket)
    }
}

impl fmt::Display for QueryHandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_uuid(u128::from(self.node) << 64 | u128::from(self.number)))
    }
}

impl ClientState {
    pub(crate) fn new(place: QuerierClusterDeps, config: &QuerierConfig, clock: &Clock) -> Self {
        let QuerierClusterDeps { node, others, tasks, random } = place;
        let bounds = AsyncQueryLimits { most: config.background_queries, bytes: config.async_result_bytes() };
        Self {
            node,
            others,
            background: Arc::new(AsyncQueryRegistry::new(node, tasks, random.split(), clock.clone(), bounds)),
            diagnostics: Arc::new(QueryDiagnostics::new(
                node,
                random.split(),
                clock.clone(),
                config.diagnostics,
            )),
        }
    }

    /// The way to whoever keeps something, if that is another node.
    pub(crate) fn peer_of(&self, ticket: QueryHandleId) -> Option<&dyn PeerQueriers> {
        self.others.as_deref().filter(|_| ticket.node != self.node)
    }
}

impl PeerRequest<'_> {
    /// Whose it must be.
    pub fn tenants(&self) -> &[TenantId] {
        self.reader.tenants()
    }

    /// How long the answer is waited for.
    pub fn remaining_time(&self) -> Duration {
        self.reader.deadline(self.clock).saturating_sub(self.clock.monotonic())
    }

    /// Takes room for a part of the answer, until that was shown.
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
