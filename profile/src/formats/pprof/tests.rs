//! Hostile and odd input.

use super::wire::{write_message, write_number, write_packed};
use super::*;
use crate::data_model::dropped_counts::DropReason;
use crate::generate::arbitrary_profile;

/// A profile with one sample, put together field by field so that each can be made wrong.
#[derive(Clone)]
struct Draft {
    strings: Vec<&'static [u8]>,
    locations: Vec<Vec<u8>>,
    functions: Vec<Vec<u8>>,
    mappings: Vec<Vec<u8>>,
    samples: Vec<Vec<u8>>,
    types: usize,
}

fn fields(list: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    list.iter().for_each(|&(field, value)| write_number(&mut out, field, value));
    out
}

fn sample(path: &[u64], values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    write_packed(&mut out, 1, path.iter().copied());
    write_packed(&mut out, 2, values.iter().copied());
    out
}

fn location(id: u64, mapping: u64, function: u64) -> Vec<u8> {
    let mut out = fields(&[(1, id), (2, mapping), (3, 0x1234)]);
    write_message(&mut out, 4, &fields(&[(1, function), (2, 7)]));
    out
}

impl Draft {
    fn good() -> Self {
        Draft {
            strings: vec![b"", b"cpu", b"nanoseconds", b"main", b"main.go", b"/bin/app"],
            locations: vec![location(1, 1, 1)],
            functions: vec![fields(&[(1, 1), (2, 3), (3, 3), (4, 4)])],
            mappings: vec![fields(&[(1, 1), (2, 0x1000), (3, 0x9000), (5, 5)])],
            samples: vec![sample(&[1], &[10])],
            types: 1,
        }
    }
    fn with(change: impl FnOnce(&mut Draft)) -> Vec<u8> {
        let mut draft = Draft::good();
        change(&mut draft);
        draft.bytes()
    }
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        (0..self.types).for_each(|_| write_message(&mut out, 1, &fields(&[(1, 1), (2, 2)])));
        let tables = [(2, &self.samples), (3, &self.mappings), (4, &self.locations), (5, &self.functions)];
        for (field, entries) in tables {
            entries.iter().for_each(|entry| write_message(&mut out, field, entry));
        }
        self.strings.iter().for_each(|text| write_message(&mut out, 6, text));
        out
    }
}

fn read(bytes: &[u8]) -> Result<(Profile, DroppedCounts), DecodeError> {
    decode(bytes, &DecodeLimits::default())
}

fn refused(bytes: &[u8]) -> DecodeError {
    read(bytes).expect_err("this must be refused")
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::best());
    let mut out = vec![0; compressor.gzip_compress_bound(raw.len())];
    let length = compressor.gzip_compress(raw, &mut out).unwrap();
    out.truncate(length);
    out
}

#[test]
fn a_good_profile_reads() {
    let (profile, dropped) = read(&Draft::good().bytes()).unwrap();
    assert_eq!((profile.total(0), profile.samples.len(), dropped), (10, 1, DroppedCounts::default()));
}

#[test]
fn a_profile_cut_off_anywhere_is_refused_or_read_but_never_panics() {
    let raw = encode(&arbitrary_profile(5));
    for end in 0..raw.len() {
        let _ = read(&raw[..end]);
    }
    let raw = Draft::good().bytes();
    assert!(matches!(refused(&raw[..raw.len() - 1]), DecodeError::Truncated { .. }));
    for packed in [gzip(&raw), zstd::encode_all(raw.as_slice(), 3).unwrap()] {
        for end in 4..packed.len() {
            assert!(matches!(refused(&packed[..end]), DecodeError::Compression { .. }), "{end}");
        }
    }
}

#[test]
fn nothing_and_noise_are_refused() {
    assert_eq!(refused(b""), DecodeError::NoSampleType);
    assert!(matches!(refused(b"GET / HTTP/1.1"), DecodeError::Malformed { .. }));
    assert!(matches!(refused(&[0xff; 64]), DecodeError::Malformed { .. }));
    assert!(matches!(refused(&[0x1f, 0x8b]), DecodeError::Compression { format: "gzip", .. }));
}

#[test]
fn a_bomb_stops_at_the_limit_and_takes_no_more_memory() {
    let limit = 1 << 20;
    let zeros = vec![0; 64 << 20];
    for bomb in [gzip(&zeros), zstd::encode_all(zeros.as_slice(), 19).unwrap()] {
        let mut inflater = Inflater::default();
        let error = inflater.inflate(&bomb, limit).unwrap_err();
        assert!(matches!(error, DecodeError::OverLimit { what: "bytes", limit: at, .. } if at == limit));
        assert!(inflater.memory() <= 2 * limit, "{}", inflater.memory());
    }
}

#[test]
fn a_lying_length_in_the_trailer_neither_allocates_nor_confuses() {
    let raw = Draft::good().bytes();
    for lie in [0u32, 1, u32::MAX] {
        let mut packed = gzip(&raw);
        let at = packed.len() - 4;
        packed[at..].copy_from_slice(&lie.to_le_bytes());
        let mut inflater = Inflater::default();
        assert!(inflater.inflate(&packed, 1 << 30).is_err());
        assert!(inflater.memory() <= packed.len() * 1032 * 2);
    }
}

#[test]
fn several_gzip_members_are_one_stream() {
    let raw = Draft::good().bytes();
    let (left, right) = raw.split_at(raw.len() / 2);
    let packed = [gzip(left), gzip(b""), gzip(right)].concat();
    assert_eq!(inflate(&packed, 1 << 20).unwrap(), raw);
    assert!(matches!(inflate(&packed, raw.len() - 1), Err(DecodeError::OverLimit { .. })));
    // What a header says of how hard the writer tried must not matter, nor that both members are alike.
    for level in [0, 1, 2, 4, 255] {
        let mut second = gzip(&raw);
        second[8] = level;
        let both = inflate(&[gzip(&raw), second].concat(), 1 << 20).unwrap();
        assert_eq!(both, [&raw[..], &raw].concat(), "{level}");
    }
}

#[test]
fn padding_after_gzip_is_let_be_and_anything_else_is_refused() {
    let raw = Draft::good().bytes();
    for zeros in [1, 4, 7, 512] {
        assert_eq!(inflate(&[gzip(&raw), vec![0; zeros]].concat(), 1 << 20).unwrap(), raw);
        let members = [gzip(&raw), gzip(&raw), vec![0; zeros]].concat();
        assert_eq!(inflate(&members, 1 << 20).unwrap().len(), 2 * raw.len());
    }
    for rest in [&b"x"[..], b"more text", b"\0\0\0x", &[0x1f, 0x8b], &[0x1f, 0x8b, 8, 0xff, 1, 1]] {
        let error = inflate(&[&gzip(&raw), rest].concat(), 1 << 20).unwrap_err();
        assert!(matches!(error, DecodeError::Compression { format: "gzip", .. }), "{rest:?}: {error}");
    }
    let error = inflate(&[&gzip(&raw)[..], b"more text"].concat(), 1 << 20).unwrap_err();
    let place = gzip(&raw).len();
    assert_eq!(
        error.to_string(),
        format!(
            "gzip stream is damaged: the 9 bytes after its end, from byte {place} on, are not gzip; remove them"
        )
    );
}

#[test]
fn references_outside_the_string_table_are_refused() {
    let bad = [6, u64::MAX, 1 << 40];
    for index in bad {
        let places = [
            Draft::with(|draft| draft.functions[0] = fields(&[(1, 1), (2, index)])),
            Draft::with(|draft| draft.functions[0] = fields(&[(1, 1), (3, index)])),
            Draft::with(|draft| draft.functions[0] = fields(&[(1, 1), (4, index)])),
            Draft::with(|draft| draft.mappings[0] = fields(&[(1, 1), (5, index)])),
            Draft::with(|draft| draft.mappings[0] = fields(&[(1, 1), (6, index)])),
            Draft::with(|draft| write_message(&mut draft.samples[0], 3, &fields(&[(1, index), (2, 1)]))),
            Draft::with(|draft| write_message(&mut draft.samples[0], 3, &fields(&[(1, 1), (2, index)]))),
            Draft::with(|draft| {
                write_message(&mut draft.samples[0], 3, &fields(&[(1, 1), (3, 1), (4, index)]))
            }),
        ];
        for raw in places {
            let error = refused(&raw);
            let wanted = index as i64;
            assert!(
                matches!(error, DecodeError::OutOfRange { table: "strings", index, length: 6, .. } if index == wanted),
                "{error}"
            );
        }
    }
}

#[test]
fn remarks_outside_the_string_table_are_no_remarks() {
    for field in [7, 8, 13, 14, 15] {
        for index in [6, u64::MAX] {
            let mut raw = Draft::good().bytes();
            write_number(&mut raw, field, index);
            let (profile, _) = decode(&raw, &DecodeLimits::default()).unwrap();
            let (good, _) = decode(&Draft::good().bytes(), &DecodeLimits::default()).unwrap();
            assert_eq!(profile.header, good.header);
        }
    }
}

#[test]
fn ids_of_zero_and_ids_used_twice_are_refused() {
    let zero = Draft::with(|draft| draft.locations[0] = location(0, 1, 1));
    assert_eq!(refused(&zero), DecodeError::IdZero { what: "location", at: 0 });
    let zero = Draft::with(|draft| draft.functions[0] = fields(&[(2, 3)]));
    assert_eq!(refused(&zero), DecodeError::IdZero { what: "function", at: 0 });
    let zero = Draft::with(|draft| draft.mappings[0] = fields(&[(2, 3)]));
    assert_eq!(refused(&zero), DecodeError::IdZero { what: "mapping", at: 0 });
    let twice = Draft::with(|draft| draft.locations.push(location(1, 1, 1)));
    assert_eq!(refused(&twice), DecodeError::IdTwice { what: "location", id: 1 });
    let twice = Draft::with(|draft| draft.functions.push(fields(&[(1, 1), (2, 3)])));
    assert_eq!(refused(&twice), DecodeError::IdTwice { what: "function", id: 1 });
}

#[test]
fn sparse_and_unordered_ids_are_found() {
    let raw = Draft::with(|draft| {
        draft.locations = vec![location(u64::MAX, 1, 1), location(3, 0, 1)];
        draft.samples = vec![sample(&[3, u64::MAX], &[1]), sample(&[u64::MAX], &[2])];
    });
    let (profile, dropped) = read(&raw).unwrap();
    assert_eq!(
        (profile.total(0), profile.dictionary.stacks.len(), dropped),
        (3, 2, DroppedCounts::default())
    );
}

#[test]
fn what_refers_to_nothing_is_dropped_and_counted() {
    let raw = Draft::with(|draft| {
        draft.locations.push(location(2, 9, 1));
        draft.locations.push(location(3, 1, 9));
        draft.samples.extend([sample(&[2], &[20]), sample(&[3], &[40]), sample(&[1, 7], &[80])]);
        draft.samples.push(sample(&[0], &[160]));
    });
    let (profile, dropped) = read(&raw).unwrap();
    assert_eq!(
        dropped,
        DroppedCounts::from([
            (DropReason::DanglingSample, 2),
            (DropReason::DanglingLine, 1),
            (DropReason::DanglingMapping, 1),
        ])
    );
    assert_eq!(profile.total(0), 70);
    let (profile, dropped) =
        decode(&raw, &DecodeLimits { drop_dangling: true, ..DecodeLimits::default() }).unwrap();
    assert_eq!(
        dropped,
        DroppedCounts::from([
            (DropReason::DanglingSample, 4),
            (DropReason::DanglingLine, 1),
            (DropReason::DanglingMapping, 1),
        ])
    );
    assert_eq!(profile.total(0), 10);
}

#[test]
fn a_sample_with_the_wrong_number_of_values_is_refused() {
    for (values, seen) in [(&[][..], 0), (&[1, 2][..], 2)] {
        let raw = Draft::with(|draft| draft.samples[0] = sample(&[1], values));
        assert_eq!(refused(&raw), DecodeError::ValueCount { sample: 0, seen, expected: 1 });
    }
    let raw = Draft::with(|draft| draft.types = 0);
    assert_eq!(refused(&raw), DecodeError::NoSampleType);
}

#[test]
fn the_string_table_begins_empty_and_is_text() {
    let raw = Draft::with(|draft| draft.strings[0] = b"x");
    assert_eq!(refused(&raw), DecodeError::NoEmptyString);
    let raw = Draft::with(|draft| draft.strings.clear());
    assert_eq!(refused(&raw), DecodeError::NoEmptyString);
    let raw = Draft::with(|draft| draft.strings[4] = b"ok\xff");
    assert_eq!(refused(&raw), DecodeError::NotUtf8 { index: 4 });
    let raw = Draft::with(|draft| draft.strings.push(b"\xe2\x82"));
    assert_eq!(refused(&raw), DecodeError::NotUtf8 { index: 6 });
}

#[test]
fn a_million_frames_are_over_the_limit_or_read_without_recursion() {
    let raw = Draft::with(|draft| draft.samples[0] = sample(&vec![1; 1_000_000], &[1]));
    let error = refused(&raw);
    assert_eq!(error, DecodeError::OverLimit { what: "frames", seen: 100_001, limit: 100_000 });
    let limits = DecodeLimits { depth: 1_000_000, ..DecodeLimits::default() };
    let (profile, _) = decode(&raw, &limits).unwrap();
    assert_eq!(profile.dictionary.stacks.locations(0).count(), 1_000_000);
    assert_eq!(decode(&encode(&profile), &limits).unwrap().0.total(0), 1);
}

#[test]
fn each_limit_is_named() {
    let mut labelled = Draft::good();
    (0..3).for_each(|_| write_message(&mut labelled.samples[0], 3, &fields(&[(1, 1), (2, 1)])));
    labelled.samples.push(labelled.samples[0].clone());
    let raw = labelled.bytes();
    let small = [
        ("bytes", DecodeLimits { bytes: raw.len() - 1, ..DecodeLimits::default() }),
        ("samples", DecodeLimits { samples: 1, ..DecodeLimits::default() }),
        ("frames", DecodeLimits { depth: 0, ..DecodeLimits::default() }),
        ("strings", DecodeLimits { entries: 5, ..DecodeLimits::default() }),
        ("bytes of tables in memory", DecodeLimits { tables: 500, ..DecodeLimits::default() }),
    ];
    for (name, limits) in small {
        let error = decode(&raw, &limits).expect_err(name);
        assert!(matches!(error, DecodeError::OverLimit { what, .. } if what == name), "{error}");
    }
    let error = decode(&raw, &DecodeLimits { labels: 2, ..DecodeLimits::default() }).unwrap_err();
    assert_eq!(error, DecodeError::SampleLabels { sample: 0, seen: 3, limit: 2 });
    let lines = Draft::with(|draft| {
        (0..9).for_each(|_| write_message(&mut draft.locations[0], 4, &fields(&[(1, 1)])));
    });
    let error = decode(&lines, &DecodeLimits { entries: 8, ..DecodeLimits::default() }).unwrap_err();
    assert_eq!(error, DecodeError::OverLimit { what: "lines", seen: 9, limit: 8 });
}

/// Two bytes in the file must not become forty in memory before anyone counts them.
#[test]
fn limits_hold_while_the_tables_grow() {
    const MANY: usize = 1_000_000;
    let top = |field: u64| (0..MANY).flat_map(|_| [field as u8 * 8 + 2, 0]).collect::<Vec<u8>>();
    let within = |field: u64, content: &[u8]| {
        let mut raw = Vec::new();
        write_message(&mut raw, field, content);
        raw
    };
    // The good profile with one sample of such fields.
    let row = |content: &[u8]| Draft::with(|draft| draft.samples[0] = content.to_vec());
    let cases = [
        ("sample types", top(1)),
        ("samples", top(2)),
        ("mappings", top(3)),
        ("locations", top(4)),
        ("functions", top(5)),
        ("strings", top(6)),
        ("comments", within(13, &[1; MANY])),
        ("comments", [13 * 8, 1].repeat(MANY)),
        ("lines", within(4, &top(4))),
        ("values of a sample", row(&within(2, &[1; MANY]))),
        ("values of a sample", row(&[2 * 8, 1].repeat(MANY))),
        ("frames", row(&[within(1, &[1; MANY]), sample(&[], &[1])].concat())),
        ("frames", row(&[8, 1].repeat(MANY))),
    ];
    let limits = DecodeLimits {
        samples: 1000,
        labels: 1000,
        depth: 1000,
        entries: 1000,
        types: 1000,
        comments: 1000,
        ..DecodeLimits::default()
    };
    for (name, raw) in cases {
        let (mut dictionary, mut decoded) = (Dictionary::default(), DecodedProfile::default());
        let error = PprofDecoder::default().decode(&raw, &limits, &mut dictionary, &mut decoded).unwrap_err();
        assert_eq!(error, DecodeError::OverLimit { what: name, seen: 1001, limit: 1000 });
    }
    let (mut dictionary, mut decoded) = (Dictionary::default(), DecodedProfile::default());
    let labels = row(&top(3));
    let error = PprofDecoder::default().decode(&labels, &limits, &mut dictionary, &mut decoded).unwrap_err();
    assert_eq!(error, DecodeError::SampleLabels { sample: 0, seen: 1001, limit: 1000 });
}

/// Two bytes of a comment must not become a copy of the longest text.
#[test]
fn texts_of_the_header_are_counted_together() {
    let text: &[u8] = &[b'x'; 1000];
    let mut draft = Draft::good();
    draft.strings.push(text.to_vec().leak());
    let mut raw = draft.bytes();
    (0..100).for_each(|_| write_number(&mut raw, 13, 6));
    let limits = DecodeLimits { header: 50_000, ..DecodeLimits::default() };
    let error = decode(&raw, &limits).unwrap_err();
    assert!(
        matches!(error, DecodeError::OverLimit { what: "bytes of text in the header", seen: ..52_000, .. }),
        "{error}"
    );
    assert_eq!(decode(&raw, &DecodeLimits::default()).unwrap().0.header.comments.len(), 100);
}

#[test]
fn moments_have_eight_bytes_each_and_count_once_for_each_type() {
    let with = |types: usize, fields: &[&[u8]]| {
        Draft::with(|draft| {
            draft.types = types;
            draft.samples = vec![sample(&[1], &vec![10; types])];
            fields.iter().for_each(|times| write_message(&mut draft.samples[0], TIMESTAMPS_FIELD, times));
        })
    };
    let times: Vec<u8> = [5i64, -1, i64::MAX].iter().flat_map(|time| time.to_le_bytes()).collect();
    let (profile, _) = read(&with(1, &[&times, &times[..8], &[]])).unwrap();
    assert_eq!(profile.samples.moments.row_timestamps(0), [5, -1, i64::MAX, 5]);
    let refusal = refused(&with(1, &[&times[1..]])).to_string();
    assert!(refusal.contains("timestamps of a sample that do not have eight bytes each"), "{refusal}");
    let many = [0u8; 8 * 1000];
    let limits = |bytes| DecodeLimits { bytes, ..DecodeLimits::default() };
    assert!(decode(&with(1, &[&many]), &limits(10_000)).is_ok());
    let refusal = decode(&with(2, &[&many]), &limits(10_000)).unwrap_err();
    assert_eq!(
        refusal,
        DecodeError::OverLimit { what: TIMESTAMP_BYTES_LIMIT_NAME, seen: 16_000, limit: 10_000 }
    );
    assert_eq!(refusal.reason(), "profile_size_limit");
}

#[test]
fn fields_of_the_wrong_kind_are_refused_and_unknown_ones_are_skipped() {
    for field in [1, 2, 3, 4, 5, 6, 11] {
        let mut raw = Draft::good().bytes();
        write_number(&mut raw, field, 1);
        assert!(matches!(refused(&raw), DecodeError::Malformed { .. }), "field {field}");
    }
    let mut raw = Draft::good().bytes();
    write_message(&mut raw, 9, b"soon");
    assert!(matches!(refused(&raw), DecodeError::Malformed { .. }));
    let mut raw = Draft::good().bytes();
    write_message(&mut raw, 99, b"from the future");
    write_number(&mut raw, 98, 7);
    assert_eq!(read(&raw).unwrap().0.total(0), 10);
    raw.push(0);
    assert!(matches!(refused(&raw), DecodeError::Malformed { why: "field number 0", .. }));
}

#[test]
fn numbers_over_64_bits_are_refused() {
    let mut raw = Draft::good().bytes();
    raw.extend([9 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]);
    assert!(matches!(refused(&raw), DecodeError::Malformed { why: "a number over 64 bits", .. }));
}

#[test]
fn unpacked_numbers_read_like_packed_ones() {
    let mut plain = fields(&[(1, 1), (1, 1)]);
    plain.extend(fields(&[(2, 10)]));
    let unpacked = Draft::with(|draft| draft.samples[0] = plain);
    let packed = Draft::with(|draft| draft.samples[0] = sample(&[1, 1], &[10]));
    let hash = |raw: &[u8]| read(raw).unwrap().0.dictionary.stacks.hash(0);
    assert_eq!(hash(&unpacked), hash(&packed));
}

/// What a file repeats is walked once if its fields lie side by side; else it must read the same.
#[test]
fn repeats_read_like_the_first() {
    let fields_of = |at: u64, apart: bool| {
        let (path, labels) =
            ([1 + at % 2, 1], [fields(&[(1, 1), (2, 3 + at % 3)]), fields(&[(1, 2), (3, at % 5)])]);
        let mut raw = Vec::new();
        match apart {
            true => path.iter().for_each(|&id| write_number(&mut raw, 1, id)),
            false => write_packed(&mut raw, 1, path.into_iter()),
        }
        write_message(&mut raw, 3, &labels[0]);
        if apart {
            write_number(&mut raw, 2, at + 1);
        }
        write_message(&mut raw, 3, &labels[1]);
        if !apart {
            write_number(&mut raw, 2, at + 1);
        }
        raw
    };
    let read = |apart: bool| {
        let raw = Draft::with(|draft| {
            draft.locations.push(location(2, 0, 1));
            draft.samples = (0..700).map(|at| fields_of(at, apart)).collect();
        });
        let (mut dictionary, mut decoded) = (Dictionary::default(), DecodedProfile::default());
        PprofDecoder::default()
            .decode(&raw, &DecodeLimits::default(), &mut dictionary, &mut decoded)
            .unwrap();
        (decoded.content.finish(&decoded.header), dictionary.stacks.len(), dictionary.label_sets.len())
    };
    assert_eq!(read(false), read(true));
    assert_eq!((read(false).1, read(false).2), (2, 1 + 15));
}

/// A decoder that refused one profile reads the next as if nothing had been.
#[test]
fn a_refusal_leaves_nothing_behind() {
    let (mut decoder, mut dictionary, mut decoded) =
        (PprofDecoder::default(), Dictionary::default(), DecodedProfile::default());
    let bad = Draft::with(|draft| draft.samples.push(sample(&[1], &[1, 2])));
    let limits = DecodeLimits::default();
    assert!(decoder.decode(&bad, &limits, &mut dictionary, &mut decoded).is_err());
    decoder.decode(&Draft::good().bytes(), &limits, &mut dictionary, &mut decoded).unwrap();
    assert_eq!((decoded.samples.values.as_slice(), decoded.dropped), (&[10][..], DroppedCounts::default()));
}

#[test]
fn deep_stacks_lose_their_leaves_and_long_texts_their_beginning() {
    let mut profile = crate::Profile::default();
    profile.header.types = vec![crate::ValueType::new("cpu", "ns")];
    let stack = profile.dictionary.intern_named_stack(["main", "großes", "leaf"].into_iter());
    profile.samples.push(stack, 0, &[5]);
    let limits = DecodeLimits { kept_depth: 2, kept_text: 3, ..DecodeLimits::default() };
    let (read, _) = decode(&encode(&profile), &limits).unwrap();
    let names: Vec<&str> = read
        .dictionary
        .stacks
        .locations(read.samples.stacks[0])
        .map(|location| {
            read.dictionary.symbols.function_name(read.dictionary.symbols.lines(location)[0].function)
        })
        .collect();
    assert_eq!((names, read.total(0)), (vec!["es", "ain"], 5));
}

#[test]
fn a_walk_in_two_steps_gives_what_one_gives() {
    let mut walk = PprofReader::default();
    let (mut whole, mut apart) = (crate::Dictionary::default(), crate::Dictionary::default());
    let mut decoded = DecodedProfile::default();
    for seed in 0..40 {
        let raw = encode(&crate::generate::arbitrary_profile(seed));
        PprofDecoder::default().decode(&raw, &DecodeLimits::default(), &mut whole, &mut decoded).unwrap();
        let length = walk.read(&raw.clone().into(), &DecodeLimits::default()).unwrap();
        walk.resolve_stacks(&mut apart).unwrap();
        assert_eq!(length, raw.len());
        assert_eq!(walk.decoded().content, decoded.content);
        assert_eq!(walk.decoded().samples.stacks, decoded.samples.stacks);
        assert_eq!(walk.decoded().samples.values, decoded.samples.values);
        assert!(apart.label_sets.len() <= 1, "labels stay with the walk");
    }
}

/// The stacks by name, and the canonical content.
fn walked(
    sender: SenderInfo,
    raw: &[u8],
) -> (Vec<Vec<String>>, crate::encoding::hash::ContentHash, Dictionary) {
    let (mut walk, mut dictionary) = (PprofReader::default(), Dictionary::default());
    walk.read_from(sender, &raw.to_vec().into(), &DecodeLimits::default()).unwrap();
    walk.resolve_stacks(&mut dictionary).unwrap();
    let decoded = walk.decoded();
    let stacks = decoded.samples.stacks.iter().map(|&stack| dictionary.frame_names(stack)).collect();
    (stacks, decoded.content.finish(&decoded.header), dictionary)
}

/// A normalized address must stay as it is, or no symbolizer can find it in the file again. Who sent the profile before
/// addresses had kinds gets the same identity [INV-01].
#[test]
fn normalized_addresses_are_kept_and_are_no_part_of_the_identity() {
    let raw = Draft::with(|draft| {
        draft.strings.push(b"0123456789abcdef");
        draft.mappings[0] =
            fields(&[(1, 1), (2, 0x55_0000_0000), (3, 0x55_0000_9000), (4, 0x1000), (5, 5), (6, 6)]);
        draft.locations.push(fields(&[(1, 2), (2, 1), (3, 0x1500)]));
        draft.samples.push(sample(&[2, 1], &[5]));
    });
    let normalized = SenderInfo { has_elf_addresses: true, ..SenderInfo::default() };
    let (stacks, content, dictionary) = walked(normalized, &raw);
    let symbols = &dictionary.symbols;
    let bare = (0..2).find(|&location| symbols.lines(location).is_empty()).unwrap();
    assert_eq!(symbols.address_name(bare), "app@01234567+0x1500");
    assert_eq!(symbols.sent_address(&symbols.locations()[bare as usize]), 0x1500);
    let (as_before, before, _) = walked(SenderInfo::default(), &raw);
    assert_eq!((&stacks, content), (&as_before, before));
    assert_eq!(stacks[1], ["main", "app@01234567"]);
    // What is written says which kind its addresses are, and reads as it was.
    let mut profile = Profile { dictionary, ..Profile::default() };
    profile.header.types = vec![crate::ValueType::new("cpu", "nanoseconds")];
    profile.samples.push(0, 0, &[10]);
    profile.samples.push(1, 0, &[5]);
    let (again, dropped) = read(&encode(&profile)).unwrap();
    assert_eq!(dropped, DroppedCounts::default());
    let hashes = |profile: &Profile| {
        let symbols = &profile.dictionary.symbols;
        let mut all: Vec<_> = (0..2).map(|location| symbols.location_hash(location)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(hashes(&again), hashes(&profile));
}

/// Two functions of other languages may differ by what looks like a shape of Go, whatever their callers are called. Their
/// identity is what it was when all profiles lost shapes.
#[test]
fn only_profiles_of_go_lose_shapes() {
    let of = |build_id: &[u8]| {
        let mut raw = Draft::with(|draft| {
            draft.strings.extend([&b"f[go.shape.int]"[..], b"f[go.shape.string]", b"runtime.main"]);
            draft.functions[0] = fields(&[(1, 1), (2, 8), (3, 8), (4, 4)]);
            draft.functions.extend([fields(&[(1, 2), (2, 6)]), fields(&[(1, 3), (2, 7)])]);
            draft.locations.extend([location(2, 1, 2), location(3, 1, 3)]);
            draft.samples = vec![sample(&[2, 1], &[3]), sample(&[3, 1], &[4])];
            draft.mappings[0] = fields(&[(1, 1), (2, 0x1000), (3, 0x9000), (5, 5), (6, 9)]);
        });
        write_message(&mut raw, 6, build_id);
        raw
    };
    let plain = of(b"0123456789abcdef");
    let kept = [vec!["runtime.main", "f[go.shape.int]"], vec!["runtime.main", "f[go.shape.string]"]];
    let cut = [vec!["runtime.main", "f"], vec!["runtime.main", "f"]];
    let (stacks, content, _) = walked(SenderInfo::default(), &plain);
    assert_eq!(stacks, kept);
    let (stacks, of_go, _) = walked(SenderInfo { is_go: Some(true), ..SenderInfo::default() }, &plain);
    assert_eq!(
        (stacks, of_go),
        (cut.iter().map(|names| names.iter().map(|&name| name.to_owned()).collect()).collect(), content)
    );
    let (stacks, ..) = walked(
        SenderInfo::default(),
        &of(b"hVSsYg8v8jzvhcXBdAsu/jvYYXRMzCdmnNOuvuXVA/xWzCt9mvlL8tRyp4sHqR/pOKc1qy_9-UxGnCUCWvg"),
    );
    assert_eq!(stacks, cut);
}
