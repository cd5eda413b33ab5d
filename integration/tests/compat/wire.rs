//! The wire that existing clients speak, held to its description: each call in each way to write it, what is refused and
//! with which status, and a canary that any server of this wire sings to.
//!
//! ```text
//!  calls      all calls, each with a good question            matrix    each call × (ways to write it, spellings, faults)
//!  speech     how a call is written: Connect, gRPC, gRPC-Web   statuses  what is refused of each call, and how
//!  data       what the questions are about                     canary    one profile, found by every way to ask
//!                                                              means     sums and means over time
//! ```

mod calls;
mod canary;
mod data;
mod matrix;
mod means;
mod speech;
mod statuses;
