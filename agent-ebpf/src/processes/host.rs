//! Facts of the machine.

use std::path::Path;
use std::sync::Arc;

const MAX_CPUINFO_BYTES: usize = 64 << 10;
const MAX_LIST_BYTES: usize = 16 << 10;
/// Bound of CPU and node numbers in a list. The kernel supports 8192 CPUs.
const MAX_LIST_NUMBER: u32 = 65_535;

/// Facts of the machine: the source of labels that all processes share.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Release of the kernel.
    pub kernel_release: Arc<str>,
    /// Machine type, such as `x86_64`.
    pub machine: Arc<str>,
    /// Host name.
    pub host_name: Arc<str>,
    /// Model of the first CPU. Empty if unknown.
    pub cpu_model: Arc<str>,
    /// Number of NUMA nodes, at least 1.
    pub numa_nodes: usize,
    /// CPUs that are online.
    pub online_cpus: Vec<u32>,
}

// === impl HostFacts ===

impl HostFacts {
    /// Reads the facts of this machine. What cannot be read stays empty.
    pub fn read(proc_folder: &Path, sys_folder: &Path) -> Self {
        let name = rustix::system::uname();
        let text = |text: &std::ffi::CStr| -> Arc<str> { text.to_string_lossy().into() };
        let read = |path: &Path, max_bytes| read_bounded(path, max_bytes).unwrap_or_default();
        let nodes = read(&sys_folder.join("devices/system/node/online"), MAX_LIST_BYTES);
        let cpus = read(&sys_folder.join("devices/system/cpu/online"), MAX_LIST_BYTES);
        Self {
            kernel_release: text(name.release()),
            machine: text(name.machine()),
            host_name: text(name.nodename()),
            cpu_model: parse_cpu_model(&read(&proc_folder.join("cpuinfo"), MAX_CPUINFO_BYTES)).into(),
            numa_nodes: parse_number_list(&nodes).map_or(1, |nodes| nodes.len().max(1)),
            online_cpus: parse_number_list(&cpus).unwrap_or_default(),
        }
    }
}

/// Parses a list of CPUs or nodes, such as `0-3,8,10-11`. Returns None if it does not have this form, or its ranges
/// overlap or are not in order.
pub fn parse_number_list(text: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    let mut numbers: Vec<u32> = Vec::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.parse().ok()?;
        let last: u32 = last.parse().ok()?;
        let is_next = numbers.last().is_none_or(|previous| *previous < first);
        if !is_next || first > last || last > MAX_LIST_NUMBER {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

fn parse_cpu_model(cpuinfo: &[u8]) -> String {
    let field = |line: &[u8]| -> Option<Vec<u8>> {
        let position = line.iter().position(|byte| *byte == b':')?;
        let name = line.get(..position)?.trim_ascii();
        (name == b"model name").then(|| line.get(position + 1..).unwrap_or_default().trim_ascii().to_vec())
    };
    let model = cpuinfo.split(|byte| *byte == b'\n').find_map(field).unwrap_or_default();
    String::from_utf8_lossy(&model).into_owned()
}

fn read_bounded(path: &Path, max_bytes: usize) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(max_bytes as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_list_is_parsed_or_refused() {
        let parse = |text: &str| parse_number_list(text.as_bytes());
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("\n"), Some(vec![]));
        for text in ["3-1", "0-", "-1", "a", "0-1-2", "0-99999999", "2,1", "0-3,2", "1,1", "0 1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn cpu_model_is_that_of_first_cpu() {
        let text = b"processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU: 2 GHz\n\nmodel name\t: Other\n";
        assert_eq!(parse_cpu_model(text), "Some CPU: 2 GHz");
        assert_eq!(parse_cpu_model(b""), "");
    }

    #[test]
    fn facts_of_this_machine_are_complete() {
        let facts = HostFacts::read("/proc".as_ref(), "/sys".as_ref());
        assert_eq!(&*facts.machine, std::env::consts::ARCH);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(&*facts.kernel_release, release.trim());
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
        assert_eq!(facts.online_cpus.len(), count);
        assert!(facts.numa_nodes >= 1);
        assert!(cpus.contains(&*facts.cpu_model));
    }
}
