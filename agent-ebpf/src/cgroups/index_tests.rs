//! Tests with the real hierarchy.

use athanor_chassis::Timestamp;

use super::*;

fn own_mounts() -> Vec<u8> {
    std::fs::read("/proc/self/mountinfo").unwrap()
}

/// Folder of the v2 hierarchy in which tests may make cgroups.
fn writable_hierarchy() -> Option<std::path::PathBuf> {
    let mounts = own_mounts();
    let mount = Mount::parse_all(&mounts).find(|mount| mount.file_system == b"cgroup2")?;
    let path = std::path::PathBuf::from(OsStr::from_bytes(&mount.mount_point));
    let probe = path.join(format!("athanor-probe-{}", std::process::id()));
    std::fs::create_dir(&probe).ok()?;
    std::fs::remove_dir(&probe).ok()?;
    Some(path)
}

/// Cgroup that is removed in the end.
struct TestCgroup(std::path::PathBuf);

impl TestCgroup {
    fn create(path: std::path::PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn id(&self) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&self.0).unwrap())
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn new_cgroup_is_found_by_id_after_pause() {
    let Some(folder) = writable_hierarchy() else {
        println!("skip: needs a writable cgroup2 hierarchy");
        return;
    };
    let name = format!("athanor-index-{}", std::process::id());
    let outer = TestCgroup::create(folder.join(&name));
    let (clock, hand) = Clock::manual(Timestamp::from_seconds(1));
    let mut index = CgroupIndex::new(&own_mounts());
    assert_eq!(index.path(outer.id(), &clock).as_deref(), Some(&*format!("/{name}")));
    let inner = TestCgroup::create(outer.0.join("a b.scope"));
    let inner_path = format!("/{name}/a b.scope");
    assert_eq!(index.path(inner.id(), &clock), None, "the last scan was a short time ago");
    hand.advance(Duration::from_secs(10));
    assert_eq!(index.path(inner.id(), &clock).as_deref(), Some(&*inner_path));
    let mut checked = CgroupIndex::new(&own_mounts());
    checked.insert_checked(inner.id() + 1, &inner_path);
    checked.insert_checked(outer.id(), &format!("/{name}/../{name}"));
    assert_eq!(checked.cached_path(inner.id() + 1), None);
    assert_eq!(checked.cached_path(outer.id()), None);
    checked.insert_checked(inner.id(), &inner_path);
    assert_eq!(checked.cached_path(inner.id()).as_deref(), Some(&*inner_path));
}

#[test]
fn layout_decides_whether_ids_count() {
    let line =
        |file_system: &str| format!("41 31 0:38 / /sys/fs/cgroup rw - {file_system} {file_system} rw\n");
    let unified = line("cgroup2");
    let hybrid = line("cgroup2") + &line("cgroup");
    let has_mount = std::path::Path::new("/sys/fs/cgroup").is_dir();
    assert_eq!(CgroupIndex::new(unified.as_bytes()).has_useful_ids(), has_mount);
    assert!(!CgroupIndex::new(hybrid.as_bytes()).has_useful_ids());
    assert!(!CgroupIndex::new(b"").has_useful_ids());
}

#[test]
fn cache_is_bounded() {
    let mut index = CgroupIndex::new(b"");
    for id in 0..2 * MAX_CGROUPS as u64 {
        index.insert(id, b"/a");
        assert!(index.paths.len() <= MAX_CGROUPS);
    }
    index.insert(7, &vec![b'x'; 2 * MAX_PATH_BYTES]);
    assert_eq!(index.cached_path(7).unwrap().len(), MAX_PATH_BYTES);
}
