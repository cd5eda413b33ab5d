//! Transforms of stacks, compared with `-focus`, `-ignore`, `-hide`, `-show` and `-show_from` of `go tool pprof -top`.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::analysis::prune::prune;
use athanor_profile::analysis::top_table::TopTable;
use athanor_profile::analysis::transform::{StackTransform, StackTransforms};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource};
use athanor_proto::athanor::v1::frame_match::Pattern;
use athanor_proto::athanor::v1::transform::Action;
use athanor_proto::athanor::v1::{FrameMatch, FunctionsRequest, Page, Query, Transform};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;

use crate::go_pprof::{File, Weights, corpus, top_with, weigh_like_go};

/// Maximum number of rows of a page.
const PAGE_ROWS: u32 = 10_000;

/// Option of pprof with its value.
type PprofOption = (&'static str, String);

/// Server that holds one profile.
struct OneProfile(Arc<dyn ProfileSource>);

#[async_trait::async_trait]
impl DataSources for OneProfile {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok(QueryPlan::from_sources([Arc::clone(&self.0)]))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

/// Returns the name of the frame at a depth of the heaviest stack, as an expression for the whole name.
fn name_at_depth(profile: &Profile, value: usize, depth: usize) -> String {
    let totals = profile.totals_by_stack(value);
    let heaviest = (0u32..).zip(&totals).max_by_key(|(_, total)| total.unsigned_abs());
    let symbols = &profile.dictionary.symbols;
    let mut names = Vec::new();
    if let Some((stack, _)) = heaviest {
        for location in profile.dictionary.stacks.locations(stack) {
            names.extend(symbols.lines(location).iter().map(|line| symbols.function_name(line.function)));
        }
    }
    names.reverse();
    let name = names.get(depth.min(names.len().saturating_sub(1))).copied().unwrap_or("none");
    let escaped = name.chars().map(|letter| match letter {
        letter if letter.is_alphanumeric() || letter == '_' || !letter.is_ascii() => letter.to_string(),
        other => format!("\\x{{{:x}}}", u32::from(other)),
    });
    format!("^{}$", escaped.collect::<String>())
}

/// Returns lists of options: each alone, by texts that many names have and by names of the file, and all in pprof's
/// order.
fn option_lists(profile: &Profile, value: usize) -> Vec<Vec<PprofOption>> {
    let option = |name: &'static str, text: &str| (name, text.to_owned());
    let mut lists = vec![
        vec![option("focus", "[Rr]ead|gc|[.]py|net")],
        vec![option("ignore", "alloc|runtime[.]m|thread")],
        vec![option("hide", "^runtime|java|lib|std::|node")],
        vec![option("show", "[a-f][.:/]|main|Object|usr")],
        vec![option("show_from", "main|run|Thread|[.]js|start")],
        vec![
            option("focus", "[a-m]"),
            option("ignore", "zz|alloc"),
            option("hide", "start|^_|lib"),
            option("show", "[aeiou]"),
            option("show_from", "main|run|get|[s-z]"),
        ],
    ];
    for name in ["focus", "ignore", "hide", "show", "show_from"] {
        lists.extend([1, 3].map(|depth| vec![(name, name_at_depth(profile, value, depth))]));
    }
    lists.push(vec![
        ("focus", name_at_depth(profile, value, 2)),
        ("hide", name_at_depth(profile, value, 3)),
        ("show_from", name_at_depth(profile, value, 1)),
    ]);
    lists
}

fn parse_options(options: &[PprofOption]) -> StackTransforms {
    let parse = |(name, text): &PprofOption| StackTransform::parse_option(name, text).unwrap().unwrap();
    StackTransforms::new(options.iter().map(parse).collect()).unwrap()
}

fn wire_transform((name, text): &PprofOption) -> Transform {
    let frames = FrameMatch { pattern: Some(Pattern::Regex(text.clone())) };
    let action = match *name {
        "focus" => Action::Focus(frames),
        "ignore" => Action::Ignore(frames),
        "hide" => Action::Hide(frames),
        "show" => Action::Show(frames),
        _ => Action::ShowFrom(frames),
    };
    Transform { action: Some(action) }
}

fn server_of(profile: &Profile) -> Querier {
    let mut source = MemorySource::default();
    let labels = [("__name__".to_owned(), "process_cpu".to_owned())];
    source.add(&Labels::new(labels), profile, 1 << 64);
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps {
        sources: Arc::new(OneProfile(Arc::new(source))),
        overrides,
        clock,
        compute: ComputePool::inline(),
    };
    Querier::new(QuerierConfig::default(), deps)
}

/// Returns all functions of the server's response.
async fn served(querier: &Querier, profile: &Profile, value: usize, options: &[PprofOption]) -> Weights {
    let shown = &profile.header.types[value];
    let period = profile.header.period_type.clone().unwrap_or_default();
    let time = profile.header.time_nanos.div_euclid(1_000_000);
    let query = Query {
        profile_type: format!("process_cpu:{}:{}:{}:{}", shown.kind, shown.unit, period.kind, period.unit),
        selector: "{}".to_owned(),
        start: time - 1_000,
        end: time + 1_000,
        transforms: options.iter().map(wire_transform).collect(),
        ..Query::default()
    };
    let context = QueryContext::for_tenant(TenantId::anonymous());
    let mut weights = Weights::new();
    let mut offset = 0;
    loop {
        let page = Some(Page { offset, limit: PAGE_ROWS });
        let request = FunctionsRequest { query: Some(query.clone()), page, ..FunctionsRequest::default() };
        let table = querier.functions(&context, request).await.unwrap();
        let rows = table.rows.len();
        weights.extend(table.rows.into_iter().map(|row| (row.name, (row.self_, row.total))));
        if rows < PAGE_ROWS as usize {
            weights.retain(|_, weight| *weight != (0, 0));
            return weights;
        }
        offset += PAGE_ROWS;
    }
}

fn tabulated(profile: &Profile, value: usize) -> Weights {
    let rows = TopTable::from_profile(profile, value).rows.into_iter();
    rows.filter(|row| (row.flat, row.cum) != (0, 0)).map(|row| (row.name, (row.flat, row.cum))).collect()
}

#[tokio::test]
async fn transformed_tables_are_those_of_go_and_of_the_server() {
    let files = corpus();
    let is_skipped = files.is_empty();
    let mut changed: BTreeMap<&str, usize> = BTreeMap::new();
    for File { path, profile, _made } in files {
        let value = profile.header.shown_type();
        let (pruned, _) = prune(profile.clone());
        let is_servable = pruned.header.time_nanos > 0;
        let querier = server_of(&pruned);
        let whole = tabulated(&pruned, value);
        for options in option_lists(&pruned, value) {
            let flags: Vec<String> = options.iter().map(|(name, text)| format!("-{name}={text}")).collect();
            let go = top_with(&flags, &profile.header, value, &[&path]);
            let transformed = parse_options(&options).apply_to(&pruned);
            let ours = tabulated(&transformed, value);
            if !ours.is_empty() && ours != whole {
                *changed.entry(options[0].0).or_default() += 1;
            }
            assert_eq!(weigh_like_go(transformed, value), go, "{flags:?} of {}", path.display());
            if is_servable {
                let served = served(&querier, &pruned, value, &options).await;
                assert_eq!(served, ours, "{flags:?} of {}", path.display());
            }
        }
    }
    for name in ["focus", "ignore", "hide", "show", "show_from"] {
        let count = changed.get(name).copied().unwrap_or_default();
        assert!(is_skipped || count >= 5, "only {count} tables were changed by {name}");
    }
}
