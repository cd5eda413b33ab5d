//! Crashes, damage and hostile input: nothing acknowledged is lost or counted twice, and memory stays bounded.

#![allow(clippy::unwrap_used)]

mod adversarial_input;
mod chaos;
mod crash_quarantine;
mod kill_loop;
mod wal_damage;
