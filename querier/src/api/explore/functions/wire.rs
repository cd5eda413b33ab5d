//! Function table on the wire.

use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_profile::analysis::value_divisor::ValueDivisor;
use athanor_profile::call_tree::tree::Tree;
use athanor_proto::athanor::v1::{
    FunctionGroup, FunctionOfGroup, FunctionOrder, FunctionRow, FunctionsRequest, FunctionsResponse,
};

use super::super::averages::{group_divisors, value_divisor};
use super::super::period::sampling_period;
use super::super::wire::{parse_enum, parse_page, parse_query, resolution_text, visible_labels};
use super::filter::FunctionMatcher;
use super::{
    FunctionEntry, FunctionSortOrder, FunctionWeights, load_functions, matched_weights, rank_functions,
};
use crate::QueryContext;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;
use crate::validate;

/// Memory of a row or a group beside its texts.
const FUNCTION_ROW_BYTES: usize = 256;
/// Memory of one group in a row.
const GROUP_PART_BYTES: usize = 96;

pub(crate) async fn functions(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: FunctionsRequest,
) -> Result<FunctionsResponse, Status> {
    run_cached(executor, reader, "Functions", request, |request| functions_of(executor, reader, request))
        .await
}

async fn functions_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: FunctionsRequest,
) -> Result<FunctionsResponse, Status> {
    let query = parse_query(executor, request.query, "query").await?;
    let page = parse_page(request.page)?;
    validate::check_labels(&request.group_by)?;
    let order = sort_order(parse_enum("order", request.order)?);
    let reverse = request.reverse;
    let filter = request.filter;
    let matcher = executor.parse_on_pool(|| FunctionMatcher::parse(filter)).await??;
    let unit = query.unit();
    let is_grouped = !request.group_by.is_empty();
    let group_by = request.group_by;
    let (divisor, of_groups, period, loaded) = futures::try_join!(
        value_divisor(executor, reader, &query),
        group_divisors(executor, reader, &query, &group_by),
        sampling_period(executor, reader, &query),
        load_functions(executor, reader, &query, &group_by),
    )?;
    let divisors = FunctionDivisors::new(divisor, &of_groups, &loaded.trees);
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let trees = &loaded.trees;
            let mut functions = rank_functions(trees.values(), &matcher, &loaded.origins, order);
            if reverse {
                functions.reverse();
            }
            let matched = divisors.of_all.divide_weights(matched_weights(trees.values(), &matcher));
            let count = functions.len() as u64;
            let shown: Vec<FunctionEntry<'_>> = page.page_rows(functions).collect();
            let of_row = |row: &FunctionEntry<'_>| {
                let texts = row.name.len() + row.origin.file.len() + row.origin.binary.len();
                FUNCTION_ROW_BYTES + texts + row.of_groups.len() * GROUP_PART_BYTES
            };
            let group_bytes: usize =
                trees.keys().map(|labels| FUNCTION_ROW_BYTES + 2 * labels.text_bytes()).sum();
            job_executor.reserve_memory(&held, group_bytes + shown.iter().map(of_row).sum::<usize>())?;
            let total: i64 = trees.values().map(Tree::total).sum();
            let groups = trees.iter().zip(&divisors.of_groups).filter(|_| is_grouped);
            let groups = groups.map(|((values, tree), divisor)| FunctionGroup {
                labels: visible_labels(values, &held),
                total: divisor.divide(tree.total()),
                averaged_profiles: divisor.averaged_profiles(),
            });
            let rows = shown.iter().map(|function| row(function, is_grouped, &divisors));
            let groups = groups.collect();
            let rows = rows.collect();
            Ok(FunctionsResponse {
                total: divisors.of_all.divide(total),
                unit,
                count,
                groups,
                rows,
                warnings: held.warnings(),
                averaged_profiles: divisors.of_all.averaged_profiles(),
                resolution: resolution_text(&held),
                period,
                matched_self: matched.flat,
                matched_total: matched.cum,
            })
        })
        .await?
}

/// Returns the order of rows.
fn sort_order(order: FunctionOrder) -> FunctionSortOrder {
    match order {
        FunctionOrder::Self_ => FunctionSortOrder::SelfValue,
        FunctionOrder::Total => FunctionSortOrder::Total,
        FunctionOrder::Name => FunctionSortOrder::Name,
        FunctionOrder::File => FunctionSortOrder::File,
        FunctionOrder::Binary => FunctionSortOrder::Binary,
    }
}

/// Divisors of the values of a table.
struct FunctionDivisors {
    of_all: ValueDivisor,
    /// Divisor of each group, in the order of their trees.
    of_groups: Vec<ValueDivisor>,
}

impl FunctionDivisors {
    fn new(
        of_all: ValueDivisor,
        of_groups: &BTreeMap<Labels, ValueDivisor>,
        trees: &BTreeMap<Labels, Tree>,
    ) -> Self {
        let of_group = |labels: &Labels| of_groups.get(labels).copied().unwrap_or_default();
        FunctionDivisors { of_all, of_groups: trees.keys().map(of_group).collect() }
    }
}

fn row(function: &FunctionEntry<'_>, is_grouped: bool, divisors: &FunctionDivisors) -> FunctionRow {
    let of_groups = function.of_groups.iter().filter(|_| is_grouped);
    let of_group = |(group, weights): &(u32, FunctionWeights)| {
        let weights = divisors.of_groups[*group as usize].divide_weights(*weights);
        FunctionOfGroup { group: *group, self_: weights.flat, total: weights.cum }
    };
    let weights = divisors.of_all.divide_weights(function.weights);
    FunctionRow {
        name: function.name.to_owned(),
        self_: weights.flat,
        total: weights.cum,
        groups: of_groups.map(of_group).collect(),
        file: function.origin.file.to_owned(),
        binary: function.origin.binary.to_owned(),
    }
}
