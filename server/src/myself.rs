//! This process as a profile: what it spends its time on, for `go tool pprof` and for itself.

use std::time::Duration;

use athanor_chassis::{Activity, Code, Status};
use athanor_profile::symbols::{Function, Line, NONE};
use athanor_profile::{Profile, ValueType, pprof};

use crate::http::Door;

/// Samples a second.
const FREQUENCY: i32 = 99;
const LONGEST: u64 = 300;
/// What a second one who asks is told to wait.
const BUSY: Duration = Duration::from_secs(10);

/// Samples all threads for a while, as the query `seconds=N` says (10 if it does not), and gives gzipped pprof.
pub async fn profile(query: &str, door: &Door) -> Result<Vec<u8>, Status> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("seconds="));
    let seconds: u64 =
        given.map_or(Ok(10), str::parse).ok().filter(|seconds| (1..=LONGEST).contains(seconds)).ok_or_else(
            || {
                Status::new(
                    Code::Invalid,
                    format!("seconds={} is not a number from 1 to {LONGEST}", given.unwrap_or_default()),
                )
            },
        )?;
    let failed = |error: ::pprof::Error| match error {
        ::pprof::Error::Running => {
            let message =
                format!("somebody else samples this process, which takes up to {LONGEST} s; ask again");
            Status::new(Code::Exhausted, message).after(BUSY)
        }
        error => Status::new(Code::Unavailable, format!("this process cannot be sampled now: {error}")),
    };
    let began = door.clock.wall();
    let guard = ::pprof::ProfilerGuardBuilder::default().frequency(FREQUENCY).build().map_err(failed)?;
    door.clock.sleep(Duration::from_secs(seconds)).await;
    let report = guard.report().build().map_err(failed)?;
    drop(guard);
    door.on_compute(Activity::Query, usize::MAX, move || encode(&report, began.nanos(), seconds)).await
}

fn encode(report: &::pprof::Report, time_nanos: i64, seconds: u64) -> Vec<u8> {
    let period = 1_000_000_000 / i64::from(FREQUENCY);
    let mut profile = Profile::default();
    let header = &mut profile.header;
    header.types = vec![ValueType::new("samples", "count"), ValueType::new("cpu", "nanoseconds")];
    header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    (header.period, header.time_nanos) = (period, time_nanos);
    header.duration_nanos = Duration::from_secs(seconds).as_nanos() as i64;
    for (frames, &count) in &report.data {
        let mut stack = Vec::with_capacity(frames.frames.len());
        for symbols in &frames.frames {
            let lines: Vec<Line> = symbols.iter().map(|symbol| line(&mut profile, symbol)).collect();
            stack.push(profile.dictionary.symbols.location(NONE, 0, false, &lines));
        }
        let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, &stack);
        let count = count as i64;
        profile.samples.push(stack, 0, &[count, count * period]);
    }
    pprof::gzip(&pprof::encode(&profile))
}

fn line(profile: &mut Profile, symbol: &::pprof::Symbol) -> Line {
    let symbols = &mut profile.dictionary.symbols;
    let name = symbols.strings.intern(&symbol.name());
    let system_name = symbols.strings.intern(&symbol.sys_name());
    let filename = symbols.strings.intern(&symbol.filename());
    let function = symbols.function(Function { name, system_name, filename, start_line: 0 });
    Line { function, line: i64::from(symbol.lineno()), column: 0 }
}
