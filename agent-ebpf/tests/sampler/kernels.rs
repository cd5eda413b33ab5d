//! Other kernels: boots Debian's kernels in a virtual machine without hardware support, with this test program inside.

mod initramfs;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use athanor_agent_ebpf::layout::StackEnd;
use athanor_agent_ebpf::sampler::Sampler;
use athanor_chassis::{Clock, Random};

use crate::kernel_objects::{KernelObjects, check_verified_instructions};
use crate::known_chains::{chains_of_c, test_config};
use crate::programs::{RunningProgram, sources_folder};
use crate::requirements::{cache_folder, can_sample, has_tool, reserve_host};
use crate::sampled_stacks::{ProcessStacks, add_window};
use initramfs::Initramfs;

const TEST: &str = "other kernels";
/// Debian's kernels of its stable release and its backports.
const SERIES: [&str; 2] = ["6.1", "6.12"];
const BOOT_TIMEOUT_SECONDS: &str = "400";
/// Line that the guest prints when its test has passed.
const PASSED: &str = "guest: passed";
const GUEST_PROGRAM: &str = "/programs/chains";
const GUEST_HZ: u32 = 97;
const GUEST_WINDOWS: usize = 8;
const GUEST_WINDOW: Duration = Duration::from_secs(2);
/// Maximum number of windows until the samples of a process that has just started are complete.
const MAX_WARM_UP_WINDOWS: usize = 30;

/// First process of the guest.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t tmpfs tmpfs /tmp
/bin/busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
export PATH=/bin HOME=/tmp RUST_BACKTRACE=1
echo \"guest: kernel $(/bin/busybox uname -r)\"
/test --ignored --exact kernels::guest_samples_known_chains --nocapture --test-threads=1 2>&1
/bin/busybox poweroff -f
";

#[test]
fn known_chains_are_found_on_debian_kernels() {
    let tools = ["qemu-system-x86_64", "busybox", "dpkg", "ldd"];
    if !tools.iter().all(|tool| has_tool(TEST, tool)) {
        return;
    }
    let Some(program) = crate::known_chains::program_of_c().build(TEST) else { return };
    let images: Vec<(&str, PathBuf)> =
        SERIES.iter().filter_map(|series| Some((*series, fetch_kernel(series)?))).collect();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("initramfs");
    std::fs::write(&archive, pack_guest(&program)).unwrap();
    let _host = reserve_host();
    let outputs: Vec<(&str, String)> = std::thread::scope(|scope| {
        let archive = archive.as_path();
        let boots: Vec<_> =
            images.iter().map(|(series, image)| (*series, scope.spawn(|| boot(image, archive)))).collect();
        boots.into_iter().map(|(series, boot)| (series, boot.join().unwrap())).collect()
    });
    for (series, output) in &outputs {
        for line in output.lines().filter(|line| line.contains("guest: ")) {
            println!("{series}: {}", line.trim());
        }
    }
    for (series, output) in outputs {
        assert!(output.contains(PASSED), "{series}:\n{output}");
    }
}

#[test]
#[ignore = "started by another test inside of a virtual machine"]
fn guest_samples_known_chains() {
    assert!(can_sample(TEST), "the guest has what the sampler needs");
    let mut sampler = Sampler::start(test_config(GUEST_HZ), Clock::system(), Random::system()).unwrap();
    let program = RunningProgram::start(Path::new(GUEST_PROGRAM), &["600".to_owned()]);
    warm_up(&mut sampler, program.pid());
    let mut stacks = std::collections::HashMap::new();
    for _ in 0..GUEST_WINDOWS {
        sampler.run_for(GUEST_WINDOW);
        add_window(&mut stacks, &sampler.close_window().unwrap());
    }
    let stats = sampler.stats();
    let lost: u64 = stats.samples_lost.iter().sum();
    println!("guest: {} taken, {} delivered, {lost} lost", stats.samples_taken, stats.samples_delivered);
    assert_eq!(stats.samples_taken, stats.samples_delivered + lost);
    assert_eq!(stats.samples_delivered, stats.samples_by_end.iter().sum::<u64>());
    check_guest_stacks(&stacks[&program.pid()]);
    check_verified_instructions(&KernelObjects::of_process("self"));
    println!("{PASSED}");
}

/// Samples until the unwind rows of a process are loaded, which an emulated processor takes seconds for.
fn warm_up(sampler: &mut Sampler, pid: u32) {
    for number in 1..=MAX_WARM_UP_WINDOWS {
        sampler.run_for(GUEST_WINDOW);
        let mut stacks = std::collections::HashMap::new();
        add_window(&mut stacks, &sampler.close_window().unwrap());
        if stacks.get(&pid).is_some_and(has_complete_stacks) {
            println!("guest: the samples of window {number} are complete");
            return;
        }
    }
    panic!("no window of {MAX_WARM_UP_WINDOWS} has complete samples");
}

fn complete_samples(stacks: &ProcessStacks) -> u64 {
    stacks.all().filter(|stack| stack.end == StackEnd::Complete).map(|stack| stack.samples).sum()
}

fn has_complete_stacks(stacks: &ProcessStacks) -> bool {
    complete_samples(stacks) * 100 >= stacks.samples() * 99
}

fn check_guest_stacks(stacks: &ProcessStacks) {
    let (complete, total) = (complete_samples(stacks), stacks.samples());
    println!("guest: {complete} of {total} samples of the program are complete");
    assert!(total > 100, "{total} samples");
    assert!(has_complete_stacks(stacks), "{complete} of {total} are complete");
    for chain in chains_of_c() {
        let found: u64 =
            stacks.all().filter(|stack| chain.matches("chains", stack)).map(|stack| stack.samples).sum();
        println!("guest: {found} {}", chain.functions.join(";"));
        assert!(found > 0, "{:?} is found", chain.functions);
    }
}

/// Returns the image of a kernel. Prints a skip line if Debian's mirror cannot be reached.
fn fetch_kernel(series: &str) -> Option<PathBuf> {
    let script = sources_folder().with_file_name("fetch_kernel.sh");
    let mut command = Command::new(script);
    let output = command.arg(series).arg(cache_folder("athanor-kernels")).output().unwrap();
    if !output.status.success() {
        println!("skip: {TEST}: no image of {series}");
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Packs this test program and the sampled one, with the shared libraries of both.
fn pack_guest(program: &Path) -> Vec<u8> {
    let test = std::env::current_exe().unwrap();
    let mut archive = Initramfs::default();
    for folder in ["proc", "sys", "dev", "tmp"] {
        archive.add_folder(folder);
    }
    archive.add_file("init", INIT.as_bytes());
    archive.add_file("bin/busybox", &std::fs::read(find_in_path("busybox")).unwrap());
    archive.add_file("test", &std::fs::read(&test).unwrap());
    archive.add_file(GUEST_PROGRAM.trim_start_matches('/'), &std::fs::read(program).unwrap());
    let mut libraries: Vec<PathBuf> = shared_libraries(&test);
    libraries.extend(shared_libraries(program));
    libraries.sort();
    libraries.dedup();
    for library in libraries {
        archive
            .add_file(library.to_str().unwrap().trim_start_matches('/'), &std::fs::read(&library).unwrap());
    }
    archive.finish()
}

fn find_in_path(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.exists()).unwrap()
}

/// Returns the shared libraries of a program, the dynamic linker among them.
fn shared_libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_ascii_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Boots a kernel. Returns what it printed until it switched off.
fn boot(image: &Path, archive: &Path) -> String {
    let mut command = Command::new("timeout");
    // qemu 7.2 emulates cmpxchg16b wrongly between threads: a kernel that uses it crashes now and then.
    command.args([BOOT_TIMEOUT_SECONDS, "qemu-system-x86_64", "-M", "q35", "-cpu", "max,cx16=off"]);
    command.args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "1024", "-nographic", "-no-reboot"]);
    command.args(["-nic", "none", "-kernel"]).arg(image).arg("-initrd").arg(archive);
    command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
