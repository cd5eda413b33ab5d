//! Shards in one thread: on disks that lose power, with a bucket and a catalogue that fail when they are told to.

#![allow(clippy::unwrap_used)]

mod bounds;
mod cuts;
mod repeats;
mod samples;
mod seen;
mod world;
