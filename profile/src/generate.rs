//! Synthetic profiles: the same seed produces the same bytes on every machine.
//!
//! - [`ReferenceDataset`]: one service of 20 pods, one CPU profile every 15 s. Benchmarks call it *R*,
//!   followed by the number of profiles (R-1k is the first 1 200, R-10k the first 10 000).
//! - [`SyntheticFleet`]: a thousand services, ten pods each, four types. Pods are replaced over time.
//!   Benchmarks call it *F*.
//! - [`FlightChunk`]: a flight recording of given events.
//! - [`arbitrary_profile`]: small profiles that use every feature of the model, for property tests.
//!
//! A data set is a function of its seed and a position, so any part can be generated alone. Synthetic data is
//! optimistic: publish its figures next to figures of real files.

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
