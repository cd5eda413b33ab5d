//! Resource usage of another process, as Linux reports it.

use std::fs;
use std::time::Duration;

/// Clock ticks of `/proc/PID/stat` per second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Usage since the start of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// Processor time of all threads.
    pub cpu: Duration,
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Number of times at which a thread waited and went on.
    pub wake_ups: u64,
}

impl ProcessUsage {
    /// Reads the usage of a running process.
    pub fn of(process: u32) -> Self {
        let folder = format!("/proc/{process}");
        let stat = fs::read_to_string(format!("{folder}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let tasks = fs::read_dir(format!("{folder}/task")).unwrap();
        // A thread may end meanwhile.
        let threads = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
        Self {
            cpu: Duration::from_secs_f64(ticks / TICKS_PER_SECOND),
            resident_bytes: status_number(&status, "VmRSS:") * 1024,
            wake_ups: threads.map(|status| status_number(&status, "voluntary_ctxt_switches:")).sum(),
        }
    }
}

fn status_number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
