//! Trees of groups and lists of single profiles are those of a model which knows nothing but maps of texts, wherever
//! profiles lie and in whatever order answers merge.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::{Labels, ProfileSource};
use athanor_query::{
    GroupedTreesQuery, PartialResult, ProfileListQuery, ProfileOrder, ProfilePosition, ProfileQuery,
    QueryKind, SamplesQuery, run,
};
use proptest::prelude::*;

#[path = "model/meant.rs"]
mod meant;
#[path = "model/orders.rs"]
mod orders;
#[path = "model/uploads.rs"]
mod uploads;

use orders::orders;
use uploads::{Row, SelectionCase, Upload, path, question, selection_case, sources, upload};

/// The answer over the wire and merged in some order.
fn answer(uploads: &[Upload], case: &SelectionCase, what: QueryKind, order: &[usize]) -> PartialResult {
    let (ask, sources) = (question(case, what), sources(uploads));
    let none = PartialResult::empty(&ask.what);
    order.iter().fold(none, |sum, &at| {
        let partial = run(&ask, &sources[at]).expect("an answer");
        let mut received = athanor_query::PartialChunkBuffer::default();
        partial.pack().expect("it is small").for_each(|piece| received.push(&piece).expect("a piece"));
        sum.merge(received.unpack(&ask).expect("it was packed"), &ask.bounds).expect("it is small")
    })
}

/// The rows of an upload that are of one record: those with a label of their own are another one.
type Record<'a> = (&'a Upload, bool, Vec<&'a Row>);

fn records<'a>(uploads: &'a [Upload], case: &SelectionCase) -> Vec<Record<'a>> {
    let is_meant = |one: &Upload| one.service == case.service && (case.from..case.to).contains(&one.time);
    let mut records = Vec::new();
    for (place, upload) in uploads.iter().enumerate().filter(|(_, one)| is_meant(one)) {
        for split in [false, true] {
            let rows: Vec<_> = upload.rows.iter().filter(|row| row.labelled == split).collect();
            let is_there = !rows.is_empty() || !split && upload.rows.is_empty();
            if is_there && case.has_profile(place, split) {
                records.push((upload, split, rows));
            }
        }
    }
    records
}

fn by_path(tree: &Tree) -> BTreeMap<Vec<String>, i64> {
    let (mut paths, mut found) = (Vec::<Vec<String>>::new(), BTreeMap::new());
    for node in tree.nodes() {
        let mut path = paths.get(node.parent as usize).cloned().unwrap_or_default();
        path.extend((!paths.is_empty()).then(|| tree.name(node).to_owned()));
        if node.self_value != 0 {
            found.insert(path.clone(), node.self_value);
        }
        paths.push(path);
    }
    found
}

proptest! {
    #[test]
    fn each_group_has_the_tree_of_its_profiles(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(),
    ) {
        let what = QueryKind::Trees(GroupedTreesQuery { group_by: vec!["pod".to_owned()], stacks: case.stacks() });
        let PartialResult::Trees(found) = answer(&uploads, &case, what, &order) else { panic!("no trees") };
        let mut expected: BTreeMap<String, BTreeMap<Vec<String>, i64>> = BTreeMap::new();
        for (upload, _, rows) in records(&uploads, &case) {
            let pod = upload.labels().get("pod").unwrap_or_default().to_owned();
            let group = expected.entry(pod).or_default();
            for row in rows.into_iter().filter(|row| case.counts(row)) {
                *group.entry(path(&row.frames)).or_default() += i64::from(row.values[1]);
            }
        }
        expected.values_mut().for_each(|tree| tree.retain(|_, value| *value != 0));
        let pod = |labels: &Labels| labels.get("pod").unwrap_or_default().to_owned();
        let found: BTreeMap<_, _> = found.iter().map(|(labels, tree)| (pod(labels), by_path(tree))).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_first_profiles_are_listed_and_all_are_counted(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(),
        keep in 0..6u64, heaviest in any::<bool>(),
    ) {
        let by = if heaviest { ProfileOrder::Heaviest } else { ProfileOrder::Newest };
        let what = QueryKind::Profiles(ProfileListQuery { order: by, keep, stacks: case.stacks() });
        let PartialResult::Profiles(found) = answer(&uploads, &case, what, &order) else { panic!("no list") };
        let mut expected: Vec<(i64, i64, Option<&str>)> = Vec::new();
        for (upload, split, rows) in records(&uploads, &case) {
            let counted = rows.iter().filter(|row| case.counts(row));
            let total: i64 = counted.map(|row| i64::from(row.values[1])).sum();
            if total != 0 || case.stacks().is_empty() && case.requests.is_none() {
                expected.push((total, upload.time, split.then_some("/x")));
            }
        }
        prop_assert_eq!(found.profiles, expected.len() as u64);
        prop_assert_eq!(found.periods, (!expected.is_empty()).then_some((0, 0)));
        let key = |total: i64, time| Reverse((if heaviest { total.unsigned_abs() } else { 0 }, time));
        expected.sort_by_key(|&(total, time, _)| key(total, time));
        let keys = |rows: &[(i64, i64, Option<&str>)]| -> Vec<_> {
            rows.iter().map(|row| key(row.0, row.1)).collect()
        };
        let listed: Vec<(i64, i64, Option<&str>)> =
            found.entries().iter().map(|row| (row.total, row.time, row.labels.get("endpoint"))).collect();
        expected.truncate(keep as usize);
        prop_assert_eq!(keys(&listed), keys(&expected));
        // Of those that are equally old or heavy any may be listed, but each of them once.
        let mut ids: Vec<u128> = found.entries().iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), found.entries().len());
    }

    #[test]
    fn pages_of_samples_hold_all_samples_in_order_of_time(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(),
        max_rows in 1..8u64, spans in any::<bool>(),
    ) {
        type Sums = BTreeMap<(i64, bool, Vec<String>, u64), i64>;
        let mut found: Sums = BTreeMap::new();
        let mut samples = SamplesQuery { stacks: case.stacks(), max_rows, spans, ..SamplesQuery::default() };
        let mut last = ProfilePosition::default();
        loop {
            let what = QueryKind::Samples(samples.clone());
            let PartialResult::Samples(list) = answer(&uploads, &case, what, &order) else { panic!("no list") };
            for (profile, rows) in list.profiles() {
                prop_assert!(last < profile.position());
                last = profile.position();
                for row in rows {
                    let names = list.dictionary.frame_names(row.stack);
                    let split = profile.labels.get("endpoint").is_some();
                    *found.entry((profile.time, split, names, row.span.span)).or_default() += row.value;
                }
            }
            let is_one_profile = list.profiles().count() <= 1;
            prop_assert!(is_one_profile || list.sample_count() as u64 <= max_rows);
            let Some(end) = list.end() else { break };
            prop_assert!(end > last && end > samples.first);
            samples.first = end;
        }
        let mut expected: Sums = BTreeMap::new();
        for (upload, split, rows) in records(&uploads, &case) {
            for row in rows.iter().filter(|row| case.counts(row)) {
                let span = if spans { u64::from(row.span) } else { 0 };
                *expected.entry((upload.time, split, path(&row.frames), span)).or_default() += i64::from(row.values[1]);
            }
        }
        for sums in [&mut found, &mut expected] {
            sums.retain(|_, sum| *sum != 0);
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn more_groups_than_may_be_are_refused() {
    let row = Row { frames: vec![1], labelled: false, span: 0, trace: 0, values: [1, 1] };
    let uploads: Vec<Upload> =
        (0..3).map(|pod| Upload { service: 0, pod, time: 1, rows: vec![row.clone()], source: 0 }).collect();
    let everything = SelectionCase { to: 9, ..SelectionCase::default() };
    let group_by = vec!["pod".to_owned()];
    let mut ask: ProfileQuery = question(
        &everything,
        QueryKind::Trees(GroupedTreesQuery { group_by, ..GroupedTreesQuery::default() }),
    );
    ask.bounds.entries = 2;
    let sources = sources(&uploads);
    let all = sources.iter().map(|source| source as &dyn ProfileSource);
    let refused = athanor_query::run_all(&ask, all).expect_err("three groups");
    assert_eq!(
        refused.to_string(),
        "result has more than 2 groups; select fewer series or a shorter time range"
    );
}
