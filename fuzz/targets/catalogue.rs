//! Any bytes as a command in the log of the catalogue, as a snapshot of it, and as what other nodes are told of it: refused, or
//! something that is the same when it is written and read again. The first byte says which.
#![no_main]

use athanor_catalog::{CatalogLogEntry, CatalogState, RoutingView};
use libfuzzer_sys::fuzz_target;

/// The part of the metastore that this is about; all of it would be slow to build with a fuzzer's instruments.
#[path = "../../metastore/src/compression.rs"]
#[allow(dead_code)]
mod packed;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    match first % 4 {
        0 => {
            let Ok(logged) = CatalogLogEntry::decode(rest) else { return };
            let again = CatalogLogEntry::decode(&logged.encode()).expect("what was written is read");
            assert_eq!(again, logged);
        }
        1 => {
            let Ok(state) = CatalogState::decode(rest) else { return };
            // What contradicts itself is told, and nothing is made of it.
            let _ = state.check();
            let again = CatalogState::decode(&state.encode()).expect("what was written is read");
            assert_eq!(again, state);
        }
        2 => {
            let Ok(view) = packed::decode_compressed::<RoutingView>(rest) else { return };
            let again: RoutingView =
                packed::decode_compressed(&packed::encode_compressed(&view).expect("it is small"))
                    .expect("it was packed");
            assert_eq!(again, view);
        }
        // Little that becomes much is refused.
        _ => assert!(packed::decompress(rest, 1 << 20).map_or(0, |plain| plain.len()) <= 1 << 20),
    }
});
