//! What only this server answers, held against a model that knows nothing but lists of frames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_chassis::{ByteSize, Clock, Code, Compute, Limits, Overrides, Status, TenantId, Timestamp};
use athanor_profile::source::MemorySource;
use athanor_profile::symbols::{Function, Line, NONE};
use athanor_profile::{Labels, Profile, Source, ValueType};
use athanor_proto::athanor::v1::*;
use athanor_querier::{Config, Deps, Plan, Querier, Reader, Sources, Times};
use athanor_query::Ask;
use proptest::prelude::*;

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const PERIOD: i64 = 10;

/// A profile as the model knows it: frames are functions and their lines, root first.
#[derive(Clone, Debug)]
struct Upload {
    pod: u8,
    second: i64,
    rows: Vec<(Vec<(u8, i64)>, i64)>,
    /// Where it lies.
    source: usize,
    tenant: bool,
}

fn upload() -> impl Strategy<Value = Upload> {
    let row = (prop::collection::vec((0..4u8, 1..4i64), 1..6), -20..200i64);
    let rows = prop::collection::vec(row, 0..6);
    (0..3u8, 1..30i64, rows, 0..3usize, any::<bool>())
        .prop_map(|(pod, second, rows, source, tenant)| Upload { pod, second, rows, source, tenant })
}

fn name(function: u8) -> String {
    format!("f{function}")
}

impl Upload {
    fn profile(&self) -> Profile {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        (profile.header.period, profile.header.duration_nanos) = (PERIOD, 7);
        profile.header.time_nanos = self.second * 1_000_000_000;
        for (frames, value) in &self.rows {
            let symbols = &mut profile.dictionary.symbols;
            let path: Vec<u32> = frames
                .iter()
                .rev()
                .map(|&(function, line)| {
                    let (name, filename) =
                        (symbols.strings.intern(&name(function)), symbols.strings.intern("a.rs"));
                    let of = Function { name, system_name: name, filename, start_line: 0 };
                    let function = symbols.function(of);
                    symbols.location(NONE, 0, false, &[Line { function, line, column: 0 }])
                })
                .collect();
            let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, &path);
            profile.samples.push(stack, 0, &[*value]);
        }
        profile
    }

    fn labels(&self) -> Labels {
        let pod = if self.pod == 0 { String::new() } else { format!("p{}", self.pod) };
        Labels::new([("__name__".to_owned(), "process_cpu".to_owned()), ("pod".to_owned(), pod)])
    }
}

struct Uploads {
    uploads: Vec<Upload>,
    missing: Vec<String>,
}

#[async_trait::async_trait]
impl Sources for Uploads {
    async fn plan(&self, tenant: &TenantId, _: &Ask) -> Result<Plan, Status> {
        let mut sources: Vec<MemorySource> = (0..3).map(|_| MemorySource::default()).collect();
        let of_tenant = |one: &&Upload| tenant.as_str() == if one.tenant { "b" } else { "a" };
        for (id, upload) in (1u128..).zip(self.uploads.iter()).filter(|(_, one)| of_tenant(one)) {
            sources[upload.source].add(&upload.labels(), &upload.profile(), id << 64);
        }
        let sources = sources.into_iter().map(|source| Arc::new(source) as Arc<dyn Source>).collect();
        Ok(Plan { sources, missing: self.missing.clone(), ..Plan::default() })
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

fn querier_with(config: Config, uploads: &[Upload], missing: &[&str]) -> Querier {
    let missing = missing.iter().map(|text| (*text).to_owned()).collect();
    let sources = Arc::new(Uploads { uploads: uploads.to_vec(), missing });
    let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
    let overrides = Overrides::new(Limits::default());
    Querier::new(config, Deps { sources, overrides, clock, compute: Compute::inline() })
}

fn ask<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Seconds, both ends in it.
fn query(from: i64, to: i64) -> Option<Query> {
    Some(Query {
        profile_type: TYPE.to_owned(),
        selector: "{}".to_owned(),
        start: from * 1_000,
        end: to * 1_000,
        stack_trace_selector: None,
    })
}

fn both() -> Reader {
    Reader::parse("a|b").expect("tenants")
}

/// Pod, frames and value.
type Row = (u8, Vec<(u8, i64)>, i64);

/// All rows of the uploads of some time.
fn rows(uploads: &[Upload], from: i64, to: i64) -> Vec<Row> {
    let meant = uploads.iter().filter(|one| (from..=to).contains(&one.second));
    meant.flat_map(|one| one.rows.iter().map(|(frames, value)| (one.pod, frames.clone(), *value))).collect()
}

/// Own and total values by what `keys` makes of a stack: of all frames, the leaf last.
fn weigh<K: Ord + Clone>(rows: &[Row], key: impl Fn(u8, (u8, i64)) -> K) -> BTreeMap<K, (i64, i64)> {
    let mut found: BTreeMap<K, (i64, i64)> = BTreeMap::new();
    for (pod, frames, value) in rows {
        let all: BTreeSet<K> = frames.iter().map(|frame| key(*pod, *frame)).collect();
        all.into_iter().for_each(|key| found.entry(key).or_default().1 += value);
        found.entry(key(*pod, frames[frames.len() - 1])).or_default().0 += value;
    }
    found.retain(|_, weights| *weights != (0, 0));
    found
}

/// Own values by path below the root.
fn by_path(tree: &Tree) -> BTreeMap<String, i64> {
    let (mut paths, mut found) = (Vec::<String>::new(), BTreeMap::new());
    for node in &tree.nodes {
        let above = paths.get(node.parent as usize).cloned().unwrap_or_default();
        let path =
            if paths.is_empty() { above } else { format!("{above}/{}", tree.names[node.name as usize]) };
        if node.own != 0 {
            found.insert(path.clone(), node.own);
        }
        paths.push(path);
    }
    found
}

fn sums(paths: impl Iterator<Item = (String, i64)>) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    paths.for_each(|(path, value)| *found.entry(path).or_default() += value);
    found.retain(|_, value| *value != 0);
    found
}

fn joined<'a>(frames: impl Iterator<Item = &'a (u8, i64)>) -> String {
    frames.map(|frame| format!("/{}", name(frame.0))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_functions_are_on_some_page(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, limit in 1..4u32,
        grouped in any::<bool>(), order in 0..3i32,
    ) {
        let querier = querier_with(Config::default(), &uploads, &[]);
        let group_by = if grouped { vec!["pod".to_owned()] } else { Vec::new() };
        let (mut found, mut pages, mut of_groups) = (Vec::new(), 0, BTreeMap::new());
        loop {
            let page = Some(Page { offset: pages * limit, limit });
            let request = FunctionsRequest { query: query(from, to), group_by: group_by.clone(), order, page };
            let answer = ask(querier.functions(&both(), request)).unwrap();
            for row in &answer.rows {
                for part in &row.groups {
                    let pod = answer.groups[part.group as usize].labels.first().map(|label| label.value.clone());
                    of_groups.insert((pod.unwrap_or_default(), row.name.clone()), (part.own, part.total));
                }
            }
            let (count, is_last) = (answer.count, answer.rows.len() < limit as usize);
            found.extend(answer.rows.into_iter().map(|row| (row.name, (row.own, row.total))));
            pages += 1;
            if is_last {
                prop_assert_eq!(count, found.len() as u64);
                break;
            }
        }
        let key = |(name, (own, total)): &(String, (i64, i64))| match order {
            0 => (own.unsigned_abs(), total.unsigned_abs(), name.clone()),
            1 => (total.unsigned_abs(), own.unsigned_abs(), name.clone()),
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
        let querier = querier_with(Config::default(), &uploads, &[]);
        let function_name = name(function);
        let request =
            SandwichRequest { query: query(from, to), function: function_name.clone(), depth, max_nodes: 0 };
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
        prop_assert_eq!((answer.own, answer.total), weights.get(&function_name).copied().unwrap_or_default());
    }

    #[test]
    fn lines_are_those_of_all_stacks(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, function in 0..4u8,
    ) {
        let querier = querier_with(Config::default(), &uploads, &[]);
        let request = LinesRequest { query: query(from, to), function: name(function), page: None };
        let answer = ask(querier.lines(&both(), request)).unwrap();
        let rows = rows(&uploads, from, to);
        let mut expected = weigh(&rows, |_, frame| frame);
        expected.retain(|frame, _| frame.0 == function);
        let found: BTreeMap<_, _> =
            answer.rows.iter().map(|row| ((function, row.line), (row.own, row.total))).collect();
        prop_assert_eq!(answer.count, found.len() as u64);
        prop_assert!(answer.rows.iter().all(|row| row.file == "a.rs"));
        prop_assert_eq!(found, expected);
        let whole = weigh(&rows, |_, frame| name(frame.0)).get(&name(function)).copied().unwrap_or_default();
        prop_assert_eq!((answer.own, answer.total), whole);
    }

    #[test]
    fn what_was_cut_off_is_found_below_its_node(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64,
        path in prop::collection::vec(0..4u8, 0..3),
    ) {
        let querier = querier_with(Config::default(), &uploads, &[]);
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
            let request = SubtreeRequest { query: query(from, to), path: names.clone(), skip, max_nodes: 0 };
            let answer = ask(querier.subtree(&both(), request)).unwrap();
            prop_assert_eq!((answer.own, answer.total), (below.get("").copied().unwrap_or_default(), total));
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
    fn changes_are_differences_of_the_model(
        uploads in prop::collection::vec(upload(), 0..10), middle in 5..25i64, level in 0..2i32, measure in 0..2i32,
    ) {
        let querier = querier_with(Config::default(), &uploads, &[]);
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
        let both = |of: &Option<Weights>| of.as_ref().map(|of| (of.own, of.total)).unwrap_or_default();
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
        let querier = querier_with(Config::default(), &uploads, &[]);
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

fn busy() -> Vec<Upload> {
    let rows = (0..4u8).map(|at| (vec![(0, 1), (at, 2)], 1_000 + i64::from(at))).collect::<Vec<_>>();
    vec![
        Upload { pod: 1, second: 5, rows: rows.clone(), source: 0, tenant: false },
        Upload { pod: 1, second: 15, rows, source: 1, tenant: true },
    ]
}

#[test]
fn tenants_see_what_is_theirs() {
    let querier = querier_with(Config::default(), &busy(), &[]);
    let total = |tenants: &str| {
        let request = FunctionsRequest { query: query(1, 30), ..FunctionsRequest::default() };
        ask(querier.functions(&Reader::parse(tenants).unwrap(), request)).unwrap().total
    };
    assert_eq!((total("a"), total("b"), total("a|b"), total("c")), (4_006, 4_006, 8_012, 0));
}

#[test]
fn an_answer_says_what_it_lacks() {
    let querier = querier_with(Config::default(), &busy(), &["block 7 cannot be read"]);
    let reader = || Reader::parse("a").unwrap();
    let query = || query(1, 30);
    let missing = [
        ask(querier.functions(&reader(), FunctionsRequest { query: query(), ..Default::default() }))
            .unwrap()
            .missing,
        ask(querier.sandwich(
            &reader(),
            SandwichRequest { query: query(), function: "f0".into(), ..Default::default() },
        ))
        .unwrap()
        .missing,
        ask(querier.lines(&reader(), LinesRequest { query: query(), function: "f0".into(), page: None }))
            .unwrap()
            .missing,
        ask(querier.subtree(&reader(), SubtreeRequest { query: query(), ..Default::default() }))
            .unwrap()
            .missing,
        ask(querier
            .changes(&reader(), ChangesRequest { left: query(), right: query(), ..Default::default() }))
        .unwrap()
        .missing,
        ask(querier.profiles(&reader(), ProfilesRequest { query: query(), ..Default::default() }))
            .unwrap()
            .missing,
    ];
    assert!(missing.iter().all(|text| text == "block 7 cannot be read"), "{missing:?}");
}

#[test]
fn no_answer_takes_more_room_than_there_is() {
    let answer = ByteSize::bytes(64);
    let querier = querier_with(Config { answer, ..Config::default() }, &busy(), &[]);
    let code = |result: Result<(), Status>| result.unwrap_err().code;
    let reader = both();
    let query = || query(1, 30);
    let functions = FunctionsRequest { query: query(), ..FunctionsRequest::default() };
    assert_eq!(code(ask(querier.functions(&reader, functions)).map(drop)), Code::Invalid);
    let profiles = ProfilesRequest { query: query(), ..ProfilesRequest::default() };
    assert_eq!(code(ask(querier.profiles(&reader, profiles)).map(drop)), Code::Invalid);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let querier = querier_with(Config::default(), &busy(), &[]);
    let reader = both();
    let message = |result: Result<(), Status>| {
        let status = result.unwrap_err();
        assert_eq!(status.code, Code::Invalid);
        status.message
    };
    let nobody = LinesRequest { query: query(1, 2), ..LinesRequest::default() };
    assert_eq!(
        message(ask(querier.lines(&reader, nobody)).map(drop)),
        "request names no function; set function"
    );
    let nothing = FunctionsRequest::default();
    assert_eq!(message(ask(querier.functions(&reader, nothing)).map(drop)), "request has no query; set it");
    let far = Some(Page { offset: 100_000, limit: 1 });
    let far = ProfilesRequest { query: query(1, 2), page: far, ..ProfilesRequest::default() };
    assert!(message(ask(querier.profiles(&reader, far)).map(drop)).contains("the limit is 100000"));
    let mut other = query(1, 2);
    other.iter_mut().for_each(|query| query.profile_type = "a:b:c:d:e".to_owned());
    let unlike = ChangesRequest { left: query(1, 2), right: other, ..ChangesRequest::default() };
    assert!(message(ask(querier.changes(&reader, unlike)).map(drop)).contains("compare the same type"));
}

#[test]
fn a_great_change_is_significant_and_a_small_one_is_noise() {
    let at = |second, values: [i64; 3]| Upload {
        pod: 1,
        second,
        rows: values.iter().zip(1u8..).map(|(value, at)| (vec![(0, 1), (at, 2)], value * PERIOD)).collect(),
        source: 0,
        tenant: false,
    };
    let uploads = [at(5, [10_000, 5_000, 20]), at(15, [9_910, 4_910, 200])];
    let querier = querier_with(Config::default(), &uploads, &[]);
    let request = ChangesRequest {
        left: query(1, 10),
        right: query(11, 20),
        order: ChangeOrder::Significance as i32,
        ..ChangesRequest::default()
    };
    let answer = ask(querier.changes(&both(), request.clone())).unwrap();
    assert_eq!((answer.untested.as_str(), answer.left.unwrap().period), ("", PERIOD));
    let verdicts: Vec<(&str, Verdict)> =
        answer.rows.iter().map(|row| (row.function.as_str(), row.verdict())).collect();
    let expected = [("f3", Verdict::Significant), ("f2", Verdict::Noise), ("f1", Verdict::Noise)];
    assert_eq!(verdicts, expected);
    let significant = ChangesRequest { only_significant: true, ..request.clone() };
    assert_eq!(ask(querier.changes(&both(), significant)).unwrap().rows.len(), 1);
    let again = ChangesRequest { left: query(1, 10), right: query(1, 10), ..request };
    assert!(ask(querier.changes(&both(), again)).unwrap().rows.is_empty());
}
