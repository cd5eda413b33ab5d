//! Blocks against a naive model on maps of strings: whatever the partition and the order of merging.
#![expect(clippy::unwrap_used, reason = "a test")]

use athanor_chassis::Tier;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[path = "oracle/naive.rs"]
mod naive;

use athanor_block::{
    Block, BlockBuilder, BlockError, BlockFolder, BlockOrigin, FORMAT_VERSION, JobOrigin, LogRange,
    META_FILE, MemoryFolder, MemoryProfiles, MergeOutput, MergeSource, PAGE_BYTES, PARQUET_FILES, ProfileRow,
    TenantBlock, TenantBlockSource, merge, merge_all, merge_into, merge_round_count, write_from_memory,
};
use athanor_chassis::compute::ComputePool;
use athanor_profile::analysis::top_table::TopTable;
use athanor_profile::call_tree::flamegraph::Flamegraph;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType, generate};
use proptest::prelude::*;

type Model = BTreeMap<(String, String), BTreeMap<Vec<String>, i64>>;

fn count(model: &mut Model, tenant: &str, profile: &Profile) {
    for (stack, _, values) in profile.samples.rows(profile.header.types.len()) {
        for (value, value_type) in values.iter().zip(&profile.header.types) {
            if *value != 0 {
                let totals = model.entry((tenant.into(), value_type.kind.clone())).or_default();
                let total = totals.entry(profile.dictionary.frame_names(stack)).or_default();
                *total = total.wrapping_add(*value);
            }
        }
    }
}

/// Moments by tenant, kind of value and stack, ascending.
type Times = BTreeMap<(String, String, Vec<String>), Vec<i64>>;

fn count_moments(times: &mut Times, tenant: &str, profile: &Profile) {
    let rows = profile.samples.rows(profile.header.types.len()).enumerate();
    for (row, (stack, _, values)) in
        rows.filter(|(row, _)| !profile.samples.moments.row_timestamps(*row).is_empty())
    {
        for (_, of) in values.iter().zip(&profile.header.types).filter(|(value, _)| **value != 0) {
            let key = (tenant.to_owned(), of.kind.clone(), profile.dictionary.frame_names(stack));
            let of_key = times.entry(key).or_default();
            of_key.extend(profile.samples.moments.row_timestamps(row));
            of_key.sort_unstable();
        }
    }
}

fn read_moments(block: &Block) -> Times {
    let mut all = Times::new();
    for part in block.tenant_blocks() {
        let (names, profiles) = (part.read_names().unwrap(), part.read_all_profiles().unwrap());
        for (place, of) in (0u32..).zip(&part.read_series().unwrap()) {
            let ranges = TenantBlock::sample_ranges(&profiles, |profile| profile.series == place);
            part.read_timestamps(&ranges, |stack, times| {
                let frames = names.dictionary.frame_names(names.stacks[stack as usize]);
                let key = (part.meta.tenant.clone(), of.value_type.kind.clone(), frames);
                all.entry(key).or_default().extend(times);
            })
            .unwrap();
        }
    }
    all.values_mut().for_each(|times| times.sort_unstable());
    all
}

/// What a block says, by samples and by roll-up, which must agree.
fn read(block: &Block) -> Model {
    let mut model = Model::new();
    for part in block.tenant_blocks() {
        let names = part.read_names().unwrap();
        let series = part.read_series().unwrap();
        let profiles = part.read_all_profiles().unwrap();
        for (place, of) in (0u32..).zip(&series) {
            let ranges = TenantBlock::sample_ranges(&profiles, |profile| profile.series == place);
            let totals = part.sum_by_stack(&ranges, &ComputePool::inline()).unwrap();
            assert_eq!(totals, part.sum_rollup(|at| at == place).unwrap());
            let sums = model.entry((part.meta.tenant.clone(), of.value_type.kind.clone())).or_default();
            for (stack, total) in totals.into_iter().enumerate().filter(|(_, total)| *total != 0) {
                let sum = sums.entry(names.dictionary.frame_names(names.stacks[stack])).or_default();
                *sum = sum.wrapping_add(total);
            }
        }
    }
    clean(model)
}

fn clean(mut model: Model) -> Model {
    model.values_mut().for_each(|totals| totals.retain(|_, total| *total != 0));
    model.retain(|_, totals| !totals.is_empty());
    model
}

fn build(inputs: &[(usize, Profile)], budget: usize) -> MemoryFolder {
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("test", DecodeLimits::default(), budget, &mut scratch);
    for (number, profile) in inputs {
        builder.add_pprof(tenant(*number), &labels(*number), &encode(profile)).unwrap();
    }
    let folder = MemoryFolder::default();
    builder.finish(&folder).unwrap();
    folder
}

fn tenant(number: usize) -> &'static str {
    ["acme", "globex"][number % 2]
}

fn labels(number: usize) -> Labels {
    let pod = format!("pod-{}", number % 3);
    Labels::new([("pod".into(), pod), ("service_name".into(), format!("service-{}", number % 2))])
}

fn open(folder: &MemoryFolder) -> Block {
    Block::open(Arc::new(folder.clone())).unwrap()
}

fn inputs(seeds: &[u64]) -> Vec<(usize, Profile)> {
    let profile = |(number, &seed): (usize, &u64)| {
        let mut profile = generate::arbitrary_profile(seed);
        profile.header.time_nanos = 1_700_000_000_000_000_000 + number as i64;
        (number, profile)
    };
    seeds.iter().enumerate().map(profile).collect()
}

/// So many blocks at most come again in a later merge.
const STAY: usize = 4;

/// Merges blocks in some tree of merges: `picks` says which two or three come next, and whether one comes again.
fn merged(mut blocks: Vec<Block>, picks: &[prop::sample::Index]) -> Block {
    let mut picks = picks.iter().cycle();
    let mut pick = |length: usize| picks.next().unwrap().index(length);
    let mut stayed = 0;
    while blocks.len() > 1 {
        let mut round = Vec::new();
        for _ in 0..2 + pick(2) {
            if !blocks.is_empty() {
                round.push(blocks.swap_remove(pick(blocks.len())));
            }
        }
        // Equal ids count once, wherever they come again. Few stay to come again, or it would never end.
        match pick(3) {
            0 => round.push(round[0].clone()),
            1 if stayed < STAY => {
                blocks.push(round[0].clone());
                stayed += 1;
            }
            _ => {}
        }
        let folder = MemoryFolder::default();
        merge(&folder, "merged", &round).unwrap();
        blocks.push(open(&folder));
    }
    blocks.remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_partition_merged_in_any_order_equals_the_model(
        seeds in prop::collection::vec(0u64..500, 1..12),
        groups in prop::collection::vec(0usize..6, 12),
        order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 24),
        budget in prop::sample::select(vec![0usize, 20_000, 1 << 30]),
    ) {
        let inputs = inputs(&seeds);
        let mut model = Model::new();
        inputs.iter().for_each(|(number, profile)| count(&mut model, tenant(*number), profile));
        let model = clean(model);
        let mut parts: Vec<Vec<(usize, Profile)>> = vec![Vec::new(); 6];
        for place in order.into_iter().filter(|&place| place < inputs.len()) {
            parts[groups[place]].push(inputs[place].clone());
        }
        let blocks = parts.iter().map(|part| open(&build(part, budget))).collect();
        let whole = merged(blocks, &picks);
        whole.verify(|_| {}).unwrap();
        prop_assert_eq!(read(&whole), model.clone());
        let mut times = Times::new();
        inputs.iter().for_each(|(number, profile)| count_moments(&mut times, tenant(*number), profile));
        prop_assert_eq!(read_moments(&whole), times);
        for ((tenant, kind), totals) in &model {
            let tree = tree(&whole, tenant, kind);
            let sum = totals.values().fold(0i64, |sum, &total| sum.wrapping_add(total));
            prop_assert_eq!(tree.total(), sum, "{} of {}", kind, tenant);
            prop_assert_eq!(table(&tree), naive::table(totals), "{} of {}", kind, tenant);
            let graph = Flamegraph::from_tree(&tree);
            prop_assert_eq!(graph.total, sum, "{} of {}", kind, tenant);
            prop_assert_eq!(naive::bars_of(&graph), naive::bars(totals), "{} of {}", kind, tenant);
        }
    }
}

/// A copy of an upload: the upload, the pod that label rules made of its labels, and the block that holds the copy.
type UploadCopy = (usize, usize, usize);

/// Labels after the rules of some day: series of one service are ordered by pod.
fn labels_of_pod(pod: usize) -> Labels {
    Labels::new([("pod".into(), format!("pod-{pod}")), ("service_name".into(), "shop".into())])
}

/// A block of copies of uploads, as a head writes it.
fn block_of_copies<'c>(copies: impl Iterator<Item = &'c UploadCopy>) -> Block {
    let mut source = MemorySource::default();
    for &(upload, pod, _) in copies {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds"), ValueType::new("samples", "count")];
        profile.header.time_nanos = 1_700_000_000_000_000_000 - upload as i64;
        let stack = profile.dictionary.intern_named_stack(["main", &format!("f{upload}")].into_iter());
        profile.samples.push(stack, 0, &[2 << upload, 1]);
        source.add(&labels_of_pod(pod), &profile, upload as u128);
    }
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "copies", None, [("acme", &source as &dyn MemoryProfiles)].into_iter())
        .unwrap();
    open(&folder)
}

/// What a block holds of each pod: the sums of its profiles, ascending.
fn sums_by_pod(block: &Block) -> BTreeMap<String, Vec<i64>> {
    let mut sums: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for part in block.tenant_blocks() {
        let (series, totals) = (part.read_series().unwrap(), part.read_profile_totals().unwrap());
        for (row, total) in part.read_all_profiles().unwrap().iter().zip(totals) {
            let pod = series[row.series as usize].labels().get("pod").unwrap();
            sums.entry(pod.to_owned()).or_default().push(total);
        }
        let in_use: BTreeSet<u32> = part.read_all_profiles().unwrap().iter().map(|row| row.series).collect();
        assert_eq!(in_use.len(), series.len(), "each series has a profile");
    }
    sums.values_mut().for_each(|sums| sums.sort_unstable());
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// INV-20: an id hashes labels as sent, so copies of one profile may lie in several series.
    #[test]
    fn copies_of_an_upload_in_several_series_are_merged_to_one(
        copies in prop::collection::vec((0usize..5, 0usize..3, 0usize..4), 1..16),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 24),
    ) {
        let in_block = |number: usize| copies.iter().filter(move |copy| copy.2 == number);
        let blocks: Vec<Block> = (0..4).map(|number| block_of_copies(in_block(number))).collect();
        let whole = merged(blocks, &picks);
        whole.verify(|_| {}).unwrap();
        let mut uploads = BTreeSet::new();
        for (pod, sums) in sums_by_pod(&whole) {
            // Each upload has a profile of its counts, 1, and one of its times.
            let times: Vec<i64> = sums.iter().copied().filter(|sum| *sum > 1).collect();
            prop_assert_eq!(sums.len(), 2 * times.len());
            for time in times {
                let upload = time.trailing_zeros() as usize - 1;
                prop_assert!(uploads.insert(upload), "upload {} counts once", upload);
                let is_copy = |copy: &UploadCopy| copy.0 == upload && labels_of_pod(copy.1).get("pod") == Some(pod.as_str());
                prop_assert!(copies.iter().any(is_copy));
            }
        }
        prop_assert_eq!(uploads, copies.iter().map(|copy| copy.0).collect());
    }
}

/// The tree of one tenant and kind of value, as queries make it.
fn tree(block: &Block, tenant: &str, kind: &str) -> Tree {
    let part = TenantBlockSource::new(Arc::new(block.clone()), tenant, ComputePool::inline()).unwrap();
    let (series, profiles) = (part.series().unwrap(), part.profiles().unwrap());
    let of_kind = |row: &ProfileRow| series[row.series as usize].value_type.kind == kind;
    let picked: Vec<u32> =
        (0..).zip(profiles.iter()).filter(|(_, row)| of_kind(row)).map(|(at, _)| at).collect();
    part.tree(&part.totals(&picked).unwrap()).unwrap()
}

/// Flat and cumulative value by function. One whose stacks cancel out may be there or not.
fn table(tree: &Tree) -> BTreeMap<String, (i64, i64)> {
    let rows = TopTable::from_tree(tree).rows.into_iter().map(|row| (row.name, (row.flat, row.cum)));
    rows.filter(|(_, weights)| *weights != (0, 0)).collect()
}

/// Names count as rows do: a file of one sample may bring a megabyte of them.
#[test]
fn the_names_that_are_held_count_in_the_budget() {
    let inputs: Vec<(usize, Profile)> = (0..40)
        .map(|number| {
            let mut profile = Profile::default();
            profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
            let names: Vec<String> =
                (0..100).map(|at| format!("{number}-{at}-{}", "x".repeat(1000))).collect();
            let stack = profile.dictionary.intern_named_stack(names.iter().map(String::as_str));
            profile.samples.push(stack, 0, &[1]);
            (0, profile)
        })
        .collect();
    let mut runs = Vec::new();
    let mut scratch = || {
        runs.push(MemoryFolder::default());
        Ok(Arc::new(runs[runs.len() - 1].clone()) as Arc<dyn BlockFolder>)
    };
    let mut builder = BlockBuilder::new("names", DecodeLimits::default(), 1 << 20, &mut scratch);
    for (number, profile) in &inputs {
        builder.add_pprof(tenant(*number), &labels(*number), &encode(profile)).unwrap();
    }
    let folder = MemoryFolder::default();
    builder.finish(&folder).unwrap();
    // Four megabytes of names. A run of one megabyte holds half of it at least: lists grow by doubling, and count as
    // large as they are.
    assert!((4..=8).contains(&runs.len()), "{} runs", runs.len());
    assert_eq!(read(&open(&folder)), read(&open(&build(&inputs, 1 << 30))));
}

#[test]
fn equal_inputs_make_equal_bytes() {
    let inputs = inputs(&[1, 2, 3]);
    let (one, two) = (build(&inputs, 1 << 30), build(&inputs, 1 << 30));
    for file in PARQUET_FILES.iter().chain([&META_FILE]) {
        let length = one.length(file).unwrap() as usize;
        assert_eq!(
            one.read(file, 0, length).unwrap(),
            two.read(file, 0, two.length(file).unwrap() as usize).unwrap()
        );
    }
}

#[test]
fn more_blocks_than_the_fan_in_merge_in_rounds() {
    let inputs = inputs(&(0..70).collect::<Vec<_>>());
    let blocks = inputs.chunks(1).map(|one| open(&build(one, 1 << 30))).collect();
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let folder = MemoryFolder::default();
    let mut read_so_far = 0;
    merge_all(&folder, "all", blocks, &mut scratch, &mut |samples| read_so_far += samples).unwrap();
    assert_eq!((merge_round_count(70), merge_round_count(32), merge_round_count(0)), (2, 1, 1));
    assert_eq!(read_so_far, 2 * open(&folder).meta().samples());
    assert_eq!(read(&open(&folder)), read(&open(&build(&inputs, 1 << 30))));
}

#[test]
fn any_flipped_bit_is_found_and_named() {
    let folder = build(&inputs(&[5, 6, 7, 8]), 1 << 30);
    for file in PARQUET_FILES {
        let length = folder.length(file).unwrap() as usize;
        for at in (0..length).step_by((length / 61).max(1)).chain([length - 1]) {
            folder.tamper(file, |bytes| bytes[at] ^= 1 << (at % 8));
            let error = open(&folder).verify(|_| {}).unwrap_err();
            let page = (at / PAGE_BYTES * PAGE_BYTES) as u64;
            assert!(
                matches!(&error, BlockError::Damaged { file: named, from, .. } if named == file && *from == page),
                "{file} byte {at}: {error}"
            );
            folder.tamper(file, |bytes| bytes[at] ^= 1 << (at % 8));
        }
    }
    let length = folder.length(META_FILE).unwrap() as usize;
    for at in 0..length {
        folder.tamper(META_FILE, |bytes| bytes[at] ^= 1);
        assert!(Block::open(Arc::new(folder.clone())).is_err(), "meta.json byte {at}");
        folder.tamper(META_FILE, |bytes| bytes[at] ^= 1);
    }
    open(&folder).verify(|_| {}).unwrap();
}

fn refusal(folder: &MemoryFolder) -> String {
    let verified = Block::open(Arc::new(folder.clone())).and_then(|block| block.verify(|_| {}));
    verified.unwrap_err().to_string()
}

#[test]
fn cut_mixed_missing_and_newer_blocks_are_refused_by_file_and_reason() {
    let fresh = || build(&inputs(&[5, 6]), 1 << 30);
    let cut = fresh();
    cut.tamper("samples.parquet", |bytes| bytes.truncate(bytes.len() - 1));
    assert!(refusal(&cut).starts_with("samples.parquet has "), "{}", refusal(&cut));

    let other = build(&inputs(&[9, 10, 11]), 1 << 30);
    let mixed = fresh();
    let length = other.length("stacks.parquet").unwrap() as usize;
    let foreign = other.read("stacks.parquet", 0, length).unwrap();
    mixed.tamper("stacks.parquet", |bytes| *bytes = foreign.to_vec());
    assert!(refusal(&mixed).contains("stacks.parquet"), "{}", refusal(&mixed));

    let newer = fresh();
    let mut meta = open(&newer).meta().clone();
    meta.format = FORMAT_VERSION + 1;
    newer.tamper(META_FILE, |bytes| *bytes = meta.encode());
    let said =
        format!("block has format {}, this version reads formats up to {FORMAT_VERSION}", FORMAT_VERSION + 1);
    assert!(refusal(&newer).contains(&said), "{}", refusal(&newer));

    let missing = MemoryFolder::default();
    assert!(Block::open(Arc::new(missing)).err().unwrap().to_string().starts_with("meta.json: "));
}

/// Its `meta.json` did not say how files end.
#[test]
fn a_block_of_the_first_format_is_read_as_ever() {
    let folder = build(&inputs(&[5, 6]), 1 << 30);
    let expected = read(&open(&folder));
    let mut meta = open(&folder).meta().clone();
    assert!(meta.files.values().all(|file| !file.tail.is_empty()));
    meta.format = 1;
    meta.tenants.iter_mut().for_each(|part| part.sum = None);
    for file in meta.files.values_mut() {
        file.tail.clear();
        file.tail_bytes = 0;
    }
    folder.tamper(META_FILE, |bytes| *bytes = meta.encode());
    assert!(!String::from_utf8_lossy(&meta.encode()).contains("tail"));
    let block = open(&folder);
    assert_eq!(read(&block), expected);
    block.verify(|_| {}).unwrap();
}

#[test]
fn a_name_is_never_written_twice() {
    let folder = build(&inputs(&[1]), 1 << 30);
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let builder = BlockBuilder::new("again", DecodeLimits::default(), 1 << 30, &mut scratch);
    assert!(builder.finish(&folder).unwrap_err().to_string().starts_with("series.parquet: "));
}

#[test]
fn the_same_upload_counts_once_and_another_of_equal_labels_and_time_counts() {
    let inputs = inputs(&[3]);
    let (number, mut profile) = inputs[0].clone();
    let twice = [(number, profile.clone()), (number, profile.clone())];
    assert_eq!(read(&open(&build(&twice, 1 << 30))), read(&open(&build(&inputs, 1 << 30))));
    profile.samples.values.iter_mut().for_each(|value| *value = value.wrapping_mul(3));
    let different = [inputs[0].clone(), (number, profile)];
    let merged = open(&build(&different, 1 << 30));
    let mut model = Model::new();
    different.iter().for_each(|(number, profile)| count(&mut model, tenant(*number), profile));
    assert_eq!(read(&merged), clean(model));
}

#[test]
fn the_index_names_the_services_that_call_a_function() {
    let inputs = inputs(&[1, 2, 3, 4, 5, 6]);
    let block = open(&build(&inputs, 1 << 30));
    let mut expected: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (number, profile) in &inputs {
        for (stack, _, values) in profile.samples.rows(profile.header.types.len()) {
            let symbols = &profile.dictionary.symbols;
            let lines =
                profile.dictionary.stacks.locations(stack).flat_map(|location| symbols.lines(location));
            let names = lines.map(|line| symbols.function_name(line.function).to_owned());
            for name in names.filter(|_| values.iter().any(|&v| v != 0)) {
                let services = expected.entry((tenant(*number).into(), name)).or_default();
                services.push(labels(*number).get("service_name").unwrap().to_owned());
            }
        }
    }
    for ((tenant, function), mut services) in expected {
        services.sort();
        services.dedup();
        let part = block.tenant_block(&tenant).unwrap();
        assert_eq!(part.services_calling(&function).unwrap(), services, "{tenant} {function}");
        assert!(part.services_calling("no such function").unwrap().is_empty());
    }
}

/// Each tenant's rows in a block of its own are what they are in one of all, and a block says what it was made of.
#[test]
fn what_is_made_of_blocks_may_be_one_for_each_tenant() {
    let inputs = inputs(&[1, 2, 3, 4, 5, 6]);
    let blocks: Vec<Block> = inputs.chunks(2).map(|part| open(&build(part, 1 << 30))).collect();
    let range = |shard| LogRange { shard, epoch: 1, from: 0, to: 9 };
    let origin = BlockOrigin {
        cluster: "c".to_owned(),
        shard: 1,
        epoch: 1,
        from: 0,
        to: 9,
        lost: 0,
        level: 1,
        additional_ranges: vec![range(2)],
        tier: Tier::Raw,
        is_covered: false,
        job: Some(JobOrigin {
            token: 3,
            outputs: vec!["made".to_owned()],
            blocks: vec!["one".to_owned(), "two".to_owned()],
            tenants: BTreeMap::from([("acme".to_owned(), vec![0, 1])]),
        }),
    };
    let made = |tenants: Option<&[&str]>, origin: &BlockOrigin| {
        let tenants = tenants.map(|tenants| tenants.iter().map(|&tenant| tenant.to_owned()).collect());
        let making = MergeOutput {
            id: "made".to_owned(),
            origin: Some(origin.clone()),
            tenants,
            ..MergeOutput::default()
        };
        let folder = MemoryFolder::default();
        let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
        let sources = blocks.iter().cloned().map(MergeSource::from).collect();
        merge_into(&folder, &making, sources, &mut scratch, &mut |_| ()).unwrap();
        Block::open(Arc::new(folder))
    };
    let mut apart = Model::new();
    for tenant in ["acme", "globex"] {
        let block = made(Some(&[tenant]), &origin).unwrap();
        assert_eq!(block.meta().origin.as_ref(), Some(&origin));
        assert!(block.meta().tenants.iter().all(|part| part.tenant == tenant));
        apart.extend(read(&block));
    }
    assert_eq!(apart, read(&made(None, &origin).unwrap()));
    let nothing = BlockOrigin { job: None, ..origin };
    let Err(refused) = made(None, &nothing) else { panic!("a block of level 1 is made of others") };
    assert!(refused.to_string().contains("no merge job"), "{refused}");
}
