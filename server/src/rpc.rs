//! Internal gRPC between nodes: clients, services and their shared codecs.
//!
//! - `ingester_client`, `ingester_service`: writes and administration of shards.
//! - `head_query_service`: queries of the heads that this node leads.
//! - `handoff_client`: handoff between successive shards of a slot.
//! - `store_gateway_service`: queries of blocks.
//! - `querier_rpc`: async queries and diagnostics records that another querier keeps.
//! - `service_load`: load by service, with the distributor's service that reports it.
//! - `deferred_service`: rejects calls as unavailable until the service behind it starts.
//! - `result_stream`: codec of streamed results, with a checksum over request and response.
//! - `upload_codec`: codec of uploads and of their results.
//! - `dedup_ranges`: selection of the sources that report profile ids, and the encoding of excluded ids.

pub(crate) mod dedup_ranges;
pub(crate) mod deferred_service;
pub(crate) mod handoff_client;
pub(crate) mod head_query_service;
pub(crate) mod ingester_client;
pub(crate) mod ingester_service;
pub(crate) mod querier_rpc;
pub(crate) mod result_stream;
pub(crate) mod service_load;
pub(crate) mod store_gateway_service;
pub(crate) mod upload_codec;
