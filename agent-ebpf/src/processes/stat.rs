//! `/proc/PID/stat` and `/proc/PID/status`.

/// Flag of threads of the kernel.
const KERNEL_THREAD_FLAG: u64 = 0x0020_0000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Name, up to 15 bytes for processes and more for threads of the kernel.
    pub comm: Vec<u8>,
    /// State, such as `R` or `Z`.
    pub state: u8,
    /// Parent process.
    pub parent_pid: u32,
    /// Thread of the kernel.
    pub is_kernel_thread: bool,
    /// Number of threads.
    pub thread_count: u64,
    /// Start since boot, in clock ticks.
    pub start_ticks: u64,
}

/// Fields of `/proc/PID/status`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProcessStatus {
    /// Real user id.
    pub user_id: Option<u32>,
    /// Process id in each PID namespace, from that of the reader to the innermost.
    pub namespace_pids: Vec<u32>,
}

/// Length of a clock tick of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockTick {
    nanos: u64,
}

// === impl ProcessStat ===

impl ProcessStat {
    /// Parses the content of the file. Returns None if it does not have its form. The name may contain any byte.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let comm = bytes.get(open.checked_add(1)?..close)?.to_vec();
        let rest = std::str::from_utf8(bytes.get(close.checked_add(1)?..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent_pid = fields.next()?.parse().ok()?;
        // Between them: group, session, terminal, its group.
        let flags: u64 = fields.nth(4)?.parse().ok()?;
        // Between them: four counts of faults, four times, priority, niceness.
        let thread_count = fields.nth(10)?.parse().ok()?;
        let start_ticks = fields.nth(1)?.parse().ok()?;
        let is_kernel_thread = flags & KERNEL_THREAD_FLAG != 0;
        Some(Self { comm, state, parent_pid, is_kernel_thread, thread_count, start_ticks })
    }

    /// Returns whether the process ended and its parent did not wait for it yet.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

// === impl ProcessStatus ===

impl ProcessStatus {
    /// Parses the content of the file. Unknown and malformed lines are skipped.
    pub fn parse(bytes: &[u8]) -> Self {
        const MAX_NAMESPACES: usize = 33;
        let mut status = Self::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            if let Some(numbers) = line.strip_prefix(b"Uid:") {
                status.user_id = parse_numbers(numbers).next();
            } else if let Some(numbers) = line.strip_prefix(b"NSpid:") {
                status.namespace_pids = parse_numbers(numbers).take(MAX_NAMESPACES).collect();
            }
        }
        status
    }
}

fn parse_numbers(text: &[u8]) -> impl Iterator<Item = u32> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.split_ascii_whitespace().map_while(|number| number.parse().ok())
}

// === impl ClockTick ===

impl ClockTick {
    /// Returns the tick of this machine.
    pub fn from_machine() -> Self {
        Self::per_second(rustix::param::clock_ticks_per_second())
    }

    /// Returns a tick by its frequency.
    pub fn per_second(frequency: u64) -> Self {
        Self { nanos: NANOS_PER_SECOND.checked_div(frequency).unwrap_or(0).max(1) }
    }

    /// Returns whether a time lies in a tick.
    pub fn contains(self, ticks: u64, nanos: u64) -> bool {
        nanos / self.nanos == ticks
    }

    /// Returns the start of a tick.
    pub fn start_nanos(self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat_line(comm: &str) -> Vec<u8> {
        format!(
            "77 ({comm}) S 12 77 77 0 -1 2097216 1 2 3 4 5 6 7 8 20 0 9 0 4711 0 0 18446744073709551615\n"
        )
        .into_bytes()
    }

    #[test]
    fn stat_of_hostile_names_keeps_name_and_fields() {
        for comm in ["a", "", "a b", ")", "x) R 1 1 (", "(((", "two\nlines", "ä) Z 0"] {
            let stat = ProcessStat::parse(&stat_line(comm)).expect(comm);
            let expected = ProcessStat {
                comm: comm.as_bytes().to_vec(),
                state: b'S',
                parent_pid: 12,
                is_kernel_thread: true,
                thread_count: 9,
                start_ticks: 4711,
            };
            assert_eq!(stat, expected);
        }
        let mut not_utf8 = stat_line("abc");
        not_utf8[5] = 0xff;
        assert_eq!(ProcessStat::parse(&not_utf8).expect("any byte is a name").comm, b"a\xffc");
    }

    #[test]
    fn stat_that_ends_early_is_refused() {
        let whole = stat_line("a");
        let last_field = whole.windows(4).position(|text| text == b"4711").unwrap();
        for end in 0..=last_field {
            assert_eq!(ProcessStat::parse(&whole[..end]), None, "{end}");
        }
        assert_eq!(ProcessStat::parse(b")("), None);
    }

    #[test]
    fn stat_of_own_process_agrees_with_libc() {
        let stat = ProcessStat::parse(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(stat.parent_pid, std::os::unix::process::parent_id());
        assert!(!stat.is_kernel_thread);
        assert!(stat.thread_count >= 1);
        let kernel = ProcessStat::parse(&std::fs::read("/proc/2/stat").unwrap_or_default());
        assert!(kernel.is_none_or(|stat| stat.comm != b"kthreadd" || stat.is_kernel_thread));
    }

    #[test]
    fn status_gives_user_and_namespaces() {
        let text = b"Name:\tUid:\t7\nState:\tR (running)\nUid:\t1000\t0\t0\t0\nNSpid:\t400\t12\t1\n";
        let expected = ProcessStatus { user_id: Some(1000), namespace_pids: vec![400, 12, 1] };
        assert_eq!(ProcessStatus::parse(text), expected);
        assert_eq!(ProcessStatus::parse(b"Uid:\nNSpid: x"), ProcessStatus::default());
    }

    #[test]
    fn tick_contains_exactly_its_nanoseconds() {
        let tick = ClockTick::per_second(100);
        assert!(tick.contains(7, 70_000_000));
        assert!(tick.contains(7, 79_999_999));
        assert!(!tick.contains(7, 69_999_999));
        assert!(!tick.contains(7, 80_000_000));
        assert_eq!(tick.start_nanos(7), 70_000_000);
        assert!(ClockTick::per_second(0).contains(5, 5), "no frequency is one of nanoseconds");
    }
}
