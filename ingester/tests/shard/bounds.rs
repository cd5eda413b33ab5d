//! What an upload may cost, and what is left out of it.

use super::*;

#[test]
fn what_is_left_out_is_counted() {
    simulate(async {
        let limits = Limits {
            max_profile_stacktrace_depth: 2,
            max_profile_symbol_value_length: 12,
            ..Limits::default()
        };
        let world = World::with(limits, Clock::system()).await;
        let mut rows = profile(now(), &[("a;b;c", 1), ("a;b;c", 2), ("a;b;d", 3), ("a", -5)]);
        rows.dictionary.named_stack(["a very long name"].into_iter());
        rows.samples.push(rows.dictionary.stacks.len() as u32 - 1, 0, &[7]);
        let mut raw = encode(&rows);
        // A sample of a location that is not there: field 2, with location 99 and the value 1.
        raw.extend([0x12, 4, 0x08, 99, 0x10, 1]);
        let upload = Upload { pprof: raw.into(), ..upload(&rows) };
        let stored = world.push("acme", vec![upload.clone()]).await.remove(0).unwrap();
        let expected = Dropped { samples: 1, negative: 1, deep: 3, long: 1, ..Dropped::default() };
        assert_eq!((stored.new, stored.dropped), (1, expected));
        assert_eq!(world.total().await, 13);
    });
}
