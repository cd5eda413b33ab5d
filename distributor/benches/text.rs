//! How fast folded text becomes rows of a shard, beside a floor: finding the lines and hashing the bytes, once.
//!
//! `cargo bench -p athanor-distributor --bench text`. Throughput is in bytes of text, on one thread, the best of many rounds
//! taken in turns. "Text" is from the body to pprof; "shard" is what a shard does with that before its log; "both" is what a
//! core has to do for a body. "Dictionary" is text read by the reader for files, which keeps a dictionary, and encoded.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench measures time")]

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use athanor_chassis::TenantLimits;
use athanor_distributor::convert_profiles;
use athanor_profile::formats::pprof::{self, DecodedProfile, PprofDecoder, decode, encode};
use athanor_profile::generate::ReferenceDataset;
use athanor_profile::{Dictionary, ValueType, formats::folded};
use bytes::Bytes;

const PROFILES: usize = 40;
const ROUNDS: usize = 30;
/// How often a sampler sees a stack that writes a line for each sample.
const REPEATS: usize = 8;

/// The stacks of R, without what text does not say. `repeats`: so often each line is there.
fn bodies(repeats: usize) -> Vec<Bytes> {
    let body = |raw: Vec<u8>| {
        let (profile, _) = decode(&raw, &pprof::DecodeLimits::default()).unwrap();
        let mut text = String::new();
        for _ in 0..repeats {
            for (stack, _, values) in profile.samples.rows(profile.header.types.len()) {
                let frames = profile.dictionary.frame_names(stack).join(";");
                writeln!(text, "{frames} {}", values[0].unsigned_abs() % 1_000 + 1).unwrap();
            }
        }
        Bytes::from(text)
    };
    ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED).profiles(PROFILES).map(body).collect()
}

fn floor(bodies: &[Bytes]) {
    for body in bodies {
        black_box((memchr::memchr_iter(b'\n', body).count(), xxhash_rust::xxh3::xxh3_64(body)));
    }
}

fn text(bodies: &[Bytes]) -> Vec<Bytes> {
    let made = |body| convert_profiles("name=app", None, body, &TenantLimits::default()).unwrap();
    bodies.iter().flat_map(made).collect()
}

#[derive(Default)]
struct Shard {
    decoder: PprofDecoder,
    dictionary: Dictionary,
    decoded: DecodedProfile,
}

fn shard(made: &[Bytes], Shard { decoder, dictionary, decoded }: &mut Shard) {
    for pprof in made {
        decoder.decode(pprof, &pprof::DecodeLimits::default(), dictionary, decoded).unwrap();
        black_box(decoded.content.finish(&decoded.header));
    }
}

fn through_dictionaries(bodies: &[Bytes]) {
    for body in bodies {
        let read = folded::parse(body, ValueType::new("cpu", "nanoseconds"), &pprof::DecodeLimits::default());
        black_box(encode(&read.unwrap()));
    }
}

fn measure(name: &str, bodies: &[Bytes]) {
    let made = text(bodies);
    let mut state = Shard::default();
    shard(&made, &mut state);
    let mut best = [Duration::MAX; 5];
    for _ in 0..ROUNDS {
        let mut time = |which: usize, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            best[which] = best[which].min(start.elapsed());
        };
        time(0, &mut || floor(bodies));
        time(1, &mut || drop(black_box(text(bodies))));
        time(2, &mut || shard(&made, &mut state));
        time(3, &mut || shard(&text(bodies), &mut state));
        time(4, &mut || through_dictionaries(bodies));
    }
    let bytes: usize = bodies.iter().map(Bytes::len).sum();
    let [floor, text, shard, both, dictionary] = best.map(|time| bytes as f64 / time.as_secs_f64() / 1e6);
    println!(
        "{name}: {bytes} bytes, MB/s: floor {floor:.0}, text {text:.0}, shard {shard:.0}, both {both:.0}, dictionary {dictionary:.0}"
    );
}

fn main() {
    measure("R, each stack once", &bodies(1));
    measure("R, each stack often", &bodies(REPEATS));
}
