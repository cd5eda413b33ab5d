//! Agent: scrapes and receives profiles, spools them on disk, and delivers each to the servers exactly once.
//!
//! ```text
//!  discovery ─► targets ─► scrape ─┐
//!                                  ├─► spool (one folder per server) ─► delivery ─► server
//!  clients ───► receive ───────────┤
//!  host ──────► sampling ──────────┘
//! ```
//!
//! An [`Upload`] has its final bytes, id and time before it enters the spool. No retry changes them, so a
//! server recognizes each retry as a duplicate.

pub mod agent;
pub mod command_line;
pub mod config;
pub mod delivery;
pub mod discovery;
pub mod network;
pub mod operator;
pub mod receive;
pub mod sampling;
pub mod scrape;
pub mod spool;
pub mod targets;
pub mod upload;

pub use agent::privileges;
pub use network::{address_policy, http_client};
pub use scrape::wall_clock;
pub use targets::scrape_target::{self, ProfileKind, ScrapeJob, ScrapeTarget};
pub use upload::{Upload, UploadSink};
