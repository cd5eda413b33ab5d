//! Who is here, how nodes of a cluster talk to each other, and what they must agree on without asking.
//!
//! ```text
//!  Gossip ─► Members ─► Peers ─► Link ─► clients of services      one connection for each peer and purpose
//!                         └────► Talk                            all groups' messages on one stream
//!  Secrets, Introductions: who may speak here                    checked by both sides
//!
//!  placement: pure functions                                     which slot takes a profile, who serves it
//! ```
//! * [`placement`]: given a table or a list of nodes, every node comes to the same answer. What it is given is for
//!   others to keep.
//! * [`gossip`], [`members`]: hints. A node that seems to be there may be gone, and the other way round; gossip grants
//!   nothing, and whoever is called by an address that it told must show who it is.
//! * [`secret`], [`handshake`]: a node is taken for one of the cluster by the shared secret, and for the one that is
//!   meant by its first message.
//! * [`tls`]: where certificates are configured, streams between nodes are taken only from who has one.
//! * [`peers`], [`raft_transport`], [`internal_server`]: connections, with a bound on whatever waits and a limit on every wait.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod gossip;
pub mod handshake;
pub mod internal_server;
pub mod members;
pub mod peers;
pub mod placement;
pub mod raft_transport;
pub mod secret;
pub mod status_codec;
pub mod tls;

/// The number of a node, drawn with its folder and never used again.
pub type NodeId = u64;
