//! Hostile uploads, through every door: each is answered in words, takes no more memory than twice the largest body, and
//! the server goes on.
//!
//! ```text
//!  bombs ─► athanor serve ─► a status below 500
//!              └─ /proc/PID/status: the peak since the upload began
//! ```
//!
//! The corpus is made here (`bombs.rs`, and a file for each family of formats), so what is in it can be read.

#![allow(clippy::unwrap_used)]

mod bombs;
mod exports;
mod process;
mod recordings;

use bombs::Bomb;
use process::Served;

/// The largest body that the server takes.
const BODY: u64 = 64 << 20;
/// The largest profile.
const PROFILE: u64 = 16 << 20;
/// What allocators and threads take whatever comes.
const SLACK: u64 = 24 << 20;

#[test]
fn hostile_uploads_take_bounded_memory_and_end_in_words() {
    let server = Served::start(BODY, PROFILE);
    let mut wrong = Vec::new();
    for Bomb { name, path, headers, body } in bombs::all() {
        let before = server.begin_peak();
        let (status, answer) = server.post(&path, &headers, &body);
        let grown = server.peak().saturating_sub(before);
        println!("{name}: {} bytes sent, {status}, {} KiB at the peak", body.len(), grown >> 10);
        if status >= 500 {
            wrong.push(format!("{name}: {status} {answer}"));
        }
        if grown > 2 * BODY + SLACK {
            wrong.push(format!("{name}: {} MiB at the peak", grown >> 20));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let (status, answer) = server.post("/ingest?name=sound.cpu", &[], b"main;run 5\n");
    assert_eq!(status, 200, "{answer}");
    server.end();
}
