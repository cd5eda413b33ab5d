//! Shards on disks that lose power, with a bucket and a catalogue that fail when they are told to: in one thread whose
//! time is only waited for, and on many real ones.

#![allow(clippy::unwrap_used)]

mod asked;
mod bounds;
mod counting;
mod cuts;
mod generations;
mod repeats;
mod rules;
mod samples;
mod seen;
mod threads;
mod trio;
mod world;
