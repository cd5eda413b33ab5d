//! What all of these requests and answers have in common.

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::tree::{OTHER, Tree};
use athanor_proto::athanor::v1::{Page, Query, Tree as WireTree, TreeNode};
use athanor_proto::types::v1::LabelPair;

use super::{Asked, Rows};
use crate::check::{self, invalid};
use crate::merge::BAR;
use crate::{Querier, Reader};

pub(super) async fn asked(querier: &Querier, query: Option<Query>, name: &str) -> Result<Asked, Status> {
    let query = query.ok_or_else(|| invalid(format!("request has no {name}; set it")))?;
    let Query { start, end, .. } = query;
    let selection = querier.selection(&query.profile_type, &query.selector, start, end).await?;
    let stacks = querier.stacks_of(query.stack_trace_selector).await?;
    if stacks.pgo.is_some() {
        return Err(invalid(format!(
            "{name} has go_pgo, which shapes profiles for a compiler; leave it out here"
        )));
    }
    let profile_type = check::profile_type(&query.profile_type)?;
    Ok(Asked { selection, stacks, profile_type })
}

pub(super) fn rows(page: Option<Page>) -> Result<Rows, Status> {
    let Page { offset, limit } = page.unwrap_or_default();
    Rows::check(offset, limit)
}

pub(super) fn labels(labels: &Labels, reader: &Reader) -> Vec<LabelPair> {
    let shown = labels.iter().filter(|(name, _)| reader.shows(name));
    shown.map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() }).collect()
}

/// A tree on the wire, when there is room for it.
pub(super) fn tree(querier: &Querier, reader: &Reader, tree: &Tree) -> Result<WireTree, Status> {
    let texts: usize = tree.names().iter().map(|name| size_of::<String>() + name.len()).sum();
    querier.make_room(reader, texts + tree.nodes().len() * BAR)?;
    let mut names: Vec<String> = tree.names().iter().map(|name| name.to_string()).collect();
    let other = names.len() as u32;
    if tree.nodes().iter().any(|node| node.other) {
        names.push(OTHER.to_owned());
    }
    let nodes = (0u32..).zip(tree.nodes()).map(|(at, node)| TreeNode {
        name: if node.other { other } else { node.name },
        parent: node.parent.min(at),
        own: node.own,
        total: node.total,
        other: node.other,
    });
    Ok(WireTree { nodes: nodes.collect(), names })
}
