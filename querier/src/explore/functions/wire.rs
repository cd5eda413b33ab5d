//! The table of functions on the wire.

use athanor_chassis::Status;
use athanor_proto::athanor::v1::{
    FunctionGroup, FunctionOfGroup, FunctionOrder, FunctionRow, FunctionsRequest, FunctionsResponse,
};

use super::super::wire::{asked, labels, rows};
use super::{Function, Order, functions};
use crate::check;
use crate::{Querier, Reader};

/// What a row or a group takes beside its texts.
const ROW: usize = 256;
/// What a group's part of a row takes.
const PART: usize = 96;

impl Querier {
    /// A page of the table of all functions.
    pub async fn functions(
        &self,
        reader: &Reader,
        request: FunctionsRequest,
    ) -> Result<FunctionsResponse, Status> {
        self.again(reader, "Functions", request, |request| self.functions_of(reader, request)).await
    }

    async fn functions_of(
        &self,
        reader: &Reader,
        request: FunctionsRequest,
    ) -> Result<FunctionsResponse, Status> {
        let (asked, page) = (asked(self, request.query, "query").await?, rows(request.page)?);
        check::labels(&request.group_by)?;
        let order = match FunctionOrder::try_from(request.order).unwrap_or_default() {
            FunctionOrder::Own => Order::Own,
            FunctionOrder::Total => Order::Total,
            FunctionOrder::Name => Order::Name,
        };
        let (unit, is_grouped) = (asked.unit(), !request.group_by.is_empty());
        let trees = self.trees(reader, asked, request.group_by).await?;
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            let functions = functions(trees.values(), order);
            let count = functions.len() as u64;
            let shown: Vec<Function<'_>> = page.of(functions).collect();
            let of_row = |row: &Function<'_>| ROW + row.name.len() + row.of_groups.len() * PART;
            let of_groups: usize = trees.keys().map(|labels| ROW + 2 * labels.text_bytes()).sum();
            querier.make_room(&held, of_groups + shown.iter().map(of_row).sum::<usize>())?;
            let total = trees.values().fold(0i64, |sum, tree| sum.wrapping_add(tree.total()));
            let groups = trees.iter().filter(|_| is_grouped);
            let groups = groups
                .map(|(values, tree)| FunctionGroup { labels: labels(values, &held), total: tree.total() });
            let rows = shown.iter().map(|function| row(function, is_grouped));
            let (groups, rows) = (groups.collect(), rows.collect());
            Ok(FunctionsResponse { total, unit, count, groups, rows, missing: held.lacks() })
        })
        .await?
    }
}

fn row(function: &Function<'_>, is_grouped: bool) -> FunctionRow {
    let of_groups = function.of_groups.iter().filter(|_| is_grouped);
    let of_group = |(group, weights): &(u32, _)| FunctionOfGroup { group: *group, ..part(weights) };
    FunctionRow {
        name: function.name.to_owned(),
        own: function.weights.flat,
        total: function.weights.cum,
        groups: of_groups.map(of_group).collect(),
    }
}

fn part(weights: &super::Weights) -> FunctionOfGroup {
    FunctionOfGroup { group: 0, own: weights.flat, total: weights.cum }
}
