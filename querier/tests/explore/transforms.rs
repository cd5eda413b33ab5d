//! Results with transforms, compared with plain lists of stacks, over profiles in memory, in blocks and in both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_block::{Block, MemoryFolder, MemoryProfiles, TenantBlockSource, write_from_memory};
use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::ProfileSource;
use athanor_profile::store_interface::source::MemorySource;
use athanor_proto::athanor::v1::frame_match::Pattern;
use athanor_proto::athanor::v1::transform::Action;
use athanor_proto::athanor::v1::*;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryPlan,
};
use athanor_query::ProfileQuery;
use proptest::prelude::*;

use crate::laws::{Row, by_path, joined, rows, sums, weigh};
use crate::{Upload, ask, both, name, querier_with, query, upload};

const BLOCK_TENANT: &str = "stored";

/// Uploads, some in memory and the others in a block.
struct MixedUploads {
    uploads: Vec<Upload>,
    /// True for each source that is a block.
    blocks: [bool; 3],
}

#[async_trait::async_trait]
impl DataSources for MixedUploads {
    async fn plan(&self, tenant: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let mut sources: Vec<MemorySource> = (0..3).map(|_| MemorySource::default()).collect();
        let is_of_tenant = |upload: &&Upload| tenant.as_str() == if upload.tenant { "b" } else { "a" };
        for (id, upload) in (1u128..).zip(&self.uploads).filter(|(_, upload)| is_of_tenant(upload)) {
            sources[upload.source].add(&upload.labels(), &upload.profile(), id << 64);
        }
        let sources = sources.into_iter().zip(self.blocks).filter_map(|(source, is_block)| match is_block {
            true => to_block(&source),
            false => Some(Arc::new(source) as Arc<dyn ProfileSource>),
        });
        Ok(QueryPlan::from_sources(sources.collect::<Vec<_>>()))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

/// Returns the block of a source. None if there are no profiles in it.
fn to_block(source: &MemorySource) -> Option<Arc<dyn ProfileSource>> {
    let folder = MemoryFolder::default();
    let parts = [(BLOCK_TENANT, source as &dyn MemoryProfiles)];
    write_from_memory(&folder, "held", None, parts.into_iter()).expect("written");
    let block = Block::open(Arc::new(folder)).expect("a block");
    block.tenant_block(BLOCK_TENANT).ok()?;
    let part = TenantBlockSource::new(Arc::new(block), BLOCK_TENANT, ComputePool::inline());
    Some(Arc::new(part.expect("a part")))
}

fn mixed_querier(uploads: &[Upload], blocks: [bool; 3]) -> Querier {
    let sources = Arc::new(MixedUploads { uploads: uploads.to_vec(), blocks });
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() };
    Querier::new(QuerierConfig::default(), deps)
}

/// Action of a transform in the model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PlainAction {
    Focus,
    Ignore,
    Hide,
    Show,
    ShowFrom,
    CollapseRecursion,
    CollapseBelow,
}

/// Transform in the model: an action and the functions that it matches.
type PlainTransform = (PlainAction, BTreeSet<u8>);

fn transforms() -> impl Strategy<Value = Vec<PlainTransform>> {
    let action = prop::sample::select(vec![
        PlainAction::Focus,
        PlainAction::Ignore,
        PlainAction::Hide,
        PlainAction::Show,
        PlainAction::ShowFrom,
        PlainAction::CollapseRecursion,
        PlainAction::CollapseBelow,
    ]);
    prop::collection::vec((action, prop::collection::btree_set(0..4u8, 1..4)), 1..4)
}

fn wire_transforms(list: &[PlainTransform]) -> Vec<Transform> {
    let wire = |(action, functions): &PlainTransform| {
        let numbers: Vec<String> = functions.iter().map(u8::to_string).collect();
        let pattern = match &numbers[..] {
            [only] => Pattern::Name(format!("f{only}")),
            _ => Pattern::Regex(format!("^f[{}]$", numbers.concat())),
        };
        let action = match action {
            PlainAction::Focus => Action::Focus,
            PlainAction::Ignore => Action::Ignore,
            PlainAction::Hide => Action::Hide,
            PlainAction::Show => Action::Show,
            PlainAction::ShowFrom => Action::ShowFrom,
            PlainAction::CollapseRecursion => Action::CollapseRecursion,
            PlainAction::CollapseBelow => Action::CollapseBelow,
        };
        Transform { action: Some(action(FrameMatch { pattern: Some(pattern) })) }
    };
    list.iter().map(wire).collect()
}

fn transform_plainly(frames: Vec<(u8, i64)>, transform: &PlainTransform) -> Vec<(u8, i64)> {
    let (action, functions) = transform;
    let is_match = |frame: &(u8, i64)| functions.contains(&frame.0);
    let Some(first) = frames.iter().position(is_match) else {
        let drops = matches!(action, PlainAction::Focus | PlainAction::ShowFrom | PlainAction::Show);
        return if drops { Vec::new() } else { frames };
    };
    match action {
        PlainAction::Focus => frames,
        PlainAction::Ignore => Vec::new(),
        PlainAction::Hide => frames.into_iter().filter(|frame| !is_match(frame)).collect(),
        PlainAction::Show => frames.into_iter().filter(is_match).collect(),
        PlainAction::ShowFrom => frames[first..].to_vec(),
        PlainAction::CollapseBelow => frames[..=first].to_vec(),
        PlainAction::CollapseRecursion => {
            let last = frames.iter().rposition(|frame| frame.0 == frames[first].0).unwrap_or(first);
            let rest = transform_plainly(frames[last + 1..].to_vec(), transform);
            [&frames[..first], &frames[last..=last], &rest].concat()
        }
    }
}

fn transformed_rows(uploads: &[Upload], from: i64, to: i64, list: &[PlainTransform]) -> Vec<Row> {
    let rewrite = |(pod, frames, value): Row| (pod, list.iter().fold(frames, transform_plainly), value);
    rows(uploads, from, to).into_iter().map(rewrite).filter(|row| !row.1.is_empty()).collect()
}

fn transformed_query(from: i64, to: i64, list: &[PlainTransform]) -> Option<Query> {
    query(from, to).map(|query| Query { transforms: wire_transforms(list), ..query })
}

proptest! {
    #![proptest_config(crate::property_config(96))]

    #[test]
    fn calls_return_rewritten_stacks(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, list in transforms(),
        blocks in any::<[bool; 3]>(), grouped in any::<bool>(), function in 0..4u8,
    ) {
        let querier = mixed_querier(&uploads, blocks);
        let query = transformed_query(from, to, &list);
        let rows = transformed_rows(&uploads, from, to, &list);
        let total: i64 = rows.iter().map(|row| row.2).sum();
        let weights = weigh(&rows, |_, frame| name(frame.0));
        let all = Some(Page { offset: 0, limit: 1_000 });
        let group_by = if grouped { vec!["pod".to_owned()] } else { Vec::new() };
        let request = FunctionsRequest { query: query.clone(), group_by, page: all, ..Default::default() };
        let table = ask(querier.functions(&both(), request)).unwrap();
        let mut found: BTreeMap<String, (i64, i64)> =
            table.rows.into_iter().map(|row| (row.name, (row.self_, row.total))).collect();
        found.retain(|_, weights| *weights != (0, 0));
        prop_assert_eq!((found, table.total, table.matched_total), (weights.clone(), total, total));

        let request = LinesRequest { query: query.clone(), function: Some(name(function)), page: all };
        let lines = ask(querier.lines(&both(), request)).unwrap();
        let whole = weights.get(&name(function)).copied().unwrap_or_default();
        prop_assert_eq!((lines.self_, lines.total), whole);
        let mut by_line: BTreeMap<i64, (i64, i64)> =
            lines.rows.into_iter().map(|row| (row.line, (row.self_, row.total))).collect();
        by_line.retain(|_, weights| *weights != (0, 0));
        let mut expected = weigh(&rows, |_, frame| frame);
        expected.retain(|frame, _| frame.0 == function);
        prop_assert_eq!(by_line, expected.into_iter().map(|(frame, weights)| (frame.1, weights)).collect());

        let request = SandwichRequest { query: query.clone(), function: Some(name(function)), ..Default::default() };
        let sandwich = ask(querier.sandwich(&both(), request)).unwrap();
        let callees = rows.iter().filter_map(|(_, frames, value)| {
            let first = frames.iter().position(|frame| frame.0 == function)?;
            Some((joined(frames[first..].iter()), *value))
        });
        prop_assert_eq!((sandwich.self_, sandwich.total), whole);
        prop_assert_eq!(by_path(&sandwich.callees.unwrap_or_default()), sums(callees));

        let request = ProfilesRequest { query, page: all, ..Default::default() };
        let listed = ask(querier.profiles(&both(), request)).unwrap();
        prop_assert_eq!(listed.rows.iter().map(|row| row.total).sum::<i64>(), total);
    }

    #[test]
    fn paths_are_those_of_the_rewritten_tree(
        uploads in prop::collection::vec(upload(), 0..10), list in transforms(), blocks in any::<[bool; 3]>(),
        depth in 0..3usize, pick in any::<prop::sample::Index>(),
    ) {
        let querier = mixed_querier(&uploads, blocks);
        let rows = transformed_rows(&uploads, 1, 30, &list);
        let path: Vec<(u8, i64)> = match rows.is_empty() {
            true => Vec::new(),
            false => pick.get(&rows).1.iter().take(depth).copied().collect(),
        };
        let names: Vec<String> = path.iter().map(|frame| name(frame.0)).collect();
        let is_below = |frames: &[(u8, i64)]| {
            frames.len() >= path.len() && frames.iter().zip(&path).all(|(frame, of_path)| frame.0 == of_path.0)
        };
        let below = rows.iter().filter(|row| is_below(&row.1));
        let below = sums(below.map(|(_, frames, value)| (joined(frames[path.len()..].iter()), *value)));
        let query = transformed_query(1, 30, &list);
        let request = SubtreeRequest { query: query.clone(), path: names.clone(), ..Default::default() };
        let subtree = ask(querier.subtree(&both(), request)).unwrap();
        prop_assert_eq!(by_path(&subtree.tree.unwrap_or_default()), below.clone());
        let graph = ask(querier.graph(&both(), GraphRequest { query, path: names, ..Default::default() })).unwrap();
        let sum: i64 = graph.self_.iter().map(|value| value * graph.divisor).sum();
        prop_assert_eq!(sum, below.values().sum::<i64>());
        prop_assert_eq!(graph.total, rows.iter().map(|row| row.2).sum::<i64>());
    }

    #[test]
    fn sides_of_changes_have_their_own_transforms(
        uploads in prop::collection::vec(upload(), 0..10), left in transforms(), right in transforms(),
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let request = ChangesRequest {
            left: transformed_query(1, 30, &left), right: transformed_query(1, 30, &right),
            page: Some(Page { offset: 0, limit: 1_000 }), measure: Measure::Total as i32, ..Default::default()
        };
        let changes = ask(querier.changes(&both(), request)).unwrap();
        let sides = [&left, &right].map(|list| transformed_rows(&uploads, 1, 30, list));
        let totals = sides.each_ref().map(|rows| rows.iter().map(|row| row.2).sum::<i64>());
        prop_assert_eq!([changes.left.unwrap().total, changes.right.unwrap().total], totals);
        let weights = sides.each_ref().map(|rows| weigh(rows, |_, frame| name(frame.0)));
        for row in changes.rows {
            let expected = weights.each_ref().map(|side| side.get(&row.function).copied().unwrap_or_default());
            let found = [row.left, row.right].map(|side| side.map(|side| (side.self_, side.total)).unwrap_or_default());
            prop_assert_eq!(found, expected);
        }
    }
}

fn one_upload() -> Vec<Upload> {
    let rows = vec![(vec![(0, 1), (1, 2)], 40), (vec![(0, 1), (2, 2), (2, 3)], 60)];
    vec![Upload { pod: 1, second: 5, rows, source: 0, tenant: false }]
}

#[test]
fn invalid_transform_is_rejected_with_value_and_position() {
    let querier = querier_with(QuerierConfig::default(), &one_upload(), &[]);
    let refused = |transforms: Vec<Transform>| {
        let query = query(1, 30).map(|query| Query { transforms, ..query });
        let request = FunctionsRequest { query, ..FunctionsRequest::default() };
        let status = ask(querier.functions(&both(), request)).unwrap_err();
        assert_eq!(status.code, athanor_chassis::ErrorCode::Invalid);
        status.message
    };
    let regex = |text: &str| FrameMatch { pattern: Some(Pattern::Regex(text.to_owned())) };
    let hide = |text: &str| Transform { action: Some(Action::Hide(regex(text))) };
    let message = refused(vec![hide("a"), hide("b(c")]);
    assert_eq!(
        message,
        "transform 2 (hide): regular expression \"b(c\" at character 3: a group is not closed: ) is missing"
    );
    assert!(refused(vec![Transform { action: None }]).starts_with("transform 1 has no action"));
    let without_pattern = Transform { action: Some(Action::Focus(FrameMatch { pattern: None })) };
    assert!(refused(vec![without_pattern]).starts_with("transform 1 (focus) has no pattern"));
    assert!(refused(vec![hide("a"); 33]).contains("has 33 transforms, the limit is 32"));
    let right = query(1, 30).map(|query| Query { transforms: vec![hide("b(c")], ..query });
    let request = ChangesRequest { left: query(1, 30), right, ..ChangesRequest::default() };
    let status = ask(querier.changes(&both(), request)).unwrap_err();
    assert!(status.message.starts_with("right: transform 1 (hide): "), "{}", status.message);
}

#[test]
fn id_selectors_select_profiles_and_reject_other_texts() {
    let querier = querier_with(QuerierConfig::default(), &one_upload(), &[]);
    let total = |change: &dyn Fn(&mut Query)| {
        let mut query = query(1, 30);
        change(query.as_mut().unwrap());
        let request = FunctionsRequest { query, ..FunctionsRequest::default() };
        ask(querier.functions(&both(), request)).map(|table| table.total).map_err(|status| status.message)
    };
    let request = ProfilesRequest { query: query(1, 30), ..ProfilesRequest::default() };
    let listed = ask(querier.profiles(&both(), request)).unwrap();
    assert_eq!(listed.rows.len(), 1);
    assert_eq!(total(&|_| {}), Ok(100));
    let unknown = "00000000-0000-0000-0000-000000000007";
    assert_eq!(total(&|query| query.profile_id_selector = vec![unknown.to_owned()]), Ok(0));
    let own = Query { profile_id_selector: vec![listed.rows[0].id.clone()], ..query(1, 30).unwrap() };
    let request = FunctionsRequest { query: Some(own), ..FunctionsRequest::default() };
    assert_eq!(ask(querier.functions(&both(), request)).unwrap().total, 100);
    assert_eq!(total(&|query| query.span_selector = vec!["0000000000000007".to_owned()]), Ok(0));
    let message = |change: &dyn Fn(&mut Query)| total(change).unwrap_err();
    assert!(
        message(&|query| query.span_selector = vec!["7".to_owned()]).contains("have 16 hexadecimal digits")
    );
    assert!(
        message(&|query| query.trace_id_selector = vec!["x".to_owned()])
            .contains("have 32 hexadecimal digits")
    );
    assert!(message(&|query| query.profile_id_selector = vec!["x".to_owned()]).contains("not a UUID"));
}
