//! Hostile uploads, through every door: each is answered as it should be, takes no more memory than twice the limit
//! that it meets, and the server goes on. So it is with several at once.
//!
//! ```text
//!  bombs ─► athanor serve ─► the status and the reason that each names
//!              └─ /proc/PID/status: the peak since the upload began, beyond what was held before it
//! ```
//!
//! The corpus is made here (`bombs.rs`, and a file for each family of formats), so what is in it can be read.

mod bombs;
mod calls;
mod documents;
mod exports;
mod own_profile;
mod pprofs;
mod process;
mod recordings;
mod streams;

use std::thread;

use bombs::Bomb;
use process::{Limits, Served};

/// The largest body that the server takes.
const BODY: u64 = 64 << 20;
/// The largest profile.
const PROFILE: u64 = 16 << 20;
/// What an answer may take, and so a profile that people upload to look at it.
const ANSWER: u64 = 128 << 20;
/// Bodies under way, and what is read of them.
const REQUESTS: u64 = 160 << 20;
/// What a server takes for any request: stacks of its threads, buffers of connections, the log.
const SLACK: u64 = 24 << 20;
/// What it holds of all that came before: entries of the log, the youngest of which stay in memory, and the names in its heads.
const HELD: u64 = 64 << 20;

const LIMITS: Limits = Limits { body: BODY, profile: PROFILE, answer: ANSWER, requests: REQUESTS };

/// What is wrong with an answer, and with the memory that it took.
fn wrong(bomb: &Bomb, answered: &Result<(u16, String), String>, grown: u64) -> Vec<String> {
    let Bomb { name, limit, status, word, .. } = bomb;
    let mut wrong = Vec::new();
    match answered {
        Ok((seen, answer)) if seen == status && answer.contains(word) => {}
        other => wrong.push(format!("{name}: {other:?} and not {status} with {word:?}")),
    }
    if grown > 2 * limit + SLACK {
        wrong.push(format!("{name}: {} MiB at the peak, the limit is {} MiB", grown >> 20, limit >> 20));
    }
    wrong
}

fn serves_on(server: Served) {
    let sound = bombs::ingest("sound", "groups", b"main;run 5\n".to_vec(), 200, "");
    assert_eq!(server.send(&sound), Ok((200, String::new())));
    server.end();
}

#[test]
fn hostile_uploads_take_bounded_memory_and_end_in_words() {
    let server = Served::start(&LIMITS);
    let idle = server.begin_peak();
    let mut all = Vec::new();
    for bomb in bombs::all() {
        let before = server.settle(idle + HELD);
        let answered = server.send(&bomb);
        let grown = server.peak().saturating_sub(before);
        let held = before.saturating_sub(idle);
        if held > HELD {
            all.push(format!("{}: {} MiB are held before it", bomb.name, held >> 20));
        }
        println!(
            "{}: {} bytes sent, {answered:?}, {} KiB at the peak beyond {} KiB",
            bomb.name,
            bomb.body.len(),
            grown >> 10,
            held >> 10
        );
        all.extend(wrong(&bomb, &answered, grown));
    }
    assert!(all.is_empty(), "{all:#?}");
    serves_on(server);
}

/// The greediest at a time. A request for which there is no room is told so, and to come back.
#[test]
#[expect(clippy::disallowed_methods, reason = "clients of a test that wait for their answers")]
fn hostile_uploads_at_once_take_no_more_than_requests_may() {
    let server = Served::start(&LIMITS);
    let idle = server.begin_peak();
    let together = bombs::greedy();
    let answers: Vec<_> = thread::scope(|scope| {
        let sent: Vec<_> = together.iter().map(|bomb| scope.spawn(|| server.send(bomb))).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect()
    });
    let grown = server.peak().saturating_sub(idle);
    println!("{answers:#?}, {} MiB at the peak", grown >> 20);
    for (Bomb { name, status, word, .. }, answered) in together.iter().zip(answers) {
        let (seen, answer) = answered.unwrap();
        let full = seen == 429 && answer.contains("max_inflight_request_bytes");
        assert!(full || seen == *status && answer.contains(word), "{name}: {seen} {answer}");
    }
    // What is held of requests, and what each thread makes of the one that it reads.
    let threads = thread::available_parallelism().unwrap().get().min(together.len()) as u64;
    let most = REQUESTS + threads * 2 * BODY + SLACK;
    assert!(grown <= most, "{} MiB at the peak, {} MiB are allowed", grown >> 20, most >> 20);
    serves_on(server);
}

/// A small server that was attacked is small again.
#[test]
#[expect(clippy::disallowed_methods, reason = "clients of a test that wait for their answers")]
fn memory_of_hostile_uploads_goes_back_to_the_system() {
    let server = Served::start_as_shipped(&LIMITS);
    streams::assert_serves(&server);
    let before = server.begin_peak();
    // Those that are taken stay, in the log and in heads.
    let refused: Vec<_> = bombs::greedy().into_iter().filter(|bomb| bomb.status != 200).collect();
    thread::scope(|scope| {
        for bomb in &refused {
            // Some are refused before all of them is sent, which may end the connection.
            scope.spawn(|| drop(server.send(bomb)));
        }
    });
    let grown = server.peak().saturating_sub(before);
    println!("{} MiB at the peak of {} uploads", grown >> 20, refused.len());
    assert!(grown >= BODY / 2, "{} MiB at the peak: no attack", grown >> 20);
    streams::assert_gives_back(&server, before);
    serves_on(server);
}
