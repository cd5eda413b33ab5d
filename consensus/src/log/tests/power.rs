//! The power fails at any operation; what was acknowledged is there, what was not is there wholly or not at all.

use athanor_chassis::ComputePool;

use super::*;

/// What one seed did, in short, to be compared with a second run of it.
#[derive(Debug, Default, PartialEq)]
struct Story {
    acknowledged: u64,
    operations: u64,
    cuts: u64,
    held: Vec<GroupLogState>,
}

fn lives(seed: u64) -> Story {
    let random = Random::from_seed(seed);
    let mut disk = MemoryDisk::new();
    // What may be found: after the last acknowledged batch, and after each one handed in since.
    let mut possible = vec![Models::new()];
    let mut story = Story::default();
    let config = if seed.is_multiple_of(2) { growing() } else { config() };
    for life in 0..6 {
        let Ok((log, recovery)) = try_open_with(&disk, &config) else {
            disk = disk.crash(random.next_u64());
            continue;
        };
        assert_eq!(recovery.damage, vec![], "seed {seed} life {life} of {:?}", disk.list());
        story.cuts += u64::from(recovery.cut.is_some());
        let differences: Vec<_> = possible.iter().map(|models| differs(&log, models)).collect();
        let Some(found) = differences.iter().position(Option::is_none) else {
            panic!("seed {seed} life {life}: {differences:?}");
        };
        possible = vec![possible.swap_remove(found)];
        disk.lose_power_after(5 + random.next_below(250));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let mut known = 0;
        for _ in 0..random.next_below(150) {
            let mut models = possible.last().unwrap().clone();
            let records = step(&models, &random, life + 1);
            let seen = Arc::clone(&acknowledged);
            let done = move |done: Result<(), LogError>| {
                seen.fetch_add(usize::from(done.is_ok()), Ordering::SeqCst);
            };
            if log.submit(records.clone(), done).is_err() {
                break;
            }
            apply(&mut models, &records);
            possible.push(models);
            match random.next_below(8) {
                0 | 1 => continue,
                2 => log.attest(),
                _ => {}
            }
            while log.commit_once() {}
            let now = acknowledged.load(Ordering::SeqCst);
            story.acknowledged += (now - known) as u64;
            possible.drain(..now - known);
            known = now;
        }
        // The process dies as it stands: the old handles do nothing any more.
        disk = match random.next_below(5) {
            0 => disk.restart(),
            _ => disk.crash(random.next_u64()),
        };
        drop(log);
    }
    story.operations = disk.operations();
    let (log, _) = try_open_with(&disk, &config).unwrap();
    story.held = log.groups().into_iter().map(|group| log.group_state(group)).collect();
    story
}

#[test]
fn what_was_acknowledged_survives_any_loss_of_power() {
    let seeds = 2_000;
    let random = ComputePool::with_threads(std::num::NonZeroUsize::new(2).unwrap(), 2).unwrap();
    let stories = random.map((1..=seeds).collect(), lives).unwrap();
    let sum = |of: fn(&Story) -> u64| stories.iter().map(of).sum::<u64>();
    // A simulation in which nothing happens proves nothing.
    assert!(sum(|story| story.acknowledged) > 100 * seeds, "{}", sum(|story| story.acknowledged));
    assert!(sum(|story| story.cuts) > seeds / 10, "{}", sum(|story| story.cuts));
}

#[test]
fn one_seed_is_one_story() {
    for seed in [3, 4, 5] {
        assert_eq!(lives(seed), lives(seed));
    }
    assert_ne!(lives(3), lives(4));
}
