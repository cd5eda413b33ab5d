use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn entry(sequence: u64, order: OrderClass, stored_at: Option<Duration>) -> SpoolEntry {
    let name = SpoolFileName {
        sequence,
        origin: UploadOrigin::Scraped,
        route: RouteKind::Push,
        order,
        tenant: TenantHash::from_tenant(None),
        profiles: 1,
        time_millis: 0,
    };
    SpoolEntry::new(name, 10, stored_at)
}

fn taken(index: &mut FileIndex, queue: DeliveryQueue, now: Duration) -> Option<u64> {
    index.take(queue, now).map(|entry| entry.name.sequence)
}

#[test]
fn fresh_files_become_backlog_with_age_and_failure() {
    let mut index = FileIndex::new();
    index.insert(entry(1, OrderClass::Independent, None));
    index.insert(entry(2, OrderClass::Independent, Some(SECOND)));
    index.insert(entry(3, OrderClass::Independent, Some(2 * SECOND)));
    assert_eq!(taken(&mut index, DeliveryQueue::Fresh, 2 * SECOND), Some(2));
    index.release(2, 5 * SECOND, 2 * SECOND);
    assert_eq!(index.next_due(2 * SECOND), Some(7 * SECOND));
    assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 6 * SECOND), Some(1));
    assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 6 * SECOND), None);
    assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 7 * SECOND), Some(2));
    assert_eq!(taken(&mut index, DeliveryQueue::Fresh, 32 * SECOND), None);
    assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 32 * SECOND), Some(3));
    assert_eq!((index.len(), index.bytes()), (3, 3 * DISK_BLOCK_BYTES));
}

#[test]
fn lane_has_one_file_in_flight_and_retries_it_first() {
    let mut index = FileIndex::new();
    let lane = OrderClass::Cumulative { lane: 1 };
    index.insert(entry(1, lane, None));
    index.insert(entry(2, lane, Some(SECOND)));
    index.insert(entry(3, OrderClass::Cumulative { lane: 2 }, Some(SECOND)));
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(1));
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(3));
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), None);
    index.release(1, SECOND, SECOND);
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), None);
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, 2 * SECOND), Some(1));
    assert_eq!(index.remove(1).unwrap().failures, 1);
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, 2 * SECOND), Some(2));
}

#[test]
fn delayed_file_holds_up_only_its_tenant_route_origin_and_lane() {
    let order = OrderClass::Cumulative { lane: 1 };
    let changes: [fn(&mut SpoolFileName); 5] = [
        |name| name.tenant = TenantHash::from_tenant(Some(&"team-a".parse().unwrap())),
        |name| name.route = RouteKind::Otlp,
        |name| name.origin = UploadOrigin::Received,
        |name| name.order = OrderClass::Cumulative { lane: 2 },
        |_| {},
    ];
    let mut index = FileIndex::new();
    index.insert(entry(0, order, None));
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(0));
    index.release(0, 60 * SECOND, SECOND);
    for (sequence, change) in (1..).zip(changes) {
        let mut other = entry(sequence, order, None);
        change(&mut other.name);
        index.insert(other);
    }
    let mut next = || taken(&mut index, DeliveryQueue::Cumulative, SECOND);
    assert_eq!([next(), next(), next(), next(), next()], [Some(1), Some(2), Some(3), Some(4), None]);
    assert_eq!(index.next_due(SECOND), Some(61 * SECOND));
    for sequence in 0..6 {
        index.remove(sequence).unwrap();
    }
    assert!(index.lanes.is_empty());
}

#[test]
fn files_of_a_paused_tenant_wait_and_those_of_others_do_not() {
    let other = TenantHash::from_tenant(Some(&"team-a".parse().unwrap()));
    let mut index = FileIndex::new();
    for (sequence, order) in [(1, OrderClass::Independent), (3, OrderClass::Cumulative { lane: 1 })] {
        index.insert(entry(sequence, order, Some(SECOND)));
        let mut file = entry(sequence + 1, order, Some(SECOND));
        file.name.tenant = other;
        index.insert(file);
    }
    index.insert(entry(0, OrderClass::Independent, None));
    index.pause_tenant(TenantHash::from_tenant(None), 5 * SECOND, SECOND);
    index.pause_tenant(TenantHash::from_tenant(None), SECOND, SECOND);
    for (queue, sequence) in [(DeliveryQueue::Fresh, 2), (DeliveryQueue::Cumulative, 4)] {
        assert_eq!(taken(&mut index, queue, 2 * SECOND), Some(sequence));
        assert_eq!(taken(&mut index, queue, 2 * SECOND), None);
    }
    assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 2 * SECOND), None);
    assert_eq!(index.next_due(2 * SECOND), Some(6 * SECOND));
    let mut next = |queue| taken(&mut index, queue, 6 * SECOND);
    assert_eq!([next(DeliveryQueue::Backlog), next(DeliveryQueue::Backlog)], [Some(0), Some(1)]);
    assert_eq!(next(DeliveryQueue::Cumulative), Some(3));
}

#[test]
fn paused_tenants_are_bounded_and_end_with_all_delays() {
    let mut index = FileIndex::new();
    for number in 0..MAX_PAUSED_TENANTS + 2 {
        let tenant = TenantHash::from_tenant(Some(&format!("t{number}").parse().unwrap()));
        index.pause_tenant(tenant, SECOND * (number as u32 + 1), SECOND);
    }
    assert_eq!(index.paused_tenants.len(), MAX_PAUSED_TENANTS);
    assert_eq!(index.paused_tenants.values().min(), Some(&(4 * SECOND)));
    index.end_delays(SECOND);
    assert!(index.paused_tenants.is_empty());
}

#[test]
fn file_occupies_whole_blocks() {
    let seen = [0, 1, 4096, 4097].map(occupied_bytes);
    assert_eq!(seen, [0, 4096, 4096, 8192]);
}

#[test]
fn undeleted_file_counts_without_being_taken() {
    let lane = OrderClass::Cumulative { lane: 1 };
    let mut index = FileIndex::new();
    index.insert(entry(1, lane, None));
    index.insert(entry(2, lane, None));
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(1));
    let undeleted = index.remove(1).unwrap();
    index.keep_undeleted(undeleted);
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(2));
    assert_eq!(index.oldest().map(|entry| entry.name.sequence), Some(2));
    index.end_undeleted(2);
    index.remove(2).unwrap();
    assert!(index.is_idle() && index.undeleted().len() == 1);
    assert_eq!((index.len(), index.bytes(), index.evictable_bytes()), (1, DISK_BLOCK_BYTES, 0));
    index.end_undeleted(1);
    assert_eq!((index.len(), index.bytes()), (0, 0));
}

#[test]
fn eviction_removes_the_oldest_scraped_file_not_in_flight() {
    let mut index = FileIndex::new();
    let mut received = entry(1, OrderClass::Independent, None);
    received.name.origin = UploadOrigin::Received;
    index.insert(received);
    index.insert(entry(2, OrderClass::Independent, None));
    index.insert(entry(3, OrderClass::Cumulative { lane: 0 }, None));
    index.insert(entry(4, OrderClass::Independent, Some(SECOND)));
    assert_eq!(taken(&mut index, DeliveryQueue::Backlog, SECOND), Some(1));
    assert_eq!(taken(&mut index, DeliveryQueue::Backlog, SECOND), Some(2));
    let mut evicted = || index.evict_oldest().map(|entry| entry.name.sequence);
    assert_eq!([evicted(), evicted(), evicted()], [Some(3), Some(4), None]);
    assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), None);
    assert_eq!(taken(&mut index, DeliveryQueue::Fresh, SECOND), None);
    assert_eq!((index.len(), index.bytes(), index.evictable_bytes()), (2, 2 * DISK_BLOCK_BYTES, 0));
    index.release(2, SECOND, SECOND);
    assert_eq!(index.evictable_bytes(), DISK_BLOCK_BYTES);
}
