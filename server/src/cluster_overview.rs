//! What a node sees of its cluster, for pages.

use athanor_metastore::{MetastoreClient, RoutingWatch};

use crate::cluster_handle::MembershipView;
use crate::ingester_client::IngesterClient;

/// Where to look.
#[derive(Clone)]
pub struct ClusterOverview {
    /// Shards and tables.
    pub views: RoutingWatch,
    /// The catalogue itself.
    pub client: MetastoreClient,
    /// The ways to those who lead them.
    pub ways: IngesterClient,
    /// The other nodes; none of a server that is alone.
    pub company: Option<MembershipView>,
}
