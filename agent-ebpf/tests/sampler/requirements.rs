//! Requirements of the tests: privileges, tools, a cache folder, and a host that one test has for itself.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use parking_lot::{Mutex, MutexGuard};

/// Capabilities of the sampler with their bits.
const CAPABILITIES: [(&str, u32); 3] = [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_SYS_PTRACE", 19)];

/// Held by tests that load the host or count its samples.
static HOST: Mutex<()> = Mutex::new(());

/// Waits until no other test of this program uses the host, and reserves it.
pub fn reserve_host() -> MutexGuard<'static, ()> {
    HOST.lock()
}

/// Returns whether the sampler can run. Prints a skip line if not.
pub fn can_sample(test: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    for (name, bit) in CAPABILITIES {
        if effective & 1 << bit == 0 {
            println!("skip: {test}: no {name}");
            return false;
        }
    }
    let has_types = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    if !has_types {
        println!("skip: {test}: no /sys/kernel/btf/vmlinux");
    }
    has_types
}

/// Returns whether a tool is in `PATH`. Prints a skip line if not.
pub fn has_tool(test: &str, tool: &str) -> bool {
    let mut probe = Command::new(tool);
    probe.arg(match tool {
        "go" => "version",
        "busybox" => "true",
        _ => "--version",
    });
    let found = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skip: {test}: no {tool}");
    }
    found
}

/// Returns a folder outside of the checkout that stays between runs.
pub fn cache_folder(name: &str) -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = base.or(home).unwrap_or_else(std::env::temp_dir);
    let folder = base.join(name);
    std::fs::create_dir_all(&folder).expect("the cache folder can be created");
    folder
}
