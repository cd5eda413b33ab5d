//! Handshake between nodes: each first message names its sender and its intended receiver.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_proto::athanor::internal::v1::Caller;
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

/// Creates and checks the identities that nodes send in their first messages.
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
    #[error("the message does not say who sends it")]
    Nameless,
    #[error(
        "this is node {node} of cluster {cluster:032x}, not of {theirs:032x}: an address was reused; check cluster.id and cluster.seeds"
    )]
    Foreign { node: NodeId, cluster: u128, theirs: u128 },
    #[error("this is node {node}, not {meant}: an address was reused, and gossip will tell the new one")]
    NotMeant { node: NodeId, meant: NodeId },
    #[error(
        "node {node} was started again, for the {seen}th time; this is a leftover of its {boot}th, which should end"
    )]
    Leftover { node: NodeId, boot: u64, seen: u64 },
}

impl ErrorCodeExt for HandshakeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Nameless => ErrorCode::Invalid,
            // The intended node is not at this address, so the caller tries another one.
            Self::NotMeant { .. } => ErrorCode::Unavailable,
            Self::Foreign { .. } | Self::Leftover { .. } => ErrorCode::Conflict,
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

    /// Creates the identity message for a node, with the timeout for its response.
    pub fn caller(&self, to: NodeId, limit: Duration) -> Caller {
        Caller {
            cluster: self.me.cluster.to_be_bytes().to_vec().into(),
            node: self.me.node,
            boot: self.me.boot,
            version: PROTOCOL_VERSION,
            to,
            deadline_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// Checks that a caller belongs to this cluster, means this node and is the newest start of its node.
    /// Returns its node ID.
    pub fn check_caller(&self, caller: Option<&Caller>) -> Result<NodeId, HandshakeError> {
        let NodeIdentity { cluster, node, .. } = self.me;
        let caller = caller.ok_or(HandshakeError::Nameless)?;
        let theirs: [u8; 16] = caller.cluster[..].try_into().map_err(|_| HandshakeError::Nameless)?;
        let theirs = u128::from_be_bytes(theirs);
        if theirs != cluster {
            return Err(HandshakeError::Foreign { node, cluster, theirs });
        }
        if caller.to != node {
            return Err(HandshakeError::NotMeant { node, meant: caller.to });
        }
        let mut boots = self.boots.lock();
        let seen = boots.get(&caller.node).copied().unwrap_or_default();
        if caller.boot < seen {
            return Err(HandshakeError::Leftover { node: caller.node, boot: caller.boot, seen });
        }
        if seen == 0 && boots.len() >= MAX_REMEMBERED_BOOTS {
            // An evicted node is remembered again with its next message.
            boots.pop_first();
        }
        boots.insert(caller.node, caller.boot);
        Ok(caller.node)
    }

    /// Checks that the responding node is the node that was called.
    pub fn check_responder(&self, called: NodeId, caller: Option<&Caller>) -> Result<(), HandshakeError> {
        match self.check_caller(caller)? {
            node if node == called => Ok(()),
            node => Err(HandshakeError::NotMeant { node, meant: called }),
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
    fn only_who_means_this_node_of_this_cluster_is_listened_to() {
        let me = node(7, 1, 1);
        let check = |caller: Caller| me.check_caller(Some(&caller));
        assert_eq!(check(node(7, 2, 5).caller(1, LIMIT)), Ok(2));
        let foreign = check(node(8, 2, 5).caller(1, LIMIT)).unwrap_err();
        assert_eq!(foreign.code(), ErrorCode::Conflict);
        assert!(foreign.to_string().contains("cluster.id and cluster.seeds"), "{foreign}");
        assert_eq!(
            check(node(7, 2, 5).caller(3, LIMIT)),
            Err(HandshakeError::NotMeant { node: 1, meant: 3 })
        );
        assert_eq!(check(Caller::default()), Err(HandshakeError::Nameless));
        assert_eq!(me.check_caller(None), Err(HandshakeError::Nameless));
        assert_eq!(
            check(node(7, 2, 4).caller(1, LIMIT)),
            Err(HandshakeError::Leftover { node: 2, boot: 4, seen: 5 })
        );
        assert_eq!(check(node(7, 2, 6).caller(1, LIMIT)), Ok(2));
        let other = node(7, 3, 1).caller(1, LIMIT);
        assert_eq!(me.check_responder(2, Some(&other)), Err(HandshakeError::NotMeant { node: 3, meant: 2 }));
    }

    #[test]
    fn what_is_remembered_of_others_is_bounded() {
        let me = node(7, 1, 1);
        for other in 2..MAX_REMEMBERED_BOOTS as u64 + 100 {
            assert_eq!(me.check_caller(Some(&node(7, other, 1).caller(1, LIMIT))), Ok(other));
        }
        assert_eq!(me.boots.lock().len(), MAX_REMEMBERED_BOOTS);
    }
}
