//! Time: the injected clock, and the texts that clients write for a time.

pub mod clock;
pub mod expression;
