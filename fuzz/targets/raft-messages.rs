//! Any bytes as a message between the members of a group, or as what a member keeps of itself: refused, or something that
//! comes out the same when it is written again. The first byte says which.
#![no_main]

use athanor_consensus::replicated::{RaftEncoding, reencode};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let what = [RaftEncoding::Ask, RaftEncoding::Reply, RaftEncoding::State, RaftEncoding::Meta]
        [usize::from(first % 4)];
    let Some(written) = reencode(what, &Bytes::copy_from_slice(rest)) else { return };
    // What is no text is shown as one, three bytes for each; all else is as long as it came.
    assert!(written.len() <= 3 * rest.len() + 64, "{} bytes of {}", written.len(), rest.len());
    assert_eq!(reencode(what, &written).as_ref(), Some(&written));
});
