//! Source lines of a function with their weights.

use athanor_chassis::Status;
use athanor_profile::analysis::source_lines;
use athanor_proto::athanor::v1::{LineRow, LinesRequest, LinesResponse};

use super::averages::value_divisor;
use super::require_function;
use super::wire::{parse_page, parse_query, resolution_text};
use crate::QueryContext;
use crate::api::merge::merged_stacks;
use crate::context::result_cache::cached_query::run_cached;
use crate::execute::executor::QueryExecutor;

/// Memory of a row beside its file name.
const LINE_ROW_BYTES: usize = 192;

pub(crate) async fn lines(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: LinesRequest,
) -> Result<LinesResponse, Status> {
    run_cached(executor, reader, "Lines", request, |request| lines_of(executor, reader, request)).await
}

async fn lines_of(
    executor: &QueryExecutor,
    reader: &QueryContext,
    request: LinesRequest,
) -> Result<LinesResponse, Status> {
    let query = parse_query(executor, request.query, "query").await?;
    let page = parse_page(request.page)?;
    let function = require_function(request.function)?;
    let unit = query.unit();
    let (divisor, merged) = futures::try_join!(
        value_divisor(executor, reader, &query),
        merged_stacks(executor, reader, query.selection.clone(), query.stacks.clone()),
    )?;
    let job_executor = executor.clone();
    let held = reader.clone();
    executor
        .render_on_pool(reader, move || {
            let all = source_lines::function_lines(&merged.dictionary, &merged.totals, &function);
            let count = all.lines.len() as u64;
            let shown = || page.page_rows(&all.lines);
            job_executor
                .reserve_memory(&held, shown().map(|(place, _)| LINE_ROW_BYTES + place.file.len()).sum())?;
            let rows = shown().map(|(place, weights)| LineRow {
                file: place.file.to_owned(),
                line: place.line,
                self_: divisor.divide(weights.flat),
                total: divisor.divide(weights.cum),
            });
            Ok(LinesResponse {
                self_: divisor.divide(all.function.flat),
                total: divisor.divide(all.function.cum),
                unit,
                count,
                rows: rows.collect(),
                warnings: held.warnings(),
                averaged_profiles: divisor.averaged_profiles(),
                resolution: resolution_text(&held),
            })
        })
        .await?
}
