//! Who asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use athanor_chassis::Status;
use athanor_integration::cluster::TestCluster;
use athanor_proto::athanor::v1::{Page, ProfilesRequest, Query};
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_querier::{Querier, QueryContext};

use crate::query_consistency::naive::{Ids, picked};
use crate::query_consistency::profiles::{Sums, TYPE, millis};

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
    /// Where questions may fail, or answers lack something and say so: then they are asked again.
    pub storm: Option<Arc<Storm>>,
}

/// What became of questions in a storm.
#[derive(Debug, Default)]
pub struct Storm {
    /// Answers that were whole.
    pub whole: AtomicUsize,
    /// Those that said which blocks they lack.
    pub partial: AtomicUsize,
    /// Those that said of shards that these did not respond: where the machine is busy, their leads move.
    pub silent: AtomicUsize,
    /// Questions that were refused, and may be asked again.
    pub refused: AtomicUsize,
}

/// The answer to a question, which lacks nothing. In a storm it is asked again until it does.
macro_rules! whole {
    ($asker:expr, $call:ident, $question:expr) => {{
        let question = $question;
        loop {
            let (reader, again) = ($asker.reader(), Clone::clone(&question));
            let answer = $asker.querier.$call(&reader, again).await;
            let told = answer.as_ref().map(|_| reader.warnings()).map_err(Clone::clone);
            let is_whole = $asker.is_whole(stringify!($call), told);
            match answer {
                Ok(answer) if is_whole => break answer,
                _ => tokio::task::yield_now().await,
            }
        }
    }};
}

pub(crate) use whole;

impl Asker {
    /// Who asks one of the queriers for all of so many profiles.
    pub fn of_all(cluster: &TestCluster, place: usize, tenants: &'static str, count: usize) -> Self {
        let (_, querier) = cluster.querier(place);
        let (start, end, picked) = (millis(0), millis(count), picked(count));
        Asker { querier, tenants, start, end, picked, ids: Arc::default(), storm: None }
    }

    /// Whether an answer is whole, by what is told of it. Where it is not, that must be said, and be no wonder.
    pub fn is_whole(&self, call: &str, told: Result<Vec<String>, Status>) -> bool {
        let Some(Storm { whole, partial, silent, refused }) = self.storm.as_deref() else {
            assert_eq!(told, Ok(Vec::new()), "{call}: the answer is whole");
            return true;
        };
        let one = |count: &AtomicUsize| count.fetch_add(1, Ordering::SeqCst);
        match told {
            Ok(warnings) if warnings.is_empty() => {
                one(whole);
                return true;
            }
            Ok(warnings) if warnings.join("\n").contains("cannot be read now") => {
                one(partial);
            }
            Ok(warnings) => {
                assert!(warnings.join("\n").contains("did not respond"), "{call}: {warnings:?}");
                one(silent);
            }
            Err(status) => {
                assert!(status.code.is_retryable(), "{call}: {status}");
                one(refused);
            }
        }
        false
    }

    pub fn reader(&self) -> QueryContext {
        QueryContext::parse(self.tenants).unwrap()
    }

    /// What functions have by themselves.
    pub async fn sums(&self) -> Sums {
        let tree = whole!(self, merged_tree, self.merge());
        let mut sums = Sums::new();
        for node in tree.nodes().iter().filter(|node| node.self_value != 0) {
            *sums.entry(tree.name(node).to_owned()).or_default() += node.self_value;
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
