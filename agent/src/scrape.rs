//! Scrapes: profiles that targets serve over HTTP, fetched on a schedule.
//!
//! ```text
//!  targets ─► schedule ─► fetch ─► check of the body ─► upload with id and time ─► sink
//!                ▲                        │
//!                └──────── result ────────┘
//! ```
//!
//! [`Scraper`] runs the schedule. Each (target, kind) has a phase within the interval, which is a hash. The kinds
//! of a target never overlap, and no target waits for another. [`HttpProfileFetcher`] bounds the size, time and
//! rate of each response. Bytes stay as scraped.

mod body_buffer;
mod body_check;
mod fetch;
mod kind_record;
mod kind_timer;
mod metrics;
mod outcome;
mod plan;
mod pprof_walker;
mod profile_upload;
mod schedule;
mod scraper;
mod target_entry;
mod target_status;
#[cfg(test)]
#[path = "scrape/tests/test_profiles.rs"]
mod test_profiles;
pub mod wall_clock;

pub use body_buffer::BodyBudgets;
pub use body_check::BodyCheck;
pub use fetch::{FetchedProfile, HttpProfileFetcher, MAX_PLAIN_BYTES, ProfileFetcher};
pub use metrics::{SCRAPE_METRICS, scrape_collector};
pub use outcome::{ScrapeError, ScrapeErrorKind};
pub use pprof_walker::{BodyError, PprofSummary};
pub(crate) use profile_upload::append_time;
pub use schedule::ScrapeOrder;
pub use scraper::{Scraper, ScraperParams, ScraperStats};
pub use target_entry::TargetRef;
pub use target_status::{KindState, KindStatus, TargetStatus};
