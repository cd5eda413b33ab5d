//! What one querier keeps, and others are asked for: queries that it runs in the background, and records of how queries
//! were answered. Each is asked for by a ticket, which names the node, so that whoever is asked can ask that one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::room::Room;
use athanor_chassis::{Clock, Random, Status, Tasks, TenantId};
use bytes::Bytes;

use crate::Reader;
use crate::background::{Background, Bounds, Kept, Looked};
use crate::check::uuid;
use crate::config::Config;
use crate::diagnostics::Diagnostics;

/// Names something that one querier keeps. Written, it is a UUID whose first half is the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Whose it is.
    pub node: u64,
    number: u64,
}

/// A querier's place among others.
pub struct Place {
    /// This node.
    pub node: u64,
    /// The way to others; none where there are none.
    pub others: Option<Arc<dyn Elsewhere>>,
    /// What runs in the background.
    pub tasks: Tasks,
    /// Tickets are drawn from it.
    pub random: Random,
}

/// What a querier keeps, and the way to what others keep.
pub(crate) struct Standing {
    node: u64,
    others: Option<Arc<dyn Elsewhere>>,
    pub(crate) background: Arc<Background<Kept>>,
    pub(crate) diagnostics: Arc<Diagnostics>,
}

/// Other queriers.
#[async_trait]
pub trait Elsewhere: Send + Sync {
    /// How far a query is that another node runs, by that node's word.
    async fn look(&self, ticket: Ticket, errand: &Errand<'_>) -> Result<Looked, Status>;

    /// What another node has recorded of a query: JSON.
    async fn record(&self, ticket: Ticket, errand: &Errand<'_>) -> Result<Bytes, Status>;
}

/// Who has another querier asked.
pub struct Errand<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) room: &'a Arc<Room>,
    pub(crate) clock: &'a Clock,
}

impl Ticket {
    pub(crate) fn draw(node: u64, random: &Random) -> Self {
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

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&uuid(u128::from(self.node) << 64 | u128::from(self.number)))
    }
}

impl Standing {
    pub(crate) fn new(place: Place, config: &Config, clock: &Clock) -> Self {
        let Place { node, others, tasks, random } = place;
        let bounds = Bounds { most: config.background_queries, bytes: config.background_bytes() };
        Self {
            node,
            others,
            background: Arc::new(Background::new(node, tasks, random.split(), clock.clone(), bounds)),
            diagnostics: Arc::new(Diagnostics::new(node, random.split(), clock.clone(), config.diagnostics)),
        }
    }

    /// The way to whoever keeps something, if that is another node.
    pub(crate) fn other(&self, ticket: Ticket) -> Option<&dyn Elsewhere> {
        self.others.as_deref().filter(|_| ticket.node != self.node)
    }
}

impl Errand<'_> {
    /// Whose it must be.
    pub fn tenants(&self) -> &[TenantId] {
        self.reader.tenants()
    }

    /// How long the answer is waited for.
    pub fn left(&self) -> Duration {
        self.reader.until(self.clock).saturating_sub(self.clock.monotonic())
    }

    /// Takes room for a part of the answer, until that was shown.
    pub fn take(&self, bytes: usize) -> Result<(), Status> {
        self.reader.hold(self.room.for_tenants(self.reader.tenants()).take(bytes)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_name_their_node_and_nothing_else_is_one() {
        let ticket = Ticket::draw(0x0123_4567_89ab_cdef, &Random::seeded(1));
        let text = ticket.to_string();
        assert!(text.starts_with("01234567-89ab-cdef-"), "{text}");
        assert_eq!((text.len(), Ticket::parse(&text)), (36, Some(ticket)));
        assert_eq!(Ticket::parse(&text.to_uppercase()), Some(ticket));
        for odd in
            ["", "7", &text[1..], &text.replace('-', ""), &format!("{text}0"), &format!("+{}", &text[1..])]
        {
            assert_eq!(Ticket::parse(odd), None, "{odd}");
        }
        assert_eq!(Ticket::parse(&"é".repeat(18)), None);
    }
}
