//! Reference data set R.

use super::random::SeededRandom;
use super::synthetic_program::{
    FunctionNameGenerator, ProgramFrame, SyntheticProgram, binary_build_id, binary_file,
};
use crate::data_model::labels::Labels;
use crate::data_model::model::{Dictionary, Profile, ProfileHeader, Samples, ValueType};
use crate::encoding::hash::PrehashedMap;
use crate::encoding::numbering::TextNumbering;
use crate::formats::pprof::wire::{write_message, write_number, write_packed};

const POD_COUNT: usize = 20;
const FUNCTION_COUNT: usize = 6_000;
const BINARY_COUNT: usize = 40;
const STACK_COUNT: usize = 12_000;
const ROWS_PER_PROFILE: usize = 864;
const STEP_NANOS: i64 = 15_000_000_000;
const STEPS_PER_HOUR: usize = 240;
/// Hours of constant popularity at the beginning, so that short sets are the same with and without drift.
const HOURS_WITHOUT_DRIFT: usize = 3;
const PERIOD_NANOS: i64 = 10_000_000;
/// Unix time of 2024-01-01T00:00:00Z.
const START_NANOS: i64 = 1_704_067_200_000_000_000;

/// Data set of one service: 20 pods, a CPU profile every 15 s, 864 of 12 000 distinct stacks per profile.
///
/// Profile `i` belongs to pod `i % 20` and step `i / 20`.
#[derive(Clone, Debug)]
pub struct ReferenceDataset {
    seed: u64,
    start_nanos: i64,
    world: SyntheticProgram,
    /// Permutation of stack ranks of each pod.
    orders: Vec<Vec<u32>>,
}

impl ReferenceDataset {
    /// Number of profiles in R-1k.
    pub const R_1K_PROFILES: usize = 1_200;
    /// Number of profiles in R-10k.
    pub const R_10K_PROFILES: usize = 10_000;
    /// Number of samples in each profile.
    pub const SAMPLES_PER_PROFILE: usize = ROWS_PER_PROFILE;
    /// Seed of the published figures.
    pub const PUBLISHED_SEED: u64 = 1;

    /// Returns the data set of a seed.
    pub fn new(seed: u64) -> Self {
        ReferenceDataset::with_stacks(seed, STACK_COUNT)
    }
    /// Returns the data set of a seed with another number of distinct stacks, more than 20. Each stack adds
    /// about 7 tree nodes.
    pub fn with_stacks(seed: u64, stacks: usize) -> Self {
        let mut random = SeededRandom::from_path(&[seed, 0]);
        let functions = FunctionNameGenerator::new().functions(&mut random, FUNCTION_COUNT, BINARY_COUNT);
        let world = SyntheticProgram::grow(&mut random, functions, stacks);
        let orders = (0..POD_COUNT).map(|_| pod_order(&mut random, stacks)).collect();
        ReferenceDataset { seed, start_nanos: START_NANOS, world, orders }
    }
    /// Sets the time of the first step. Only timestamps change.
    pub fn with_start(mut self, nanos: i64) -> Self {
        self.start_nanos = nanos;
        self
    }
    /// Returns the time of profile `i` in Unix nanoseconds. The pods of a step are a millisecond apart.
    pub fn time(&self, i: usize) -> i64 {
        self.start_nanos + (i / POD_COUNT) as i64 * STEP_NANOS + (i % POD_COUNT) as i64 * 1_000_000
    }
    /// Returns the labels that profile `i` is sent with.
    pub fn labels(&self, i: usize) -> Labels {
        let pod = format!("checkout-7d4b9c-{:02}", i % POD_COUNT);
        let pairs = [
            ("service_name", "checkout"),
            ("namespace", "shop"),
            ("region", "eu-west-1"),
            ("pod", pod.as_str()),
        ];
        Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }
    /// Returns the rows of profile `i` as stack (0 to 11 999) and value, sorted by stack.
    pub fn rows(&self, i: usize) -> Vec<(u32, i64)> {
        let mut random = SeededRandom::from_path(&[self.seed, 1, i as u64]);
        let drifted = self.drifted_ranks(i / POD_COUNT / STEPS_PER_HOUR);
        let order = &self.orders[i % POD_COUNT];
        let stacks = self.world.draw(&mut random, ROWS_PER_PROFILE, |rank| {
            let stack = order[rank];
            drifted.as_ref().map_or(stack, |drifted| drifted[stack as usize])
        });
        stacks.into_iter().map(|stack| (stack, (1 + random.exponential(3.0) as i64) * PERIOD_NANOS)).collect()
    }
    /// Returns the permutation of stacks in an hour. Each hour swaps 1 % of the stacks with others. `None`
    /// means no drift yet.
    fn drifted_ranks(&self, hour: usize) -> Option<Vec<u32>> {
        if hour < HOURS_WITHOUT_DRIFT {
            return None;
        }
        let count = self.world.stacks.len();
        let mut stacks: Vec<u32> = (0..count as u32).collect();
        for past in HOURS_WITHOUT_DRIFT..=hour {
            let mut random = SeededRandom::from_path(&[self.seed, 2, past as u64]);
            for _ in 0..count / 200 {
                stacks.swap(random.next_below(count), random.next_below(count));
            }
        }
        Some(stacks)
    }
    /// Returns a dictionary in which the stacks have the ids of [`rows`](Self::rows).
    pub fn dictionary(&self) -> Dictionary {
        let mut dictionary = Dictionary::default();
        for stack in 0..self.world.stacks.len() as u32 {
            self.world.intern(stack, &mut dictionary);
        }
        dictionary
    }
    /// Returns the header of profile `i`.
    pub fn header(&self, i: usize) -> ProfileHeader {
        let cpu = ValueType::new("cpu", "nanoseconds");
        ProfileHeader {
            types: vec![cpu.clone()],
            period_type: Some(cpu),
            period: PERIOD_NANOS,
            time_nanos: self.time(i),
            duration_nanos: STEP_NANOS,
            ..ProfileHeader::default()
        }
    }
    /// Returns profile `i` with its own dictionary.
    pub fn profile(&self, i: usize) -> Profile {
        let mut dictionary = Dictionary::default();
        let mut samples = Samples::default();
        for (stack, value) in self.rows(i) {
            samples.push(self.world.intern(stack, &mut dictionary), 0, &[value]);
        }
        Profile { header: self.header(i), samples, dictionary }
    }
    /// Returns profile `i` as uncompressed pprof. The published hash of the set covers these bytes.
    pub fn pprof(&self, i: usize) -> Vec<u8> {
        let mut writer = ReferencePprofWriter::new(&self.world);
        writer.value_type(1);
        for (stack, value) in self.rows(i) {
            writer.sample(stack, value);
        }
        writer.finish(self.time(i))
    }
    /// Returns the first `count` profiles as uncompressed pprof.
    pub fn profiles(&self, count: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
        (0..count).map(|i| self.pprof(i))
    }
}

/// Returns a lightly shuffled order: stacks of similar popularity are swapped.
fn pod_order(random: &mut SeededRandom, stacks: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..stacks as u32).collect();
    for _ in 0..stacks / 3 {
        let at = random.next_below(stacks - 20);
        order.swap(at, at + random.next_below(20));
    }
    order
}

/// Writer of pprof as an agent writes it: tables numbered by first use. Independent of
/// [`encode`](crate::formats::pprof::encode), because changes to its output would change the data set.
struct ReferencePprofWriter<'a> {
    world: &'a SyntheticProgram,
    out: Vec<u8>,
    texts: TextNumbering,
    location_ids: PrehashedMap<u64, u64>,
    locations: Vec<u8>,
    function_ids: PrehashedMap<u32, u64>,
    functions: Vec<u8>,
    mapping_ids: PrehashedMap<u32, u64>,
    mappings: Vec<u8>,
}

impl<'a> ReferencePprofWriter<'a> {
    fn new(world: &'a SyntheticProgram) -> Self {
        ReferencePprofWriter {
            world,
            out: Vec::with_capacity(1 << 19),
            texts: TextNumbering::default(),
            location_ids: PrehashedMap::default(),
            locations: Vec::new(),
            function_ids: PrehashedMap::default(),
            functions: Vec::new(),
            mapping_ids: PrehashedMap::default(),
            mappings: Vec::new(),
        }
    }
    fn value_type(&mut self, field: u64) {
        let mut content = Vec::new();
        write_number(&mut content, 1, self.texts.assign_number("cpu"));
        write_number(&mut content, 2, self.texts.assign_number("nanoseconds"));
        write_message(&mut self.out, field, &content);
    }
    fn sample(&mut self, stack: u32, value: i64) {
        let world = self.world;
        let path: Vec<u64> = world.stacks[stack as usize].iter().map(|&frame| self.location(frame)).collect();
        let mut content = Vec::new();
        write_packed(&mut content, 1, path.into_iter());
        write_packed(&mut content, 2, std::iter::once(value as u64));
        write_message(&mut self.out, 2, &content);
    }
    fn location(&mut self, frame: ProgramFrame) -> u64 {
        let key = u64::from(frame.function) << 32 | u64::from(frame.line);
        if let Some(&id) = self.location_ids.get(&key) {
            return id;
        }
        let id = self.location_ids.len() as u64 + 1;
        self.location_ids.insert(key, id);
        let mut content = Vec::new();
        let mut line = Vec::new();
        write_number(&mut line, 1, self.function(frame.function));
        write_number(&mut line, 2, u64::from(frame.line));
        let binary = self.world.functions[frame.function as usize].binary;
        write_number(&mut content, 1, id);
        write_number(&mut content, 2, self.mapping(binary));
        write_number(&mut content, 3, self.world.address(frame));
        write_message(&mut content, 4, &line);
        write_message(&mut self.locations, 4, &content);
        id
    }
    fn function(&mut self, function: u32) -> u64 {
        if let Some(&id) = self.function_ids.get(&function) {
            return id;
        }
        let id = self.function_ids.len() as u64 + 1;
        self.function_ids.insert(function, id);
        let code = &self.world.functions[function as usize];
        let mut content = Vec::new();
        write_number(&mut content, 1, id);
        write_number(&mut content, 2, self.texts.assign_number(&code.name));
        write_number(&mut content, 3, self.texts.assign_number(&code.name));
        write_number(&mut content, 4, self.texts.assign_number(&code.file));
        write_message(&mut self.functions, 5, &content);
        id
    }
    fn mapping(&mut self, binary: u32) -> u64 {
        if let Some(&id) = self.mapping_ids.get(&binary) {
            return id;
        }
        let id = self.mapping_ids.len() as u64 + 1;
        self.mapping_ids.insert(binary, id);
        let mut content = Vec::new();
        write_number(&mut content, 1, id);
        write_number(&mut content, 2, u64::from(binary) << 24);
        write_number(&mut content, 3, u64::from(binary + 1) << 24);
        write_number(&mut content, 5, self.texts.assign_number(&binary_file(binary)));
        write_number(&mut content, 6, self.texts.assign_number(&binary_build_id(binary)));
        for flag in 7..10 {
            write_number(&mut content, flag, 1);
        }
        write_message(&mut self.mappings, 3, &content);
        id
    }
    fn finish(mut self, time_nanos: i64) -> Vec<u8> {
        for table in [&self.mappings, &self.locations, &self.functions] {
            self.out.extend_from_slice(table);
        }
        for text in self.texts.iter() {
            write_message(&mut self.out, 6, text.as_bytes());
        }
        write_number(&mut self.out, 9, time_nanos as u64);
        write_number(&mut self.out, 10, STEP_NANOS as u64);
        self.value_type(11);
        write_number(&mut self.out, 12, PERIOD_NANOS as u64);
        self.out
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::OnceLock;

    use xxhash_rust::xxh3::Xxh3;

    use super::*;
    use crate::data_model::dropped_counts::DroppedCounts;
    use crate::formats::pprof::{self, DecodeLimits};

    fn set() -> &'static ReferenceDataset {
        static SET: OnceLock<ReferenceDataset> = OnceLock::new();
        SET.get_or_init(|| ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED))
    }

    fn hash(count: usize) -> u64 {
        let mut hash = Xxh3::new();
        set().profiles(count).for_each(|raw| hash.update(&raw));
        hash.digest()
    }

    /// Whoever changes these numbers makes all published figures incomparable.
    #[test]
    fn the_bytes_of_the_set_never_change() {
        assert_eq!(format!("{:016x}", hash(20)), "d0e6edc37d6c7cf0");
        if !cfg!(debug_assertions) {
            assert_eq!(format!("{:016x}", hash(ReferenceDataset::R_1K_PROFILES)), "7803cdcd8cb2f2be");
        }
    }

    #[test]
    fn the_means_are_those_of_the_recipe() {
        let (count, mut raw_bytes, mut gzip_bytes, mut locations, mut frames) = (40, 0, 0, 0, 0);
        let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::new(6).unwrap());
        for raw in set().profiles(count) {
            let mut packed = vec![0; deflate.gzip_compress_bound(raw.len())];
            gzip_bytes += deflate.gzip_compress(&raw, &mut packed).unwrap();
            raw_bytes += raw.len();
            let (profile, dropped) = pprof::decode(&raw, &DecodeLimits::default()).unwrap();
            assert_eq!(dropped, DroppedCounts::default());
            assert_eq!(profile.samples.len(), ROWS_PER_PROFILE);
            locations += profile.dictionary.symbols.locations().len();
            let stacks = &profile.dictionary.stacks;
            frames +=
                (0..ROWS_PER_PROFILE as u32).map(|stack| stacks.locations(stack).count()).sum::<usize>();
        }
        let samples = count * ROWS_PER_PROFILE;
        let within = |what: &str, seen: usize, wanted: usize| {
            println!("{what}: {seen}");
            assert!(seen.abs_diff(wanted) * 20 <= wanted, "{what}: {seen}, wanted {wanted} to 5 %");
        };
        within("raw bytes a sample", raw_bytes / samples, 475);
        within("gzipped bytes a sample", gzip_bytes / samples, 180);
        within("locations a profile", locations / count, 3_700);
        // Drawn with mean 22; a stack that would end within what it shares grows longer.
        within("frames a stack", frames / samples, 25);
    }

    #[test]
    fn names_and_stacks_are_within_the_recipe() {
        let world = &set().world;
        let lengths: Vec<usize> = world.functions.iter().map(|code| code.name.len()).collect();
        assert!(lengths.iter().all(|length| (10..=130).contains(length)));
        let mean = lengths.iter().sum::<usize>() / FUNCTION_COUNT;
        assert!((40..=60).contains(&mean), "{mean}");
        let names: BTreeSet<&str> = world.functions.iter().map(|code| code.name.as_str()).collect();
        assert_eq!(names.len(), FUNCTION_COUNT);
        assert_eq!(world.stacks.iter().collect::<BTreeSet<_>>().len(), STACK_COUNT);
        assert!(world.stacks.iter().all(|stack| (1..=64).contains(&stack.len())));
    }

    #[test]
    fn rows_bytes_and_profile_say_the_same() {
        let (profile, _) = pprof::decode(&set().pprof(7), &DecodeLimits::default()).unwrap();
        let made = set().profile(7);
        assert_eq!(profile.header, made.header);
        let by_hash = |profile: &Profile| -> BTreeSet<(u128, i64)> {
            let rows = profile.samples.rows(1);
            rows.map(|(stack, _, values)| (profile.dictionary.stacks.hash(stack), values[0])).collect()
        };
        assert_eq!(by_hash(&profile), by_hash(&made));
        let shared = set().dictionary();
        let rows = set().rows(7).into_iter();
        assert_eq!(by_hash(&made), rows.map(|(stack, value)| (shared.stacks.hash(stack), value)).collect());
    }

    #[test]
    fn popularity_drifts_one_percent_an_hour_after_three_hours() {
        assert!(set().drifted_ranks(2).is_none());
        let moved = |hour| {
            let drifted = set().drifted_ranks(hour).unwrap();
            (0..).zip(drifted).filter(|(rank, stack): &(u32, u32)| rank != stack).count()
        };
        assert!((110..=120).contains(&moved(3)), "{}", moved(3));
        assert!((1_000..=1_200).contains(&moved(12)), "{}", moved(12));
    }
}
