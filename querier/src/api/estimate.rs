//! Cost estimate of a query before it runs.
//!
//! The estimate reads series and profiles, which are small. It does not read rows and names, which are most
//! of a query. So series, profiles and samples are exact counts. Bytes are those of the pages that the query
//! would fetch without any cached parts of the blocks.

use athanor_chassis::Status;
use athanor_query::{PartialResult, ProfileQuery, ProfileSelection, QueryCost, QueryKind};

use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;

mod wire;

pub(crate) use wire::analyze_query;

async fn estimate_cost(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
) -> Result<QueryCost, Status> {
    let ask = ProfileQuery { selection, what: QueryKind::Sizes, bounds: validate::default_result_limits() };
    match run_query(executor, reader, ask).await? {
        PartialResult::Sizes(sizes) => Ok(*sizes),
        _ => Err(unexpected_result_type()),
    }
}
