//! The command `top`: processes and functions with the most CPU time.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use athanor_agent_ebpf::profiles::{TopOptions, write_top};
use athanor_chassis::{Clock, ErrorCode, Status};
use rustix::termios::tcgetwinsize;

use super::record::start_sampler;
use super::sample_source::SampleSource;

/// Interval of handling events.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// Size of the tables without a terminal.
const DEFAULT_WIDTH: usize = 160;
const DEFAULT_HEIGHT: usize = 45;
/// Lines of both headings and the line between the tables.
const HEADING_LINES: usize = 4;
/// Minimum lines of a table.
const MIN_TABLE_LINES: usize = 3;
/// Moves to the top and clears the screen.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// Table to show.
#[derive(Clone, Copy, Debug)]
pub struct TopRequest {
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Time between two tables.
    pub interval: Duration,
    /// Only one table.
    pub once: bool,
}

/// Shows tables until the interrupt. Without a terminal it shows one.
///
/// # Errors
///
/// The kernel refuses, or the output cannot be written.
pub async fn top(request: TopRequest, interrupt: impl Future<Output = ()>) -> Result<(), Status> {
    let clock = Clock::system();
    let is_live = !request.once && std::io::stdout().is_terminal();
    let mut source = start_sampler(request.frequency_hz, None, &clock)?;
    tokio::pin!(interrupt);
    loop {
        let is_interrupted = tokio::select! {
            () = &mut interrupt => true,
            () = wait_for_window(&mut source, &clock, request.interval) => false,
        };
        if is_interrupted {
            return Ok(());
        }
        let window = source.close_window();
        let window = window.map_err(|error| Status::new(ErrorCode::Unavailable, error.to_string()))?;
        let text = write_top(&window, table_options());
        let clear = if is_live { CLEAR_SCREEN } else { "" };
        let mut out = std::io::stdout().lock();
        match write!(out, "{clear}{text}").and_then(|()| out.flush()) {
            Ok(()) => {}
            // The reader needs no more.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => {
                return Err(Status::new(ErrorCode::Unavailable, format!("standard output: {error}")));
            }
        }
        if !is_live {
            return Ok(());
        }
    }
}

async fn wait_for_window(source: &mut impl SampleSource, clock: &Clock, interval: Duration) {
    let end = clock.monotonic() + interval;
    while clock.monotonic() < end {
        clock.sleep(EVENT_INTERVAL.min(interval)).await;
        source.handle_events();
    }
}

/// Returns tables of the size of the terminal.
fn table_options() -> TopOptions {
    let size = tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    let width = size.map_or(DEFAULT_WIDTH, |size| size.ws_col.into());
    let height = size.map_or(DEFAULT_HEIGHT, |size| size.ws_row.into());
    let lines = height.saturating_sub(HEADING_LINES);
    let max_processes = (lines / 3).max(MIN_TABLE_LINES);
    let max_functions = lines.saturating_sub(max_processes).max(MIN_TABLE_LINES);
    TopOptions { max_processes, max_functions, width }
}
