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

/// A profile of two megabytes.
fn large(number: usize) -> Upload {
    let mut profile = profile(now(), &[("main", number as i64 + 1)]);
    profile.header.comments = vec!["x".repeat(2 << 20)];
    upload(&profile)
}

#[test]
fn what_takes_more_room_than_there_is_goes_in_pieces() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.decoded = ByteSize::mib(5);
        let world = world.crash(1).await;
        let requests = (0..4).map(|request| {
            let uploads = (0..6).map(|number| large(request * 6 + number)).collect();
            world.push("acme", uploads)
        });
        let answers = futures::future::join_all(requests).await;
        assert!(answers.into_iter().flatten().all(|answer| answer.unwrap().new == 1));
        assert_eq!(world.total().await, (1..=24).sum::<i64>());
        // Equal ones are told apart though they are in different pieces, and known again.
        let equal = large(99);
        for new in [1, 0] {
            let answers = world.push("acme", vec![equal.clone(); 5]).await;
            assert!(answers.into_iter().all(|answer| answer.unwrap().new == new));
        }
        assert_eq!(world.total().await, (1..=24).sum::<i64>() + 500);
    });
}

#[test]
fn a_text_that_would_be_in_many_series_is_refused() {
    simulate(async {
        let world = World::new().await;
        let mut wide = profile(now(), &[]);
        for number in 0..10_000 {
            labelled(&mut wide, "main", &[("n", &number.to_string()), ("text", &"x".repeat(2000))], 1);
        }
        let refused = world.push("acme", vec![upload(&wide)]).await.remove(0).unwrap_err();
        assert!(refused.code == Code::Invalid && refused.message.contains("of labels"), "{refused:?}");
        assert_eq!(world.total().await, 0);
    });
}

#[test]
fn names_count_in_a_head() {
    simulate(async {
        let world = World::new().await;
        let held = || world.ingester.unregistered_bytes();
        // Five names of 20 kB, with a value each.
        let long = |first: u8, value| {
            let names: Vec<String> =
                (first..first + 5).map(|number| char::from(number).to_string().repeat(20_000)).collect();
            let rows: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), value)).collect();
            upload(&profile(now(), &rows))
        };
        let before = held();
        assert_eq!(world.push_one(&long(b'a', 1)).await, 1);
        let after = held();
        assert!(after > before + 100_000, "{before} {after}");
        assert_eq!(world.push_one(&long(b'p', 0)).await, 0);
        assert!(held() > after + 50_000, "though no profile has them");
    });
}

#[test]
fn what_could_not_be_asked_for_is_refused() {
    simulate(async {
        let world = World::new().await;
        for place in 0..4 {
            let mut odd = profile(now(), &[("main", 1)]);
            let period = odd.header.period_type.get_or_insert_default();
            let mut sent = match place {
                0 => {
                    odd.header.types[0].kind.push_str(":x");
                    upload(&odd)
                }
                1 => {
                    odd.header.types[0].unit.push_str(":x");
                    upload(&odd)
                }
                2 => {
                    period.unit.push_str(":x");
                    upload(&odd)
                }
                _ => upload(&odd),
            };
            if place == 3 {
                sent.labels = Labels::new(
                    [("__name__", "a:b"), ("service_name", "shop")]
                        .map(|(name, value)| (name.to_owned(), value.to_owned())),
                );
            }
            let refused = world.push("acme", vec![sent]).await.remove(0).unwrap_err();
            assert!(
                refused.code == Code::Invalid && refused.message.contains("colon"),
                "{place}: {refused:?}"
            );
        }
    });
}
