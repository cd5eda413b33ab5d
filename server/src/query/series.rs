//! `query series`: how much over time.

use std::fmt::Write;
use std::time::Duration;

use athanor_chassis::units::format_duration;
use athanor_chassis::{Code, Status};
use athanor_profile::Labels;
use athanor_profile::units::human;
use athanor_proto::querier::v1::{SelectSeriesRequest, SelectSeriesResponse};
use athanor_proto::types::v1::{self, TimeSeriesAggregationType};
use serde_json::{Value, json};

use super::{Range, types};
use crate::args::{Aggregation, Series};
use crate::client::Client;
use crate::dev::labels_json;
use crate::output::{Output, harmless};

/// Points between the ends, where no step is asked for.
const POINTS: u64 = 60;
/// Steps that people can count in, in seconds.
const STEPS: [u64; 16] = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400];
/// Most points of a series that are asked for.
const MAX_POINTS: u64 = 11_000;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of the drawing of a series.
const COLUMNS: usize = 30;

/// One series, to be shown.
struct Line {
    labels: Labels,
    /// Milliseconds and value.
    points: Vec<(i64, f64)>,
    total: f64,
}

/// Shows how much over time.
pub(super) async fn run(args: &Series, output: &Output) -> Result<(), Status> {
    let select = &args.select;
    let client = Client::new(&select.remote)?;
    let range = Range::of(&select.times, client.clock())?;
    let step = step(args.step, range)?;
    let meant = types::meant(&client, select.profile_type.as_deref(), &select.selector, range).await?;
    let aggregation = match args.aggregation {
        Aggregation::Sum => TimeSeriesAggregationType::Sum,
        Aggregation::Average => TimeSeriesAggregationType::Average,
    };
    let request = SelectSeriesRequest {
        profile_type_id: meant.to_string(),
        label_selector: select.selector.to_string(),
        start: range.start,
        end: range.end,
        group_by: args.by.clone(),
        step: step.as_secs_f64(),
        aggregation: Some(aggregation.into()),
        limit: Some(i64::from(args.limit)),
        ..SelectSeriesRequest::default()
    };
    let answer: SelectSeriesResponse = client.ask("querier.v1.QuerierService/SelectSeries", &request).await?;
    let mut lines: Vec<Line> =
        answer.series.into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
    if lines.is_empty() {
        return Err(missing(&client, args, &meant, range).await);
    }
    lines.sort_by(|a, b| b.total.total_cmp(&a.total).then_with(|| a.labels.cmp(&b.labels)));
    let unit = &meant.value.unit;
    output.either(
        || {
            json!({ "type": meant.to_string(), "unit": unit, "start": range.start, "end": range.end,
                "step_seconds": step.as_secs_f64(), "series": lines.iter().map(line_json).collect::<Vec<_>>() })
        },
        || {
            let mut text = format!("Type: {}\n", harmless(&meant.to_string()));
            // Writing to a string does not fail, here and below.
            let _ = writeln!(text, "Time: {range}, a point every {}", format_duration(step));
            let head = format!("{:>10} {:>10} {:>10} {:>7}  {:<COLUMNS$}  series", "total", "max", "last", "points", "");
            let _ = writeln!(text, "{}", output.bold(&head));
            lines.iter().for_each(|line| row(&mut text, line, unit, range));
            text
        },
    )
}

async fn missing(
    client: &Client,
    args: &Series,
    meant: &athanor_profile::ProfileType,
    range: Range,
) -> Status {
    let selector = &args.select.selector;
    match types::of(client, selector, range).await {
        Ok(known) if !known.is_empty() && !known.contains(meant) => {
            types::unknown(&meant.to_string(), &known)
        }
        Ok(_) => Status::new(
            Code::NotFound,
            format!("there are no points of {meant}{selector} {range}; see --since"),
        ),
        Err(status) => status,
    }
}

/// What is asked for, else the shortest that people can count in and that does not give too many points.
fn step(asked: Option<Duration>, range: Range) -> Result<Duration, Status> {
    let span = Duration::from_millis((range.end - range.start).unsigned_abs());
    let Some(step) = asked else {
        let least = span.as_secs().div_ceil(POINTS);
        let days = || least.div_ceil(86_400) * 86_400;
        let chosen = STEPS.into_iter().find(|step| *step >= least).unwrap_or_else(days);
        return Ok(Duration::from_secs(chosen));
    };
    let points = span.as_millis() / step.as_millis().max(1);
    if step < Duration::from_millis(1) || points > u128::from(MAX_POINTS) {
        let message =
            format!("--step {}: {points} points a series, the limit is {MAX_POINTS}", format_duration(step));
        return Err(Status::new(Code::Invalid, message));
    }
    Ok(step)
}

fn line(series: v1::Series) -> Line {
    let labels = Labels::new(series.labels.into_iter().map(|pair| (pair.name, pair.value)));
    let points: Vec<_> = series.points.iter().map(|point| (point.timestamp, point.value)).collect();
    let total = points.iter().map(|point| point.1).sum();
    Line { labels, points, total }
}

fn line_json(line: &Line) -> Value {
    json!({ "labels": labels_json(&line.labels), "total": line.total,
        "points": line.points.iter().map(|(time, value)| json!([time, value])).collect::<Vec<_>>() })
}

fn row(text: &mut String, line: &Line, unit: &str, range: Range) {
    let last = line.points.last().map_or(0.0, |point| point.1);
    let most = line.points.iter().map(|point| point.1).fold(f64::MIN, f64::max);
    let [total, max, last] = [line.total, most, last].map(|value| human(value.round() as i64, unit));
    let (count, drawn, labels) = (line.points.len(), drawn(line, range), harmless(&line.labels.to_string()));
    let _ = writeln!(text, "{total:>10} {max:>10} {last:>10} {count:>7}  {drawn}  {labels}");
}

/// The series as bars from the beginning to the end of the range; a blank is where there is no point.
fn drawn(line: &Line, range: Range) -> String {
    let mut columns = [None::<f64>; COLUMNS];
    let span = (range.end - range.start).max(1) as f64;
    for (time, value) in &line.points {
        let place = ((time - range.start) as f64 / span * COLUMNS as f64) as usize;
        let column = &mut columns[place.min(COLUMNS - 1)];
        *column = Some(column.unwrap_or(0.0).max(*value));
    }
    let most = columns.iter().flatten().copied().fold(0.0, f64::max);
    let bar =
        |value: f64| if most > 0.0 { BARS[((value / most * 7.0).round() as usize).min(7)] } else { BARS[0] };
    columns.iter().map(|column| column.map_or(' ', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_people_count_in() {
        let of = |hours: i64| Range { start: 1, end: 1 + hours * 3_600_000 };
        assert_eq!(step(None, of(1)).unwrap(), Duration::from_secs(60));
        assert_eq!(step(None, of(24)).unwrap(), Duration::from_secs(1800));
        assert_eq!(step(None, of(24 * 365)).unwrap(), Duration::from_secs(7 * 86_400));
        assert_eq!(step(None, Range { start: 5, end: 5 }).unwrap(), Duration::from_secs(1));
        assert!(step(Some(Duration::from_millis(10)), of(1)).unwrap_err().message.contains("360000 points"));
    }

    #[test]
    fn a_series_is_drawn_over_the_whole_range() {
        let points = vec![(0, 1.0), (50, 8.0), (100, 4.0)];
        let line = Line { labels: Labels::default(), points, total: 13.0 };
        let drawn = drawn(&line, Range { start: 0, end: 100 });
        assert_eq!(drawn.chars().count(), COLUMNS);
        assert_eq!(drawn.replace(' ', ""), "▂█▅");
        assert!(drawn.starts_with('▂') && drawn.ends_with('▅'));
    }
}
