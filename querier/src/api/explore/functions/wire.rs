//! Function table on the wire.

use athanor_chassis::Status;
use athanor_proto::athanor::v1::{
    FunctionGroup, FunctionOfGroup, FunctionOrder, FunctionRow, FunctionsRequest, FunctionsResponse,
};

use super::super::wire::{parse_page, parse_query, visible_labels};
use super::{FunctionEntry, FunctionSortOrder, rank_functions};
use crate::validate;
use crate::{Querier, QueryContext};

/// Memory of a row or a group beside its texts.
const FUNCTION_ROW_BYTES: usize = 256;
/// Memory of one group in a row.
const GROUP_PART_BYTES: usize = 96;

impl Querier {
    /// Returns a page of the table of all functions.
    pub async fn functions(
        &self,
        reader: &QueryContext,
        request: FunctionsRequest,
    ) -> Result<FunctionsResponse, Status> {
        self.run_cached(reader, "Functions", request, |request| self.functions_of(reader, request)).await
    }

    async fn functions_of(
        &self,
        reader: &QueryContext,
        request: FunctionsRequest,
    ) -> Result<FunctionsResponse, Status> {
        let asked = parse_query(self, request.query, "query").await?;
        let page = parse_page(request.page)?;
        validate::check_labels(&request.group_by)?;
        let order = match FunctionOrder::try_from(request.order).unwrap_or_default() {
            FunctionOrder::Self_ => FunctionSortOrder::SelfValue,
            FunctionOrder::Total => FunctionSortOrder::Total,
            FunctionOrder::Name => FunctionSortOrder::Name,
        };
        let unit = asked.unit();
        let is_grouped = !request.group_by.is_empty();
        let trees = self.grouped_trees(reader, asked, request.group_by).await?;
        let querier = self.clone();
        let held = reader.clone();
        self.render_on_pool(reader, move || {
            let functions = rank_functions(trees.values(), order);
            let count = functions.len() as u64;
            let shown: Vec<FunctionEntry<'_>> = page.page_rows(functions).collect();
            let of_row = |row: &FunctionEntry<'_>| {
                FUNCTION_ROW_BYTES + row.name.len() + row.of_groups.len() * GROUP_PART_BYTES
            };
            let of_groups: usize =
                trees.keys().map(|labels| FUNCTION_ROW_BYTES + 2 * labels.text_bytes()).sum();
            querier.reserve_memory(&held, of_groups + shown.iter().map(of_row).sum::<usize>())?;
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
