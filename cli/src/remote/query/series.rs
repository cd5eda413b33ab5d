//! Command `query series`: shows the values of series over time.

use std::fmt::Write;
use std::time::Duration;

use athanor_chassis::units::format_duration;
use athanor_chassis::{ErrorCode, Status};
use athanor_client::ApiClient;
use athanor_profile::Labels;
use athanor_profile::render::units::format_value;
use athanor_proto::querier::v1::{SelectSeriesRequest, SelectSeriesResponse};
use athanor_proto::types::v1::{self, TimeSeriesAggregationType};
use serde_json::{Value, json};

use super::{MillisTimeRange, types};
use crate::args::{QuerySeriesArgs, SeriesAggregation};
use crate::dev::labels_json;
use crate::output::{ConsoleOutput, harmless};
use crate::remote::connection;
use crate::table_output::{self, TableOutput};

const SERIES_METHOD: &str = "querier.v1.QuerierService/SelectSeries";
/// Number of points in the range if no step is given.
const DEFAULT_POINTS: u64 = 60;
/// Number of series that the terminal shows.
const SHOWN_SERIES: u32 = 20;
/// Round step sizes, in seconds.
const STEP_CHOICES_SECONDS: [u64; 16] =
    [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400];
/// Maximum number of points of a series in a request.
const MAX_SERIES_POINTS: u64 = 11_000;
const BAR_CHARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Number of columns of a chart.
const CHART_COLUMNS: usize = 30;

/// Series that is to be shown.
struct SeriesLine {
    labels: Labels,
    /// Points as milliseconds and value.
    points: Vec<(i64, f64)>,
    total: f64,
}

/// Shows the values of the selected series over time.
pub(super) async fn run(args: &QuerySeriesArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let select = &args.select;
    let client = connection::client(&select.remote)?;
    let range = MillisTimeRange::of(&select.times, client.clock())?;
    let step = step(args.step, range)?;
    let meant = types::resolve_type(&client, select.profile_type.as_deref(), &select.selector, range).await?;
    let default = if meant.is_gauge() { SeriesAggregation::Average } else { SeriesAggregation::Sum };
    let aggregation = match args.aggregation.unwrap_or(default) {
        SeriesAggregation::Sum => TimeSeriesAggregationType::Sum,
        SeriesAggregation::Average => TimeSeriesAggregationType::Average,
    };
    let is_average = aggregation == TimeSeriesAggregationType::Average;
    let request = SelectSeriesRequest {
        profile_type_id: meant.to_string(),
        label_selector: select.selector.to_string(),
        start: range.start,
        end: range.end,
        group_by: args.by.clone(),
        step: step.as_secs_f64(),
        aggregation: Some(aggregation.into()),
        limit: args.limit.or_else(|| args.out.is_none().then_some(SHOWN_SERIES)).map(i64::from),
        ..SelectSeriesRequest::default()
    };
    if let Some(out) = &args.out {
        let mut file = TableOutput::create(out, table_output::format(out)?)?;
        let rows = file.append(&client.request_arrow(SERIES_METHOD, &request).await?)?;
        return match rows.count {
            0 => Err(missing(&client, args, &meant, range).await),
            _ => file.finish(output),
        };
    }
    let response: SelectSeriesResponse = client.request(SERIES_METHOD, &request).await?;
    let mut lines: Vec<SeriesLine> =
        response.series.into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
    if lines.is_empty() {
        return Err(missing(&client, args, &meant, range).await);
    }
    lines.sort_by(|a, b| b.total.total_cmp(&a.total).then_with(|| a.labels.cmp(&b.labels)));
    let unit = &meant.value.unit;
    output.print_json_or_text(
        || {
            json!({ "type": meant.to_string(), "unit": unit, "start": range.start, "end": range.end,
                "aggregation": if is_average { "average" } else { "sum" },
                "step_seconds": step.as_secs_f64(), "series": lines.iter().map(line_json).collect::<Vec<_>>() })
        },
        || {
            let mut text = format!("Type: {}\n", harmless(&meant.to_string()));
            // Writing to a string does not fail, here and below.
            let _ = writeln!(text, "Time: {range}, a point every {}", format_duration(step));
            let of_point = if is_average { "average of its profiles" } else { "sum of its profiles" };
            let _ = writeln!(text, "Points: {of_point}");
            let head = format!("{:>10} {:>10} {:>10} {:>7}  {:<CHART_COLUMNS$}  series", "total", "max", "last", "points", "");
            let _ = writeln!(text, "{}", output.format_bold(&head));
            lines.iter().for_each(|line| row(&mut text, line, unit, range));
            text
        },
    )
}

async fn missing(
    client: &ApiClient,
    args: &QuerySeriesArgs,
    meant: &athanor_profile::ProfileType,
    range: MillisTimeRange,
) -> Status {
    let selector = &args.select.selector;
    match types::fetch_types(client, selector, range).await {
        Ok(known) if !known.is_empty() && !known.contains(meant) => {
            types::unknown(&meant.to_string(), &known)
        }
        Ok(_) => Status::new(
            ErrorCode::NotFound,
            format!("no points of {meant}{selector} {range}; change --since or --selector"),
        ),
        Err(status) => status,
    }
}

/// Returns the requested step, else the shortest round step that keeps the number of points within the
/// default.
fn step(asked: Option<Duration>, range: MillisTimeRange) -> Result<Duration, Status> {
    let span = Duration::from_millis((range.end - range.start).unsigned_abs());
    let Some(step) = asked else {
        let least = span.as_secs().div_ceil(DEFAULT_POINTS);
        let days = || least.div_ceil(86_400) * 86_400;
        let chosen = STEP_CHOICES_SECONDS.into_iter().find(|step| *step >= least).unwrap_or_else(days);
        return Ok(Duration::from_secs(chosen));
    };
    let points = span.as_millis() / step.as_millis().max(1);
    if step < Duration::from_millis(1) || points > u128::from(MAX_SERIES_POINTS) {
        let message = format!(
            "--step {} gives {points} points per series, the limit is {MAX_SERIES_POINTS}; increase --step",
            format_duration(step)
        );
        return Err(Status::new(ErrorCode::Invalid, message));
    }
    Ok(step)
}

fn line(series: v1::Series) -> SeriesLine {
    let labels = Labels::new(series.labels.into_iter().map(|pair| (pair.name, pair.value)));
    let points: Vec<_> = series.points.iter().map(|point| (point.timestamp, point.value)).collect();
    let total = points.iter().map(|point| point.1).sum();
    SeriesLine { labels, points, total }
}

fn line_json(line: &SeriesLine) -> Value {
    json!({ "labels": labels_json(&line.labels), "total": line.total,
        "points": line.points.iter().map(|(time, value)| json!([time, value])).collect::<Vec<_>>() })
}

fn row(text: &mut String, line: &SeriesLine, unit: &str, range: MillisTimeRange) {
    let last = line.points.last().map_or(0.0, |point| point.1);
    let most = line.points.iter().map(|point| point.1).fold(f64::MIN, f64::max);
    let [total, max, last] = [line.total, most, last].map(|value| format_value(value.round() as i64, unit));
    let count = line.points.len();
    let drawn = drawn(line, range);
    let labels = harmless(&line.labels.to_string());
    let _ = writeln!(text, "{total:>10} {max:>10} {last:>10} {count:>7}  {drawn}  {labels}");
}

/// Draws the series as bars over the range; a blank column has no point.
fn drawn(line: &SeriesLine, range: MillisTimeRange) -> String {
    let mut columns = [None::<f64>; CHART_COLUMNS];
    let span = (range.end - range.start).max(1) as f64;
    for (time, value) in &line.points {
        let place = ((time - range.start) as f64 / span * CHART_COLUMNS as f64) as usize;
        let column = &mut columns[place.min(CHART_COLUMNS - 1)];
        *column = Some(column.unwrap_or(0.0).max(*value));
    }
    let most = columns.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: f64| {
        if most > 0.0 { BAR_CHARS[((value / most * 7.0).round() as usize).min(7)] } else { BAR_CHARS[0] }
    };
    columns.iter().map(|column| column.map_or(' ', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_people_count_in() {
        let of = |hours: i64| MillisTimeRange { start: 1, end: 1 + hours * 3_600_000 };
        assert_eq!(step(None, of(1)).unwrap(), Duration::from_secs(60));
        assert_eq!(step(None, of(24)).unwrap(), Duration::from_secs(1800));
        assert_eq!(step(None, of(24 * 365)).unwrap(), Duration::from_secs(7 * 86_400));
        assert_eq!(step(None, MillisTimeRange { start: 5, end: 5 }).unwrap(), Duration::from_secs(1));
        assert!(
            step(Some(Duration::from_millis(10)), of(1))
                .unwrap_err()
                .message
                .contains("360000 points per series")
        );
    }

    #[test]
    fn a_series_is_drawn_over_the_whole_range() {
        let points = vec![(0, 1.0), (50, 8.0), (100, 4.0)];
        let line = SeriesLine { labels: Labels::default(), points, total: 13.0 };
        let drawn = drawn(&line, MillisTimeRange { start: 0, end: 100 });
        assert_eq!(drawn.chars().count(), CHART_COLUMNS);
        assert_eq!(drawn.replace(' ', ""), "▂█▅");
        assert!(drawn.starts_with('▂') && drawn.ends_with('▅'));
    }
}
