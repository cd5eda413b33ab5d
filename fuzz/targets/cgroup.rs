//! Arbitrary bytes as the cgroups of a process, and as a path: names are parts of the path that they come from.
#![no_main]

use athanor_agent_ebpf::cgroups::{CgroupMembership, CgroupNames};
use libfuzzer_sys::fuzz_target;

const MAX_ID_BYTES: usize = 64;

fn check(path: &str) {
    let names = CgroupNames::from_path(path);
    if let Some(container) = names.container {
        assert!(path.contains(&*container.id));
        assert!(container.id.len() <= MAX_ID_BYTES);
        assert!(container.pod_uid.is_none_or(|uid| uid.len() == 36 || uid.len() == 32));
    }
    // Three bytes of a replacement character come from four of an escape at least, or from one that is no UTF-8.
    assert!(names.systemd_unit.len() <= 3 * path.len());
    assert!(names.systemd_slice.len() <= 3 * path.len());
}

fuzz_target!(|bytes: &[u8]| {
    let membership = CgroupMembership::parse(bytes);
    let paths = [membership.path, membership.unified, Some(String::from_utf8_lossy(bytes).into_owned())];
    paths.iter().flatten().for_each(|path| check(path));
});
