//! Synthetic profiles, the same bytes from the same seed on every machine.
//!
//! - [`Reference`]: one service of 20 pods, one CPU profile each 15 s. Benchmarks quote it as *R*, with the
//!   number of profiles (R-1k is the first 1 200, R-10k the first 10 000).
//! - [`Fleet`]: a thousand services, ten pods each, four types; pods come and go. *F*.
//! - [`Flight`]: a flight recording of given events.
//! - [`arbitrary`]: small profiles that use every corner of the model, for property tests.
//!
//! A set is a function of its seed and a position, so any part can be made without what comes before it.
//! Synthetic data flatters: figures over it stand beside figures over real files.

mod arbitrary;
mod fleet;
mod flight;
mod random;
mod reference;
mod world;

pub use arbitrary::arbitrary;
pub use fleet::{Fleet, FleetProfile};
pub use flight::{FLIGHT_DURATION, FLIGHT_START, Flight, FlightEvent};
pub use random::Random;
pub use reference::Reference;
