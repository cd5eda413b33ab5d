//! Requests to targets and other HTTP servers: addresses that are allowed, and the client.

pub mod address_policy;
pub mod http_client;
