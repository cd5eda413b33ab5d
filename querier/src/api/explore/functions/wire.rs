//! Function table on the wire.

use athanor_chassis::Status;
use athanor_proto::athanor::v1::{
    FunctionGroup, FunctionOfGroup, FunctionOrder, FunctionRow, FunctionsRequest, FunctionsResponse,
};

use super::super::wire::{parse_page, parse_query, visible_labels};
use super::{FunctionEntry, FunctionSortOrder, grouped_trees, rank_functions};
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
    let asked = parse_query(executor, request.query, "query").await?;
    let page = parse_page(request.page)?;
    validate::check_labels(&request.group_by)?;
    let order = match FunctionOrder::try_from(request.order).unwrap_or_default() {
        FunctionOrder::Self_ => FunctionSortOrder::SelfValue,
        FunctionOrder::Total => FunctionSortOrder::Total,
        FunctionOrder::Name => FunctionSortOrder::Name,
    };
    let unit = asked.unit();
    let is_grouped = !request.group_by.is_empty();
    let trees = grouped_trees(executor, reader, asked, request.group_by).await?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let functions = rank_functions(trees.values(), order);
            let count = functions.len() as u64;
            let shown: Vec<FunctionEntry<'_>> = page.page_rows(functions).collect();
            let of_row = |row: &FunctionEntry<'_>| {
                FUNCTION_ROW_BYTES + row.name.len() + row.of_groups.len() * GROUP_PART_BYTES
            };
            let of_groups: usize =
                trees.keys().map(|labels| FUNCTION_ROW_BYTES + 2 * labels.text_bytes()).sum();
            job_executor.reserve_memory(&held, of_groups + shown.iter().map(of_row).sum::<usize>())?;
            let total = trees.values().fold(0i64, |sum, tree| sum.wrapping_add(tree.total()));
            let groups = trees.iter().filter(|_| is_grouped);
            let groups = groups.map(|(values, tree)| FunctionGroup {
                labels: visible_labels(values, &held),
                total: tree.total(),
            });
            let rows = shown.iter().map(|function| row(function, is_grouped));
            let groups = groups.collect();
            let rows = rows.collect();
            Ok(FunctionsResponse { total, unit, count, groups, rows, warnings: held.warnings() })
        })
        .await?
}

fn row(function: &FunctionEntry<'_>, is_grouped: bool) -> FunctionRow {
    let of_groups = function.of_groups.iter().filter(|_| is_grouped);
    let of_group = |(group, weights): &(u32, _)| FunctionOfGroup { group: *group, ..part(weights) };
    FunctionRow {
        name: function.name.to_owned(),
        self_: function.weights.flat,
        total: function.weights.cum,
        groups: of_groups.map(of_group).collect(),
    }
}

fn part(weights: &super::FunctionWeights) -> FunctionOfGroup {
    FunctionOfGroup { group: 0, self_: weights.flat, total: weights.cum }
}
