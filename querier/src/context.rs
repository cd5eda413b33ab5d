//! Context of a query: the state of its request, and the state that concurrent and later requests share.
//!
//! - `query_context`: tenants, deadline, memory and warnings of one request.
//! - `limits`: query limits of the tenants, of which the strictest applies.
//! - `quarantine`: queries that crashed twice, which are rejected.
//! - `result_cache`: results by request, valid while the same blocks hold all matching data [INV-17, INV-19].
//! - `coalescer`: one computation for concurrent equal requests.

pub(crate) mod coalescer;
pub(crate) mod limits;
pub(crate) mod quarantine;
pub(crate) mod query_context;
pub(crate) mod result_cache;
