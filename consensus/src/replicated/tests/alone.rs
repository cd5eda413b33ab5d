//! A single voter: what it acknowledged is there, once, whatever happened.
#![expect(clippy::disallowed_methods, reason = "members wait on raft's time")]

use athanor_chassis::disk::DiskError;
use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt};

use super::*;

async fn open(disk: &MemoryDisk, seed: u64) -> Result<RaftGroup<Numbers>, String> {
    let (log, recovery) = open_log(disk, 1).map_err(|error| error.to_string())?;
    assert_eq!(recovery.damage, vec![], "seed {seed}");
    let deps = deps(log, disk, 1, seed, None);
    RaftGroup::open(&deps, 3, GroupBootstrap::single_voter(1), Numbers::default())
        .await
        .map_err(|error| error.to_string())
}

#[derive(Debug, Default, PartialEq)]
struct Story {
    acknowledged: Vec<(u64, u64)>,
    compacted: u64,
    failed: u64,
    operations: u64,
}

/// One process: proposes until the power goes. Says what was acknowledged.
async fn live(disk: &MemoryDisk, random: &Random, seed: u64, story: &mut Story) {
    let Ok(group) = open(disk, seed).await else {
        story.failed += 1;
        return;
    };
    group.with_state_machine(|numbers| {
        for acknowledged in &story.acknowledged {
            let times = numbers.kept.iter().filter(|kept| *kept == acknowledged).count();
            assert_eq!(times, 1, "seed {seed}: {acknowledged:?} in {:?}", numbers.kept);
        }
        assert!(numbers.kept.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "seed {seed}: {:?}", numbers.kept);
    });
    // Numbers are never used again, acknowledged or not.
    let first = group.with_state_machine(|numbers| numbers.kept.last().map_or(0, |(_, number)| *number)) + 1;
    if random.next_below(4) > 0 {
        disk.lose_power_after(random.next_below(60));
    }
    for next in first..first + random.next_below(40) {
        let number = if random.next_below(8) == 0 { CUT } else { next };
        match group.propose(entry(number)).await {
            Ok((index, _)) if number != CUT => story.acknowledged.push((index, number)),
            Ok((index, _)) if random.next_below(2) == 0 => {
                story.compacted += u64::from(group.compact(index).await.is_ok());
            }
            Ok(_) => {}
            Err(error) => {
                assert!(error.to_string().contains("lost power"), "seed {seed}: {error}");
                story.failed += 1;
                break;
            }
        }
    }
    if random.next_below(4) == 0 {
        group.shutdown().await;
    }
}

fn lives(seed: u64) -> Story {
    let random = Random::from_seed(seed);
    let mut disk = MemoryDisk::new();
    let mut story = Story::default();
    for _ in 0..5 {
        simulate(live(&disk, &random, seed, &mut story));
        disk = disk.crash(random.next_u64());
    }
    story.operations = disk.operations();
    story
}

#[test]
fn what_was_acknowledged_is_there_once_after_any_loss_of_power() {
    let (mut acknowledged, mut compacted, mut failed) = (0, 0, 0);
    for seed in 0..400 {
        let story = lives(seed);
        acknowledged += story.acknowledged.len();
        compacted += story.compacted;
        failed += story.failed;
    }
    assert!(acknowledged > 8_000 && compacted > 300 && failed > 400, "{acknowledged} {compacted} {failed}");
}

#[test]
fn one_seed_is_one_story() {
    for seed in [1, 2] {
        assert_eq!(lives(seed), lives(seed));
    }
}

#[test]
fn a_failed_sync_ends_the_group_with_its_reason() {
    simulate(async {
        let disk = MemoryDisk::new();
        let group = open(&disk, 1).await.unwrap();
        let (index, count) = group.propose(entry(5)).await.unwrap();
        assert_eq!((count, group.read_index().await.unwrap()), (1, index));
        assert_eq!(group.failure(), None);
        disk.fail_syncs(1);
        let error = group.propose(entry(6)).await.unwrap_err();
        assert!(
            matches!(&error, ProposeError::Failed { cause } if cause.contains("failed to sync")),
            "{error}"
        );
        let error = group.propose(entry(7)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal);
        assert!(group.failure().is_some_and(|cause| cause.contains("failed to sync")));
        assert_eq!(group.with_state_machine(|numbers| numbers.kept.clone()), [(index, 5)]);
    });
}

#[test]
fn refusals_say_why_and_end_nothing() {
    simulate(async {
        let disk = MemoryDisk::new();
        let reserve =
            LogConfig { segment: ByteSize::kib(64), reserve: ByteSize::kib(256), ..LogConfig::default() };
        let identity = LogIdentity { cluster: 7, node: 1 };
        let log =
            Log::open(Arc::new(disk.clone()), &Random::from_seed(1), identity, &reserve, CommitMode::Inline);
        let deps = deps(log.unwrap().0, &disk, 1, 1, None);
        let group =
            RaftGroup::open(&deps, 3, GroupBootstrap::single_voter(1), Numbers::default()).await.unwrap();
        let large = group.propose(vec![0; 40_000].into()).await.unwrap_err();
        assert_eq!(large.code(), ErrorCode::TooLarge);
        let largest = vec![1; deps.log.max_entry_bytes() as usize];
        group.propose(largest.into()).await.unwrap();
        disk.set_capacity(Some(0));
        let full = group.propose(entry(1)).await.unwrap_err();
        assert!(matches!(full, ProposeError::Refused(LogError::Full { .. })), "{full}");
        disk.set_capacity(None);
        group.propose(entry(2)).await.unwrap();
        group.shutdown().await;
        assert_eq!(group.propose(entry(3)).await.unwrap_err(), ProposeError::ShuttingDown);
    });
}

/// Has a log say that these vote in its group; says who did.
async fn voters(log: &Log, voters: &[u64]) -> Vec<u64> {
    let known = codec::decode_hard_state(&log.group_state(3).state).unwrap();
    let data = codec::encode_hard_state(known.vote, known.committed, &voters.iter().copied().collect());
    log.append(vec![LogRecord::State { group: 3, data }]).await.unwrap();
    known.voters.into_iter().collect()
}

#[test]
fn a_member_without_the_log_that_it_should_have_does_not_start() {
    simulate(async {
        let disk = MemoryDisk::new();
        let (log, _) = open_log(&disk, 1).unwrap();
        let deps = deps(log, &disk, 1, 1, None);
        let refused = RaftGroup::open(&deps, 3, GroupBootstrap::Kept, Numbers::default()).await.unwrap_err();
        assert!(matches!(refused, GroupOpenError::Nothing { group: 3 }), "{refused}");
        RaftGroup::open(&deps, 4, GroupBootstrap::single_voter(1), Numbers::default()).await.unwrap();
        RaftGroup::open(&deps, 4, GroupBootstrap::Kept, Numbers::default()).await.unwrap();
        // Who is asked in waits for that, and stands for no election.
        let joining = RaftGroup::open(&deps, 5, GroupBootstrap::Joining, Numbers::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(joining.leadership().current(), LeaderInfo::default());
    });
}

/// Whoever keeps that it has begun would miss its log after a crash, and could not go on.
#[test]
fn a_group_whose_beginning_was_not_synced_has_not_begun() {
    simulate(async {
        let disk = MemoryDisk::new();
        let deps = deps(open_log(&disk, 1).unwrap().0, &disk, 1, 1, None);
        disk.fail_syncs(1);
        for founding in [GroupBootstrap::Members([1, 2, 3].into()), GroupBootstrap::Kept] {
            let opened = RaftGroup::open(&deps, 3, founding, Numbers::default()).await;
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("failed to sync"), "{error}");
            // It is read, though it never becomes durable.
            assert_eq!(deps.log.groups(), [3]);
        }
        drop(deps);
        let (log, _) = open_log(&disk.crash(1), 1).unwrap();
        assert!(log.groups().is_empty());
    });
}

#[test]
fn a_single_voter_whose_log_was_hurt_starts_and_says_so() {
    let disk = MemoryDisk::new();
    let kept = simulate(async {
        let group = open(&disk, 1).await.unwrap();
        for number in 1..=20 {
            group.propose(entry(number)).await.unwrap();
        }
        group.shutdown().await;
        group.with_state_machine(|numbers| numbers.kept.clone())
    });
    let disk = disk.restart();
    // A payload somewhere in the middle.
    let number = 13_u64.to_le_bytes();
    let found = disk.list().unwrap().into_iter().find_map(|name| {
        let bytes = disk.read(&name).unwrap();
        let begins = |at: &usize| bytes[*at..*at + 8] == number && bytes[at + 8..at + 21] == [0; 13];
        let at = (0..bytes.len().saturating_sub(21)).filter(|_| name.ends_with(".log")).find(begins);
        at.map(|at| (name, at as u64))
    });
    let (name, at) = found.unwrap();
    disk.flip_bit(&name, at + 9, 1);
    simulate(async {
        let (log, recovery) = open_log(&disk, 1).unwrap();
        assert_eq!(recovery.damage.len(), 1);
        let members = deps(log.clone(), &disk, 1, 1, None);
        // Whoever asks says nothing: others have voted in this group.
        let alone = voters(&log, &[1, 2, 3]).await;
        let refused = RaftGroup::open(&members, 3, GroupBootstrap::single_voter(1), Numbers::default())
            .await
            .unwrap_err();
        assert!(matches!(refused, GroupOpenError::Hurt { group: 3 }));
        voters(&log, &alone).await;
        let group =
            RaftGroup::open(&members, 3, GroupBootstrap::single_voter(1), Numbers::default()).await.unwrap();
        assert_eq!((group.lost_entries().len(), group.is_damaged()), (1, true));
        let without: Vec<_> = kept.iter().copied().filter(|(_, number)| *number != 13).collect();
        assert_eq!(group.with_state_machine(|numbers| numbers.kept.clone()), without);
        group.propose(entry(21)).await.unwrap();
    });
}

/// A disk with a group whose snapshot holds entry 1, and whose log begins behind that, with entry 2; and the index of
/// its cut.
fn compacted() -> (MemoryDisk, u64) {
    let disk = MemoryDisk::new();
    let cut = simulate(async {
        let group = open(&disk, 1).await.unwrap();
        assert_eq!(group.compact(9).await.unwrap(), Some(0));
        group.propose(entry(1)).await.unwrap();
        let (index, _) = group.propose(entry(CUT)).await.unwrap();
        assert_eq!(group.compact(index).await.unwrap(), Some(index));
        assert_eq!(group.compact(index).await.unwrap(), Some(index));
        group.propose(entry(2)).await.unwrap();
        group.shutdown().await;
        index
    });
    (disk.restart(), cut)
}

fn numbers(group: &RaftGroup<Numbers>) -> Vec<u64> {
    group.with_state_machine(|numbers| numbers.kept.iter().map(|(_, number)| *number).collect())
}

/// The group goes on without what its snapshot held: what its log holds is there, and stays there.
async fn goes_on(disk: &MemoryDisk, group: RaftGroup<Numbers>, cut: u64) {
    assert_eq!((group.lost_snapshot_index(), numbers(&group)), (Some(cut), vec![2]));
    assert!(disk.list().unwrap().contains(&"group-3.damaged".to_owned()));
    let (index, _) = group.propose(entry(3)).await.unwrap();
    assert_eq!(group.applied_index(), Some(index));
    group.shutdown().await;
}

#[test]
fn a_single_voter_goes_on_without_its_damaged_snapshot() {
    let (disk, cut) = compacted();
    let name = disk.list().unwrap().into_iter().find(|name| name.ends_with(".snapshot")).unwrap();
    disk.flip_bit(&name, 60, 1);
    simulate(async {
        let (log, _) = open_log(&disk, 1).unwrap();
        let members = deps(log.clone(), &disk, 1, 1, None);
        // Others hold what this one lacks.
        let alone = voters(&log, &[1, 2, 3]).await;
        let refused = RaftGroup::open(&members, 3, GroupBootstrap::single_voter(1), Numbers::default())
            .await
            .unwrap_err();
        assert!(matches!(refused, GroupOpenError::NoSnapshot { group: 3, found: None, .. }), "{refused}");
        voters(&log, &alone).await;
    });
    let disk = disk.restart();
    simulate(async { goes_on(&disk, open(&disk, 1).await.unwrap(), cut).await });
    for seed in 0..20 {
        let disk = disk.fork(seed);
        let open = async || open(&disk, seed).await.unwrap();
        simulate(async {
            let group = open().await;
            assert_eq!((group.lost_snapshot_index(), numbers(&group)), (None, vec![2, 3]));
            let (index, _) = group.propose(entry(CUT)).await.unwrap();
            group.compact(index).await.unwrap();
            assert!(!disk.list().unwrap().iter().any(|name| *name == format!("group-3-{cut}-1.snapshot")));
        });
    }
}

/// Takes no snapshot, as one of another version.
#[derive(Default)]
struct Stubborn(Numbers);

impl StateMachine for Stubborn {
    type Answer = usize;

    fn apply(&mut self, index: u64, entry: &[u8]) -> usize {
        self.0.apply(index, entry)
    }
    fn snapshot(&self) -> StateSnapshot {
        self.0.snapshot()
    }
    fn restore(&mut self, _: RestoreContext<'_>) -> Result<(), String> {
        Err("told to".to_owned())
    }
    fn reset_to(&mut self, index: u64) {
        self.0.reset_to(index);
    }
}

#[test]
fn a_single_voter_goes_on_without_a_snapshot_that_its_machine_refuses() {
    let (disk, cut) = compacted();
    simulate(async {
        let (log, _) = open_log(&disk, 1).unwrap();
        let deps = deps(log.clone(), &disk, 1, 1, None);
        let alone = voters(&log, &[1, 2, 3]).await;
        let refused = RaftGroup::open(&deps, 3, GroupBootstrap::single_voter(1), Stubborn::default())
            .await
            .unwrap_err();
        assert!(matches!(refused, GroupOpenError::Snapshot { .. }), "{refused}");
        voters(&log, &alone).await;
        let group =
            RaftGroup::open(&deps, 3, GroupBootstrap::single_voter(1), Stubborn::default()).await.unwrap();
        assert_eq!(
            (group.lost_snapshot_index(), group.with_state_machine(|machine| machine.0.kept.len())),
            (Some(cut), 1)
        );
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_and_a_real_folder_do_it_too() {
    let clock = Clock::system();
    let folder = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let disk = Arc::new(athanor_chassis::disk::LocalDisk::open(folder.path()).unwrap());
        let released = Arc::downgrade(&disk);
        let config = LogConfig { segment: ByteSize::mib(1), ..LogConfig::default() };
        let identity = LogIdentity { cluster: 1, node: 1 };
        let log = Log::open(
            Arc::<athanor_chassis::disk::LocalDisk>::clone(&disk),
            &Random::system(),
            identity,
            &config,
            CommitMode::Thread,
        );
        let deps = RaftGroupDeps {
            log: log.unwrap().0,
            disk,
            compute: ComputePool::with_threads(std::num::NonZeroUsize::MIN, 16).unwrap(),
            random: Random::system(),
            network: None,
            node: 1,
            timing: RaftTiming::default(),
        };
        let group =
            RaftGroup::open(&deps, 1, GroupBootstrap::single_voter(1), Numbers::default()).await.unwrap();
        assert_eq!(group.with_state_machine(|numbers| numbers.kept.len()), round * 50);
        assert!(group.leadership().current().here);
        for number in 0..50 {
            group.propose(entry(number)).await.unwrap();
        }
        group.shutdown().await;
        deps.log.close();
        drop((group, deps));
        // Tasks of openraft end after its shutdown has, and the last of them releases the lock of the folder.
        let poll = async {
            while released.strong_count() > 0 {
                clock.sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(clock.timeout(Duration::from_secs(30), poll).await.is_ok(), "a task still has the disk");
    }
}

/// A disk of which somebody else removes each file first.
#[derive(Debug)]
struct Hasty(MemoryDisk);

impl Disk for Hasty {
    fn create_new(&self, name: &str) -> Result<(), DiskError> {
        self.0.create_new(name)
    }
    fn create_zeroed(&self, name: &str, length: u64) -> Result<(), DiskError> {
        self.0.create_zeroed(name, length)
    }
    fn write_at(&self, name: &str, offset: u64, parts: &[&[u8]]) -> Result<(), DiskError> {
        self.0.write_at(name, offset, parts)
    }
    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.0.read_at(name, offset, into)
    }
    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.0.sync(name)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.0.write(name, bytes)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.0.remove(name)?;
        self.0.remove(name)
    }
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.0.list()
    }
    fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.0.len(name)
    }
    fn sync_dir(&self) -> Result<(), DiskError> {
        self.0.sync_dir()
    }
    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.0.free_bytes()
    }
    fn capacity_bytes(&self) -> Result<u64, DiskError> {
        self.0.capacity_bytes()
    }
}

/// A snapshot may be installed while another one is written: both remove what is older.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_somebody_else_removed_is_no_failure() {
    let disk = MemoryDisk::new();
    let (log, _) = open_log(&disk, 1).unwrap();
    let deps = RaftGroupDeps { disk: Arc::new(Hasty(disk.clone())), ..deps(log, &disk, 1, 7, None) };
    let group = RaftGroup::open(&deps, 3, GroupBootstrap::single_voter(1), Numbers::default()).await.unwrap();
    for number in 1..5 {
        group.propose(entry(number)).await.unwrap();
        let (cut, _) = group.propose(entry(CUT)).await.unwrap();
        assert_eq!(group.compact(cut).await, Ok(Some(cut)));
    }
    assert_eq!(group.failure(), None);
}

/// Raft passes over what it is asked for while it has not heard that an earlier snapshot is built.
#[tokio::test(start_paused = true)]
async fn a_snapshot_after_the_other_is_built_though_raft_is_busy() {
    let disk = MemoryDisk::new();
    let group = open(&disk, 1).await.unwrap();
    for wait in 0..200 {
        let (first, _) = group.propose(entry(CUT)).await.unwrap();
        let both = async {
            for _ in 0..wait {
                tokio::task::yield_now().await;
            }
            let labels = [group.compact(first).await, group.compact(u64::MAX).await];
            labels.map(|label| label.unwrap().unwrap())
        };
        let limit = std::time::Duration::from_secs(30);
        let (second, labels) =
            tokio::time::timeout(limit, async { tokio::join!(group.propose(entry(CUT)), both) })
                .await
                .unwrap();
        let second = second.unwrap().0;
        assert!(labels.iter().all(|label| [first, second].contains(label)), "{labels:?}");
    }
}
