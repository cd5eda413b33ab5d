//! Tests of opening files of real processes.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;

use super::*;
use crate::processes::ProcessTable;
use crate::processes::test_processes::{TestProcess, compile, new_request, new_table, wait_until};

/// Returns the mapping of a file, with the folder of its process.
fn load_mapping(table: &mut ProcessTable, process: &TestProcess, name: &[u8]) -> (ProcessFolder, Mapping) {
    let loaded = table.load(&new_request(process.pid())).unwrap();
    let mapping = loaded.mappings.iter().find(|mapping| mapping.path.ends_with(name)).cloned();
    (loaded.folder, mapping.unwrap_or_else(|| panic!("no mapping of {}", name.escape_ascii())))
}

fn content(source: MappedSource) -> Vec<u8> {
    let MappedSource::File { mut file, .. } = source else { panic!("a file") };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Looks for a file by its path only, as without privileges for the links.
fn open_by_path(process: &ProcessFolder, mapping: &Mapping) -> Result<FileStamp, OpenError> {
    let opener = MappedFileOpener::new(&std::fs::read("/proc/self/mountinfo").unwrap(), None);
    let mounts = MountTable::parse(&process.mounts().unwrap());
    let unreachable = |errno: Option<Errno>| match errno {
        Some(errno) => OpenError::Unreachable { path: escaped_path(mapping), source: errno.into() },
        None => OpenError::Remote { path: escaped_path(mapping) },
    };
    let found = find_by_path(process, mapping, &mounts).map_err(unreachable)?;
    opener.check(&found, mapping, &ProcessMounts { table: mounts, is_trusted: true })
}

fn can_follow_map_files(process: &ProcessFolder, mapping: &Mapping) -> bool {
    let can_follow = find_by_range(process, mapping, &MountTable::default()).is_ok();
    if !can_follow {
        println!("skip: needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN");
    }
    can_follow
}

#[test]
fn deleted_executable_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (process, program) = TestProcess::copy_of_sleep(folder.path());
    std::fs::remove_file(&program).unwrap();
    let mut table = new_table();
    let (process_folder, mapping) = load_mapping(&mut table, &process, b"/program");
    assert!(mapping.is_deleted && !mapping.is_memory_file());
    let source = table.open_mapping(&process_folder, &mapping).unwrap();
    assert_eq!(content(source), std::fs::read("/bin/sleep").unwrap());
    let by_executable = find_by_executable(&process_folder, &mapping, &MountTable::default()).unwrap();
    assert!(by_executable.has_mapped_path && !by_executable.is_by_range);
    let error = open_by_path(&process_folder, &mapping).unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
}

#[test]
fn replaced_executable_is_not_confused_with_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (process, program) = TestProcess::copy_of_sleep(folder.path());
    let mut table = new_table();
    // As loaded before the replacement: the path has no mark then.
    let (process_folder, mapping) = load_mapping(&mut table, &process, b"/program");
    assert_eq!(open_by_path(&process_folder, &mapping).unwrap().inode, mapping.inode);
    std::fs::write(folder.path().join("new"), "other").unwrap();
    std::fs::rename(folder.path().join("new"), &program).unwrap();
    let error = open_by_path(&process_folder, &mapping).unwrap_err();
    assert!(matches!(error, OpenError::Replaced { .. }), "{error}");
    let source = table.open_mapping(&process_folder, &mapping).unwrap();
    assert_eq!(content(source), std::fs::read("/bin/sleep").unwrap());
}

#[test]
fn fifo_and_folder_at_mapped_path_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (process, program) = TestProcess::copy_of_sleep(folder.path());
    let (process_folder, mapping) = load_mapping(&mut new_table(), &process, b"/program");
    std::fs::remove_file(&program).unwrap();
    assert!(Command::new("mkfifo").arg(&program).status().unwrap().success());
    let error = open_by_path(&process_folder, &mapping).unwrap_err();
    assert!(matches!(error, OpenError::NotRegular { .. }), "{error}");
    std::fs::remove_file(&program).unwrap();
    std::fs::create_dir(&program).unwrap();
    let error = open_by_path(&process_folder, &mapping).unwrap_err();
    assert!(matches!(error, OpenError::NotRegular { .. }), "{error}");
}

#[test]
fn program_in_memory_is_read() {
    let memory = rustix::fs::memfd_create(c"code \n", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let program = std::fs::read("/bin/sleep").unwrap();
    let mut file = File::from(memory);
    std::io::Write::write_all(&mut file, &program).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&file));
    let process = TestProcess::spawn(Command::new(&path).arg("1000"));
    wait_until("program runs", || {
        let target = std::fs::read_link(format!("/proc/{}/exe", process.pid()));
        target.is_ok_and(|target| target.as_os_str().as_bytes().starts_with(b"/memfd:"))
            && process.is_mapped()
    });
    let mut table = new_table();
    let (process_folder, mapping) = load_mapping(&mut table, &process, b"/memfd:code \n");
    assert!(mapping.is_memory_file());
    assert_eq!(content(table.open_mapping(&process_folder, &mapping).unwrap()), program);
}

/// Program that maps a file and then creates another one.
const MAPS_FILE: &str = r#"
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>
int main(int count, char **arguments) {
    int file = open(arguments[1], O_RDONLY);
    if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) return 1;
    creat(arguments[2], 0600);
    pause();
}
"#;

#[test]
fn deleted_library_is_read_through_its_mapping() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), MAPS_FILE) else {
        println!("skip: needs a C compiler");
        return;
    };
    let library = folder.path().join("lib a\nb.so");
    let mark = folder.path().join("mark");
    std::fs::write(&library, vec![b'x'; 5000]).unwrap();
    let process = TestProcess::spawn(Command::new(program).arg(&library).arg(&mark));
    wait_until("file is mapped", || mark.exists());
    let mut table = new_table();
    let (process_folder, mapping) = load_mapping(&mut table, &process, b"/lib a\nb.so");
    let stamp = open_by_path(&process_folder, &mapping).unwrap();
    assert_eq!((stamp.inode, stamp.bytes), (std::fs::metadata(&library).unwrap().ino(), 5000));
    std::fs::remove_file(&library).unwrap();
    let (process_folder, mapping) = load_mapping(&mut table, &process, b"/lib a\nb.so");
    if can_follow_map_files(&process_folder, &mapping) {
        let source = table.open_mapping(&process_folder, &mapping).unwrap();
        assert_eq!(content(source), vec![b'x'; 5000]);
    }
}

/// Process in a chroot, with the folder of its root.
fn spawn_in_chroot(root: &Path) -> Option<TestProcess> {
    std::fs::create_dir_all(root.join("bin")).unwrap();
    if std::fs::copy("/bin/busybox", root.join("bin/busybox")).is_err() {
        println!("skip: needs a static busybox");
        return None;
    }
    let process =
        TestProcess::spawn(Command::new("chroot").arg(root).args(["/bin/busybox", "sleep", "1000"]));
    for _ in 0..4000 {
        match std::fs::read_link(format!("/proc/{}/exe", process.pid())) {
            Ok(path) if path.ends_with("bin/busybox") && process.is_mapped() => return Some(process),
            Ok(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            Err(_) => break,
        }
    }
    println!("skip: needs CAP_SYS_CHROOT");
    None
}

#[test]
fn path_in_chroot_is_that_of_process_and_leads_to_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(process) = spawn_in_chroot(folder.path()) else { return };
    let mut table = new_table();
    let (process_folder, mapping) = load_mapping(&mut table, &process, b"/busybox");
    assert_eq!(mapping.path.as_ref(), b"/bin/busybox");
    assert_eq!(process_folder.executable().unwrap(), b"/bin/busybox");
    assert_eq!(open_by_path(&process_folder, &mapping).unwrap().inode, mapping.inode);
    let source = table.open_mapping(&process_folder, &mapping).unwrap();
    assert_eq!(content(source), std::fs::read("/bin/busybox").unwrap());
}

#[test]
fn links_in_path_do_not_lead_out_of_root() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let Some(process) = spawn_in_chroot(&root) else { return };
    let (process_folder, mapping) = load_mapping(&mut new_table(), &process, b"/busybox");
    // The same file outside: only the refusal of the link keeps the agent from it.
    let outside = folder.path().join("outside");
    std::fs::rename(root.join("bin"), &outside).unwrap();
    for target in [outside.as_path(), Path::new("../outside"), Path::new("/proc/self/root/bin")] {
        symlink(target, root.join("bin")).unwrap();
        let error = open_by_path(&process_folder, &mapping).unwrap_err();
        let OpenError::Unreachable { source, .. } = error else { panic!("{}: {error}", target.display()) };
        assert_eq!(source.raw_os_error(), Some(Errno::LOOP.raw_os_error()), "{}", target.display());
        std::fs::remove_file(root.join("bin")).unwrap();
    }
    let above = Mapping { path: b"/../outside/busybox"[..].into(), ..mapping };
    assert!(open_by_path(&process_folder, &above).is_err());
}

#[test]
fn remote_mount_is_refused_before_it_is_accessed() {
    let process = ProcFolder::open("/proc".as_ref()).unwrap().open_process(std::process::id()).unwrap();
    let mapping = Mapping::new(0x1000..0x2000, 0, b"/bin/sleep").with_inode(DeviceNumber::default(), 7);
    let mounts = MountTable::parse(b"22 1 0:9 / /bin rw - fuse.tool tool rw\n");
    assert!(matches!(find_by_path(&process, &mapping, &mounts), Err(None)));
    let found = find_by_path(&process, &mapping, &MountTable::default());
    let mapping = Mapping::new(0x1000..0x2000, 0, b"/usr/bin/sleep").with_inode(DeviceNumber::default(), 7);
    let found = found.or_else(|_| find_by_path(&process, &mapping, &MountTable::default())).unwrap();
    // The mount of the file itself decides, not that of the path.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(&found.fd, c"", flags, StatxFlags::MNT_ID).unwrap();
    let id = status.stx_mnt_id;
    let opener = MappedFileOpener::new(format!("{id} 1 0:9 / /x rw - nfs4 host:/ rw\n").as_bytes(), None);
    let error = opener.check(&found, &mapping, &ProcessMounts::default()).unwrap_err();
    assert!(matches!(error, OpenError::Remote { .. }), "{error}");
}

#[test]
fn layers_may_have_another_device_but_not_another_inode() {
    let process = ProcFolder::open("/proc".as_ref()).unwrap().open_process(std::process::id()).unwrap();
    let path = std::fs::canonicalize("/bin/sleep").unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    let other_device = DeviceNumber { major: 0, minor: 1_000_000 };
    let path = path.as_os_str().as_bytes();
    let mapping = Mapping::new(0x1000..0x2000, 0, path).with_inode(other_device, metadata.ino());
    let found = find_by_path(&process, &mapping, &MountTable::default()).unwrap();
    let status = rustix::fs::statx(&found.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).unwrap();
    let check = |file_system: &str, mapping: &Mapping| {
        let line = format!("{} 1 0:9 / / rw - {file_system} a rw\n", status.stx_mnt_id);
        MappedFileOpener::new(line.as_bytes(), None).check(&found, mapping, &ProcessMounts::default())
    };
    assert!(check("overlay", &mapping).is_ok());
    assert!(matches!(check("ext4", &mapping), Err(OpenError::Replaced { .. })));
    let other_inode = Mapping { inode: metadata.ino() + 1, ..mapping };
    assert!(matches!(check("overlay", &other_inode), Err(OpenError::Replaced { .. })));
}

#[test]
fn layers_decide_whether_a_mount_is_read() {
    let layered = DeviceNumber { major: 0, minor: 50 };
    let local = "22 1 8:1 / / rw - ext4 /dev/sda rw\n";
    let fuse = "23 22 0:9 / /remote rw - fuse.tool tool rw\n";
    let overlay = |lower: &str| format!("30 22 0:50 / /box rw - overlay overlay rw,lowerdir={lower}\n");
    let inside = "40 1 0:50 / / rw - overlay overlay rw,lowerdir=/hidden\n";
    let kind = |own: &str, first: &str, process: &str, is_trusted: bool| {
        let mut opener = MappedFileOpener::new(own.as_bytes(), None);
        opener.first_mounts = Some(MountTable::parse(first.as_bytes()));
        let mounts = ProcessMounts { table: MountTable::parse(process.as_bytes()), is_trusted };
        opener.layered_kind(layered, &mounts)
    };
    let host = [local, fuse, &overlay("/a:/b")].concat();
    let remote_host = [local, fuse, &overlay("/a:/remote/b")].concat();
    assert_eq!(kind(&host, "", inside, false), FileSystemKind::Stacked, "container of the own host");
    assert_eq!(kind(local, &host, inside, true), FileSystemKind::Stacked, "the agent is in a container");
    assert_eq!(kind(&remote_host, "", inside, false), FileSystemKind::Remote);
    assert_eq!(kind(local, &remote_host, inside, true), FileSystemKind::Remote);
    assert_eq!(kind(local, local, inside, true), FileSystemKind::Stacked, "privileged processes mounted it");
    assert_eq!(kind(local, local, inside, false), FileSystemKind::HiddenLayers);
    assert_eq!(kind(local, local, &host, true), FileSystemKind::Stacked);
    assert_eq!(kind(local, local, &remote_host, true), FileSystemKind::Remote);
    assert_eq!(kind(local, local, &host, false), FileSystemKind::HiddenLayers, "of another user namespace");
    assert_eq!(kind(inside, "", inside, true), FileSystemKind::Stacked, "the root of the agent");
}
