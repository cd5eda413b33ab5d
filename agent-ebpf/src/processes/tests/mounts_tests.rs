//! Tests of mounts.

use super::*;

const TEXT: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /dev rw shared:2 master:1 - devtmpfs udev rw,size=1
30 22 0:40 / /home/a\\040b rw - nfs4 host:/x rw,addr=1.2.3.4
31 22 0:41 /sub /mnt/tool rw - fuse.sshfs a@b:/ rw
32 22 0:42 / /var/lib/box rw - overlay overlay rw,lowerdir=/a,upperdir=/b
33 22 0:43 / /sys/fs/fuse/connections rw - fusectl fusectl rw
34 22 0:44 / /cover rw - nfs host:/x rw
35 34 8:2 / /cover rw - xfs /dev/sdb rw
malformed
36 22 x:y / /bad rw - ext4 a rw
37 22 8:1 / /no/dash rw ext4 a rw
";

#[test]
fn kinds_follow_types() {
    for (name, kind) in [
        ("ext4", FileSystemKind::Local),
        ("tmpfs", FileSystemKind::Local),
        ("fusectl", FileSystemKind::Local),
        ("overlay", FileSystemKind::Stacked),
        ("btrfs", FileSystemKind::Stacked),
        ("nfs", FileSystemKind::Remote),
        ("nfs4", FileSystemKind::Remote),
        ("cifs", FileSystemKind::Remote),
        ("fuse", FileSystemKind::Remote),
        ("fuseblk", FileSystemKind::Remote),
        ("fuse.sshfs", FileSystemKind::Remote),
        ("9p", FileSystemKind::Remote),
        ("virtiofs", FileSystemKind::Remote),
        ("orangefs", FileSystemKind::Remote),
        ("panfs", FileSystemKind::Remote),
        ("autofs", FileSystemKind::Remote),
    ] {
        assert_eq!(FileSystemKind::from_name(name.as_bytes()), kind, "{name}");
    }
}

#[test]
fn mounts_are_found_by_id_and_path() {
    let table = MountTable::parse(TEXT);
    assert_eq!(table.mount_kind(22), Some(FileSystemKind::Local));
    assert_eq!(table.mount_kind(30), Some(FileSystemKind::Remote));
    assert_eq!(table.mount_kind(32), Some(FileSystemKind::Stacked));
    for id in [36, 37, 99] {
        assert_eq!(table.mount_kind(id), None);
    }
    for path in ["/home/a b/lib.so", "/home/a b", "/mnt/tool/x/y/z"] {
        assert!(table.crosses_remote(path.as_bytes()), "{path}");
    }
    for path in ["/home/a bc/lib.so", "/home/a", "/", "", "/mnt/tools", "/cover/lib.so", "/var/lib/box/a"] {
        assert!(!table.crosses_remote(path.as_bytes()), "{path}");
    }
    let root = MountTable::parse(b"22 1 0:9 / / rw - nfs host:/ rw\n");
    assert!(root.crosses_remote(b"/bin/sh"));
}

#[test]
fn own_mounts_have_the_proc_folder() {
    let bytes = std::fs::read("/proc/self/mountinfo").unwrap();
    let proc_mount = Mount::parse_all(&bytes).find(|mount| mount.mount_point == b"/proc").unwrap();
    assert_eq!(proc_mount.file_system, b"proc");
}

#[test]
fn escapes_are_octal_bytes() {
    assert_eq!(unescape_octal(b"a\\040b\\011\\134\\"), b"a b\t\\\\");
    assert_eq!(unescape_octal(b"\\9zz\\777"), b"\\9zz\\777");
}

#[test]
fn kind_of_layers_is_that_of_the_worst() {
    let kind = |options: &str| {
        let text = format!(
            "22 1 8:1 / / rw - ext4 /dev/sda rw\n\
             23 22 0:7 / /remote rw - fuse.stargz a rw\n\
             24 23 8:2 / /remote/local rw - ext4 /dev/sdb rw\n\
             25 22 0:8 / /outer rw - overlay o rw,lowerdir=/remote/x\n\
             26 22 0:9 / /box rw - overlay o {options}\n\
             27 22 0:10 / /loop rw - overlay o rw,lowerdir=/loop/x\n"
        );
        MountTable::parse(text.as_bytes()).mount_kind(26).unwrap()
    };
    for (options, expected) in [
        ("rw,lowerdir=/a:/b,upperdir=/c,workdir=/d", FileSystemKind::Stacked),
        ("rw,lowerdir+=/a,datadir+=/b", FileSystemKind::Stacked),
        ("rw,lowerdir=/a::/data", FileSystemKind::Stacked),
        ("rw,lowerdir=/a:/remote/b,upperdir=/c", FileSystemKind::Remote),
        ("rw,lowerdir=/a,upperdir=/remote/c", FileSystemKind::Remote),
        ("rw,lowerdir+=/a,lowerdir+=/remote", FileSystemKind::Remote),
        ("rw,lowerdir=/a::/remote/data", FileSystemKind::Remote),
        ("rw,lowerdir=/remote/local/a", FileSystemKind::Remote),
        ("rw,lowerdir=/outer/x", FileSystemKind::Remote),
        ("rw,lowerdir=/box/x", FileSystemKind::HiddenLayers),
        ("rw,lowerdir=/loop/x", FileSystemKind::HiddenLayers),
        ("rw,lowerdir=a:b", FileSystemKind::HiddenLayers),
        ("rw", FileSystemKind::HiddenLayers),
        ("rw,lowerdir=/a\\134:b,upperdir=/c", FileSystemKind::Stacked),
        ("rw,lowerdir=/a\\134\\134:/remote/c", FileSystemKind::Remote),
    ] {
        assert_eq!(kind(options), expected, "{options}");
    }
    let many = vec!["/a"; MAX_LAYERS + 1].join(":");
    assert_eq!(kind(&format!("rw,lowerdir={many}")), FileSystemKind::HiddenLayers);
}
