use athanor_chassis::disk::MemoryDisk;

use super::*;

fn key(number: u128, tenant: &str) -> ShelfKey {
    ShelfKey::answer(BlockId::from_number(number), &tenant.parse().unwrap(), 7)
}

fn shelf(disk: &MemoryDisk, limit: ByteSize) -> Shelf {
    Shelf::new(Arc::new(disk.clone()), limit, ByteSize::kib(1))
}

#[test]
fn files_outlive_a_restart_within_a_bound_and_the_oldest_go_first() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(10 << 20));
    let kept = shelf(&disk, ByteSize::kib(64));
    let bytes = |number: u128| vec![number as u8; 1_000];
    (0..200).for_each(|number| kept.put(&key(number, "shop"), &bytes(number)));
    let stats = kept.stats();
    assert!(stats.bytes <= 64 << 10 && stats.files > 55 && stats.evicted == 200 - stats.files, "{stats:?}");
    let there = |kept: &Shelf| (0..200).filter(|&number| kept.get(&key(number, "shop")).is_some()).count();
    assert_eq!(there(&kept) as u64, stats.files);
    assert_eq!(kept.get(&key(199, "shop")).as_deref(), Some(&bytes(199)[..]));
    assert_eq!(kept.get(&key(0, "shop")), None);
    assert_eq!(kept.get(&key(199, "other")), None, "it is another tenant's");
    // Somebody left files there, and the bound is smaller now.
    disk.create_new("notes.txt").unwrap();
    let again = shelf(&disk, ByteSize::kib(32));
    assert_eq!(again.get(&key(199, "shop")).as_deref(), Some(&bytes(199)[..]));
    let stats = again.stats();
    assert!(stats.bytes <= 32 << 10 && stats.files > 27 && stats.files < 32, "{stats:?}");
    assert_eq!(disk.list().unwrap().len() as u64, stats.files);
    again.put(&key(300, "shop"), &bytes(1));
    assert!(again.get(&key(300, "shop")).is_some() && again.get(&key(199, "shop")).is_some());
    // Nothing is kept at all.
    assert_eq!(shelf(&disk, ByteSize::bytes(0)).get(&key(300, "shop")), None);
    assert_eq!(disk.list().unwrap().len(), 0);
}

#[test]
fn whatever_bit_flips_nothing_else_is_read() {
    let disk = MemoryDisk::new();
    let answer = b"an answer of a block";
    let length = {
        shelf(&disk, ByteSize::kib(64)).put(&key(1, "shop"), answer);
        disk.len(&disk.list().unwrap()[0]).unwrap()
    };
    for (offset, bit) in (0..length).flat_map(|offset| (0..8).map(move |bit| (offset, bit))) {
        let kept = shelf(&disk, ByteSize::kib(64));
        kept.put(&key(1, "shop"), answer);
        assert_eq!(kept.get(&key(1, "shop")).as_deref(), Some(&answer[..]));
        let name = disk.list().unwrap().remove(0);
        assert!(disk.flip_bit(&name, offset, bit));
        assert_eq!(kept.get(&key(1, "shop")), None, "bit {bit} of byte {offset}");
        assert_eq!((kept.stats().damaged, disk.list().unwrap().len()), (1, 0));
    }
    // Cut short, as a crash leaves it.
    for left in 0..length {
        let kept = shelf(&disk, ByteSize::kib(64));
        kept.put(&key(1, "shop"), answer);
        let name = disk.list().unwrap().remove(0);
        let bytes = disk.read(&name).unwrap();
        disk.remove(&name).unwrap();
        disk.create_new(&name).unwrap();
        disk.write_at(&name, 0, &[&bytes[..left as usize]]).unwrap();
        assert_eq!(kept.get(&key(1, "shop")), None, "{left} bytes are left");
    }
}

#[test]
fn a_full_disk_keeps_less_and_fails_nothing() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(20 << 10));
    let kept = shelf(&disk, ByteSize::kib(64));
    (0..100).for_each(|number| kept.put(&key(number, "shop"), &[7; 1_000]));
    let stats = kept.stats();
    assert!(stats.bytes <= 19 << 10 && stats.files > 10, "{stats:?}");
    assert!(disk.free().unwrap() >= 1 << 10, "some of it stays free");
    // Somebody else takes all of it.
    disk.set_capacity(Some(0));
    for number in 100..140 {
        kept.put(&key(number, "shop"), &[7; 1_000]);
        assert_eq!(kept.get(&key(number, "shop")), None);
    }
    assert_eq!((kept.stats().files, kept.stats().bytes), (0, 0), "it makes room for others");
}
