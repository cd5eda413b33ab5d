//! Reading and writing pprof, compared with an independent decoder (prost).

mod message;
mod named;
mod shuffle;

use std::path::{Path, PathBuf};

use athanor_profile::data_model::dropped_counts::DroppedCounts;
use athanor_profile::formats::pprof::{
    DecodeLimits, DecodedProfile, Inflater, PprofDecoder, decode, encode, inflate,
};
use athanor_profile::generate::{ReferenceDataset, SeededRandom, arbitrary_profile};
use athanor_profile::{Dictionary, Profile};
use proptest::prelude::*;
use prost::Message;

fn read(raw: &[u8]) -> (Profile, DroppedCounts) {
    decode(raw, &DecodeLimits::default()).expect("this is a good profile")
}

/// The canonical content of bytes, by a decoder that starts empty.
fn content(raw: &[u8]) -> u128 {
    let mut inflater = Inflater::default();
    let raw = inflater.inflate(raw, 1 << 30).expect("inflates");
    let (mut dictionary, mut decoded) = (Dictionary::default(), DecodedProfile::default());
    PprofDecoder::default()
        .decode(raw, &DecodeLimits::default(), &mut dictionary, &mut decoded)
        .expect("this is a good profile");
    decoded.content.finish(&decoded.header)
}

fn gzip(raw: &[u8], level: i32) -> Vec<u8> {
    let level = libdeflater::CompressionLvl::new(level).expect("a level");
    let mut compressor = libdeflater::Compressor::new(level);
    let mut out = vec![0; compressor.gzip_compress_bound(raw.len())];
    let length = compressor.gzip_compress(raw, &mut out).expect("fits the bound");
    out.truncate(length);
    out
}

/// The files of other profilers, if they are there.
fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pprof");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skip: no corpus of real profiles at ../shared/data/pprof");
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_none_or(|extension| extension != "json"));
    files.sort();
    files
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn what_was_written_reads_the_same(seed: u64) {
        let profile = arbitrary_profile(seed);
        let raw = encode(&profile);
        let (again, dropped) = read(&raw);
        prop_assert_eq!(dropped, DroppedCounts::default());
        prop_assert_eq!(&again.header, &profile.header);
        prop_assert_eq!(named::ours(&again), named::ours(&profile));
        prop_assert_eq!(content(&encode(&again)), content(&raw));
    }

    #[test]
    fn an_independent_decoder_reads_the_same(seed: u64) {
        let raw = encode(&arbitrary_profile(seed));
        let message = message::Profile::decode(raw.as_slice()).expect("prost reads it");
        prop_assert_eq!(named::ours(&read(&raw).0), named::theirs(&message));
    }

    /// INV-01: re-encoding and other compression are the same upload.
    #[test]
    fn other_bytes_of_the_same_profile_have_the_same_content(seed: u64) {
        let raw = encode(&arbitrary_profile(seed));
        let mut message = message::Profile::decode(raw.as_slice()).expect("prost reads it");
        shuffle::shuffle(&mut message, &mut SeededRandom::new(seed));
        let shuffled = message.encode_to_vec();
        prop_assert_eq!(content(&shuffled), content(&raw));
        prop_assert_eq!(named::ours(&read(&shuffled).0), named::ours(&read(&raw).0));
        for level in [1, 12] {
            prop_assert_eq!(content(&gzip(&raw, level)), content(&raw));
        }
        let zstd = zstd::encode_all(shuffled.as_slice(), 3).expect("compresses");
        prop_assert_eq!(content(&zstd), content(&raw));
    }

    /// The other half of INV-01: what differs in one value, name or label is another upload.
    #[test]
    fn a_changed_value_or_name_is_another_content(seed: u64) {
        let raw = encode(&arbitrary_profile(seed));
        let message = message::Profile::decode(raw.as_slice()).expect("prost reads it");
        let before = content(&raw);
        let mut valued = message.clone();
        if let Some(sample) = valued.sample.first_mut() {
            sample.value[0] = sample.value[0].wrapping_add(1);
            prop_assert_ne!(content(&valued.encode_to_vec()), before);
        }
        let mut moved = message.clone();
        if let Some(moment) = moved.sample.iter_mut().find_map(|sample| sample.moment.first_mut()) {
            *moment = moment.wrapping_add(1);
            prop_assert_ne!(content(&moved.encode_to_vec()), before);
        }
        let mut named = message;
        let used = named.sample.iter().any(|sample| sample.value.iter().any(|&value| value != 0));
        if used && named.string_table.len() > 1 {
            let kind = named.sample_type[0].kind as usize;
            named.string_table[kind].push(b'!');
            prop_assert_ne!(content(&named.encode_to_vec()), before);
        }
    }

    #[test]
    fn one_dictionary_for_many_profiles_changes_nothing(seed: u64) {
        let (mut dictionary, mut decoder, mut decoded) =
            (Dictionary::default(), PprofDecoder::default(), DecodedProfile::default());
        for seed in [seed, seed.wrapping_add(1), seed, seed.wrapping_add(2)] {
            let raw = encode(&arbitrary_profile(seed));
            decoder.decode(&raw, &DecodeLimits::default(), &mut dictionary, &mut decoded).expect("decodes");
            prop_assert_eq!(decoded.content.finish(&decoded.header), content(&raw));
            let shared = Profile {
                header: decoded.header.clone(),
                samples: decoded.samples.clone(),
                dictionary: dictionary.clone(),
            };
            prop_assert_eq!(named::ours(&shared), named::ours(&arbitrary_profile(seed)));
        }
    }

    /// Any damage is refused or read, never a panic, and what is read can be written and read again.
    #[test]
    fn damaged_bytes_are_refused_or_read(seed: u64, damage in prop::collection::vec((any::<u16>(), any::<u8>()), 1..6)) {
        let mut raw = encode(&arbitrary_profile(seed));
        for (at, byte) in damage {
            let at = usize::from(at) % raw.len();
            raw[at] = byte;
        }
        if let Ok((profile, _)) = decode(&raw, &DecodeLimits::default()) {
            let again = encode(&profile);
            prop_assert_eq!(named::ours(&read(&again).0), named::ours(&profile));
        }
    }
}

#[test]
fn an_independent_decoder_reads_the_reference_set_the_same() {
    let set = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
    for raw in set.profiles(3) {
        let message = message::Profile::decode(raw.as_slice()).expect("prost reads it");
        assert_eq!(named::ours(&read(&raw).0), named::theirs(&message));
    }
}

#[test]
fn real_files_read_as_an_independent_decoder_reads_them() {
    for file in corpus() {
        let bytes = std::fs::read(&file).expect("readable");
        let raw = inflate(&bytes, 1 << 30).expect("inflates");
        let message = message::Profile::decode(raw.as_slice()).expect("prost reads it");
        match decode(&bytes, &DecodeLimits::default()) {
            Ok((profile, dropped)) => {
                assert_eq!(dropped, DroppedCounts::default(), "{}", file.display());
                assert_eq!(named::ours(&profile), named::theirs(&message), "{}", file.display());
                let again = read(&encode(&profile)).0;
                assert_eq!(named::ours(&again), named::ours(&profile), "{}", file.display());
                assert_eq!(content(&encode(&profile)), content(&bytes), "{}", file.display());
            }
            Err(error) => {
                let valid = message.string_table.iter().all(|text| std::str::from_utf8(text).is_ok());
                assert!(!valid, "{}: {error}", file.display());
            }
        }
    }
}
