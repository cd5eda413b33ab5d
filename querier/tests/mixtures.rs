//! Blocks, merged blocks and mixtures of them with what lies in memory answer as the memory alone does.

use std::sync::Arc;

use athanor_block::{
    Block, BlockFolder, META_FILE, MemoryFolder, MemoryProfiles, TenantBlockSource, merge, write_from_memory,
};
use athanor_chassis::ComputePool;
use athanor_profile::ProfileSource;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::store_interface::source::MemorySource;
use athanor_query::{
    GoPgoOptions, HeatmapQuery, LabelValuesQuery, PartialResult, QueryKind, SourceCost, TimeGrid,
    TimeSeriesQuery, run_all,
};
use proptest::prelude::*;

#[path = "../../query/tests/model/orders.rs"]
mod orders;
#[path = "../../query/tests/model/steps.rs"]
mod steps;
#[path = "../../query/tests/model/uploads.rs"]
mod uploads;

use orders::orders;
use steps::steps;
use uploads::{Upload, question, selection_case, sources, upload};

const TENANT: &str = "acme";

/// Blocks keep nothing of profiles that have no rows, and of rows that add up to nothing.
fn full(mut upload: Upload) -> Upload {
    for row in &mut upload.rows {
        row.values = row.values.map(|value| value.saturating_abs().max(1));
    }
    upload
}

fn folder(source: &MemorySource) -> MemoryFolder {
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "held", None, [(TENANT, source as &dyn MemoryProfiles)].into_iter())
        .expect("it is written");
    folder
}

fn block(source: &MemorySource) -> Block {
    Block::open(Arc::new(folder(source))).expect("a block")
}

fn merged(blocks: &[Block]) -> Block {
    let folder = MemoryFolder::default();
    merge(&folder, "merged", blocks).expect("they merge");
    Block::open(Arc::new(folder)).expect("a block")
}

/// One that holds no profile is no source.
fn part(block: Block) -> Option<Box<dyn ProfileSource>> {
    block.tenant_block(TENANT).is_ok().then(|| {
        let part = TenantBlockSource::new(Arc::new(block), TENANT, ComputePool::inline());
        Box::new(part.expect("a part")) as Box<dyn ProfileSource>
    })
}

/// As bytes, but for what only says how names are numbered.
fn shown(partial: &PartialResult) -> Vec<u8> {
    let packed = |partial: &PartialResult| partial.pack().expect("it is small").flatten().collect();
    match partial {
        PartialResult::Profile(merged) => {
            packed(&PartialResult::Tree(Tree::from_totals(&merged.dictionary, &merged.totals)))
        }
        PartialResult::Sizes(sizes) => {
            // Where it lies, how many bytes that takes, and whether equal rows were added up is all that may differ.
            let [one, other]: [&SourceCost; 2] = [&sizes.heads, &sizes.blocks];
            let series: Vec<u128> = one.series.union(&other.series).copied().collect();
            format!("{series:?} {}", one.profiles + other.profiles).into()
        }
        partial => packed(partial),
    }
}

fn questions(steps: TimeGrid, case: &uploads::SelectionCase) -> Vec<QueryKind> {
    let (group_by, stacks) = (vec!["pod".to_owned()], case.stacks());
    let points = TimeSeriesQuery {
        steps,
        group_by: group_by.clone(),
        stacks: stacks.clone(),
        mean: true,
        exemplars: true,
    };
    let heat = HeatmapQuery { steps, group_by, spans: false, exemplars: true };
    let pgo = GoPgoOptions { keep_locations: 2, aggregate_callees: true };
    vec![
        QueryKind::ProfileTypes,
        QueryKind::LabelNames,
        QueryKind::LabelValues(LabelValuesQuery { name: "pod".to_owned(), ..LabelValuesQuery::default() }),
        QueryKind::Series(Vec::new()),
        QueryKind::Tree(stacks.clone()),
        QueryKind::Profile(stacks.clone(), None),
        QueryKind::Profile(stacks, Some(pgo)),
        QueryKind::Points(points.clone()),
        QueryKind::Points(TimeSeriesQuery { mean: false, ..points }),
        QueryKind::Heat(HeatmapQuery { spans: true, ..heat.clone() }),
        QueryKind::Heat(heat),
        QueryKind::Sizes,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn wherever_profiles_lie_the_answer_is_one(
        uploads in prop::collection::vec(upload().prop_map(full), 1..12), case in selection_case(), order in orders(),
        steps in steps(), kinds in prop::collection::vec(0..3u8, 4),
    ) {
        let uploads: Vec<Upload> = uploads.into_iter().filter(|upload| !upload.rows.is_empty()).collect();
        let memory = sources(&uploads);
        let (mut mixed, mut to_merge): (Vec<Box<dyn ProfileSource>>, Vec<Block>) = (Vec::new(), Vec::new());
        for (source, kind) in sources(&uploads).into_iter().zip(kinds) {
            match kind {
                0 => mixed.push(Box::new(source)),
                1 => mixed.extend(part(block(&source))),
                _ => to_merge.push(block(&source)),
            }
        }
        if to_merge.iter().any(|block| block.tenant_block(TENANT).is_ok()) {
            mixed.extend(part(merged(&to_merge)));
        }
        for what in questions(steps, &case) {
            let ask = question(&case, what);
            let expected = run_all(&ask, order.iter().map(|&at| &memory[at] as &dyn ProfileSource)).expect("an answer");
            let found = run_all(&ask, mixed.iter().map(AsRef::as_ref)).expect("an answer");
            prop_assert_eq!(shown(&found), shown(&expected), "{:?}", ask.what);
        }
    }
}

/// What is told before is what is then read: short files of a block, each as a whole; either rows or their sums; and
/// nothing but what says that nothing is meant, where that is so.
#[test]
fn sizes_are_those_of_the_files() {
    let upload = |time: i64| Upload {
        service: 0,
        pod: 1,
        time,
        rows: (0..3)
            .map(|frame| uploads::Row {
                frames: vec![frame],
                labelled: false,
                span: 1,
                trace: 1,
                values: [3, 4],
            })
            .collect(),
        source: 0,
    };
    let memory = sources(&[upload(5), upload(15)]).remove(0);
    let folder = folder(&memory);
    let block = Block::open(Arc::new(folder.clone())).expect("a block");
    let length = |name: &str| block.meta().file(name).expect("a file").bytes;
    let (index, names) = (
        folder.length(META_FILE).expect("a file") + length("series.parquet") + length("profiles.parquet"),
        // There are no mappings.
        ["stacks", "locations", "functions"]
            .map(|name| length(&format!("{name}.parquet")))
            .iter()
            .sum::<u64>(),
    );
    let (rollup, samples) = (length("rollup.parquet"), length("samples.parquet"));
    let part = part(block).expect("it has profiles");
    for (to, profiles, rows, names) in [(20, 2, rollup, names), (10, 1, samples, names), (1, 0, 0, 0)] {
        let case = uploads::SelectionCase {
            service: 0,
            from: 0,
            to,
            call_site: Vec::new(),
            included: Vec::new(),
            excluded: None,
            requests: None,
            profiles: None,
        };
        let Ok(PartialResult::Sizes(sizes)) = run_all(&question(&case, QueryKind::Sizes), [part.as_ref()])
        else {
            panic!("no sizes")
        };
        let size = &sizes.blocks;
        assert_eq!((size.sources, size.profiles, size.samples), (1, profiles, 3 * profiles));
        assert_eq!((size.index_bytes, size.row_bytes, size.name_bytes), (index, rows, names), "up to {to}");
        assert_eq!((size.series.len(), sizes.heads.sources), (usize::from(profiles > 0), 0));
    }
}
