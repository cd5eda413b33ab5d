//! Synthetic profiles, the same bytes from the same seed on every machine.
//!
//! - [`ReferenceDataset`]: one service of 20 pods, one CPU profile each 15 s. Benchmarks quote it as *R*, with the
//!   number of profiles (R-1k is the first 1 200, R-10k the first 10 000).
//! - [`SyntheticFleet`]: a thousand services, ten pods each, four types; pods come and go. *F*.
//! - [`FlightChunk`]: a flight recording of given events.
//! - [`arbitrary_profile`]: small profiles that use every corner of the model, for property tests.
//!
//! A set is a function of its seed and a position, so any part can be made without what comes before it.
//! Synthetic data flatters: figures over it stand beside figures over real files.

mod arbitrary;
mod fleet;
mod flight_recording;
mod random;
mod reference;
mod synthetic_program;

pub use arbitrary::arbitrary_profile;
pub use fleet::{FleetProfile, SyntheticFleet};
pub use flight_recording::{FLIGHT_DURATION_NANOS, FLIGHT_START_NANOS, FlightChunk, FlightEvent};
pub use random::SeededRandom;
pub use reference::ReferenceDataset;
