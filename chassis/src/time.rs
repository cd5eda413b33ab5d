//! Time: the injected clock, the texts that clients write for a time, windows of time and tiers.

pub mod clock;
pub mod expression;
pub mod tier;
