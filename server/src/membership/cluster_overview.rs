//! Sources of the cluster pages, as this node sees the cluster.

use athanor_metastore::{MetastoreClient, RoutingWatch};

use crate::membership::cluster_handle::MembershipView;
use crate::rpc::ingester_client::IngesterClient;

/// Handles that the cluster pages read.
#[derive(Clone)]
pub struct ClusterOverview {
    /// Watch of shards and slot tables.
    pub views: RoutingWatch,
    /// Client of the metastore.
    pub client: MetastoreClient,
    /// Client of the ingesters, which also reaches shard leaders.
    pub ways: IngesterClient,
    /// Members of the cluster; `None` on a single-node server.
    pub company: Option<MembershipView>,
}
