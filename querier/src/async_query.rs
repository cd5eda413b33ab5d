//! Async queries and the routing of later requests to the node that stores their state.
//!
//! - `stacktraces`: merges stacktraces for the request or in an async query, which it starts or polls.
//! - `background`: starts async queries and stores their results for polls, within bounds per tenant.
//! - `query_handle`: ids of stored state, which name the node.
//! - `peer_queriers`: forwards a request to the querier that its handle id names, for async queries and for
//!   diagnostics records.

pub(crate) mod background;
pub(crate) mod peer_queriers;
pub(crate) mod query_handle;
pub(crate) mod stacktraces;
