//! Id of state that one querier stores for clients, and the context of a request that is forwarded to it.

use std::fmt;
use std::sync::Arc;

use athanor_chassis::requests::result_budget::ResultBudget;
use athanor_chassis::{Clock, Random};

use crate::QueryContext;
use crate::validate::format_uuid;

/// Id of state that one querier stores. Its text form is a UUID with the node in its first half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryHandleId {
    /// Node that stores the state.
    pub node: u64,
    number: u64,
}

/// Context of a request to another querier.
pub struct PeerRequest<'a> {
    pub(crate) reader: &'a QueryContext,
    pub(crate) room: &'a Arc<ResultBudget>,
    pub(crate) clock: &'a Clock,
}

impl QueryHandleId {
    pub(crate) fn generate(node: u64, random: &Random) -> Self {
        Self { node, number: random.next_u64() }
    }

    /// Parses the text form of an id. Returns none for any other text.
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
