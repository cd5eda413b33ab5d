//! Samples read back as they were written, however the stream is divided.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_ipc::reader::StreamReader;
use athanor_arrow_format::{
    ArrowStreamError, MAX_BATCH_ROWS, SampleColumns, SamplePosition, SampleProfile, SampleReader, SampleRow,
    SampleValue, SampleWriter, StreamMetadata,
};
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::folded;
use athanor_profile::generate::arbitrary_profile;
use athanor_profile::{Dictionary, Labels, Profile, SpanContext};
use proptest::prelude::*;

/// Place to begin and number of rows of a stream.
#[derive(Clone, Copy)]
struct RowRange {
    first_profile: usize,
    skip: u64,
    limit: u64,
}

const ALL_ROWS: RowRange = RowRange { first_profile: 0, skip: 0, limit: u64::MAX };

fn labels(pod: &str) -> Labels {
    Labels::new([("pod".to_owned(), pod.to_owned()), ("service_name".to_owned(), "shop".to_owned())])
}

fn encode_cursor(position: SamplePosition) -> String {
    format!("{:x} {:x} {:x}", position.time, position.profile, position.rows)
}

fn writer(columns: &[&str]) -> SampleWriter {
    let columns = SampleColumns::from_names(columns.iter().copied()).expect("columns");
    let metadata = StreamMetadata { unit: "nanoseconds".to_owned(), ..StreamMetadata::default() };
    SampleWriter::new(columns, &metadata, Box::new(encode_cursor)).expect("a writer")
}

fn samples(profile: &Profile, span: SpanContext) -> Vec<SampleValue> {
    let rows = profile.samples.rows(profile.header.types.len());
    rows.map(|(stack, _, values)| SampleValue { stack, value: values[0], span }).collect()
}

fn write(profiles: &[Profile], range: RowRange) -> Vec<u8> {
    let mut writer = writer(&[]);
    let RowRange { first_profile, mut skip, mut limit } = range;
    let mut bytes = Vec::new();
    for (number, profile) in profiles.iter().enumerate().skip(first_profile) {
        let labels = labels(&format!("pod-{}", number % 3));
        let span = SpanContext { span: number as u64 % 2, trace: number as u128 % 2 };
        let samples = samples(profile, span);
        let profile_samples =
            SampleProfile { id: number as u128 + 1, time: number as i64, labels: &labels, samples: &samples };
        let mut profiles = writer.with_dictionary(&profile.dictionary);
        limit -= profiles.write_profile(&profile_samples, skip, limit).expect("written");
        skip = 0;
        bytes.extend_from_slice(&writer.take_bytes());
    }
    bytes.extend_from_slice(&writer.finish().expect("finished"));
    bytes
}

/// Rows of a stream with the names of their stacks, and the last cursor.
fn read(bytes: &[u8]) -> (Vec<(SampleRow, Vec<String>)>, String) {
    let mut reader = SampleReader::new(bytes).expect("a schema");
    let mut rows = Vec::new();
    while let Some(row) = reader.next() {
        let row = row.expect("a row");
        let names = reader.dictionary().frame_names(row.stack);
        rows.push((SampleRow { stack: 0, ..row }, names));
    }
    (rows, reader.cursor().to_owned())
}

fn tree_of_profile(profile: &Profile) -> Tree {
    Tree::from_totals(&profile.dictionary, &profile.totals_by_stack(0))
}

fn usable_profile(seed: u64) -> Option<Profile> {
    let profile = arbitrary_profile(seed);
    let has_values = !profile.header.types.is_empty() && !profile.samples.is_empty();
    (has_values && profile.magnitude(0) < 1 << 62).then_some(profile)
}

/// Returns a profile of distinct stacks, each with a value.
fn wide_profile(stacks: usize) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![athanor_profile::ValueType::new("cpu", "nanoseconds")];
    for number in 0..stacks {
        let names = ["main".to_owned(), format!("function-{number}")];
        let stack = profile.dictionary.intern_named_stack(names.iter().map(String::as_str));
        profile.samples.push(stack, 0, &[number as i64 + 1]);
    }
    profile
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn generated_profiles_read_back(seed in any::<u64>()) {
        let Some(profile) = usable_profile(seed) else { return Ok(()) };
        let bytes = write(std::slice::from_ref(&profile), ALL_ROWS);
        let mut reader = SampleReader::new(bytes.as_slice()).expect("a schema");
        let rows: Vec<SampleRow> = reader.by_ref().collect::<Result<_, _>>().expect("rows");
        let dictionary: Dictionary = reader.into_dictionary();
        let mut totals = vec![0; dictionary.stacks.len()];
        for row in &rows {
            totals[row.stack as usize] += row.value;
            prop_assert_eq!(&row.labels, &labels("pod-0"));
        }
        let tree = Tree::from_totals(&dictionary, &totals);
        let expected = tree_of_profile(&profile);
        prop_assert_eq!(folded::write(&tree), folded::write(&expected));
    }

    #[test]
    fn pages_together_equal_one_stream(seed in any::<u64>(), limit in 1u64..40) {
        let profiles: Vec<Profile> = (0..3).filter_map(|number| usable_profile(seed ^ number)).collect();
        let mut expected = read(&write(&profiles, ALL_ROWS)).0;
        let mut paged = Vec::new();
        let mut skip = 0;
        let mut first = 0;
        while first < profiles.len() {
            let page = RowRange { first_profile: first, skip, limit };
            let (rows, cursor) = read(&write(&profiles, page));
            if rows.is_empty() {
                break;
            }
            paged.extend(rows);
            let parts: Vec<u64> = cursor.split(' ').map(|part| u64::from_str_radix(part, 16).expect("hex")).collect();
            first = parts[1] as usize - usize::from(parts[2] != 0);
            skip = parts[2];
        }
        expected.sort();
        paged.sort();
        prop_assert_eq!(paged, expected);
    }
}

#[test]
fn stacks_of_many_batches_read_back() {
    let profiles = [wide_profile(MAX_BATCH_ROWS + 10), wide_profile(2_000), wide_profile(MAX_BATCH_ROWS - 1)];
    let (rows, cursor) = read(&write(&profiles, ALL_ROWS));
    let mut sums: BTreeMap<u128, i64> = BTreeMap::new();
    for (row, names) in &rows {
        *sums.entry(row.profile).or_default() += row.value;
        assert_eq!(names, &["main".to_owned(), format!("function-{}", row.value - 1)]);
    }
    let expected: BTreeMap<u128, i64> = (1..).zip(profiles.iter().map(|profile| profile.total(0))).collect();
    assert_eq!(sums, expected);
    assert_eq!(cursor, "2 3 0");
}

#[test]
fn skipped_rows_are_those_of_the_page_before() {
    let profile = wide_profile(100);
    let page = |skip, limit| {
        read(&write(std::slice::from_ref(&profile), RowRange { first_profile: 0, skip, limit }))
    };
    let (first, cursor) = page(0, 30);
    assert_eq!((first.len(), cursor.as_str()), (30, "0 1 1e"));
    let (second, cursor) = page(30, 1_000);
    assert_eq!((second.len(), cursor.as_str()), (70, "0 1 0"));
    let values = |rows: &[(SampleRow, Vec<String>)]| rows.iter().map(|(row, _)| row.value).sum::<i64>();
    assert_eq!(values(&first) + values(&second), profile.total(0));
    assert_eq!(page(100, 5).0.len(), 0);
}

#[test]
fn equal_stacks_of_a_profile_are_one_row() {
    let mut profile = wide_profile(2);
    profile.samples.push(0, 0, &[5]);
    let dictionary = &profile.dictionary;
    let mut samples = samples(&profile, SpanContext::default());
    samples.push(SampleValue { span: SpanContext { span: 7, trace: 0 }, ..samples[0] });
    let mut writer = writer(&[]);
    let labels = labels("a");
    let written = SampleProfile { id: 1, time: 2, labels: &labels, samples: &samples };
    let rows = writer.with_dictionary(dictionary).write_profile(&written, 0, u64::MAX).expect("written");
    assert_eq!(rows, 3);
    let (rows, _) = read(&writer.finish().expect("finished"));
    let values: Vec<(i64, u64)> = rows.iter().map(|(row, _)| (row.value, row.span.span)).collect();
    assert_eq!(values, [(6, 0), (2, 0), (1, 7)]);
}

/// Few long names make many long stacks. A dictionary repeats a name for each frame, so a batch takes only some of them.
#[test]
fn dictionary_of_long_stacks_is_bounded() {
    const MAX_DICTIONARY_BYTES: usize = 20 << 20;
    let names = ["a", "b"].map(|letter| letter.repeat(10_000));
    let mut profile = wide_profile(0);
    for number in 0..400u64 {
        let frames = (0..50).map(|bit| names[(number >> (bit % 9) & 1) as usize].as_str());
        let stack = profile.dictionary.intern_named_stack(frames);
        profile.samples.push(stack, 0, &[1]);
    }
    let bytes = write(std::slice::from_ref(&profile), ALL_ROWS);
    let mut rows = 0;
    for batch in StreamReader::try_new(bytes.as_slice(), None).expect("a schema") {
        let batch = batch.expect("a batch");
        let stacks = batch.column_by_name("stack").expect("stacks");
        let dictionary = stacks.as_any_dictionary().values().get_array_memory_size();
        assert!(dictionary < MAX_DICTIONARY_BYTES, "{dictionary}");
        rows += batch.num_rows();
    }
    assert_eq!(rows, 400);
    let (rows, _) = read(&bytes);
    assert_eq!(rows.iter().map(|(row, _)| row.value).sum::<i64>(), 400);
}

#[test]
fn stack_and_sum_beyond_their_limits_are_refused() {
    let labels = labels("a");
    let write = |profile: &Profile, samples: &[SampleValue]| {
        let written = SampleProfile { id: 1, time: 2, labels: &labels, samples };
        writer(&[]).with_dictionary(&profile.dictionary).write_profile(&written, 0, u64::MAX)
    };
    let mut deep = wide_profile(0);
    let name = "n".repeat(60_000);
    let stack = deep.dictionary.intern_named_stack(std::iter::repeat_n(name.as_str(), 200));
    deep.samples.push(stack, 0, &[1]);
    let error = write(&deep, &samples(&deep, SpanContext::default())).unwrap_err();
    assert!(matches!(error, ArrowStreamError::StackTooLarge { .. }), "{error}");
    let profile = wide_profile(1);
    let half = SampleValue { stack: 0, value: 1 << 62, span: SpanContext::default() };
    let error = write(&profile, &[half, half]).unwrap_err();
    assert!(matches!(error, ArrowStreamError::SumTooLarge), "{error}");
    assert_eq!(write(&profile, &[half]).unwrap(), 1);
}

#[test]
fn reader_without_required_column_names_it() {
    let bytes = writer(&["time", "value"]).finish().expect("finished");
    let error = SampleReader::new(&bytes[..]).err().expect("an error");
    assert!(matches!(error, ArrowStreamError::MissingColumn("stack")), "{error}");
    assert!(SampleReader::new(&b"no arrow"[..]).is_err());
}

#[test]
fn truncated_and_changed_streams_do_not_panic() {
    let bytes = write(&[wide_profile(50)], ALL_ROWS);
    for end in (0..bytes.len()).step_by(97) {
        let _ = SampleReader::new(&bytes[..end]).map(|reader| reader.count());
    }
    for place in (0..bytes.len()).step_by(13) {
        let mut changed = bytes.clone();
        changed[place] ^= 0x55;
        if let Ok(reader) = SampleReader::new(&changed[..]) {
            let _ = reader.take(1_000).take_while(Result::is_ok).count();
        }
    }
}

/// A compressed buffer states its size. The reader does not allocate what a damaged size says.
#[test]
fn damaged_size_of_a_buffer_is_an_error() {
    let bytes = write(&[wide_profile(2_000)], ALL_ROWS);
    let mut refused = 0;
    for place in 0..bytes.len() - 8 {
        let size = i64::from_le_bytes(bytes[place..place + 8].try_into().expect("eight bytes"));
        // Sizes of buffers are small numbers at places aligned to eight bytes.
        if place % 8 != 0 || !(1..1 << 20).contains(&size) {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[place + 6] = 0x75;
        let read =
            SampleReader::new(damaged.as_slice()).and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
        let message = read.err().map(|error| error.to_string()).unwrap_or_default();
        refused += usize::from(message.contains("uncompressed buffers"));
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn late_warnings_reach_the_reader() {
    let profile = wide_profile(3);
    let mut writer = writer(&[]);
    let labels = labels("a");
    let samples = samples(&profile, SpanContext::default());
    let written = SampleProfile { id: 1, time: 2, labels: &labels, samples: &samples };
    writer.with_dictionary(&profile.dictionary).write_profile(&written, 0, u64::MAX).expect("written");
    writer.set_warnings(&["block 7 cannot be read".to_owned(), "shard 1 does not respond".to_owned()]);
    let bytes = writer.finish().expect("finished");
    let mut reader = SampleReader::new(&bytes[..]).expect("a schema");
    assert_eq!(reader.by_ref().count(), 3);
    assert_eq!(reader.warnings(), ["block 7 cannot be read", "shard 1 does not respond"]);
}
