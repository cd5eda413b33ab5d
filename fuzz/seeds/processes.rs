//! Seeds of what the sampler reads of processes: mappings, cgroups and records of perf events.

const MAPS: &str = "\
55d0c0a00000-55d0c0a02000 r--p 00000000 08:01 4711                       /usr/bin/a
55d0c0a02000-55d0c0a07000 r-xp 00002000 08:01 4711                       /usr/bin/a b\\012c (deleted)
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7f0000006000-7f0000007000 r-xp 00000000 00:01 2050                       /memfd:code (deleted)
7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]
";
const MOUNTS: &str =
    "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n30 22 0:40 /a\\040b /c rw - nfs4 host:/x rw\n";
const STAT: &str = "77 (a) b) S 12 77 77 0 -1 2097216 1 2 3 4 5 6 7 8 20 0 9 0 4711 0 0\n";
const CGROUPS: [&str; 3] = [
    "0::/kubepods.slice/kubepods-pod2f9a1c3e_8b7d_4a65_9c1e_0d2b4f6a8c10.slice/cri-containerd-\
     3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef.scope\n",
    "5:cpu,cpuacct:/docker/3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef\n1:name=systemd:/\n",
    "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app\\x2da.scope\n",
];
const PID: u32 = 100;

/// Saves all of them.
pub fn seeds(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    for (number, text) in [MAPS, MOUNTS, STAT].iter().enumerate() {
        save("maps", &format!("seed-{number}"), &[&[15], text.as_bytes()].concat())?;
    }
    for (number, text) in CGROUPS.iter().enumerate() {
        save("cgroup", &format!("seed-{number}"), text.as_bytes())?;
    }
    save("sideband", "seed", &records())
}

/// Fork, exec, mappings with inode and build id, a sample, loss, exit.
fn records() -> Vec<u8> {
    let ids = words(&[PID, PID]);
    let task = [words(&[PID, 1, PID, 1]), 1000_u64.to_ne_bytes().to_vec()].concat();
    let range = [0x1000_u64, 0x2000, 0].map(u64::to_ne_bytes).concat();
    let inode = [words(&[8, 1]), [4711_u64, 0].map(u64::to_ne_bytes).concat()].concat();
    let build_id = [&[20, 0, 0, 0], &[0xab; 20][..]].concat();
    let mapped = |identity: &[u8]| [&ids[..], &range, identity, &words(&[5, 2]), b"/bin/a\0\0"].concat();
    let cgroup = [&5_u64.to_ne_bytes()[..], b"/a\0\0\0\0\0\0"].concat();
    [
        record(7, 0, &task),
        record(3, 1 << 13, &[&ids[..], b"a\0\0\0\0\0\0\0"].concat()),
        record(10, 2, &mapped(&inode)),
        record(10, 2 | 1 << 14, &mapped(&build_id)),
        record(9, 0, &[]),
        record(19, 0, &cgroup),
        record(2, 0, &[1_u64, 2].map(u64::to_ne_bytes).concat()),
        record(4, 0, &task),
    ]
    .concat()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn record(record_type: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = (8 + body.len() + 16) as u16;
    let trailer = [words(&[PID, PID]), 1000_u64.to_ne_bytes().to_vec()].concat();
    [&record_type.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body, &trailer].concat()
}
