//! Any bytes as `meta.json`, and again under a right checksum: refused, or one that reads the same again.
#![no_main]

use athanor_block::BlockMeta;
use athanor_profile::encoding::hash;
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let Ok(meta) = BlockMeta::decode(bytes) else { return };
    let _ = (meta.bytes(), meta.samples());
    assert_eq!(BlockMeta::decode(&meta.encode()).expect("what was written reads"), meta);
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // The inner text alone: sealed here, so that what lies behind the checksum is reached.
    let text = text.trim_matches([' ', '\n', '\r', '\t']);
    check(
        format!("{{\"checksum\":\"{:032x}\",\"meta\":{text}}}", hash::hash_bytes(text.as_bytes())).as_bytes(),
    );
});
