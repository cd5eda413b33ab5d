//! Each record in one place: shards of one slot that follow each other, crash, are lost, come back and settle.
//!
//! The catalogue is the real one. Logs and windows of shards are plain values that do by the rules what shards do; what
//! happens is drawn from a seed. After every event each record that was acknowledged is counted: in blocks, and in logs
//! behind their watermarks. Then the same with one rule broken, for each rule: somebody must notice.

mod bug;
mod shard;
mod world;

use bug::Bug;
use world::World;

const EVENTS: usize = 160;

/// Lets a world live and come to rest; what went wrong, if anything did.
fn live(seed: u64, bug: Option<Bug>) -> Result<World, String> {
    let mut world = World::new(seed, bug);
    for event in 0..EVENTS {
        world.step();
        world.check().map_err(|wrong| format!("seed {seed}, event {event}: {wrong}"))?;
    }
    world.rest().map_err(|wrong| format!("seed {seed}, at rest: {wrong}"))?;
    Ok(world)
}

#[test]
fn each_record_is_in_one_place() {
    let mut seen = std::collections::BTreeMap::<&'static str, usize>::new();
    let mut longest = 0;
    for seed in 0..1500 {
        let world = live(seed, None).unwrap_or_else(|wrong| panic!("{wrong}"));
        longest = longest.max(world.epochs());
        for (what, count) in world.seen() {
            *seen.entry(what).or_default() += count;
        }
    }
    assert!(longest >= 4, "a chain of {longest}");
    for what in [
        "repeat",
        "lost",
        "lost while copied",
        "lost when sealed",
        "unsettled",
        "abandoned",
        "settled with nothing held",
        "settled with something held",
        "settled twice",
        "overtaken",
        "expired",
        "forgotten",
        "retired",
    ] {
        assert!(seen.contains_key(what), "{what} is not in {seen:?}");
    }
}

/// That a shard cannot retire any more is not enough: a record must be gone or told twice.
#[test]
fn each_rule_is_needed() {
    for bug in Bug::ALL {
        let wrong = |seed| live(seed, Some(bug)).err().filter(|wrong| wrong.contains("record"));
        let found = (0..10_000).find_map(wrong);
        assert!(found.is_some(), "nobody notices {bug:?}");
    }
}
