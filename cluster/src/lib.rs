//! Cluster membership, communication between nodes, and placement rules that need no communication.
//!
//! ```text
//!  Gossip ─► ClusterMembers ─► PeerPool ─► PeerChannel ─► gRPC clients    connection per peer and purpose
//!                                 └──────► RaftTransport                  all raft groups on one stream
//!  ClusterSecrets, PeerHandshake: authentication                          checked by both sides
//!
//!  placement: pure functions                                              slot of a profile, nodes of a slot
//! ```
//! * [`placement`]: from the same table or list of nodes, every node computes the same placement. Other
//!   components keep these inputs.
//! * [`gossip`], [`members`]: hints. A node that looks alive may be gone, and the reverse. Gossip grants no
//!   rights, and a node that is called at a gossiped address must identify itself.
//! * [`secret`], [`handshake`]: the shared secret proves membership in the cluster. The first message proves
//!   that the intended node was reached.
//! * [`tls`]: if certificates are configured, nodes accept streams only from peers with a certificate.
//! * [`peers`], [`rpc_client`], [`raft_transport`], [`internal_server`]: connections. Every queue has a bound
//!   and every wait a timeout.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod gossip;
pub mod handshake;
pub mod internal_server;
pub mod members;
pub mod peers;
pub mod placement;
pub mod raft_transport;
pub mod rpc_client;
pub mod secret;
pub mod status_codec;
pub mod tls;

/// ID of a node, drawn when its folder is created and never reused.
pub type NodeId = u64;
