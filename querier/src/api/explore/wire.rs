//! Common parts of these requests and responses.

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::Labels;
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_profile::call_tree::tree::{OTHER_NAME, Tree};
use athanor_proto::athanor::v1::{Page, Query, Tree as WireTree, TreeNode};
use athanor_proto::types::v1::LabelPair;

use super::transforms::parse_transforms;
use super::{ExploreQuery, PageRange};
use crate::QueryContext;
use crate::api::merge::{TREE_NODE_BYTES, parse_stacks};
use crate::api::selection::parse_selection;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, invalid_argument};

/// Field of the query in requests that have only that query.
const ONLY_QUERY_NAME: &str = "query";

/// Parses a query. `name` is its field in the request. If that has two queries, errors begin with the name.
pub(super) async fn parse_query(
    executor: &QueryExecutor,
    query: Option<Query>,
    name: &str,
) -> Result<ExploreQuery, Status> {
    let query = query.ok_or_else(|| invalid_argument(format!("request has no {name}; set {name}")))?;
    let is_named = name != ONLY_QUERY_NAME;
    parse_fields(executor, query).await.map_err(|refused| match refused.code {
        ErrorCode::Invalid if is_named => {
            Status { message: format!("{name}: {}", refused.message), ..refused }
        }
        _ => refused,
    })
}

async fn parse_fields(executor: &QueryExecutor, query: Query) -> Result<ExploreQuery, Status> {
    let Query { start, end, .. } = query;
    let mut selection = parse_selection(executor, &query.profile_type, &query.selector, start, end).await?;
    selection.requests = validate::parse_request_filter(&query.span_selector, &query.trace_id_selector)?;
    selection.profiles = validate::parse_profile_ids(&query.profile_id_selector)?;
    let mut stacks = parse_stacks(executor, query.stack_trace_selector).await?;
    stacks.filter.transforms = parse_transforms(executor, query.transforms).await?;
    if stacks.pgo.is_some() {
        return Err(invalid_argument(
            "query has go_pgo, which formats profiles for a compiler; remove go_pgo".to_owned(),
        ));
    }
    let profile_type = validate::parse_profile_type(&query.profile_type)?;
    Ok(ExploreQuery { selection, stacks, profile_type })
}

pub(super) fn parse_page(page: Option<Page>) -> Result<PageRange, Status> {
    let Page { offset, limit } = page.unwrap_or_default();
    PageRange::from_page(offset, limit)
}

/// Converts the number of an enum. A client of a newer version may send one that this server does not know.
pub(super) fn parse_enum<E: TryFrom<i32>>(name: &str, number: i32) -> Result<E, Status> {
    E::try_from(number).map_err(|_| invalid_argument(format!("{name} is {number}, not known")))
}

pub(super) fn visible_labels(labels: &Labels, reader: &QueryContext) -> Vec<LabelPair> {
    let shown = labels.iter().filter(|(name, _)| reader.shows_label(name));
    shown.map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() }).collect()
}

/// Returns the resolution of the results so far, as the header states it.
pub(super) fn resolution_text(reader: &QueryContext) -> String {
    reader.resolution().unwrap_or_default().to_string()
}

/// Converts a tree to its wire form, after reserving memory for it.
pub(super) fn wire_tree(
    executor: &QueryExecutor,
    reader: &QueryContext,
    tree: &Tree,
    divisor: ValueDivisor,
) -> Result<WireTree, Status> {
    let texts: usize = tree.names().iter().map(|name| size_of::<String>() + name.len()).sum();
    executor.reserve_memory(reader, texts + tree.nodes().len() * TREE_NODE_BYTES)?;
    let mut names: Vec<String> = tree.names().iter().map(|name| name.to_string()).collect();
    let other = names.len() as u32;
    if tree.nodes().iter().any(|node| node.other) {
        names.push(OTHER_NAME.to_owned());
    }
    let nodes = (0u32..).zip(tree.nodes()).map(|(at, node)| TreeNode {
        name: if node.other { other } else { node.name },
        parent: node.parent.min(at),
        self_: divisor.divide(node.self_value),
        total: divisor.divide(node.total),
        other: node.other,
    });
    Ok(WireTree { nodes: nodes.collect(), names })
}
