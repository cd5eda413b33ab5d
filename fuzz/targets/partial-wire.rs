//! Any bytes as a question or as an answer on the wire: refused, or one that packs, comes back and merges.
//!
//! The first byte says which question is answered; the last kind is the question itself. Of answers the version and
//! what they claim to take are written here, unless the first byte is odd.
#![no_main]

use athanor_profile::packed::put;
use athanor_query::{
    Ask, Heat, MAX_PIECE, Partial, Points, Profiles, Received, StackFilter, Trees, Values, What,
};
use libfuzzer_sys::fuzz_target;

const VERSION: u8 = 2;
/// What an answer claims to take: what is refused must not be made.
const CLAIM: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let what = match first / 2 % 12 {
        0 => What::ProfileTypes,
        1 => What::LabelNames,
        2 => What::LabelValues(Values { name: "a".to_owned(), ..Values::default() }),
        3 => What::Series(Vec::new()),
        4 => What::Tree(StackFilter::default()),
        5 => What::Profile(StackFilter::default(), None),
        6 => What::Points(Points::default()),
        7 => What::Heat(Heat::default()),
        8 => What::Sizes,
        9 => What::Trees(Trees::default()),
        10 => What::Profiles(Profiles { keep: 9, ..Profiles::default() }),
        _ => return question(rest),
    };
    let ask = Ask { what, ..Ask::default() };
    let mut answer = Vec::new();
    if first % 2 == 0 {
        answer.push(VERSION);
        put(&mut answer, CLAIM);
    }
    answer.extend_from_slice(rest);
    let Ok(partial) = unpack(&ask, &answer) else { return };
    let packed: Vec<u8> = partial.pack().expect("it came over the wire").flatten().collect();
    let again = unpack(&ask, &packed).expect("what was packed is read");
    assert_eq!(again.pack().expect("it was packed").flatten().collect::<Vec<u8>>(), packed);
    again.merge(partial, &ask.bounds).expect("answers to one question add up");
});

fn unpack(ask: &Ask, bytes: &[u8]) -> Result<Partial, ()> {
    let mut received = Received::default();
    bytes.chunks(MAX_PIECE).try_for_each(|piece| received.push(piece)).map_err(drop)?;
    received.unpack(ask).map_err(drop)
}

fn question(bytes: &[u8]) {
    let Ok(ask) = Ask::unpack(bytes) else { return };
    let packed = ask.pack().expect("it came over the wire");
    let again = Ask::unpack(&packed).expect("what was packed is read");
    assert_eq!(again.pack().expect("it was packed"), packed);
}
