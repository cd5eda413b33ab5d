//! Interface between profiles and their stores: the log, heads and blocks.
//!
//! * `upload`: an upload as received, before it is decoded.
//! * `series`: series and profiles in the form that stores use.
//! * `source`: one tenant's series, profiles and rows, independent of the store.
//! * `dictionary_delta`: growth of a dictionary, so that a log contains each name only once.

pub mod dictionary_delta;
pub mod series;
pub mod source;
pub mod upload;
