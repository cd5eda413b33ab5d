//! Interface for operators: pages, metrics, reloads, and the commands that read a running agent.
//!
//! ```text
//!  browser, Prometheus, athanor-agent targets|spool|explain ─► router ─► AgentView ─► components
//!  SIGHUP, changed file ─► ReloadTrigger ─► parse ─► apply, or keep the settings in force
//! ```
//!
//! The port has no authentication, so it is bound to loopback by default and shows no secret.

pub mod check;
pub mod commands;
pub mod config_mask;
pub mod explanation;
mod html;
pub mod metrics;
mod pages;
pub mod reload;
mod self_profile;
#[cfg(test)]
mod tests;
pub mod views;

pub use pages::operator_router;
pub use self_profile::self_profile_router;
