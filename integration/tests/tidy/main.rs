//! Checks of the source tree itself: its structure, its invariants and its mutants.

mod invariants;
mod layers;
mod mutants;
mod source;
