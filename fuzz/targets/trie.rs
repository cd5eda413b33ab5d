//! Any bytes as a tree and as a trie of stacks: refused, or pprof with what the nodes have.
#![no_main]

use athanor_profile::formats::pprof::{self, DecodeLimits};
use athanor_profile::formats::trie::{TrieKind, parse};
use athanor_profile::{ProfileHeader, ValueType};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits {
        bytes: 1 << 16,
        samples: 1_000,
        kept_depth: 100,
        depth: 1_000,
        ..DecodeLimits::default()
    };
    let header =
        ProfileHeader { types: vec![ValueType::new("samples", "count")], ..ProfileHeader::default() };
    let totals = [TrieKind::Tree, TrieKind::Trie].map(|kind| {
        let tally = parse(bytes, kind, &limits).ok()?;
        let written = tally.write(&header, 1).expect("a sum of 63 bits fits");
        let (profile, _) = pprof::decode(&written, &DecodeLimits::default()).expect("what was written reads");
        Some(profile.total(0))
    });
    if let [Some(tree), Some(trie)] = totals {
        assert_eq!(tree, trie, "both say the same values");
    }
});
