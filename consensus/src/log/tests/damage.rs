//! Rot: one bit, anywhere in what is durable and attested. It is named, or it hurts nobody; never is it silent.

use super::*;

type Lost = [(u32, u64, u64)];

fn segments(disk: &MemoryDisk) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.ends_with(".log")).collect()
}

fn filled(random: &Random) -> (MemoryDisk, Models) {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    let mut models = Models::new();
    for _ in 0..30 + random.next_below(120) {
        let records = step(&models, random, 1);
        apply(&mut models, &records);
        must(&log, records);
        if random.next_below(10) == 0 {
            log.attest();
        }
    }
    log.close();
    (disk.restart(), models)
}

/// Every group that is not named as hurt is whole; every entry of one that is, is right or said to be lost.
fn check(log: &Log, recovery: &LogRecoveryReport, models: &Models, seed: u64) {
    let all = recovery.damage.iter().any(|damage| damage.hurt == DamageScope::All);
    for (group, model) in models {
        let held = log.group_state(*group);
        if !held.hurt {
            assert_eq!(model.differs(log, *group), None, "seed {seed}: {recovery:?}");
        }
        if all {
            assert!(held.hurt);
            continue;
        }
        for (index, (term, data)) in &model.entries {
            match log.read(*group, *index) {
                Ok(Some(found)) => assert_eq!((&found.data, found.term), (data, *term), "seed {seed}"),
                Err(LogReadError::Lost { .. }) => {
                    let named =
                        held.lost.iter().any(|(first, count)| (*first..first + count).contains(index));
                    assert!(named, "seed {seed}: {index} of {held:?}");
                }
                other => {
                    panic!("seed {seed}: group {group} entry {index}: {other:?}, {recovery:?}, {held:?}")
                }
            }
        }
    }
}

#[test]
fn each_flip_is_named_or_hurts_nobody() {
    let (mut named, mut unknown) = (0, 0);
    for seed in 0..1_500 {
        let random = Random::from_seed(seed);
        let (disk, models) = filled(&random);
        let files = segments(&disk);
        let file = &files[random.next_below(files.len() as u64) as usize];
        // Where frames are, mostly: beginnings of blocks hold heads and tables.
        let block = random.next_below(SEGMENT / 4096) * 4096;
        let inside = if random.next_below(2) == 0 { random.next_below(200) } else { random.next_below(4096) };
        assert!(disk.flip_bit(file, block + inside, random.next_below(8) as u8));
        let (log, recovery) = open(&disk);
        assert_eq!(
            recovery.cut.filter(|_| recovery.damage.is_empty() && differs(&log, &models).is_some()),
            None
        );
        check(&log, &recovery, &models, seed);
        for damage in &recovery.damage {
            match damage.hurt {
                DamageScope::All => unknown += 1,
                DamageScope::Groups(_) => named += 1,
            }
        }
        // It stays known, whatever happens to the segment that was hurt.
        let hurt: Vec<_> = log.groups().into_iter().filter(|group| log.group_state(*group).hurt).collect();
        let next = log.group_state(1).end.max(1);
        for index in next..next + 60 {
            must(&log, vec![entry(1, index, 9, 3_000)]);
            must(&log, vec![LogRecord::Purge { group: 1, index, term: 9 }]);
        }
        log.close();
        drop(log);
        let (log, recovery) = open(&disk.restart());
        assert!(hurt.iter().all(|group| log.group_state(*group).hurt), "seed {seed}");
        let _ = recovery;
    }
    assert!(named > 300 && unknown > 10, "{named} named, {unknown} unknown");
}

#[test]
fn flips_of_known_parts_name_what_they_hurt() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    for index in 1..=8 {
        must(&log, vec![entry(1, index, 1, 3_000), entry(2, index, 1, 500)]);
    }
    log.close();
    let disk = disk.restart();
    // Frame n begins at block n - 1; its table has rows for what came before, too.
    let frame = |number: u64| (number - 1) * 4096;
    let cases: [(u64, u64, &Lost); 4] = [
        (3, 1_000, &[(1, 3, 1)]),
        (3, 3_500, &[(2, 3, 1)]),
        (3, 8, &[(1, 3, 1), (2, 3, 1)]),
        (8, 2_000, &[(1, 8, 1)]),
    ];
    for (number, offset, hurt) in cases {
        disk.flip_bit("000000000001.log", frame(number) + offset, 3);
        let (log, recovery) = open(&disk);
        let at = SEGMENT + frame(number)..SEGMENT + frame(number + 1);
        assert_eq!(recovery.damage, [LogDamage { at, hurt: DamageScope::Groups(hurt.to_vec()) }]);
        for (group, index, _) in hurt {
            assert!(matches!(log.read(*group, *index), Err(LogReadError::Lost { .. })));
            assert!(log.group_state(*group).hurt);
        }
        assert_eq!((log.group_state(1).last, log.group_state(2).last), (Some((8, 1)), Some((8, 1))));
        drop(log);
        disk.flip_bit("000000000001.log", frame(number) + offset, 3);
    }
}

/// Whoever must not vote is known though the segment that showed why was given away before the next one was begun.
#[test]
fn a_loss_outlives_the_segment_that_showed_it() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    for index in 1..=20 {
        must(&log, vec![entry(1, index, 1, 3_000)]);
    }
    log.close();
    let disk = disk.restart();
    disk.flip_bit("000000000001.log", 2 * 4096 + 1_000, 3);
    let (log, recovery) = open(&disk);
    assert_eq!((recovery.damage.len(), log.group_state(1).hurt), (1, true));
    must(&log, vec![LogRecord::Purge { group: 1, index: 19, term: 1 }]);
    drop(log);
    assert_eq!(segments(&disk), ["000000000002.log"]);
    let (log, recovery) = open(&disk.restart());
    assert_eq!((recovery.damage, log.group_state(1).hurt), (vec![], true));
}

#[test]
fn the_last_commit_is_a_torn_tail_until_it_is_attested() {
    for attested in [false, true] {
        let disk = MemoryDisk::new();
        let (log, _) = open(&disk);
        must(&log, vec![entry(1, 1, 1, 100)]);
        must(&log, vec![entry(1, 2, 1, 100)]);
        if attested {
            log.attest();
        }
        let after = disk.restart();
        drop(log);
        after.flip_bit("000000000001.log", 4096 + 150, 3);
        let (log, recovery) = open(&after);
        assert_eq!((recovery.cut.is_some(), recovery.damage.len()), (!attested, usize::from(attested)));
        assert_eq!(log.group_state(1).hurt, attested);
    }
}

#[test]
fn a_segment_that_is_gone_is_a_loss() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    for index in 1..=60 {
        must(&log, vec![entry(1, index, 1, 6_000)]);
    }
    log.close();
    let disk = disk.restart();
    disk.remove("000000000002.log").unwrap();
    let (log, recovery) = open(&disk);
    assert_eq!(recovery.damage.iter().map(|damage| &damage.hurt).collect::<Vec<_>>(), [&DamageScope::All]);
    let held = log.group_state(1);
    assert_eq!((held.first, held.end, held.hurt), (1, 61, true));
    assert!(log.read(1, 1).unwrap().is_some() && log.read(1, 60).unwrap().is_some());
    let lost =
        (1..=60).filter(|index| matches!(log.read(1, *index), Err(LogReadError::Lost { .. }))).count() as u64;
    assert_eq!((lost > 3, held.lost.iter().map(|(_, count)| count).sum::<u64>()), (true, lost));
}

#[test]
fn a_lying_disk_is_found_out() {
    let mut found = 0;
    for seed in 0..200 {
        let random = Random::from_seed(seed);
        let disk = MemoryDisk::new();
        let (log, _) = open(&disk);
        let mut models = Models::new();
        for number in 0..20 {
            if number == 5 + random.next_below(10) {
                disk.lose_writes(1);
            }
            let records = step(&models, &random, 1);
            apply(&mut models, &records);
            must(&log, records);
        }
        log.attest();
        must(&log, vec![LogRecord::State { group: 7, data: "end".into() }]);
        let disk = disk.crash(seed);
        drop(log);
        let (log, recovery) = open(&disk);
        check(&log, &recovery, &models, seed);
        found += usize::from(!recovery.damage.is_empty());
    }
    assert!(found > 50, "{found}");
}
