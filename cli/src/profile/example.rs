//! Example profile: thirty seconds of a fictional web shop.

use athanor_profile::data_model::symbols::{Function, Line, Mapping};
use athanor_profile::generate::SeededRandom;
use athanor_profile::{Profile, ProfileHeader, ValueType};

/// Call graph: each caller with its callees and their odds.
const CALL_GRAPH: &[(&str, &[(&str, usize)])] = &[
    (
        "net/http.(*conn).serve",
        &[("net/http.serverHandler.ServeHTTP", 90), ("net/http.(*conn).readRequest", 10)],
    ),
    ("net/http.(*conn).readRequest", &[("bufio.(*Reader).ReadSlice", 60), ("runtime.mallocgc", 40)]),
    ("net/http.serverHandler.ServeHTTP", &[("shop/web.(*Router).ServeHTTP", 100)]),
    (
        "shop/web.(*Router).ServeHTTP",
        &[("shop/web.withTracing.func1", 85), ("shop/web.(*Router).match", 10), ("runtime.mallocgc", 5)],
    ),
    ("shop/web.(*Router).match", &[("regexp.(*Regexp).MatchString", 100)]),
    ("shop/web.withTracing.func1", &[("shop/web.withSession.func1", 90), ("shop/trace.(*Span).End", 10)]),
    (
        "shop/web.withSession.func1",
        &[
            ("shop/checkout.(*Service).Checkout", 55),
            ("shop/catalog.(*Service).Search", 30),
            ("shop/session.Verify", 15),
        ],
    ),
    ("shop/session.Verify", &[("crypto/hmac.(*hmac).Sum", 70), ("encoding/base64.(*Encoding).Decode", 30)]),
    ("crypto/hmac.(*hmac).Sum", &[("crypto/sha256.block", 100)]),
    (
        "shop/checkout.(*Service).Checkout",
        &[
            ("shop/pricing.(*Engine).Quote", 45),
            ("shop/orders.(*Store).Insert", 25),
            ("shop/payment.(*Client).Authorize", 20),
            ("encoding/json.Marshal", 10),
        ],
    ),
    (
        "shop/pricing.(*Engine).Quote",
        &[
            ("shop/pricing.(*Rule).Apply", 60),
            ("shop/tax.Lookup", 20),
            ("sort.Slice", 10),
            ("runtime.mapaccess1_faststr", 10),
        ],
    ),
    (
        "shop/pricing.(*Rule).Apply",
        &[("shop/pricing.evaluate", 70), ("math/big.(*Int).Mul", 20), ("runtime.mapaccess1_faststr", 10)],
    ),
    (
        "shop/pricing.evaluate",
        &[
            ("shop/pricing.evaluate", 35),
            ("regexp.(*Regexp).MatchString", 30),
            ("strconv.ParseFloat", 20),
            ("runtime.mallocgc", 15),
        ],
    ),
    ("shop/tax.Lookup", &[("sync.(*RWMutex).RLock", 30), ("runtime.mapaccess1_faststr", 70)]),
    ("shop/orders.(*Store).Insert", &[("database/sql.(*DB).ExecContext", 80), ("encoding/json.Marshal", 20)]),
    ("database/sql.(*DB).ExecContext", &[("shop/pg.(*Conn).Exec", 85), ("sync.(*Mutex).Lock", 15)]),
    ("shop/pg.(*Conn).Exec", &[("crypto/tls.(*Conn).Write", 60), ("bufio.(*Reader).ReadSlice", 40)]),
    ("shop/payment.(*Client).Authorize", &[("net/http.(*Client).Do", 70), ("encoding/json.Marshal", 30)]),
    ("net/http.(*Client).Do", &[("crypto/tls.(*Conn).Write", 70), ("runtime.mallocgc", 30)]),
    ("crypto/tls.(*Conn).Write", &[("crypto/aes.gcmAesEnc", 60), ("syscall.Syscall", 40)]),
    (
        "shop/catalog.(*Service).Search",
        &[("shop/catalog.(*Index).Lookup", 60), ("encoding/json.Marshal", 40)],
    ),
    ("shop/catalog.(*Index).Lookup", &[("shop/catalog.intersect", 65), ("sort.Slice", 35)]),
    ("shop/trace.(*Span).End", &[("encoding/json.Marshal", 60), ("sync.(*Mutex).Lock", 40)]),
    ("encoding/json.Marshal", &[("encoding/json.(*encodeState).reflectValue", 100)]),
    (
        "encoding/json.(*encodeState).reflectValue",
        &[("encoding/json.structEncoder.encode", 75), ("runtime.mallocgc", 25)],
    ),
    (
        "encoding/json.structEncoder.encode",
        &[("encoding/json.(*encodeState).reflectValue", 40), ("encoding/json.appendString", 60)],
    ),
    ("regexp.(*Regexp).MatchString", &[("regexp.(*machine).backtrack", 100)]),
    ("sort.Slice", &[("internal/reflectlite.Swapper.func9", 50), ("sort.insertionSort_func", 50)]),
    ("bufio.(*Reader).ReadSlice", &[("syscall.Syscall", 100)]),
    ("sync.(*Mutex).Lock", &[("runtime.futex", 100)]),
    ("sync.(*RWMutex).RLock", &[("runtime.futex", 100)]),
    ("runtime.mallocgc", &[("runtime.nextFreeFast", 60), ("runtime.gcAssistAlloc", 40)]),
    ("runtime.gcAssistAlloc", &[("runtime.scanobject", 100)]),
    ("runtime.gcBgMarkWorker", &[("runtime.gcDrain", 100)]),
    ("runtime.gcDrain", &[("runtime.scanobject", 80), ("runtime.markBits.isMarked", 20)]),
    ("runtime.mcall", &[("runtime.schedule", 100)]),
    ("runtime.schedule", &[("runtime.findRunnable", 80), ("runtime.futex", 20)]),
];

/// Root functions of the stacks, with their odds.
const ROOT_FUNCTIONS: [(&str, usize); 3] =
    [("net/http.(*conn).serve", 82), ("runtime.gcBgMarkWorker", 11), ("runtime.mcall", 7)];
/// Number of samples, of ten milliseconds each.
const SAMPLE_COUNT: usize = 4_200;
const SAMPLE_PERIOD_NANOS: i64 = 10_000_000;
/// Start of the profile: 2024-01-01T12:00:00Z.
const START_TIME_NANOS: i64 = 1_704_110_400_000_000_000;
/// Probability in 1/1000 that a function is the leaf although it has callees.
const LEAF_PER_MILLE: usize = 60;
const MAX_STACK_DEPTH: usize = 22;

/// Returns the example profile, equal on each call.
pub fn checkout() -> Profile {
    let mut random = SeededRandom::from_path(&[2024, 7]);
    let header = ProfileHeader {
        types: vec![ValueType::new("samples", "count"), ValueType::new("cpu", "nanoseconds")],
        period_type: Some(ValueType::new("cpu", "nanoseconds")),
        period: SAMPLE_PERIOD_NANOS,
        time_nanos: START_TIME_NANOS,
        duration_nanos: 30_000_000_000,
        comments: vec!["a made-up web shop, 30 s on two processors".to_owned()],
        ..ProfileHeader::default()
    };
    let mut profile = Profile { header, ..Profile::default() };
    for _ in 0..SAMPLE_COUNT {
        let mut path = vec![draw(&mut random, &ROOT_FUNCTIONS)];
        while path.len() < MAX_STACK_DEPTH && !(path.len() > 2 && random.next_bool(LEAF_PER_MILLE)) {
            let last = path[path.len() - 1];
            let Some((_, callees)) = CALL_GRAPH.iter().find(|(caller, _)| *caller == last) else { break };
            path.push(draw(&mut random, callees));
        }
        let locations: Vec<u32> = path.iter().rev().map(|name| location(&mut profile, name)).collect();
        let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, &locations);
        profile.samples.push(stack, 0, &[1, SAMPLE_PERIOD_NANOS]);
    }
    profile.compact();
    profile
}

fn draw<'n>(random: &mut SeededRandom, odds: &[(&'n str, usize)]) -> &'n str {
    let mut left = random.next_below(odds.iter().map(|(_, odds)| odds).sum());
    for (name, odds) in odds {
        if left < *odds {
            return name;
        }
        left -= odds;
    }
    unreachable!("what is left is below the sum of the odds")
}

/// Interns a location. Its address and line are derived from the function's name.
fn location(profile: &mut Profile, name: &str) -> u32 {
    let symbols = &mut profile.dictionary.symbols;
    let number = athanor_profile::encoding::hash::hash_bytes(name.as_bytes()) as u64;
    let package = name.rsplit_once('/').map_or(name, |(_, last)| last).split('.').next().unwrap_or_default();
    let file = symbols.strings.intern(&format!("/src/{package}/{package}.go"));
    let binary = symbols.strings.intern("/usr/bin/checkout");
    let text = symbols.strings.intern(name);
    let mapping =
        Mapping { start: 0x40_0000, size: 0x80_0000, offset: 0, filename: binary, build_id: 0, flags: 0b111 };
    let mapping = symbols.intern_mapping(mapping);
    let start_line = (number % 400) as i64 + 10;
    let function =
        symbols.intern_function(Function { name: text, system_name: text, filename: file, start_line });
    let line = Line { function, line: start_line + (number >> 32) as i64 % 30, column: 0 };
    symbols.intern_location(mapping, number >> 8 & 0x7f_ffff, false, &[line])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_example_is_what_is_generated() {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/checkout.pb.gz");
        let bytes =
            athanor_profile::formats::pprof::gzip(&athanor_profile::formats::pprof::encode(&checkout()));
        let same = std::fs::read(shipped).unwrap() == bytes;
        assert!(same, "run: athanor dev example --out examples/checkout.pb.gz");
        assert!(checkout().samples.len() >= 150);
    }
}
