//! Client of the internal API of other nodes.

use std::sync::Arc;

use crate::handshake::PeerHandshake;
use crate::peers::PeerPool;

/// Connections to other nodes, with the identity that each request carries. Cheap to clone.
#[derive(Clone)]
pub struct RpcClient {
    /// Pool of connections to other nodes.
    pub peers: PeerPool,
    /// Handshake that creates the headers of requests.
    pub handshake: Arc<PeerHandshake>,
}
