//! Command `query samples`: writes all samples of a query to a file.
//!
//! A request is limited to a page, and the next one continues at the cursor of its last row. So a failed request repeats
//! one page, and no response takes longer than its timeout.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_arrow_format::AppendedRows;
use athanor_chassis::units::format_duration;
use athanor_chassis::{ErrorCode, Random, Status};
use athanor_client::{ApiClient, RetryPolicy};
use athanor_proto::athanor::v1::SamplesRequest;
use bytes::Bytes;
use indicatif::ProgressBar;

use super::{MillisTimeRange, profile, types};
use crate::args::QuerySamplesArgs;
use crate::output::{ConsoleOutput, harmless};
use crate::progress;
use crate::remote::connection;
use crate::table_output::{self, TableOutput};

const SAMPLES_METHOD: &str = "athanor.v1.ExploreService/Samples";
/// Name of the column that continues a response.
const CURSOR_COLUMN: &str = "cursor";
/// Maximum number of retries of a page.
const MAX_PAGE_RETRIES: u32 = 5;

/// Writes all samples to a file.
pub(super) async fn run(args: QuerySamplesArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let QuerySamplesArgs { select, out, mut columns, rows_per_request, stacks } = args;
    let client = connection::client(&select.remote)?;
    let range = MillisTimeRange::of(&select.times, client.clock())?;
    let meant = types::resolve_type(&client, select.profile_type.as_deref(), &select.selector, range).await?;
    let mut file = TableOutput::create(&out, table_output::format(&out)?)?;
    if !columns.is_empty() {
        columns.push(CURSOR_COLUMN.to_owned());
    }
    let transforms = &stacks.transforms;
    let query = range.to_query(&meant, &select.selector, transforms);
    let request =
        SamplesRequest { query: Some(query), columns, limit: Some(rows_per_request), cursor: String::new() };
    let late_warnings = export(&client, request, range, &mut file).await?;
    if file.rows() == 0 {
        return Err(profile::missing(&client, &meant, &select.selector, range, transforms).await);
    }
    for warning in late_warnings {
        eprintln!("athanor: {}: partial response: {}", client.address(), harmless(&warning));
    }
    file.finish(output)
}

/// Appends all pages to a file. Returns the warnings that no response header had.
async fn export(
    client: &ApiClient,
    mut request: SamplesRequest,
    range: MillisTimeRange,
    file: &mut TableOutput,
) -> Result<BTreeSet<String>, Status> {
    let mut bar: Option<ProgressBar> = None;
    let mut late_warnings = BTreeSet::new();
    loop {
        let page = file.append(&fetch_page(client, &request).await?)?;
        late_warnings.extend(page.late_warnings.iter().cloned());
        if page.count < request.limit() {
            bar.inspect(ProgressBar::finish_and_clear);
            return Ok(late_warnings);
        }
        show_progress(&mut bar, range, &page);
        let cursor = page.cursor.filter(|cursor| *cursor != request.cursor);
        request.cursor = cursor.ok_or_else(|| {
            let message = format!(
                "{}: invalid response: {SAMPLES_METHOD} returned {} rows without a new cursor",
                client.address(),
                page.count
            );
            Status::new(ErrorCode::Invalid, message)
        })?;
    }
}

fn show_progress(bar: &mut Option<ProgressBar>, range: MillisTimeRange, page: &AppendedRows) {
    let seconds = |millis: i64| (millis / 1_000).max(0).unsigned_abs();
    let length = seconds(range.end.saturating_sub(range.start));
    let bar = bar.get_or_insert_with(|| progress::time_range(length, "exporting"));
    if let Some(time) = page.last_time {
        bar.set_position(seconds((time / 1_000_000).saturating_sub(range.start)));
    }
}

/// Fetches a page, and retries temporary failures.
async fn fetch_page(client: &ApiClient, request: &SamplesRequest) -> Result<Bytes, Status> {
    let policy = RetryPolicy::interactive(MAX_PAGE_RETRIES);
    let random = Random::system();
    let mut failures = 0;
    loop {
        let status = match client.request_arrow(SAMPLES_METHOD, request).await {
            Ok(page) => return Ok(page),
            Err(status) => status,
        };
        // A server that does not respond to the first page may not exist.
        let is_started = !request.cursor.is_empty();
        let wait: Option<Duration> = policy.delay(failures, &status, &random).filter(|_| is_started);
        let Some(wait) = wait else { return Err(status) };
        eprintln!("athanor: {}; retrying in {}", status.message, format_duration(wait));
        client.clock().sleep(wait).await;
        failures += 1;
    }
}
