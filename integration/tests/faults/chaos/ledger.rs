//! What was sent, what was acknowledged, and when.
//!
//! Each upload has a function and a value of its own, so that an answer tells which uploads it is made of. Its bytes
//! follow from its number: whoever sends it again sends the same.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::Random;

pub const SERVICES: usize = 16;
/// One sample of folded text stands for so many nanoseconds, at 100 samples a second.
pub const SAMPLE: i64 = 10_000_000;
/// One of so many is sent once; it may be there or not if no answer came.
const SENT_ONCE: usize = 16;
/// Uploads that are sent again though they were acknowledged: as recent as that.
const RECENT: u64 = 4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    Acknowledged,
    GivenUp,
}

/// One upload.
#[derive(Clone, Copy, Debug)]
pub struct Upload {
    pub number: usize,
    pub service: usize,
    samples: i64,
    from: u64,
    state: State,
}

impl Upload {
    pub fn value(&self) -> i64 {
        self.samples * SAMPLE
    }

    pub fn path(&self) -> String {
        let Self { from, service, .. } = self;
        format!("/ingest?name=service{service}&from={from}&until={}&sampleRate=100&format=folded", from + 10)
    }

    pub fn body(&self) -> String {
        format!("main;{} {}\n", self.function(), self.samples)
    }

    pub fn function(&self) -> String {
        format!("own{}", self.number)
    }

    pub fn is_acknowledged(&self) -> bool {
        self.state == State::Acknowledged
    }

    /// Whether it is not sent again where no answer came.
    pub fn is_sent_once(&self) -> bool {
        self.number % SENT_ONCE == SENT_ONCE - 1
    }
}

/// An upload from its first try to its acknowledgement, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub begun: Duration,
    pub acknowledged: Duration,
}

#[derive(Default)]
pub struct Ledger {
    uploads: Vec<Upload>,
    /// In the order of acknowledgements.
    pub took: Vec<Took>,
    sent: [i64; SERVICES],
    acknowledged: [i64; SERVICES],
    pub repeats: usize,
    pub retries: usize,
}

impl Ledger {
    /// A new upload, or now and then one that was acknowledged.
    pub fn next(&mut self, random: &Random, now: u64) -> Upload {
        if !self.uploads.is_empty() && random.next_below(8) == 0 {
            let back = random.next_below((self.uploads.len() as u64).min(RECENT)) as usize;
            let chosen = self.uploads[self.uploads.len() - 1 - back];
            if chosen.is_acknowledged() {
                self.repeats += 1;
                return chosen;
            }
        }
        let upload = Upload {
            number: self.uploads.len(),
            service: random.next_below(SERVICES as u64) as usize,
            samples: 1 + random.next_below(1000) as i64,
            from: now - random.next_below(600),
            state: State::UnderWay,
        };
        self.uploads.push(upload);
        self.sent[upload.service] += upload.value();
        upload
    }

    pub fn acknowledge(&mut self, upload: &Upload, took: Took) {
        self.took.push(took);
        let upload = &mut self.uploads[upload.number];
        if !upload.is_acknowledged() {
            upload.state = State::Acknowledged;
            self.acknowledged[upload.service] += upload.value();
        }
    }

    pub fn give_up(&mut self, upload: &Upload) {
        self.uploads[upload.number].state = State::GivenUp;
    }

    pub fn of(&self, service: usize) -> impl Iterator<Item = &Upload> {
        self.uploads.iter().filter(move |upload| upload.service == service)
    }

    /// What a service must have and what it may have at most.
    pub fn bounds(&self, service: usize) -> (i64, i64) {
        (self.acknowledged[service], self.sent[service])
    }

    pub fn acknowledged(&self) -> usize {
        self.uploads.iter().filter(|upload| upload.is_acknowledged()).count()
    }

    pub fn given_up(&self) -> usize {
        self.uploads.iter().filter(|upload| upload.state == State::GivenUp).count()
    }

    /// What is wrong with what an answer holds of a service, by function, with nothing under way.
    pub fn differences(&self, service: usize, held: &BTreeMap<String, i64>) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut known = 0;
        for upload in self.of(service) {
            assert_ne!(upload.state, State::UnderWay, "{upload:?}");
            let (function, value) = (upload.function(), upload.value());
            match held.get(&function) {
                Some(held) if *held == value => known += 1,
                Some(held) => {
                    known += 1;
                    wrong.push(format!("{upload:?} counts {held} instead of {value}"));
                }
                None if upload.is_acknowledged() => wrong.push(format!("{upload:?} is missing")),
                None => {}
            }
        }
        if known != held.len() {
            wrong.push(format!("{} functions that nobody sent", held.len() - known));
        }
        wrong
    }
}
