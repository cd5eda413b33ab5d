//! What a node sees of its cluster, for pages.

use athanor_metastore::{Client, Views};

use crate::others::Company;
use crate::ways::Ways;

/// Where to look.
#[derive(Clone)]
pub struct Overview {
    /// Shards and tables.
    pub views: Views,
    /// The catalogue itself.
    pub client: Client,
    /// The ways to those who lead them.
    pub ways: Ways,
    /// The other nodes; none of a server that is alone.
    pub company: Option<Company>,
}
