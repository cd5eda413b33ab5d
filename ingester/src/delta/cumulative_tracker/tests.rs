use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn counters(bytes: u64) -> CumulativeTracker {
    CumulativeTracker::new(DeltaLimits { bytes: ByteSize::bytes(bytes), idle: HOUR })
}

/// A series of so many stacks, each of which counts its number and one.
fn change(series: ContentHash, step: DeltaOp, index: u64, stacks: u64) -> SeriesUpdate {
    let values = (0..stacks).map(|stack| (ContentHash::from(stack), stack as i64 + 1)).collect();
    let count = SeriesState { index, time: index as i64, counted: CumulativeValues::from_values(values) };
    SeriesUpdate { series, step, count, tenant: None }
}

fn find(counters: &CumulativeTracker, series: ContentHash) -> Option<Arc<SeriesState>> {
    counters.state.lock().kept.get(series).map(Arc::clone)
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

#[test]
fn what_was_written_reads_back_whatever_the_size_of_its_pieces() {
    let counters = counters(1 << 20);
    let changes = (0..9).map(|series| change(series, DeltaOp::Reset, 10 + series as u64, series as u64 * 30));
    counters.restore(changes, Duration::ZERO);
    for bytes in [1, 100, 1000, 5000, 1 << 20] {
        let pieces = counters.write(bytes);
        assert!(pieces.iter().all(|piece| piece.len() <= bytes.max(200) * 2), "{bytes}");
        let read = super::tests::counters(1 << 20);
        pieces.iter().for_each(|piece| read.read(piece, Duration::ZERO).unwrap());
        for series in 0..9 {
            assert!(find(&read, series).is_some());
            assert_eq!(find(&read, series), find(&counters, series), "{bytes}");
        }
    }
}

#[test]
fn a_series_that_was_not_said_to_its_end_stays_as_it_was() {
    let counters = counters(1 << 20);
    counters.restore([change(1, DeltaOp::Reset, 5, 100)], Duration::ZERO);
    let pieces = counters.write(300);
    assert!(pieces.len() > 3);
    let read = super::tests::counters(1 << 20);
    for piece in pieces[..2].iter().chain(&pieces[..pieces.len() - 1]) {
        read.read(piece, Duration::ZERO).unwrap();
        assert_eq!(find(&read, 1), None);
    }
    read.read(&pieces[pieces.len() - 1], Duration::ZERO).unwrap();
    assert_eq!(find(&read, 1), find(&counters, 1));
}

#[test]
fn what_is_idle_is_forgotten_and_told() {
    let counters = counters(10_000);
    for series in 0..10 {
        counters.restore([change(series, DeltaOp::Reset, 1, 10)], Duration::ZERO);
    }
    counters.find(3, &tenant("acme"), Duration::from_secs(1));
    counters.evict_idle(HOUR * 2, HOUR + Duration::from_secs(1));
    assert_eq!(counters.stats().0, 10, "ids are remembered for longer");
    counters.evict_idle(Duration::ZERO, HOUR + Duration::from_secs(1));
    assert_eq!((counters.stats().0, counters.stats().2.forgotten), (1, 9));
    assert!(find(&counters, 3).is_some());
    counters.restore([change(7, DeltaOp::Add, 2, 10)], HOUR * 2);
    assert_eq!(find(&counters, 7), None, "what comes to nothing that is known is nothing");
}

#[test]
fn what_is_beyond_the_bound_is_refused_and_nothing_is_forgotten_for_it() {
    let (counters, none) = (counters(10_000), TenantMemoryGrowth::default());
    let [one, other, third] = ["one", "other", "third"].map(tenant);
    let admit = |tenant, more, batch: &TenantMemoryGrowth, now| {
        let refused = counters.check_budget(tenant, more, batch, Duration::ZERO, now).err()?;
        assert_eq!((refused.code, refused.metric_reason()), (ErrorCode::Exhausted, "delta_state_limit"));
        Some(refused.message)
    };
    let count = change(1, DeltaOp::Reset, 1, 100).count.memory();
    for (series, tenant) in [(1, &one), (2, &other)] {
        assert_eq!(admit(tenant, count, &none, Duration::ZERO), None);
        let change = change(series, DeltaOp::Reset, 1, 100);
        counters.apply(1, vec![SeriesUpdate { tenant: Some(tenant.clone()), ..change }], Duration::ZERO);
    }
    assert_eq!(admit(&one, 5000 - count, &none, Duration::ZERO), None);
    let refused = admit(&one, 5001 - count, &none, Duration::ZERO).unwrap();
    assert!(refused.contains("the delta state of tenant one to 5001B") && refused.contains("__delta__"));
    let batch = TenantMemoryGrowth::from([(one.clone(), 5000 - count)]);
    assert!(admit(&one, 1, &batch, Duration::ZERO).is_some(), "what is in the batch counts");
    let refused = admit(&third, 10_001 - 2 * count, &none, Duration::ZERO).unwrap();
    assert!(refused.contains("the delta state of all tenants to 10001B"), "{refused}");
    let later = HOUR + Duration::from_secs(1);
    counters.find(1, &one, later);
    assert_eq!(admit(&third, 5000, &none, later), None);
    assert!(find(&counters, 1).is_some() && find(&counters, 2).is_none(), "what is idle goes");
}

#[test]
fn what_is_in_flight_takes_room_and_is_not_forgotten() {
    let (counters, one) = (counters(10_000), tenant("one"));
    counters.restore([change(1, DeltaOp::Reset, 1, 100)], Duration::ZERO);
    let count = find(&counters, 1).unwrap();
    let next = [(1, Arc::clone(&count))].into_iter().collect();
    let grows = TenantMemoryGrowth::from([(one.clone(), 3000)]);
    counters.launch(BatchDeltas {
        token: 5,
        ids: [9].into_iter().collect(),
        next,
        grows,
        tally: DeltaStats::default(),
    });
    let admit = |more| {
        let none = TenantMemoryGrowth::default();
        counters.check_budget(&one, more, &none, Duration::ZERO, HOUR * 2).is_ok()
    };
    assert!(!admit(2001) && admit(2000));
    assert!(find(&counters, 1).is_some());
    counters.find(1, &one, HOUR * 2);
    assert!(!admit(2000), "whose it is is known when it is heard of");
    counters.apply(5, Vec::new(), HOUR * 2);
    assert!(admit(2000), "what is applied is counted once");
}

#[test]
fn of_a_batch_all_must_have_counted() {
    let counters = counters(10_000);
    let flight = |token| {
        let next = [(1, Arc::new(change(1, DeltaOp::Reset, 0, 2).count))].into_iter().collect();
        let (grows, tally) = (TenantMemoryGrowth::default(), DeltaStats::default());
        counters.launch(BatchDeltas { token, ids: [9].into_iter().collect(), next, grows, tally });
    };
    flight(5);
    counters.apply(5, vec![change(1, DeltaOp::Reset, 3, 2)], Duration::ZERO);
    assert!(counters.finish_batch(5) && counters.finish_batch(6));
    flight(7);
    counters.apply(7, Vec::new(), Duration::ZERO);
    assert!(!counters.finish_batch(7), "its record was a repeat");
    flight(8);
    let index = || counters.find(1, &tenant("acme"), Duration::ZERO).unwrap().index;
    assert_eq!(index(), 0);
    counters.start_batch(1);
    assert_eq!(index(), 3, "what was in flight is not to come");
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..80)) {
        let _ = counters(1000).read(&bytes, Duration::ZERO);
    }
}
