//! Blocks of profiles in memory, and their parts as sources: both say what the memory said.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use athanor_block::{
    Block, BlockBuilder, BlockFolder, MemoryFolder, MemoryProfiles, MemoryRow, MemoryRowVisitor, SpanContext,
    TenantBlock, TenantBlockSource, write_from_memory,
};
use athanor_chassis::CancelFlag;
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
use athanor_profile::store_interface::source::{
    MemorySource, ProfileSource, SourceError, SourceNameVisitor, SourceReadSize, SourceRowVisitor,
    SourceSpanRowVisitor,
};
use athanor_profile::{Dictionary, Labels, Profile, SpanFilter, ValueType, generate};
use proptest::prelude::*;

fn input(number: usize, seed: u64) -> (Labels, Profile) {
    let mut profile = generate::arbitrary_profile(seed);
    profile.header.time_nanos = 1_700_000_000_000_000_000 + number as i64;
    let service = ("service_name".into(), format!("service-{}", number * 7 % 3));
    (Labels::new([("pod".into(), format!("pod-{}", number % 2)), service]), profile)
}

fn memory(seeds: &[u64]) -> MemorySource {
    let mut source = MemorySource::default();
    for (number, &seed) in seeds.iter().enumerate() {
        let (labels, profile) = input(number, seed);
        source.add(&labels, &profile, number as u128);
    }
    source
}

fn written(parts: &[(&str, &dyn MemoryProfiles)]) -> Block {
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "held", None, parts.iter().copied()).unwrap();
    let block = Block::open(Arc::new(folder)).unwrap();
    block.verify(|_| {}).unwrap();
    block
}

fn source(block: &Block, tenant: &str, threads: usize) -> TenantBlockSource {
    let compute = NonZeroUsize::new(threads)
        .map_or(ComputePool::inline(), |threads| ComputePool::with_threads(threads, 1).unwrap());
    TenantBlockSource::new(Arc::new(block.clone()), tenant, compute).unwrap()
}

/// Sums by the names of stacks.
type Sums = BTreeMap<Vec<String>, i64>;

fn named(source: &dyn ProfileSource, totals: &[i64]) -> Sums {
    let mut sums = Sums::new();
    let mut read = |dictionary: &Dictionary, stacks: &[u32]| {
        for (place, &total) in totals.iter().enumerate().filter(|(_, total)| **total != 0) {
            let symbols = &dictionary.symbols;
            let path = dictionary.stacks.locations(stacks[place]);
            let names = path.flat_map(|location| {
                let lines = symbols.lines(location).iter();
                let names = lines.map(|line| symbols.function_name(line.function).to_owned());
                names.chain([symbols.address_name(location)]).collect::<Vec<_>>()
            });
            let sum = sums.entry(names.collect()).or_default();
            *sum = sum.wrapping_add(total);
        }
    };
    source.visit_names(&mut read).unwrap();
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// All there is by series, time and what a profile says of itself: sums by stack.
fn contents(source: &dyn ProfileSource) -> BTreeMap<(ProfileSeries, i64, i64, i64), Sums> {
    let (series, profiles) = (source.series().unwrap(), source.profiles().unwrap());
    let mut contents = BTreeMap::new();
    for (place, row) in (0u32..).zip(profiles.iter()).filter(|(_, row)| row.samples > 0) {
        let key = (series[row.series as usize].clone(), row.time, row.duration, row.period);
        let of_key: &mut Sums = contents.entry(key).or_default();
        for (stack, sum) in named(source, &source.totals(&[place]).unwrap()) {
            let total = of_key.entry(stack).or_default();
            *total = total.wrapping_add(sum);
        }
    }
    contents.values_mut().for_each(|sums| sums.retain(|_, sum| *sum != 0));
    contents
}

fn by_place(source: &dyn ProfileSource, picked: &[u32]) -> Vec<(u32, Vec<i64>)> {
    let mut rows: Vec<(u32, Vec<i64>)> = Vec::new();
    let stacks = source.totals(&[]).unwrap().len();
    let mut add = |place: u32, of: &[u32], values: &[i64]| {
        if rows.last().is_none_or(|last| last.0 != place) {
            rows.push((place, vec![0; stacks]));
        }
        let totals = &mut rows.last_mut().unwrap().1;
        of.iter().zip(values).for_each(|(&stack, &value)| {
            totals[stack as usize] = totals[stack as usize].wrapping_add(value);
        });
    };
    source.visit_rows(picked, &mut add).unwrap();
    rows
}

#[test]
fn profiles_in_memory_make_the_block_that_their_pprofs_make() {
    let seeds: Vec<u64> = (0..24).collect();
    let held = memory(&seeds);
    let block = written(&[("acme", &held), ("globex", &held)]);
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("built", DecodeLimits::default(), 1 << 30, &mut scratch);
    for (number, &seed) in seeds.iter().enumerate() {
        let (labels, profile) = input(number, seed);
        builder.add_pprof("acme", &labels, &encode(&profile)).unwrap();
    }
    let folder = MemoryFolder::default();
    builder.finish(&folder).unwrap();
    let built = Block::open(Arc::new(folder)).unwrap();
    let expected = contents(&source(&built, "acme", 0));
    assert!(expected.len() > 20);
    assert_eq!(contents(&source(&block, "acme", 0)), expected);
    assert_eq!(contents(&source(&block, "globex", 2)), expected);
    let profiles = block.tenant_block("acme").unwrap().read_all_profiles().unwrap();
    assert!(profiles.iter().all(|row| row.samples > 0), "profiles without rows are left out");
    assert!(profiles.is_sorted_by_key(ProfileRow::order));
}

#[test]
fn tenants_without_rows_are_left_out_and_others_come_in_order() {
    let (held, empty) = (memory(&[1, 2]), MemorySource::default());
    let block = written(&[("acme", &empty), ("globex", &held)]);
    let tenants: Vec<&str> = block.meta().tenants.iter().map(|part| part.tenant.as_str()).collect();
    assert_eq!(tenants, ["globex"]);
    let folder = MemoryFolder::default();
    let parts: [(&str, &dyn MemoryProfiles); 2] = [("b", &held), ("a", &held)];
    let error = write_from_memory(&folder, "held", None, parts.into_iter()).unwrap_err();
    assert!(error.to_string().contains(r#"tenant "a" comes after"#), "{error}");
}

#[test]
fn damage_is_told_and_what_failed_is_tried_again() {
    let folder = MemoryFolder::default();
    let held = memory(&[3, 4, 5]);
    write_from_memory(&folder, "held", None, [("acme", &held as &dyn MemoryProfiles)].into_iter()).unwrap();
    let block = Block::open(Arc::new(folder.clone())).unwrap();
    let part = source(&block, "acme", 0);
    folder.tamper("profiles.parquet", |bytes| bytes[9] ^= 4);
    let error = part.profiles().unwrap_err();
    assert!(
        error.to_string().starts_with("stored profiles are damaged: profiles.parquet is damaged"),
        "{error}"
    );
    assert!(matches!(part.profile_totals(), Err(SourceError::Damaged(_))));
    folder.tamper("profiles.parquet", |bytes| bytes[9] ^= 4);
    let count = part.profiles().unwrap().len() as u32;
    for picked in [vec![count], vec![1, 0], vec![0, 0]] {
        assert!(matches!(part.totals(&picked), Err(SourceError::Damaged(_))), "{picked:?}");
    }
    let before = part.memory_bytes();
    part.visit_names(&mut |_, _| {}).unwrap();
    assert!(part.memory_bytes() > before, "what is kept is counted");
    assert!(TenantBlockSource::new(Arc::new(block), "globex", ComputePool::inline()).is_err());
}

/// Profiles in any order, whose stacks are not those of the dictionary, with requests.
#[derive(Debug)]
struct Loose {
    stacks: Vec<u32>,
    dictionary: Dictionary,
    series: Vec<ProfileSeries>,
    profiles: Vec<ProfileRow>,
    rows: Vec<Vec<MemoryRow<'static>>>,
}

impl ProfileSource for Loose {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        Ok(self.series.as_slice().into())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(self.profiles.as_slice().into())
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let mut totals = vec![0i64; self.stacks.len()];
        self.for_each_row(picked, &mut |_, row| {
            totals[row.stack as usize] = totals[row.stack as usize].wrapping_add(row.value);
        })?;
        Ok(totals)
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        self.for_each_row(picked, &mut |place, row| each(place, &[row.stack], &[row.value]))
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        self.for_each_row(picked, &mut |place, MemoryRow { stack, span, trace, value, .. }| {
            each(place, &[stack], &[value], &[SpanContext { span, trace }]);
        })
    }
    fn read_size(&self, _: &[u32], _: bool) -> Result<SourceReadSize, SourceError> {
        Ok(SourceReadSize::default())
    }
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        read(&self.dictionary, &self.stacks);
        Ok(())
    }
}

impl MemoryProfiles for Loose {
    fn for_each_row(&self, picked: &[u32], each: &mut MemoryRowVisitor<'_>) -> Result<(), SourceError> {
        for &place in picked {
            self.rows[place as usize].iter().for_each(|row| each(place, *row));
        }
        Ok(())
    }
}

const STACKS: u32 = 12;

/// Some rows say when they were measured, most do not.
const MOMENTS: [&[i64]; 6] = [&[], &[], &[], &[5], &[9, -1, 5], &[i64::MAX, i64::MIN, 5, 5]];

fn loose() -> impl Strategy<Value = Loose> {
    let row = (0..STACKS, 0u64..3, 0u128..3, any::<i64>(), prop::sample::select(&MOMENTS[..]));
    let row =
        row.prop_map(|(stack, span, trace, value, moments)| MemoryRow { stack, span, trace, value, moments });
    let profile = (0u32..4, 0i64..5, 0u128..40, prop::collection::vec(row, 0..12));
    prop::collection::vec(profile, 0..30).prop_map(|all| {
        let mut dictionary = Dictionary::default();
        let stack = |number: u32| format!("main;f{};g{number}", number % 3);
        let stacks =
            (0..STACKS).rev().map(|number| dictionary.intern_named_stack(stack(number / 2).split(';')));
        let mut held =
            Loose { stacks: stacks.collect(), dictionary, series: vec![], profiles: vec![], rows: vec![] };
        for number in [3, 1, 0, 2] {
            let labels = Labels::new([("service_name".into(), format!("s{number}"))]);
            held.series.push(ProfileSeries::new(labels, ValueType::new("cpu", "ns"), ValueType::default()));
        }
        let mut known: BTreeMap<u128, (i64, Vec<MemoryRow<'static>>)> = BTreeMap::new();
        for (series, time, id, rows) in all {
            // Profiles of one id are copies, also in different series.
            let (time, rows) = known.entry(id).or_insert((time, rows)).clone();
            held.profiles.push(ProfileRow {
                series,
                time,
                id,
                samples: rows.len() as u32,
                ..ProfileRow::default()
            });
            held.rows.push(rows);
        }
        held
    })
}

/// The profiles that a block keeps: of each id the copy in the least series.
fn kept(held: &Loose) -> impl Iterator<Item = (&ProfileRow, &Vec<MemoryRow<'static>>)> {
    let mut least: BTreeMap<u128, (&ProfileSeries, usize)> = BTreeMap::new();
    for (place, row) in held.profiles.iter().enumerate() {
        let copy = (&held.series[row.series as usize], place);
        let known = least.entry(row.id).or_insert(copy);
        *known = copy.min(*known);
    }
    least.into_values().map(|(_, place)| (&held.profiles[place], &held.rows[place]))
}

type ByRequest = BTreeMap<(String, u64, u128, Vec<String>), i64>;

fn naive(held: &Loose) -> ByRequest {
    let mut sums = ByRequest::new();
    for (row, rows) in kept(held) {
        for of in rows {
            let mut one = vec![0; STACKS as usize];
            one[of.stack as usize] = 1;
            let stack = named(held, &one).into_keys().next().unwrap();
            let service = held.series[row.series as usize].service().to_owned();
            let sum = sums.entry((service, of.span, of.trace, stack)).or_default();
            *sum = sum.wrapping_add(of.value);
        }
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn stored(block: &Block) -> ByRequest {
    let mut sums = ByRequest::new();
    let Ok(part) = block.tenant_block("acme") else { return sums };
    let (series, profiles) = (part.read_series().unwrap(), part.read_all_profiles().unwrap());
    let source = source(block, "acme", 0);
    for (place, of) in (0u32..).zip(&series) {
        let ranges = TenantBlock::sample_ranges(&profiles, |profile| profile.series == place);
        for (span, trace) in (0..9).map(|number| (number / 3, u128::from(number % 3))) {
            let wanted = |request| request == SpanContext { span, trace };
            let totals = part.sum_by_stack_of_requests(&ranges, &ComputePool::inline(), wanted).unwrap();
            for (stack, sum) in named(&source, &totals) {
                sums.insert((of.service().to_owned(), span, trace, stack), sum);
            }
        }
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_held_adds_up_as_naively(held in loose()) {
        prop_assert_eq!(stored(&written(&[("acme", &held)])), naive(&held));
    }

    #[test]
    fn each_moment_lies_once_with_its_profile_and_stack(held in loose()) {
        let block = written(&[("acme", &held)]);
        let mut expected: BTreeMap<(String, i64, Vec<String>), Vec<i64>> = BTreeMap::new();
        let name = |source: &dyn ProfileSource, stack: u32, of: u32| {
            let mut one = vec![0; of as usize];
            one[stack as usize] = 1;
            named(source, &one).into_keys().next().unwrap()
        };
        for (row, rows) in kept(&held) {
            for of in rows.iter().filter(|of| !of.moments.is_empty()) {
                let service = held.series[row.series as usize].service().to_owned();
                expected.entry((service, row.time, name(&held, of.stack, STACKS))).or_default().extend(of.moments);
            }
        }
        expected.values_mut().for_each(|times| times.sort_unstable());
        let mut found: BTreeMap<(String, i64, Vec<String>), Vec<i64>> = BTreeMap::new();
        if let Ok(part) = block.tenant_block("acme") {
            let (series, profiles) = (part.read_series().unwrap(), part.read_all_profiles().unwrap());
            let source = source(&block, "acme", 0);
            for (place, row) in profiles.iter().enumerate() {
                let mut at = 0..;
                let ranges = TenantBlock::sample_ranges(&profiles, |_| at.next() == Some(place));
                part.read_timestamps(&ranges, |stack, times| {
                    assert!(times.is_sorted());
                    let service = series[row.series as usize].service().to_owned();
                    let stack = name(&source, stack, part.meta.stacks);
                    found.entry((service, row.time, stack)).or_default().extend(times);
                })
                .unwrap();
            }
        }
        found.values_mut().for_each(|times| times.sort_unstable());
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(block.meta().format, 2);
        prop_assert_eq!(block.timestamp_bytes().unwrap().is_some(), !found.is_empty());
    }

    #[test]
    fn a_part_knows_requests_as_the_memory_does(
        held in loose(), spans in prop::collection::vec(0u64..4, 0..3), by_trace in any::<bool>(),
    ) {
        let block = written(&[("acme", &held)]);
        let wanted = match by_trace {
            true => SpanFilter::traces(spans.into_iter().map(u128::from)),
            false => SpanFilter::spans(spans),
        };
        let mut expected = Sums::new();
        for ((_, span, trace, stack), sum) in naive(&held) {
            if wanted.contains(SpanContext { span, trace }) {
                let total = expected.entry(stack).or_default();
                *total = total.wrapping_add(sum);
            }
        }
        expected.retain(|_, sum| *sum != 0);
        if block.tenant_block("acme").is_err() {
            prop_assert!(expected.is_empty());
            return Ok(());
        }
        let part = source(&block, "acme", 2);
        let all: Vec<u32> = (0..part.profiles().unwrap().len() as u32).collect();
        prop_assert_eq!(named(&part, &part.totals_of_spans(&all, &wanted).unwrap()), expected.clone());
        let mut by_rows = part.totals(&[]).unwrap();
        part.visit_span_rows(&all, &mut |_, stacks, values, requests| {
            for ((&stack, &value), &request) in stacks.iter().zip(values).zip(requests) {
                let total = &mut by_rows[stack as usize];
                *total = total.wrapping_add(if wanted.contains(request) { value } else { 0 });
            }
        }).unwrap();
        prop_assert_eq!(named(&part, &by_rows), expected);
    }

    #[test]
    fn a_part_answers_as_the_memory_does(
        seeds in prop::collection::vec(0u64..500, 1..8),
        picks in prop::collection::vec(prop::sample::select(vec![0, 1, 4]), 64),
        whole in any::<bool>(),
    ) {
        // The first has rows, so that there is a part.
        let held = memory(&[&[0], &*seeds].concat());
        let part = source(&written(&[("acme", &held)]), "acme", 0);
        let (theirs, ours) = (held.profiles().unwrap(), part.profiles().unwrap());
        let (series, of_part) = (held.series().unwrap(), part.series().unwrap());
        let is_picked = |row: &ProfileRow| {
            let of = if whole { row.series as u128 } else { row.id };
            row.samples > 0 && picks[(of % 64) as usize] > 0
        };
        let picked: Vec<u32> = (0..).zip(theirs.iter()).filter(|(_, row)| is_picked(row)).map(|(at, _)| at).collect();
        let of = |row: &ProfileRow, series: &[ProfileSeries]| (series[row.series as usize].clone(), row.id);
        let place = |place: u32| {
            let wanted = of(&theirs[place as usize], &series);
            ours.iter().position(|row| of(row, &of_part) == wanted).unwrap() as u32
        };
        let places: BTreeMap<u32, u32> = picked.iter().map(|&of| (place(of), of)).collect();
        let in_part: Vec<u32> = places.keys().copied().collect();
        let (totals, expected) = (part.totals(&in_part).unwrap(), held.totals(&picked).unwrap());
        prop_assert_eq!(named(&part, &totals), named(&held, &expected));
        prop_assert_eq!(part.tree(&totals), held.tree(&expected));
        let more = vec![0; 1 << 20];
        prop_assert!(part.tree(&more).is_err() && held.tree(&more).is_err());
        let (rows, of_profiles) = (by_place(&part, &in_part), part.profile_totals().unwrap().unwrap());
        prop_assert_eq!(rows.len(), picked.len());
        for (place, totals) in rows {
            let sum = totals.iter().fold(0i64, |sum, &value| sum.wrapping_add(value));
            prop_assert_eq!(of_profiles[place as usize], sum);
            prop_assert_eq!(named(&part, &totals), named(&held, &held.totals(&[places[&place]]).unwrap()));
        }
    }
}

#[test]
fn long_names_lie_in_several_row_groups_and_come_back() {
    let mut held = MemorySource::default();
    let labels = Labels::new([("service_name".into(), "shop".into())]);
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    let name = |number: u32| format!("{number}{}", "x".repeat(60_000));
    for number in 0..300 {
        let stack = profile.dictionary.intern_named_stack([name(number).as_str(), "short"].into_iter());
        profile.samples.push(stack, 0, &[i64::from(number) + 1]);
    }
    held.add(&labels, &profile, 1);
    let block = written(&[("a", &held), ("b", &held)]);
    for (tenant, meta) in ["a", "b"].into_iter().zip(&block.meta().tenants) {
        let functions =
            athanor_block::PARQUET_FILES.iter().position(|file| *file == "functions.parquet").unwrap();
        assert_eq!(meta.groups[functions].1, 3, "18 MB in groups of 8 MiB");
        let source = source(&block, tenant, 0);
        let sums = named(&source, &source.totals(&[0]).unwrap());
        let expected = named(&held, &held.totals(&[0]).unwrap());
        assert!(sums == expected && sums.len() == 300);
    }
}

#[test]
fn a_scan_ends_when_whoever_waits_for_it_has_left() {
    let mut held = MemorySource::default();
    for number in 0..10 {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = number;
        for stack in 0..8_000 {
            let name = format!("f{stack}");
            let stack = profile.dictionary.intern_named_stack([name.as_str()].into_iter());
            profile.samples.push(stack, 0, &[1]);
        }
        held.add(&Labels::default(), &profile, number as u128);
    }
    let block = written(&[("acme", &held)]);
    let part = source(&block, "acme", 0);
    let picked: Vec<u32> = (0..10).collect();
    let (stop, waiting) = CancelFlag::new_pair();
    let (mut waiting, mut rows) = (Some(waiting), 0);
    let read = part.with_cancel(stop.clone()).visit_rows(&picked, &mut |_, stacks, _| {
        rows += stacks.len();
        drop(waiting.take());
    });
    assert_eq!(read, Err(SourceError::Left));
    assert!(rows > 0 && rows < 40_000, "{rows} of 80000 rows were read");
    assert_eq!(part.with_cancel(stop.clone()).totals(&picked[..5]), Err(SourceError::Left));
    assert_eq!(part.with_cancel(stop).totals(&picked), Err(SourceError::Left), "of the roll-up");
    // Nobody else notices.
    assert_eq!(part.totals(&picked).unwrap().iter().sum::<i64>(), 80_000);
    let (stop, _waiting) = CancelFlag::new_pair();
    assert_eq!(part.with_cancel(stop).totals(&picked[..5]).unwrap().iter().sum::<i64>(), 40_000);
}
