//! Handshake between nodes: each first message names its sender and its intended receiver.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_proto::athanor::internal::v1::CallHeader;
use parking_lot::Mutex;

use crate::NodeId;

/// Version of the protocol between nodes.
const PROTOCOL_VERSION: u32 = 1;
/// Upper bound of nodes with a remembered boot number.
const MAX_REMEMBERED_BOOTS: usize = 4096;

/// Identity of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// ID of the cluster.
    pub cluster: u128,
    /// ID of this node.
    pub node: NodeId,
    /// Boot number: how often the node was started, this start included.
    pub boot: u64,
}

/// Creates and checks the headers that identify nodes to each other.
#[derive(Debug)]
pub struct PeerHandshake {
    me: NodeIdentity,
    /// Newest boot number of each node that this node has heard of.
    boots: Mutex<BTreeMap<NodeId, u64>>,
}

/// Reason for rejecting a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum HandshakeError {
    #[error("missing caller identity")]
    MissingIdentity,
    #[error(
        "this is node {node} of cluster {cluster:032x}, not of {theirs:032x}: an address was reused; check cluster.id and cluster.seed_nodes"
    )]
    WrongCluster { node: NodeId, cluster: u128, theirs: u128 },
    #[error(
        "this is node {node}, not {target}: an address was reused; retry after gossip has spread the new one"
    )]
    WrongNode { node: NodeId, target: NodeId },
    #[error(
        "the request is from boot {boot} of node {node}, and boot {seen} has started since; stop the old process"
    )]
    StaleBoot { node: NodeId, boot: u64, seen: u64 },
}

impl ErrorCodeExt for HandshakeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::MissingIdentity => ErrorCode::Invalid,
            // The intended node is not at this address, so the caller tries another one.
            Self::WrongNode { .. } => ErrorCode::Unavailable,
            Self::WrongCluster { .. } | Self::StaleBoot { .. } => ErrorCode::Conflict,
        }
    }
}

impl PeerHandshake {
    /// Creates the handshake of this node.
    pub fn new(me: NodeIdentity) -> Self {
        Self { me, boots: Mutex::default() }
    }

    /// Identity of this node.
    pub fn identity(&self) -> NodeIdentity {
        self.me
    }

    /// Creates the header of a request to a node, with the timeout for its response.
    pub fn call_header(&self, target: NodeId, timeout: Duration) -> CallHeader {
        CallHeader {
            cluster_id: self.me.cluster.to_be_bytes().to_vec().into(),
            node_id: self.me.node,
            boot: self.me.boot,
            version: PROTOCOL_VERSION,
            target_node_id: target,
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// Checks that a caller belongs to this cluster, targets this node and is the newest boot of its node.
    /// Returns its node ID.
    pub fn check_caller(&self, header: Option<&CallHeader>) -> Result<NodeId, HandshakeError> {
        let NodeIdentity { cluster, node, .. } = self.me;
        let header = header.ok_or(HandshakeError::MissingIdentity)?;
        let theirs: [u8; 16] =
            header.cluster_id[..].try_into().map_err(|_| HandshakeError::MissingIdentity)?;
        let theirs = u128::from_be_bytes(theirs);
        if theirs != cluster {
            return Err(HandshakeError::WrongCluster { node, cluster, theirs });
        }
        if header.target_node_id != node {
            return Err(HandshakeError::WrongNode { node, target: header.target_node_id });
        }
        let mut boots = self.boots.lock();
        let seen = boots.get(&header.node_id).copied().unwrap_or_default();
        if header.boot < seen {
            return Err(HandshakeError::StaleBoot { node: header.node_id, boot: header.boot, seen });
        }
        if seen == 0 && boots.len() >= MAX_REMEMBERED_BOOTS {
            // An evicted node is remembered again with its next message.
            boots.pop_first();
        }
        boots.insert(header.node_id, header.boot);
        Ok(header.node_id)
    }

    /// Checks that the responding node is the node that was called.
    pub fn check_responder(&self, called: NodeId, header: Option<&CallHeader>) -> Result<(), HandshakeError> {
        match self.check_caller(header)? {
            node if node == called => Ok(()),
            node => Err(HandshakeError::WrongNode { node, target: called }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn node(cluster: u128, node: NodeId, boot: u64) -> PeerHandshake {
        PeerHandshake::new(NodeIdentity { cluster, node, boot })
    }

    #[test]
    fn caller_of_other_cluster_node_or_boot_is_rejected() {
        let me = node(7, 1, 1);
        let check = |header: CallHeader| me.check_caller(Some(&header));
        assert_eq!(check(node(7, 2, 5).call_header(1, LIMIT)), Ok(2));
        let foreign = check(node(8, 2, 5).call_header(1, LIMIT)).unwrap_err();
        assert_eq!(foreign.code(), ErrorCode::Conflict);
        assert!(foreign.to_string().contains("cluster.id and cluster.seed_nodes"), "{foreign}");
        assert_eq!(
            check(node(7, 2, 5).call_header(3, LIMIT)),
            Err(HandshakeError::WrongNode { node: 1, target: 3 })
        );
        assert_eq!(check(CallHeader::default()), Err(HandshakeError::MissingIdentity));
        assert_eq!(me.check_caller(None), Err(HandshakeError::MissingIdentity));
        assert_eq!(
            check(node(7, 2, 4).call_header(1, LIMIT)),
            Err(HandshakeError::StaleBoot { node: 2, boot: 4, seen: 5 })
        );
        assert_eq!(check(node(7, 2, 6).call_header(1, LIMIT)), Ok(2));
        let other = node(7, 3, 1).call_header(1, LIMIT);
        assert_eq!(
            me.check_responder(2, Some(&other)),
            Err(HandshakeError::WrongNode { node: 3, target: 2 })
        );
    }

    #[test]
    fn remembered_boots_are_bounded() {
        let me = node(7, 1, 1);
        for other in 2..MAX_REMEMBERED_BOOTS as u64 + 100 {
            assert_eq!(me.check_caller(Some(&node(7, other, 1).call_header(1, LIMIT))), Ok(other));
        }
        assert_eq!(me.boots.lock().len(), MAX_REMEMBERED_BOOTS);
    }
}
