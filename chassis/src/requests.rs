//! Control of requests: admission, fair order among tenants, retries, cancellation, and a record of running work.
//!
//! * `backoff`: delays between retries.
//! * `gate`: admits requests until the process drains.
//! * `query_queue`: limits concurrent queries and grants permits fairly among tenants.
//! * `result_budget`: memory of query results, shared fairly among tenants.
//! * `tenant_shares`: share of a budget that one tenant may hold.
//! * `single_flight`: one computation for concurrent requests with equal keys.
//! * `cancel`: cancellation of long computations after the caller stopped waiting.
//! * `activity_tracker`: work that was under way when the previous process died.

pub mod activity_tracker;
pub mod backoff;
pub mod cancel;
pub mod gate;
pub mod query_queue;
pub mod result_budget;
pub mod single_flight;
pub mod tenant_shares;
