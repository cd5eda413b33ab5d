//! Tests of the collector with a source that returns made-up windows.

mod checked;
mod collected;
mod grouped;
mod labeled;
mod made_up;
mod recorded;
