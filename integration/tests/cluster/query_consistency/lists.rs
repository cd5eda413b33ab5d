//! What there is: types, labels and their values, series, times, and what a query would read.

use std::collections::{BTreeMap, BTreeSet};

use athanor_proto::querier::v1::{AnalyzeQueryRequest, ProfileTypesRequest, QueryScope, SeriesRequest};
use athanor_proto::types::v1::{GetProfileStatsRequest, LabelNamesRequest, LabelValuesRequest};

use crate::query_consistency::asker::{Answers, Asker, whole};
use crate::query_consistency::naive::{Naive, Record};
use crate::query_consistency::points::{Group, group};
use crate::query_consistency::profiles::TYPE;

const MATCHER: &str = r#"{service_name=~"service[0-2]"}"#;
const NAMES: [&str; 4] = ["endpoint", "pod", "service_name", "wave"];

/// Whether [`MATCHER`] means it.
fn matches(record: &&Record) -> bool {
    ["service0", "service1", "service2"].contains(&record.label("service_name"))
}

/// Values of a label, how many records have each, and whether there are more than were wanted.
type Counts = (Vec<(String, i64)>, bool);

fn counts<'n>(records: impl Iterator<Item = &'n Record>, name: &str, prefix: &str, most: usize) -> Counts {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for value in
        records.filter_map(|record| record.labels.get(name)).filter(|value| value.starts_with(prefix))
    {
        *counts.entry(value.clone()).or_default() += 1;
    }
    page(counts, most)
}

/// Names of labels, with the same numbers.
fn name_counts<'n>(records: impl Iterator<Item = &'n Record>, prefix: &str, most: usize) -> Counts {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for name in records.flat_map(|record| record.labels.keys()).filter(|name| name.starts_with(prefix)) {
        *counts.entry(name.clone()).or_default() += 1;
    }
    page(counts, most)
}

fn page(counts: BTreeMap<String, i64>, most: usize) -> Counts {
    let more = counts.len() > most;
    (counts.into_iter().take(most).collect(), more)
}

/// Profiles, their rows, and how many series they are of.
fn sizes<'n>(records: impl Iterator<Item = &'n Record>) -> (usize, usize, usize) {
    let (mut profiles, mut rows, mut series) = (0, 0, BTreeSet::new());
    for record in records {
        profiles += 1;
        rows += record.rows.len();
        series.insert(&record.labels);
    }
    (profiles, rows, series.len())
}

/// What is to be answered.
pub fn expected(naive: &Naive) -> Answers {
    let types: BTreeSet<&str> = naive.within().map(|record| record.label("__profile_type__")).collect();
    let names = |records: &mut dyn Iterator<Item = &Record>| {
        format!(
            "{:?}",
            records.flat_map(|record| record.labels.keys().cloned()).collect::<BTreeSet<String>>()
        )
    };
    let all = |record: &Record| record.labels.clone().into_iter().collect::<Group>();
    let series: BTreeSet<Group> =
        naive.within().filter(matches).map(|record| record.grouped(&NAMES)).collect();
    let whole_series: BTreeSet<Group> = naive.within().map(all).collect();
    let times: BTreeSet<i64> = naive.all().map(|record| record.time.div_euclid(1_000_000)).collect();
    let times = times.first().zip(times.last());
    Answers::from([
        ("ProfileTypes", format!("{types:?}")),
        ("LabelNames", names(&mut naive.within())),
        ("LabelNames of services", names(&mut naive.within().filter(matches))),
        ("LabelNames, counted", format!("{:?}", name_counts(naive.within(), "", usize::MAX))),
        (
            "LabelNames of services, two of a prefix",
            format!("{:?}", name_counts(naive.within().filter(matches), "__p", 2)),
        ),
        ("LabelValues", format!("{:?}", counts(naive.within(), "wave", "", usize::MAX))),
        (
            "LabelValues of services",
            format!("{:?}", counts(naive.within().filter(matches), "pod", "", usize::MAX)),
        ),
        ("LabelValues of a type", format!("{:?}", counts(naive.usual(), "endpoint", "", usize::MAX))),
        ("LabelValues, two of a prefix", format!("{:?}", counts(naive.within(), "pod", "pod", 2))),
        (
            "LabelValues, one of a prefix",
            format!("{:?}", counts(naive.within(), "service_name", "service2", 1)),
        ),
        ("Series", format!("{series:?}")),
        ("Series with all labels", format!("{whole_series:?}")),
        ("GetProfileStats", format!("{times:?}")),
        ("AnalyzeQuery", format!("{:?}", sizes(naive.usual().filter(matches)))),
        ("AnalyzeQuery of all", format!("{:?}", sizes(naive.within()))),
    ])
}

/// What is answered.
pub async fn asked(asker: &Asker) -> Answers {
    let mut answers = names(asker).await;
    answers.extend(counted(asker).await);
    answers
}

/// A list that is in its order and has nothing twice.
fn listed<T: Ord + Clone + std::fmt::Debug>(list: Vec<T>) -> String {
    let set: BTreeSet<T> = list.iter().cloned().collect();
    assert_eq!(set.iter().cloned().collect::<Vec<T>>(), list);
    format!("{set:?}")
}

async fn names(asker: &Asker) -> Answers {
    let (mut answers, start, end) = (Answers::new(), asker.start, asker.end);
    let types = whole!(asker, profile_types, ProfileTypesRequest { start, end }).profile_types;
    answers.insert("ProfileTypes", listed(types.into_iter().map(|of| of.id).collect()));
    for (question, matchers) in [("LabelNames", vec![]), ("LabelNames of services", vec![MATCHER.to_owned()])]
    {
        let request = LabelNamesRequest { matchers, start, end, ..LabelNamesRequest::default() };
        answers.insert(question, listed(whole!(asker, label_names, request).names));
    }
    let all = [
        ("Series", vec![MATCHER.to_owned()], NAMES.map(str::to_owned).to_vec()),
        ("Series with all labels", vec![], vec![]),
    ];
    for (question, matchers, label_names) in all {
        let request = SeriesRequest { matchers, label_names, start, end };
        let sets = whole!(asker, series, request).labels_set.into_iter().map(|set| group(set.labels));
        let count = sets.len();
        let found: BTreeSet<Group> = sets.collect();
        assert_eq!(found.len(), count, "no series is there twice");
        answers.insert(question, format!("{found:?}"));
    }
    answers
}

async fn counted(asker: &Asker) -> Answers {
    let (mut answers, start, end) = (Answers::new(), asker.start, asker.end);
    let values = |name: &str, matcher: Option<String>, prefix: &str, limit| LabelValuesRequest {
        name: name.to_owned(),
        matchers: matcher.into_iter().collect(),
        start,
        end,
        prefix: prefix.to_owned(),
        limit,
    };
    for (question, matcher, prefix, limit) in [
        ("LabelNames, counted", None, "", 0),
        ("LabelNames of services, two of a prefix", Some(MATCHER.to_owned()), "__p", 2),
    ] {
        let matchers = matcher.into_iter().collect();
        let prefix = prefix.to_owned();
        let request = LabelNamesRequest { matchers, start, end, prefix, limit, counts: true };
        let answer = whole!(asker, label_names, request);
        assert_eq!(answer.names.len(), answer.counts.len());
        let counts: Counts = (answer.names.into_iter().zip(answer.counts).collect(), answer.more);
        answers.insert(question, format!("{counts:?}"));
    }
    let of_type = Some(format!("{{__profile_type__={TYPE:?}}}"));
    let asked = [
        ("LabelValues", values("wave", None, "", 0)),
        ("LabelValues of services", values("pod", Some(MATCHER.to_owned()), "", 0)),
        ("LabelValues of a type", values("endpoint", of_type, "", 0)),
        ("LabelValues, two of a prefix", values("pod", None, "pod", 2)),
        ("LabelValues, one of a prefix", values("service_name", None, "service2", 1)),
    ];
    for (question, request) in asked {
        let answer = whole!(asker, label_values, request);
        assert_eq!(answer.names.len(), answer.counts.len());
        let counts: Counts = (answer.names.into_iter().zip(answer.counts).collect(), answer.more);
        answers.insert(question, format!("{counts:?}"));
    }
    let stats = whole!(asker, get_profile_stats, GetProfileStatsRequest {});
    let times = stats.data_ingested.then_some((stats.oldest_profile_time, stats.newest_profile_time));
    answers.insert("GetProfileStats", format!("{times:?}"));
    for (question, query) in
        [("AnalyzeQuery", format!("{TYPE}{MATCHER}")), ("AnalyzeQuery of all", "{}".to_owned())]
    {
        let answer = whole!(asker, analyze_query, AnalyzeQueryRequest { start, end, query });
        // Where they lie is what changes.
        let sum = |of: fn(&QueryScope) -> u64| -> u64 { answer.query_scopes.iter().map(of).sum() };
        let (profiles, rows) = (sum(|scope| scope.profile_count), sum(|scope| scope.sample_count));
        let series = answer.query_impact.unwrap_or_default().total_queried_series;
        answers.insert(question, format!("{:?}", (profiles, rows, series)));
    }
    answers
}
