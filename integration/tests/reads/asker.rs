//! Who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_integration::cluster::Cluster;
use athanor_proto::athanor::v1::{Page, ProfilesRequest, Query};
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_querier::{Querier, Reader};

use crate::naive::{Ids, picked};
use crate::profiles::{Sums, TYPE, millis};

/// What was asked, and what was answered, as a text that is equal where the answers are.
pub type Answers = BTreeMap<&'static str, String>;

/// Who asks, and of which time: milliseconds, both ends included.
#[derive(Clone)]
pub struct Asker {
    pub querier: Querier,
    pub tenants: &'static str,
    pub start: i64,
    pub end: i64,
    /// Profiles that are asked for by their ids.
    pub picked: Vec<usize>,
    pub ids: Arc<Ids>,
}

/// The answer to a question, which lacks nothing.
macro_rules! whole {
    ($asker:expr, $call:ident, $question:expr) => {{
        let reader = $asker.reader();
        let answer = $asker.querier.$call(&reader, $question).await.unwrap();
        assert_eq!(reader.missing(), None, "the answer is whole");
        answer
    }};
}

pub(crate) use whole;

impl Asker {
    /// Who asks one of the queriers for all of so many profiles.
    pub fn of_all(cluster: &Cluster, place: usize, tenants: &'static str, count: usize) -> Self {
        let (_, querier) = cluster.querier(place);
        let (start, end, picked) = (millis(0), millis(count), picked(count));
        Asker { querier, tenants, start, end, picked, ids: Arc::default() }
    }

    pub fn reader(&self) -> Reader {
        Reader::parse(self.tenants).unwrap()
    }

    /// What functions have by themselves.
    pub async fn sums(&self) -> Sums {
        let tree = whole!(self, merged_tree, self.merge());
        let mut sums = Sums::new();
        for node in tree.nodes().iter().filter(|node| node.own != 0) {
            *sums.entry(tree.name(node).to_owned()).or_default() += node.own;
        }
        sums
    }

    /// The question for all stacks.
    pub fn merge(&self) -> SelectMergeStacktracesRequest {
        SelectMergeStacktracesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: self.start,
            end: self.end,
            max_nodes: Some(0),
            ..SelectMergeStacktracesRequest::default()
        }
    }

    /// The ids of all records.
    pub async fn ids(&self) -> Ids {
        let query = Query {
            profile_type: TYPE.to_owned(),
            selector: "{}".to_owned(),
            start: self.start,
            end: self.end,
            ..Query::default()
        };
        let page = Page { limit: 10_000, ..Page::default() };
        let request = ProfilesRequest { query: Some(query), page: Some(page), ..ProfilesRequest::default() };
        let listed = whole!(self, profiles, request);
        assert_eq!(listed.count, listed.rows.len() as u64);
        let rows = listed.rows.into_iter().map(|row| {
            let endpoint = row.labels.into_iter().find(|label| label.name == "endpoint");
            ((row.time_nanos, endpoint.unwrap_or_default().value), row.id)
        });
        rows.collect()
    }
}
