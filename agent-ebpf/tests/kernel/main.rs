//! The BPF side on the running kernel: needs CAP_BPF and CAP_PERFMON, and is skipped without.

#![allow(clippy::unwrap_used)]

mod counting;
mod hotplug;
mod known_program;
mod lifetime;
mod privileges;
mod process_events;
mod support;
mod unwinding;
