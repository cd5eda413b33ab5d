//! Command `query functions`: writes all functions of a query to a file.

use athanor_arrow_format::AppendedRows;
use athanor_chassis::Status;
use athanor_proto::athanor::v1::{FunctionsRequest, Page};

use super::{MillisTimeRange, profile, types};
use crate::args::QueryFunctionsArgs;
use crate::output::ConsoleOutput;
use crate::remote::connection;
use crate::table_output::{self, TableOutput};

const FUNCTIONS_METHOD: &str = "athanor.v1.ExploreService/Functions";
/// Metadata key of the number of functions on all pages.
const COUNT_KEY: &str = "athanor.count";
/// Number of functions of a page.
const PAGE_FUNCTIONS: u32 = 10_000;

/// Writes all functions to a file.
pub(super) async fn run(args: QueryFunctionsArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let QueryFunctionsArgs { select, out, by, stacks } = args;
    let client = connection::client(&select.remote)?;
    let range = MillisTimeRange::of(&select.times, client.clock())?;
    let meant = types::resolve_type(&client, select.profile_type.as_deref(), &select.selector, range).await?;
    let mut file = TableOutput::create(&out, table_output::format(&out)?)?;
    let transforms = &stacks.transforms;
    let query = range.to_query(&meant, &select.selector, transforms);
    let mut request = FunctionsRequest { query: Some(query), group_by: by, ..FunctionsRequest::default() };
    let mut offset = Some(0u32);
    while let Some(first) = offset {
        request.page = Some(Page { offset: first, limit: PAGE_FUNCTIONS });
        let page = file.append(&client.request_arrow(FUNCTIONS_METHOD, &request).await?)?;
        let next = first.checked_add(PAGE_FUNCTIONS);
        offset = next.filter(|&next| page.count > 0 && u64::from(next) < function_count(&page));
    }
    if file.rows() == 0 {
        return Err(profile::missing(&client, &meant, &select.selector, range, transforms).await);
    }
    file.finish(output)
}

/// Returns the number of functions on all pages.
fn function_count(page: &AppendedRows) -> u64 {
    let entry = page.metadata.extra.iter().find(|(key, _)| key == COUNT_KEY);
    entry.and_then(|(_, count)| count.parse().ok()).unwrap_or_default()
}
