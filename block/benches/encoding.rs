//! How the columns of samples could be written: bytes a sample and speed of each way, beside the entropy bound.
//!
//! `cargo bench -p athanor-block --bench encoding` runs on R-1k; `-- --profiles 240` takes less.
#![expect(clippy::unwrap_used, reason = "a bench")]

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use athanor_profile::Dictionary;
use athanor_profile::formats::pprof::{DecodeLimits, DecodedProfile, PprofDecoder};
use athanor_profile::generate::{ReferenceDataset, SeededRandom};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

/// What a sample is before it is ordered and numbered.
#[derive(Clone, Copy)]
struct Sample {
    series: u32,
    profile: u32,
    stack: u32,
    value: i64,
}

/// How one column is written.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    Dictionary,
    Delta,
    Split,
}

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Samples of R by (series, time, stack), profiles numbered in that order, stacks as first seen.
fn samples(count: usize) -> Vec<Sample> {
    let set = ReferenceDataset::new(1);
    let (mut decoder, mut dictionary, mut decoded) =
        (PprofDecoder::default(), Dictionary::default(), DecodedProfile::default());
    let mut profiles = Vec::new();
    let mut series: HashMap<String, u32> = HashMap::new();
    for number in 0..count {
        decoder.decode(&set.pprof(number), &DecodeLimits::default(), &mut dictionary, &mut decoded).unwrap();
        let next = series.len() as u32;
        let of = *series.entry(set.labels(number).to_string()).or_insert(next);
        let rows: Vec<(u32, i64)> =
            decoded.samples.rows(1).map(|(stack, _, values)| (stack, values[0])).collect();
        profiles.push((of, decoded.header.time_nanos, rows));
    }
    profiles.sort_by_key(|profile| (profile.0, profile.1));
    let mut all = Vec::new();
    for (profile, (series, _, rows)) in (0u32..).zip(profiles) {
        all.extend(rows.into_iter().map(|(stack, value)| Sample { series, profile, stack, value }));
    }
    all
}

/// Numbers stacks by falling popularity, as first seen, or by chance.
fn numbered(samples: &[Sample], how: &str) -> Vec<Sample> {
    let stacks = samples.iter().map(|sample| sample.stack).max().unwrap() as usize + 1;
    let mut order: Vec<u32> = (0..stacks as u32).collect();
    let mut popularity = vec![0u64; stacks];
    samples.iter().for_each(|sample| popularity[sample.stack as usize] += 1);
    match how {
        "popularity" => order.sort_by_key(|&stack| std::cmp::Reverse(popularity[stack as usize])),
        "chance" => {
            let mut random = SeededRandom::new(7);
            let keys: Vec<u64> = (0..stacks).map(|_| random.next_u64()).collect();
            order.sort_by_key(|&stack| keys[stack as usize]);
        }
        _ => {}
    }
    let mut number = vec![0; stacks];
    (0u32..).zip(&order).for_each(|(new, &old)| number[old as usize] = new);
    samples.iter().map(|sample| Sample { stack: number[sample.stack as usize], ..*sample }).collect()
}

fn ordered(mut samples: Vec<Sample>, how: &str) -> Vec<Sample> {
    match how {
        "profile, stack" => samples.sort_by_key(|sample| (sample.profile, sample.stack)),
        "series, stack, profile" => {
            samples.sort_by_key(|sample| (sample.series, sample.stack, sample.profile));
        }
        _ => samples.sort_by_key(|sample| (sample.stack, sample.profile)),
    }
    samples
}

/// Each stack's id XORed with the id at the same place of the profile before.
fn xored(samples: &[Sample]) -> Vec<Sample> {
    let mut before: Vec<u32> = Vec::new();
    let mut all = Vec::with_capacity(samples.len());
    for profile in samples.chunk_by(|a, b| a.profile == b.profile) {
        let ids: Vec<u32> = profile.iter().map(|sample| sample.stack).collect();
        for (place, sample) in profile.iter().enumerate() {
            let stack = sample.stack ^ before.get(place).copied().unwrap_or_default();
            all.push(Sample { stack, ..*sample });
        }
        before = ids;
    }
    all
}

/// What no way can beat while it knows of a stack and a value only how often each occurs.
fn entropy(samples: &[Sample]) -> f64 {
    let profiles = f64::from(samples.iter().map(|sample| sample.profile).max().unwrap() + 1);
    let (mut stacks, mut values): (HashMap<u32, f64>, HashMap<i64, f64>) = Default::default();
    for sample in samples {
        *stacks.entry(sample.stack).or_default() += 1.0;
        *values.entry(sample.value).or_default() += 1.0;
    }
    let bits = |p: f64| if p > 0.0 { -p * p.log2() } else { 0.0 };
    let count = samples.len() as f64;
    let of_stacks: f64 = stacks.values().map(|n| bits(n / profiles) + bits(1.0 - n / profiles)).sum();
    let of_values: f64 = values.values().map(|n| bits(n / count)).sum();
    (of_stacks * profiles / count + of_values) / 8.0
}

fn properties(ways: [Way; 3], compression: Compression) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .set_compression(compression)
        .set_data_page_row_count_limit(64 * 1024)
        .set_write_batch_size(16 * 1024)
        .set_max_row_group_row_count(None);
    for (name, way) in ["profile", "stack", "value"].into_iter().zip(ways) {
        let path = ColumnPath::from(name);
        let encoding = match way {
            Way::Dictionary => continue,
            Way::Plain => Encoding::PLAIN,
            Way::Delta => Encoding::DELTA_BINARY_PACKED,
            Way::Split => Encoding::BYTE_STREAM_SPLIT,
        };
        builder =
            builder.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
    }
    builder.build()
}

fn put<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[T::T]) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, None, None).unwrap();
    column.close().unwrap();
}

fn take<T: DataType>(file: &SerializedFileReader<Bytes>, column: usize) {
    let mut values = Vec::new();
    for group in 0..file.num_row_groups() {
        let reader = file.get_row_group(group).unwrap().get_column_reader(column).unwrap();
        let mut reader = get_typed_column_reader::<T>(reader);
        loop {
            values.clear();
            if reader.read_records(16 * 1024, None, None, &mut values).unwrap().0 == 0 {
                break;
            }
            black_box(&values);
        }
    }
}

/// When profilers take samples: each processor at its own times, `jitter` nanoseconds about a steady rate, in profiles
/// of some seconds each. Lists of moments by profile and stack, of which few are frequent.
struct Ticks {
    name: &'static str,
    profiles: i64,
    seconds: i64,
    rate: i64,
    processors: i64,
    stacks: usize,
    jitter: usize,
}

impl Ticks {
    fn lists(&self) -> Vec<Vec<i64>> {
        let mut random = SeededRandom::new(9);
        let mut lists = Vec::new();
        for profile in 0..self.profiles {
            let begin = 1_700_000_000_000_000_000 + profile * self.seconds * 1_000_000_000;
            let mut by_stack: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
            for processor in 0..self.processors {
                for tick in 0..self.seconds * self.rate {
                    let steady = tick * 1_000_000_000 / self.rate + processor * 1_234_567;
                    let stack = random.squared(self.stacks);
                    by_stack
                        .entry(stack)
                        .or_default()
                        .push(begin + steady + random.next_below(self.jitter) as i64);
                }
            }
            lists.extend(by_stack.into_values());
        }
        lists.iter_mut().for_each(|list| list.sort_unstable());
        lists
    }

    /// Writes their moments each way, and prints rows.
    fn measure(&self) {
        let lists = self.lists();
        let times: Vec<i64> = lists.concat();
        let levels = |of_list: fn(usize, usize) -> i16| -> Vec<i16> {
            lists.iter().flat_map(|list| (0..list.len()).map(move |at| of_list(at, list.len()))).collect()
        };
        let (repetition, definition) = (levels(|at, _| i16::from(at > 0)), levels(|_, _| 2));
        let schema = "message m { optional group timestamps (LIST) { repeated group list { required int64 element; } } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        for (way, encoding) in [
            ("plain", Some(Encoding::PLAIN)),
            ("dictionary", None),
            ("byte stream split", Some(Encoding::BYTE_STREAM_SPLIT)),
            ("delta", Some(Encoding::DELTA_BINARY_PACKED)),
        ] {
            let mut builder = WriterProperties::builder()
                .set_statistics_enabled(EnabledStatistics::None)
                .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).unwrap()))
                .set_dictionary_enabled(encoding.is_none());
            if let Some(encoding) = encoding {
                builder = builder.set_encoding(encoding);
            }
            let start = cpu();
            let mut file =
                SerializedFileWriter::new(Vec::new(), schema.clone(), Arc::new(builder.build())).unwrap();
            let mut group = file.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&times, Some(&definition), Some(&repetition)).unwrap();
            column.close().unwrap();
            group.close().unwrap();
            let bytes = file.into_inner().unwrap().len() as f64;
            let encoding = times.len() as f64 / 1e6 / (cpu() - start).as_secs_f64();
            let (of_row, each) = (times.len() as f64 / lists.len() as f64, bytes / times.len() as f64);
            println!("| {} | {of_row:.1} | {way} | {each:.2} | {encoding:.0} |", self.name);
        }
    }
}

/// Writes and reads them one way, and prints a row.
fn measure(name: &str, samples: &[Sample], ways: [Way; 3], compression: Compression) {
    let profile: Vec<i32> = samples.iter().map(|sample| sample.profile as i32).collect();
    let stack: Vec<i32> = samples.iter().map(|sample| sample.stack as i32).collect();
    let value: Vec<i64> = samples.iter().map(|sample| sample.value).collect();
    let schema = "message samples { required int32 profile; required int32 stack; required int64 value; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let (mut bytes, mut encoding, mut decoding) = (Bytes::new(), Duration::MAX, Duration::MAX);
    for _ in 0..3 {
        let start = cpu();
        let properties = Arc::new(properties(ways, compression));
        let mut file = SerializedFileWriter::new(Vec::new(), schema.clone(), properties).unwrap();
        for from in (0..samples.len()).step_by(1 << 20) {
            let rows = from..samples.len().min(from + (1 << 20));
            let mut group = file.next_row_group().unwrap();
            put::<Int32Type>(&mut group, &profile[rows.clone()]);
            put::<Int32Type>(&mut group, &stack[rows.clone()]);
            put::<Int64Type>(&mut group, &value[rows]);
            group.close().unwrap();
        }
        bytes = Bytes::from(file.into_inner().unwrap());
        encoding = encoding.min(cpu() - start);
        let start = cpu();
        let file = SerializedFileReader::new(bytes.clone()).unwrap();
        take::<Int32Type>(&file, 1);
        take::<Int64Type>(&file, 2);
        decoding = decoding.min(cpu() - start);
    }
    let speed = |time: Duration| samples.len() as f64 / 1e6 / time.as_secs_f64();
    println!(
        "| {name} | {:.3} | {:.0} | {:.0} |",
        bytes.len() as f64 / samples.len() as f64,
        speed(encoding),
        speed(decoding)
    );
}

fn main() {
    println!("| moments | in a row | way | bytes each | encode M/s |\n|---|---:|---|---:|---:|");
    let steady = Ticks {
        name: "20 Hz, 60 s",
        profiles: 40,
        seconds: 60,
        rate: 20,
        processors: 8,
        stacks: 500,
        jitter: 200_000,
    };
    steady.measure();
    Ticks { name: "20 Hz, 5 s", profiles: 480, seconds: 5, ..steady }.measure();
    Ticks { name: "99 Hz, 10 s", profiles: 60, seconds: 10, rate: 99, ..steady }.measure();
    Ticks { name: "20 Hz, 60 s, any time", jitter: 60_000_000_000, ..steady }.measure();
    println!();
    let arguments: Vec<String> = std::env::args().collect();
    let asked = arguments.iter().position(|argument| argument == "--profiles");
    let samples = samples(asked.map_or(1200, |at| arguments[at + 1].parse().unwrap()));
    println!("{} samples; entropy bound {:.3} bytes a sample\n", samples.len(), entropy(&samples));
    println!("| way | bytes/sample | encode M/s | decode M/s |\n|---|---:|---:|---:|");
    let zstd = |level| Compression::ZSTD(ZstdLevel::try_new(level).unwrap());
    let chosen = [Way::Delta, Way::Delta, Way::Dictionary];
    for order in ["profile, stack", "series, stack, profile", "stack, profile"] {
        for numbering in ["popularity", "first seen", "chance"] {
            let rows = ordered(numbered(&samples, numbering), order);
            measure(&format!("by {order}; numbered by {numbering}"), &rows, chosen, zstd(3));
        }
    }
    let rows = ordered(numbered(&samples, "popularity"), "profile, stack");
    measure(
        "XOR with the profile before, plain ids",
        &xored(&rows),
        [Way::Delta, Way::Plain, Way::Dictionary],
        zstd(3),
    );
    for (name, way) in [
        ("plain", Way::Plain),
        ("dictionary", Way::Dictionary),
        ("byte stream split", Way::Split),
        ("delta", Way::Delta),
    ] {
        measure(&format!("stack {name}"), &rows, [Way::Delta, way, Way::Dictionary], zstd(3));
        measure(&format!("value {name}"), &rows, [Way::Delta, Way::Delta, way], zstd(3));
    }
    measure("not compressed", &rows, chosen, Compression::UNCOMPRESSED);
    for level in [1, 3, 6, 9] {
        measure(&format!("zstd {level}"), &rows, chosen, zstd(level));
    }
}
