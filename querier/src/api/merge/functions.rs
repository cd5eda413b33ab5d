//! Function tables for newer clients: of one selection, and of two side by side.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::analysis::top_table::{FunctionWeights, function_weights};
use athanor_profile::call_tree::tree::Tree;
use athanor_proto::querier::v1::{
    FunctionDiffRow, FunctionStats, FunctionTable, FunctionTableDiff, ProfileFormatOptions,
};

use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::validate::invalid_argument;

/// Bytes of a row beside its name, in memory and as text.
const ROW_BYTES: usize = 192;

/// Returns the maximum number of rows of a table. None means no limit. Of two limits the smaller one counts.
pub(super) fn row_limit(
    max_nodes: Option<i64>,
    options: Option<&ProfileFormatOptions>,
) -> Result<Option<usize>, Status> {
    let limit = options.and_then(|options| options.functions.as_ref()).map_or(0, |functions| functions.limit);
    let positive = |limit: i64| usize::try_from(limit).ok().filter(|limit| *limit > 0);
    if limit < 0 {
        return Err(invalid_argument(format!(
            "formatOptions.functions.limit is {limit}; set a positive number, or 0 for all"
        )));
    }
    Ok([max_nodes.and_then(positive), positive(limit)].into_iter().flatten().min())
}

/// Returns the heaviest functions of a whole tree.
pub(super) async fn function_table(
    executor: &QueryExecutor,
    reader: &QueryContext,
    tree: Tree,
    limit: Option<usize>,
) -> Result<FunctionTable, Status> {
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let mut functions = function_weights(&tree);
            let total_functions = functions.len() as i64;
            // Functions are sorted by name already, and the sort is stable.
            functions.sort_by_key(|(_, weights)| Reverse(rank(&[*weights])));
            functions.truncate(limit.unwrap_or(usize::MAX));
            job_executor
                .reserve_memory(&held, functions.iter().map(|(name, _)| ROW_BYTES + name.len()).sum())?;
            let functions = functions.into_iter().map(|(name, weights)| stats(name, weights)).collect();
            Ok(FunctionTable { total: tree.total(), total_functions, functions })
        })
        .await?
}

/// Returns the heaviest functions of two whole trees. The limit applies after both are joined.
pub(super) async fn function_table_diff(
    executor: &QueryExecutor,
    reader: &QueryContext,
    sides: [Tree; 2],
    limit: Option<usize>,
) -> Result<FunctionTableDiff, Status> {
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let mut joined: BTreeMap<&str, [FunctionWeights; 2]> = BTreeMap::new();
            for (side, tree) in sides.iter().enumerate() {
                let weighed = function_weights(tree).into_iter();
                weighed.for_each(|(name, weights)| joined.entry(name).or_default()[side] = weights);
            }
            let total_functions = joined.len() as i64;
            let mut functions: Vec<(&str, [FunctionWeights; 2])> = joined.into_iter().collect();
            functions.sort_by_key(|(_, weights)| Reverse(rank(weights)));
            functions.truncate(limit.unwrap_or(usize::MAX));
            job_executor.reserve_memory(
                &held,
                functions.iter().map(|(name, _)| 3 * (ROW_BYTES + name.len())).sum(),
            )?;
            let table = |side: usize| {
                let rows = functions.iter().map(|(name, weights)| stats(name, weights[side]));
                FunctionTable { total: sides[side].total(), total_functions, functions: rows.collect() }
            };
            let row = |(name, [left, right]): &(&str, [FunctionWeights; 2])| FunctionDiffRow {
                name: (*name).to_owned(),
                left_self: left.flat,
                left_total: left.cum,
                right_self: right.flat,
                right_total: right.cum,
            };
            Ok(FunctionTableDiff {
                left: Some(table(0)),
                right: Some(table(1)),
                left_total: sides[0].total(),
                right_total: sides[1].total(),
                total_functions,
                functions: functions.iter().map(row).collect(),
            })
        })
        .await?
}

/// Returns the sort key of a function: its largest self value, then its largest total.
fn rank(sides: &[FunctionWeights]) -> (u64, u64) {
    let largest = |value: fn(&FunctionWeights) -> i64| {
        sides.iter().map(|weights| value(weights).unsigned_abs()).max().unwrap_or_default()
    };
    (largest(|weights| weights.flat), largest(|weights| weights.cum))
}

fn stats(name: &str, weights: FunctionWeights) -> FunctionStats {
    FunctionStats { name: name.to_owned(), self_: weights.flat, total: weights.cum }
}

#[cfg(test)]
mod tests {
    use athanor_proto::querier::v1::FunctionsOptions;

    use super::*;

    #[test]
    fn smaller_limit_of_rows_counts() {
        let of = |max_nodes: Option<i64>, limit: Option<i64>| {
            let functions = limit.map(|limit| FunctionsOptions { limit });
            row_limit(max_nodes, Some(&ProfileFormatOptions { functions })).map_err(|status| status.message)
        };
        assert_eq!(row_limit(None, None), Ok(None));
        assert_eq!([of(None, None), of(Some(0), Some(0))], [Ok(None), Ok(None)]);
        assert_eq!(
            [of(Some(7), None), of(None, Some(5)), of(Some(7), Some(9))].map(Result::unwrap),
            [7, 5, 7].map(Some)
        );
        assert!(of(None, Some(-1)).unwrap_err().contains("limit is -1"));
    }
}
