//! The athanor binary.
fn main() {}
