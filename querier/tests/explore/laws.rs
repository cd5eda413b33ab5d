//! Answers about any uploads, held against a model that knows nothing but lists of frames.

use std::collections::{BTreeMap, BTreeSet};

use athanor_proto::athanor::v1::*;
use athanor_querier::QuerierConfig;
use proptest::prelude::*;

use crate::{PERIOD, Upload, ask, both, name, querier_with, query, upload};

/// Pod, frames and value.
pub type Row = (u8, Vec<(u8, i64)>, i64);

/// All rows of the uploads of some time.
pub fn rows(uploads: &[Upload], from: i64, to: i64) -> Vec<Row> {
    let meant = uploads.iter().filter(|one| (from..=to).contains(&one.second));
    meant.flat_map(|one| one.rows.iter().map(|(frames, value)| (one.pod, frames.clone(), *value))).collect()
}

/// Self and total values by what `keys` makes of a stack: of all frames, the leaf last.
pub fn weigh<K: Ord + Clone>(rows: &[Row], key: impl Fn(u8, (u8, i64)) -> K) -> BTreeMap<K, (i64, i64)> {
    let mut found: BTreeMap<K, (i64, i64)> = BTreeMap::new();
    for (pod, frames, value) in rows {
        let all: BTreeSet<K> = frames.iter().map(|frame| key(*pod, *frame)).collect();
        all.into_iter().for_each(|key| found.entry(key).or_default().1 += value);
        found.entry(key(*pod, frames[frames.len() - 1])).or_default().0 += value;
    }
    found.retain(|_, weights| *weights != (0, 0));
    found
}

/// Self values by path below the root.
pub fn by_path(tree: &Tree) -> BTreeMap<String, i64> {
    let (mut paths, mut found) = (Vec::<String>::new(), BTreeMap::new());
    for node in &tree.nodes {
        let above = paths.get(node.parent as usize).cloned().unwrap_or_default();
        let path =
            if paths.is_empty() { above } else { format!("{above}/{}", tree.names[node.name as usize]) };
        if node.self_ != 0 {
            found.insert(path.clone(), node.self_);
        }
        paths.push(path);
    }
    found
}

pub fn sums(paths: impl Iterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    paths.for_each(|(path, value)| *found.entry(path).or_default() += value);
    found.retain(|_, value| *value != 0);
    found
}

pub fn joined<'a>(frames: impl Iterator<Item = &'a (u8, i64)>) -> String {
    frames.map(|frame| format!("/{}", name(frame.0))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_functions_are_on_some_page(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, limit in 1..4u32,
        grouped in any::<bool>(), order in 0..3i32,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let group_by = if grouped { vec!["pod".to_owned()] } else { Vec::new() };
        let (mut found, mut pages, mut of_groups) = (Vec::new(), 0, BTreeMap::new());
        loop {
            let page = Some(Page { offset: pages * limit, limit });
            let request = FunctionsRequest {
                query: query(from, to), group_by: group_by.clone(), order, page, ..Default::default()
            };
            let answer = ask(querier.functions(&both(), request)).unwrap();
            for row in &answer.rows {
                for part in &row.groups {
                    let pod = answer.groups[part.group as usize].labels.first().map(|label| label.value.clone());
                    of_groups.insert((pod.unwrap_or_default(), row.name.clone()), (part.self_, part.total));
                }
            }
            let (count, is_last) = (answer.count, answer.rows.len() < limit as usize);
            found.extend(answer.rows.into_iter().map(|row| (row.name, (row.self_, row.total))));
            pages += 1;
            if is_last {
                prop_assert_eq!(count, found.len() as u64);
                break;
            }
        }
        let key = |(name, (self_value, total)): &(String, (i64, i64))| match order {
            0 => (self_value.unsigned_abs(), total.unsigned_abs(), name.clone()),
            1 => (total.unsigned_abs(), self_value.unsigned_abs(), name.clone()),
            _ => (0, 0, name.clone()),
        };
        let is_sorted = found.windows(2).all(|pair| {
            let (left, right) = (key(&pair[0]), key(&pair[1]));
            (right.0, right.1, &left.2) < (left.0, left.1, &right.2)
                || (left.0, left.1) == (right.0, right.1) && left.2 < right.2
        });
        prop_assert!(is_sorted, "{:?}", found);
        let rows = rows(&uploads, from, to);
        // Stacks that cancel out are in no tree, so functions that weigh nothing may be on a page or not.
        let mut listed: BTreeMap<String, (i64, i64)> = found.into_iter().collect();
        listed.retain(|_, weights| *weights != (0, 0));
        prop_assert_eq!(listed, weigh(&rows, |_, frame| name(frame.0)));
        of_groups.retain(|_, weights| *weights != (0, 0));
        let pod = |pod: u8| if pod == 0 { String::new() } else { format!("p{pod}") };
        let expected = weigh(&rows, |of, frame| (pod(of), name(frame.0)));
        prop_assert_eq!(of_groups, if grouped { expected } else { BTreeMap::new() });
    }

    #[test]
    fn callers_and_callees_are_those_of_all_stacks(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, function in 0..4u8,
        depth in 0..4u32,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let function_name = name(function);
        let request =
            SandwichRequest { query: query(from, to), function: Some(function_name.clone()), depth, max_nodes: 0 };
        let answer = ask(querier.sandwich(&both(), request)).unwrap();
        let rows = rows(&uploads, from, to);
        let depth = if depth == 0 { 99 } else { depth as usize };
        let place = |frames: &[(u8, i64)]| frames.iter().position(|frame| frame.0 == function);
        let inside = || rows.iter().filter_map(|(_, frames, value)| Some((frames, place(frames)?, *value)));
        let callees =
            inside().map(|(frames, at, value)| (joined(frames[at..].iter().take(depth + 1)), value));
        let callers =
            inside().map(|(frames, at, value)| (joined(frames[..=at].iter().rev().take(depth + 1)), value));
        prop_assert_eq!(by_path(&answer.callees.unwrap_or_default()), sums(callees));
        prop_assert_eq!(by_path(&answer.callers.unwrap_or_default()), sums(callers));
        let weights = weigh(&rows, |_, frame| name(frame.0));
        prop_assert_eq!((answer.self_, answer.total), weights.get(&function_name).copied().unwrap_or_default());
    }

    #[test]
    fn lines_are_those_of_all_stacks(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, function in 0..4u8,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let request = LinesRequest { query: query(from, to), function: Some(name(function)), page: None };
        let answer = ask(querier.lines(&both(), request)).unwrap();
        let rows = rows(&uploads, from, to);
        let mut expected = weigh(&rows, |_, frame| frame);
        expected.retain(|frame, _| frame.0 == function);
        let found: BTreeMap<_, _> =
            answer.rows.iter().map(|row| ((function, row.line), (row.self_, row.total))).collect();
        prop_assert_eq!(answer.count, found.len() as u64);
        prop_assert!(answer.rows.iter().all(|row| row.file == "a.rs"));
        prop_assert_eq!(found, expected);
        let whole = weigh(&rows, |_, frame| name(frame.0)).get(&name(function)).copied().unwrap_or_default();
        prop_assert_eq!((answer.self_, answer.total), whole);
    }

    #[test]
    fn what_was_cut_off_is_found_below_its_node(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64,
        path in prop::collection::vec(0..4u8, 0..3),
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let rows = rows(&uploads, from, to);
        let inside = |frames: &[(u8, i64)]| {
            frames.len() >= path.len() && frames.iter().zip(&path).all(|(frame, wanted)| frame.0 == *wanted)
        };
        let below = rows.iter().filter(|row| inside(&row.1));
        let below = sums(below.map(|(_, frames, value)| (joined(frames[path.len()..].iter()), *value)));
        let total: i64 = below.values().sum();
        let names: Vec<String> = path.iter().map(|function| name(*function)).collect();
        let (mut skip, mut found, mut callees) = (0, BTreeMap::new(), 1);
        // One callee after the other, the heaviest first: together they are everything.
        while u64::from(skip) < callees.max(1) {
            let request = SubtreeRequest {
                query: query(from, to), path: names.clone(), skip, ..SubtreeRequest::default()
            };
            let answer = ask(querier.subtree(&both(), request)).unwrap();
            prop_assert_eq!((answer.self_, answer.total), (below.get("").copied().unwrap_or_default(), total));
            let tree = answer.tree.unwrap_or_default();
            if skip == 0 {
                found = by_path(&tree);
            }
            let shown: i64 = by_path(&tree).values().sum();
            let top: BTreeSet<String> =
                tree.nodes.iter().skip(1).filter(|node| node.parent == 0).map(|node| tree.names[node.name as usize].clone()).collect();
            let of_shown = |path: &str| path.is_empty() || top.contains(path[1..].split('/').next().unwrap_or_default());
            let expected: i64 = below.iter().filter(|(path, _)| of_shown(path)).map(|(_, value)| value).sum();
            prop_assert_eq!(shown, expected);
            callees = answer.callees;
            prop_assert_eq!(top.len() as u64, callees.saturating_sub(u64::from(skip)));
            skip += 1;
        }
        prop_assert_eq!(found, below);
    }

    #[test]
    fn what_is_not_shown_weighs_no_more_than_was_asked_for(
        uploads in prop::collection::vec(upload(), 0..10), path in prop::collection::vec(0..4u8, 0..2),
        ppm in 0..1_000_001u32, most in 0..8i64,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let names: Vec<String> = path.iter().map(|function| name(*function)).collect();
        let request = SubtreeRequest { query: query(1, 30), path: names, max_nodes: most, ..Default::default() };
        let whole = ask(querier.subtree(&both(), SubtreeRequest { max_nodes: 0, ..request.clone() })).unwrap();
        let request = SubtreeRequest { max_other_ppm: Some(ppm), ..request };
        let answer = ask(querier.subtree(&both(), request)).unwrap();
        prop_assert_eq!((answer.self_, answer.total, answer.callees), (whole.self_, whole.total, whole.callees));
        let (shown, whole) = (answer.tree.unwrap_or_default(), by_path(&whole.tree.unwrap_or_default()));
        let hidden: i64 = shown.nodes.iter().filter(|node| node.other).map(|node| node.total).sum();
        prop_assert_eq!(answer.other, hidden);
        prop_assert_eq!(by_path(&shown).values().sum::<i64>(), whole.values().sum::<i64>());
        let functions = shown.nodes.iter().skip(1).filter(|node| !node.other).count() as i64;
        let weight: u64 = whole.values().map(|value| value.unsigned_abs()).sum();
        if most == 0 {
            prop_assert!(hidden.unsigned_abs() <= (u128::from(weight) * u128::from(ppm) / 1_000_000) as u64);
        } else {
            prop_assert!(functions <= most);
        }
    }

    #[test]
    fn changes_are_differences_of_the_model(
        uploads in prop::collection::vec(upload(), 0..10), middle in 5..25i64, level in 0..2i32, measure in 0..2i32,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let request = ChangesRequest {
            left: query(1, middle), right: query(middle + 1, 30), level, measure,
            page: Some(Page { offset: 0, limit: 1_000 }), ..ChangesRequest::default()
        };
        let answer = ask(querier.changes(&both(), request)).unwrap();
        let sides = [rows(&uploads, 1, middle), rows(&uploads, middle + 1, 30)];
        let totals = sides.each_ref().map(|rows| rows.iter().map(|row| row.2).sum::<i64>());
        let seen = [answer.left.unwrap(), answer.right.unwrap()];
        prop_assert_eq!(seen.each_ref().map(|side| side.total), totals);
        let counts = [1..=middle, middle + 1..=30];
        for (side, time) in seen.iter().zip(counts) {
            prop_assert_eq!(side.profiles, uploads.iter().filter(|one| time.contains(&one.second)).count() as u64);
        }
        let line = |frame: (u8, i64)| (name(frame.0), if level == 1 { frame.1 } else { 0 });
        let weights = sides.each_ref().map(|rows| weigh(rows, |_, frame| line(frame)));
        let keys: BTreeSet<_> = weights.iter().flat_map(|side| side.keys().cloned()).collect();
        let of = |side: usize, key: &(String, i64)| weights[side].get(key).copied().unwrap_or_default();
        let value = |weights: (i64, i64)| if measure == 0 { weights.0 } else { weights.1 };
        let share = |side: usize, key: &(String, i64)| {
            if totals[side] == 0 { 0.0 } else { value(of(side, key)) as f64 / totals[side] as f64 }
        };
        let differs = |key: &&(String, i64)| {
            value(of(0, key)) != value(of(1, key)) || share(0, key) != share(1, key)
        };
        let expected: BTreeMap<(String, i64), [(i64, i64); 2]> =
            keys.iter().filter(differs).map(|key| (key.clone(), [of(0, key), of(1, key)])).collect();
        let both = |of: &Option<Weights>| of.as_ref().map(|of| (of.self_, of.total)).unwrap_or_default();
        let found: BTreeMap<(String, i64), [(i64, i64); 2]> = answer
            .rows
            .iter()
            .map(|row| ((row.function.clone(), row.line), [both(&row.left), both(&row.right)]))
            .collect();
        prop_assert_eq!(answer.count, found.len() as u64);
        prop_assert_eq!(found, expected);
        prop_assert!(answer.rows.windows(2).all(|two| two[0].share_change.abs() >= two[1].share_change.abs()));
    }

    #[test]
    fn every_profile_is_on_one_page(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, limit in 1..4u32,
        order in 0..2i32,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let mut found: Vec<ProfileRow> = Vec::new();
        let mut offset = 0;
        loop {
            let request = ProfilesRequest { query: query(from, to), order, page: Some(Page { offset, limit }) };
            let answer = ask(querier.profiles(&both(), request)).unwrap();
            offset += limit;
            let is_last = answer.rows.is_empty();
            found.extend(answer.rows);
            if is_last {
                prop_assert_eq!(answer.count, found.len() as u64);
                break;
            }
        }
        let shown = |row: &ProfileRow| {
            let pod = row.labels.iter().find(|label| label.name == "pod").map(|label| label.value.clone());
            (row.time_nanos, row.total, pod.unwrap_or_default(), row.duration_nanos, row.period)
        };
        let mut listed: Vec<_> = found.iter().map(shown).collect();
        let key = |row: &ProfileRow| if order == 0 { row.time_nanos as u64 } else { row.total.unsigned_abs() };
        prop_assert!(found.windows(2).all(|two| key(&two[0]) >= key(&two[1])));
        listed.sort();
        let meant = uploads.iter().filter(|one| (from..=to).contains(&one.second));
        let mut expected: Vec<_> = meant
            .map(|one| {
                let pod = if one.pod == 0 { String::new() } else { format!("p{}", one.pod) };
                (one.second * 1_000_000_000, one.rows.iter().map(|row| row.1).sum::<i64>(), pod, 7, PERIOD)
            })
            .collect();
        expected.sort();
        prop_assert_eq!(listed, expected);
    }
}
