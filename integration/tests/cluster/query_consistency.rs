//! Every question of the read path while profiles go from heads to blocks and blocks are replaced by others: at each
//! moment the answer is that of plain lists of what was sent, and that of a server that has the same profiles in its memory.
//!
//! ```text
//!  profiles ─► a cluster that cuts and merges ─► asker ─► decoded, otlp ─┐
//!      │                                                                 ├─ equal, at each node, at every moment
//!      └─────► naive ─► sums ────────────────────────────────────────────┘
//!  lists graphs points heat pages files explore
//!                                          what is asked, and what plain lists answer
//!  plain                                   that these are equal, while the story goes on
//!  memory questions                        that answers are those of a server that has all in its memory, likewise
//!  twice refresh                           what lies in two places; what a dashboard reads that goes on
//!  storms                                  gateways die and the bucket fails meanwhile: whole, or that is said
//!  again kept                              what queriers keep of their answers, and for clients between their questions
//!  estimate                                that what is told before a question is what it then reads
//! ```

mod again;
mod asker;
mod decoded;
mod estimate;
mod explore;
mod files;
mod graphs;
mod heat;
mod kept;
mod lists;
mod memory;
mod naive;
mod otlp;
mod pages;
mod plain;
mod points;
mod profiles;
mod questions;
mod refresh;
mod storms;
mod story;
mod sums;
mod twice;
