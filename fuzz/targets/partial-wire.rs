//! Any bytes as a question or as an answer on the wire: refused, or one that packs, comes back and merges.
//!
//! The first byte says which question is answered; the last kind is the question itself. Of answers the version and
//! what they claim to take are written here, unless the first byte is odd.
#![no_main]

use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::encoding::codec::put_varint;
use athanor_query::{
    GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, MAX_CHUNK_BYTES, PartialChunkBuffer, PartialResult,
    ProfileListQuery, ProfileQuery, ProfileQueryError, QueryKind, SamplesQuery, StackFilter, TimeSeriesQuery,
};
use libfuzzer_sys::fuzz_target;

const VERSION: u8 = 1;
/// What an answer claims to take: what is refused must not be made.
const CLAIM: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let what = match first / 2 % 15 {
        0 => QueryKind::ProfileTypes,
        1 => QueryKind::LabelNames,
        2 => QueryKind::LabelValues(LabelValuesQuery { name: "a".to_owned(), ..LabelValuesQuery::default() }),
        3 => QueryKind::Series(Vec::new()),
        4 => QueryKind::Tree(StackFilter::default()),
        5 => QueryKind::Profile(StackFilter::default(), None),
        6 => QueryKind::Points(TimeSeriesQuery::default()),
        7 => QueryKind::Heat(HeatmapQuery::default()),
        8 => QueryKind::Sizes,
        9 => QueryKind::Trees(GroupedTreesQuery::default()),
        10 => QueryKind::Profiles(ProfileListQuery { keep: 9, ..ProfileListQuery::default() }),
        11 => QueryKind::Samples(SamplesQuery { max_rows: 9, spans: true, ..SamplesQuery::default() }),
        12 => QueryKind::LabelNameCounts { prefix: "a".to_owned() },
        13 => QueryKind::OriginTree(StackFilter::default()),
        _ => return question(rest),
    };
    let ask = ProfileQuery { what, ..ProfileQuery::default() };
    let mut answer = Vec::new();
    if first % 2 == 0 {
        answer.push(VERSION);
        put_varint(&mut answer, CLAIM);
    }
    answer.extend_from_slice(rest);
    let Ok(partial) = unpack(&ask, &answer) else { return };
    if let PartialResult::OriginTree(merged) = &partial {
        let origins = FrameOrigins::from_table(merged.origins.clone());
        merged.tree.names().iter().for_each(|name| _ = origins.get(name));
    }
    let packed: Vec<u8> = partial.pack().expect("it came over the wire").flatten().collect();
    let again = unpack(&ask, &packed).expect("what was packed is read");
    assert_eq!(again.pack().expect("it was packed").flatten().collect::<Vec<u8>>(), packed);
    if let Err(error) = again.merge(partial, &ask.bounds) {
        assert!(
            matches!(error, ProfileQueryError::SumTooLarge { .. }),
            "answers to one question add up: {error}"
        );
    }
});

fn unpack(ask: &ProfileQuery, bytes: &[u8]) -> Result<PartialResult, ()> {
    let mut received = PartialChunkBuffer::default();
    bytes.chunks(MAX_CHUNK_BYTES).try_for_each(|piece| received.push(piece)).map_err(drop)?;
    received.unpack(ask).map_err(drop)
}

fn question(bytes: &[u8]) {
    let Ok(ask) = ProfileQuery::unpack(bytes) else { return };
    let packed = ask.pack().expect("it came over the wire");
    let again = ProfileQuery::unpack(&packed).expect("what was packed is read");
    assert_eq!(again.pack().expect("it was packed"), packed);
}
