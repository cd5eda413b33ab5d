use athanor_chassis::disk::MemoryDisk;
use futures::FutureExt;

use super::*;

fn key(number: u128, tenant: &str) -> DiskCacheKey {
    DiskCacheKey::for_partial(BlockId::from_number(number), &tenant.parse().unwrap(), 7)
}

fn new(disk: &MemoryDisk, limit: ByteSize) -> Arc<DiskCache> {
    Arc::new(DiskCache::new(Arc::new(disk.clone()), limit, ByteSize::kib(1)))
}

/// One that knows what is there.
fn shelf(disk: &MemoryDisk, limit: ByteSize) -> Arc<DiskCache> {
    let shelf = new(disk, limit);
    tend(&shelf);
    shelf
}

fn tend(shelf: &Arc<DiskCache>) {
    shelf.run_maintenance(&ComputePool::inline()).now_or_never().unwrap();
}

fn put(shelf: &Arc<DiskCache>, key: &DiskCacheKey, bytes: &[u8]) {
    shelf.enqueue(key.clone(), Bytes::copy_from_slice(bytes));
    tend(shelf);
}

fn get(shelf: &DiskCache, key: &DiskCacheKey) -> Option<Bytes> {
    shelf.read(key, shelf.find(key)?)
}

#[test]
fn files_outlive_a_restart_within_a_bound_and_the_oldest_go_first() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(10 << 20));
    let kept = shelf(&disk, ByteSize::kib(64));
    let bytes = |number: u128| vec![number as u8; 1_000];
    (0..200).for_each(|number| put(&kept, &key(number, "shop"), &bytes(number)));
    let stats = kept.stats().cache;
    assert!(
        stats.bytes <= 64 << 10 && stats.entries > 55 && stats.evicted == 200 - stats.entries,
        "{stats:?}"
    );
    let there =
        |kept: &DiskCache| (0..200).filter(|&number| get(kept, &key(number, "shop")).is_some()).count();
    assert_eq!(there(&kept) as u64, stats.entries);
    assert_eq!(get(&kept, &key(199, "shop")).as_deref(), Some(&bytes(199)[..]));
    assert_eq!(get(&kept, &key(0, "shop")), None);
    assert_eq!(get(&kept, &key(199, "other")), None, "it is another tenant's");
    // Somebody left files there, and the bound is smaller now.
    disk.create_new("notes.txt").unwrap();
    let again = shelf(&disk, ByteSize::kib(32));
    assert_eq!(get(&again, &key(199, "shop")).as_deref(), Some(&bytes(199)[..]));
    let stats = again.stats().cache;
    assert!(stats.bytes <= 32 << 10 && stats.entries > 27 && stats.entries < 32, "{stats:?}");
    assert_eq!(disk.list().unwrap().len() as u64, stats.entries);
    put(&again, &key(300, "shop"), &bytes(1));
    assert!(get(&again, &key(300, "shop")).is_some() && get(&again, &key(199, "shop")).is_some());
    // Nothing is kept at all.
    assert_eq!(get(&shelf(&disk, ByteSize::bytes(0)), &key(300, "shop")), None);
    assert_eq!(disk.list().unwrap().len(), 0);
}

#[test]
fn whatever_bit_flips_nothing_else_is_read() {
    let disk = MemoryDisk::new();
    let answer = b"an answer of a block";
    let length = {
        put(&shelf(&disk, ByteSize::kib(64)), &key(1, "shop"), answer);
        disk.len(&disk.list().unwrap()[0]).unwrap()
    };
    for (offset, bit) in (0..length).flat_map(|offset| (0..8).map(move |bit| (offset, bit))) {
        let kept = shelf(&disk, ByteSize::kib(64));
        put(&kept, &key(1, "shop"), answer);
        assert_eq!(get(&kept, &key(1, "shop")).as_deref(), Some(&answer[..]));
        let name = disk.list().unwrap().remove(0);
        assert!(disk.flip_bit(&name, offset, bit));
        assert_eq!(get(&kept, &key(1, "shop")), None, "bit {bit} of byte {offset}");
        assert_eq!((kept.stats().cache.damaged, disk.list().unwrap().len()), (1, 0));
    }
    // Cut short, as a crash leaves it.
    for left in 0..length {
        let kept = shelf(&disk, ByteSize::kib(64));
        put(&kept, &key(1, "shop"), answer);
        let name = disk.list().unwrap().remove(0);
        let bytes = disk.read(&name).unwrap();
        disk.remove(&name).unwrap();
        disk.create_new(&name).unwrap();
        disk.write_at(&name, 0, &[&bytes[..left as usize]]).unwrap();
        assert_eq!(get(&kept, &key(1, "shop")), None, "{left} bytes are left");
    }
}

#[test]
fn a_full_disk_keeps_less_and_fails_nothing() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(20 << 10));
    let kept = shelf(&disk, ByteSize::kib(64));
    (0..100).for_each(|number| put(&kept, &key(number, "shop"), &[7; 1_000]));
    let stats = kept.stats().cache;
    assert!(stats.bytes <= 19 << 10 && stats.entries > 10, "{stats:?}");
    assert!(disk.free_bytes().unwrap() >= 1 << 10, "some of it stays free");
    // Somebody else takes all of it.
    disk.set_capacity(Some(0));
    for number in 100..140 {
        put(&kept, &key(number, "shop"), &[7; 1_000]);
        assert_eq!(get(&kept, &key(number, "shop")), None);
    }
    let stats = kept.stats().cache;
    assert_eq!((stats.entries, stats.bytes), (0, 0), "it makes room for others");
}

#[test]
fn what_others_need_of_the_disk_is_given_back_though_nobody_asks() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(1 << 20));
    let kept = shelf(&disk, ByteSize::kib(512));
    (0..400).for_each(|number| put(&kept, &key(number, "shop"), &[7; 1_000]));
    assert_eq!(kept.stats().cache.entries, 400);
    // Whatever is synced here, nothing has to be.
    disk.fail_syncs(u64::MAX);
    let log = |bytes: usize| {
        disk.create_new("log").unwrap();
        disk.write_at("log", 0, &[&vec![0; bytes]]).unwrap();
    };
    log(disk.free_bytes().unwrap() as usize - 100);
    tend(&kept);
    let few = kept.stats().cache;
    assert!(
        disk.free_bytes().unwrap() >= 1 << 10 && few.entries > 390,
        "{} free, {few:?}",
        disk.free_bytes().unwrap()
    );
    // More than leaves in one step.
    disk.set_capacity(Some((1 << 20) - (350 << 10)));
    tend(&kept);
    let fewer = kept.stats().cache;
    assert!(disk.free_bytes().unwrap() >= 1 << 10 && (10..100).contains(&fewer.entries), "{fewer:?}");
}

#[test]
fn before_it_knows_what_is_there_nothing_is_found_or_kept() {
    let disk = MemoryDisk::new();
    put(&shelf(&disk, ByteSize::kib(64)), &key(1, "shop"), b"an answer");
    let kept = new(&disk, ByteSize::kib(64));
    assert_eq!(get(&kept, &key(1, "shop")), None);
    kept.enqueue(key(2, "shop"), Bytes::from_static(b"another"));
    tend(&kept);
    assert_eq!(get(&kept, &key(1, "shop")).as_deref(), Some(&b"an answer"[..]));
    assert_eq!(get(&kept, &key(2, "shop")), None);
}

#[test]
fn only_so_much_waits_and_what_does_is_written_later() {
    let disk = MemoryDisk::new();
    let kept = shelf(&disk, ByteSize::mib(512));
    let all = Bytes::from(vec![7; 1 << 20]);
    (0..100).for_each(|number| kept.enqueue(key(number, "shop"), all.clone()));
    // Again, while it waits.
    kept.enqueue(key(0, "shop"), all.clone());
    assert_eq!((kept.stats().cache.entries, kept.stats().passed), (0, 36));
    assert_eq!(get(&kept, &key(0, "shop")), None);
    tend(&kept);
    assert_eq!((kept.stats().cache.entries, disk.list().unwrap().len()), (64, 64));
    assert_eq!(get(&kept, &key(0, "shop")), Some(all.clone()));
    // Then there is room again.
    put(&kept, &key(99, "shop"), &all);
    assert_eq!((get(&kept, &key(99, "shop")), kept.stats().passed), (Some(all), 36));
}

#[test]
fn what_is_in_doubt_is_gone_be_it_written_or_on_its_way() {
    let disk = MemoryDisk::new();
    let kept = shelf(&disk, ByteSize::kib(64));
    put(&kept, &key(1, "shop"), b"on disk");
    kept.enqueue(key(2, "shop"), Bytes::from_static(b"waits"));
    kept.invalidate(&[key(1, "shop"), key(2, "shop"), key(3, "shop")]);
    tend(&kept);
    assert_eq!([1, 2, 3].map(|number| get(&kept, &key(number, "shop"))), [None, None, None]);
    assert_eq!((kept.stats().doubted, kept.stats().cache.damaged, disk.list().unwrap().len()), (1, 0, 0));
    // While it is written, and the sound one comes meanwhile.
    let mut index = DiskCacheIndex::default();
    let comes =
        |index: &mut DiskCacheIndex, bytes| index.enqueue_write(7, key(1, "shop"), Bytes::from_static(bytes));
    assert!(comes(&mut index, b"damaged"));
    let damaged = index.pop_write().unwrap();
    index.begin_write(10);
    assert_eq!(index.invalidate(7), None);
    assert!(comes(&mut index, b"sound"));
    assert!(!index.finish_write(&damaged, 10, true), "it does not stay");
    let sound = index.pop_write().unwrap();
    index.begin_write(10);
    assert!(index.finish_write(&sound, 10, true));
    assert_eq!((index.find(7), index.size()), (Some(sound.age), (1, 10)));
}

#[test]
fn a_name_that_nobody_wrote_is_no_file() {
    let disk = MemoryDisk::new();
    for age in ["ffffffffffffffff", "fffffffffffffffe", "8000000000000000", "000000000000000F"] {
        disk.create_new(&format!("{age}-{:032x}", 7)).unwrap();
    }
    let kept = shelf(&disk, ByteSize::kib(64));
    assert_eq!(disk.list().unwrap().len(), 0);
    put(&kept, &key(1, "shop"), b"an answer");
    put(&kept, &key(2, "shop"), b"another");
    assert!(get(&kept, &key(1, "shop")).is_some() && get(&kept, &key(2, "shop")).is_some());
}
