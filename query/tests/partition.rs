//! Wherever profiles lie, the answer is that of a model which knows nothing but maps of texts.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::source::MemorySource;
use athanor_profile::tree::Tree;
use athanor_profile::{Labels, Source};
use athanor_query::{Ask, Bounds, Partial, Points, What, run};
use proptest::prelude::*;

#[path = "model/uploads.rs"]
mod uploads;

use uploads::{Asked, TYPES, Upload, asked, orders, path, question, sources, upload};

fn answer(uploads: &[Upload], asked: &Asked, what: What, order: &[usize]) -> Partial {
    let (ask, sources) = (question(asked, what), sources(uploads));
    let in_order = order.iter().map(|&at| &sources[at] as &dyn Source);
    athanor_query::answer(&ask, in_order).expect("an answer")
}

fn is_selected(upload: &Upload, asked: &Asked) -> bool {
    upload.service == asked.service && (asked.from..asked.to).contains(&upload.time)
}

/// Own values by path, without zeros.
fn by_path(tree: &Tree) -> BTreeMap<Vec<String>, i64> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut found = BTreeMap::new();
    for node in tree.nodes() {
        let mut path = paths.get(node.parent as usize).cloned().unwrap_or_default();
        if !paths.is_empty() {
            path.push(tree.name(node).to_owned());
        }
        if node.own != 0 {
            found.insert(path.clone(), node.own);
        }
        paths.push(path);
    }
    found
}

fn model_tree(uploads: &[Upload], asked: &Asked) -> BTreeMap<Vec<String>, i64> {
    let mut found: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for (frames, _, values) in uploads.iter().filter(|one| is_selected(one, asked)).flat_map(|one| &one.rows)
    {
        if frames.starts_with(&asked.call_site) {
            *found.entry(path(frames)).or_default() += i64::from(values[1]);
        }
    }
    found.retain(|_, value| *value != 0);
    found
}

type ModelPoints = BTreeMap<String, BTreeMap<u64, (i64, BTreeSet<i64>)>>;

fn model_points(uploads: &[Upload], asked: &Asked, points: &Points) -> ModelPoints {
    let mut found = ModelPoints::new();
    for upload in uploads.iter().filter(|one| one.service == asked.service) {
        let place = (0..points.count).find(|&place| {
            let right = points.start + place as i64 * points.step;
            upload.time > right - points.step && upload.time <= right
        });
        let Some(place) = place else { continue };
        let pod = upload.labels().get("pod").unwrap_or_default().to_owned();
        let (sum, moments) = found.entry(pod).or_default().entry(place).or_default();
        moments.insert(upload.time);
        let rows = upload.rows.iter().filter(|(frames, ..)| frames.starts_with(&asked.call_site));
        *sum += rows.map(|(_, _, values)| i64::from(values[1])).sum::<i64>();
    }
    found
}

proptest! {
    #[test]
    fn trees_and_profiles(
        uploads in prop::collection::vec(upload(), 0..12), asked in asked(), order in orders(),
    ) {
        let expected = model_tree(&uploads, &asked);
        let call_site = path(&asked.call_site);
        let Partial::Tree(tree) = answer(&uploads, &asked, What::Tree(call_site.clone()), &order) else {
            panic!("no tree");
        };
        prop_assert_eq!(by_path(&tree), expected.clone());
        let Partial::Profile(merged) = answer(&uploads, &asked, What::Profile(call_site), &order) else {
            panic!("no profile");
        };
        prop_assert_eq!(by_path(&Tree::from_totals(&merged.dictionary, &merged.totals)), expected);
    }

    #[test]
    fn points_over_time(
        uploads in prop::collection::vec(upload(), 0..12), asked in asked(), order in orders(),
        start in 0..30i64, step in 1..20i64, count in 1..8u64,
    ) {
        let (group_by, call_site) = (vec!["pod".to_owned()], path(&asked.call_site));
        let points = Points { start, step, count, group_by, call_site, mean: true };
        let Partial::Points(found) = answer(&uploads, &asked, What::Points(points.clone()), &order) else {
            panic!("no points");
        };
        let found: ModelPoints = found
            .into_iter()
            .map(|(labels, points)| {
                let cells = points.into_iter().map(|(place, cell)| {
                    (place, (cell.sum, cell.moments.into_iter().map(|moment| moment.0).collect()))
                });
                (labels.get("pod").unwrap_or_default().to_owned(), cells.collect())
            })
            .collect();
        prop_assert_eq!(found, model_points(&uploads, &asked, &points));
    }

    #[test]
    fn lists(
        uploads in prop::collection::vec(upload(), 0..12), asked in asked(), order in orders(),
    ) {
        let selected: Vec<&Upload> = uploads.iter().filter(|one| is_selected(one, &asked)).collect();
        let pods = selected.iter().filter_map(|one| one.labels().get("pod").map(str::to_owned));
        let expected: BTreeSet<String> = pods.collect();
        let Partial::Texts(found) = answer(&uploads, &asked, What::LabelValues("pod".into()), &order) else {
            panic!("no values");
        };
        prop_assert_eq!(found, expected);
        let wanted = vec!["pod".to_owned(), "__type__".to_owned()];
        let Partial::Series(found) = answer(&uploads, &asked, What::Series(wanted), &order) else {
            panic!("no series");
        };
        let mut expected = BTreeSet::new();
        for one in &selected {
            for (kind, _) in TYPES {
                let pod = one.labels().get("pod").unwrap_or_default().to_owned();
                expected.insert(Labels::new([("__type__".into(), kind.into()), ("pod".into(), pod)]));
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn an_answer_over_its_bound_is_refused() {
    let rows = (0..3).map(|frame| (vec![frame], false, [1, 1])).collect();
    let one = Upload { service: 0, pod: 1, time: 1, rows, source: 0 };
    let mut source = MemorySource::default();
    source.add(&one.labels(), &one.profile(), 1);
    let bounds = Bounds { nodes: 3, ..Bounds::default() };
    let ask = Ask { what: What::Tree(Vec::new()), bounds, ..Ask::default() };
    let refused = run(&ask, &source).expect_err("four nodes");
    assert_eq!(refused.to_string(), "answer has more than 3 nodes; select fewer series or a shorter time");
}
