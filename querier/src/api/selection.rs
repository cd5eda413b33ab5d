//! Selections of requests. Those that take time to parse are parsed on a compute thread.

use athanor_chassis::Status;
use athanor_query::ProfileSelection;

use crate::execute::executor::QueryExecutor;
use crate::validate;

/// Validates a part of a request with these selector texts. Regular expressions take time to compile, so
/// they are compiled on a compute thread.
pub(crate) async fn check_on_pool<R, F>(
    executor: &QueryExecutor,
    texts: &[&str],
    check: F,
) -> Result<R, Status>
where
    R: Send + 'static,
    F: FnOnce() -> Result<R, Status> + Send + 'static,
{
    if validate::is_short(texts) { check() } else { executor.parse_on_pool(check).await? }
}

/// Returns the selection of profiles of one type.
pub(crate) async fn parse_selection(
    executor: &QueryExecutor,
    type_id: &str,
    text: &str,
    start: i64,
    end: i64,
) -> Result<ProfileSelection, Status> {
    let of_type = type_id.to_owned();
    let owned = text.to_owned();
    check_on_pool(executor, &[text], move || validate::parse_typed_selection(&of_type, &owned, start, end))
        .await
}
