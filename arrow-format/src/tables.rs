//! Tables of responses: their columns, and the numbers of the whole response as metadata.
//!
//! A metadata key is `athanor.` and the name of the response's field.

use arrow_schema::ArrowError;
use athanor_proto::athanor::v1::{
    ChangeRow, ChangesResponse, FunctionRow, FunctionsResponse, LinesResponse, ProfilesResponse, Verdict,
    Weights,
};
use athanor_proto::querier::v1::{SelectSeriesResponse, SeriesResponse};
use athanor_proto::types::v1::{LabelPair, LabelValuesResponse};

use crate::table::ResponseTable;

/// Nanoseconds of a millisecond.
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Response that is a table.
pub trait TableResponse {
    /// Returns the table of the response.
    fn to_table(&self) -> Result<ResponseTable, ArrowError>;
}

/// Adds numbers of the whole response to the metadata.
fn add_numbers(table: &mut ResponseTable, numbers: &[(&str, String)]) {
    let entries = numbers.iter().map(|(name, value)| (format!("athanor.{name}"), value.clone()));
    table.metadata.extra.extend(entries);
}

impl TableResponse for FunctionsResponse {
    fn to_table(&self) -> Result<ResponseTable, ArrowError> {
        let mut table = ResponseTable::default();
        table.metadata.unit.clone_from(&self.unit);
        table.metadata.resolution.clone_from(&self.resolution);
        let numbers = [
            ("total", self.total.to_string()),
            ("count", self.count.to_string()),
            ("averaged_profiles", self.averaged_profiles.to_string()),
            ("period", self.period.to_string()),
            ("matched_self", self.matched_self.to_string()),
            ("matched_total", self.matched_total.to_string()),
        ];
        add_numbers(&mut table, &numbers);
        let unit = &self.unit;
        if self.groups.is_empty() {
            push_functions(&mut table, unit, || self.rows.iter())?;
            return Ok(table);
        }
        let rows = || self.rows.iter().flat_map(|row| row.groups.iter().map(move |group| (row, group)));
        push_functions(&mut table, unit, || rows().map(|(row, _)| row))?;
        let sets: Vec<&[LabelPair]> = self.groups.iter().map(|group| group.labels.as_slice()).collect();
        table.push_labels("group", &sets, rows().map(|(_, group)| group.group as i32).collect())?;
        table.push_values("group_self", unit, rows().map(|(_, group)| group.self_));
        table.push_values("group_total", unit, rows().map(|(_, group)| group.total));
        Ok(table)
    }
}

/// Appends the columns of functions.
fn push_functions<'a, I: Iterator<Item = &'a FunctionRow>>(
    table: &mut ResponseTable,
    unit: &str,
    rows: impl Fn() -> I,
) -> Result<(), ArrowError> {
    table.push_texts("name", rows().map(|row| row.name.as_str()))?;
    table.push_values("self", unit, rows().map(|row| row.self_));
    table.push_values("total", unit, rows().map(|row| row.total));
    table.push_texts("file", rows().map(|row| row.file.as_str()))?;
    table.push_texts("binary", rows().map(|row| row.binary.as_str()))
}

impl TableResponse for LinesResponse {
    fn to_table(&self) -> Result<ResponseTable, ArrowError> {
        let mut table = ResponseTable::default();
        table.metadata.unit.clone_from(&self.unit);
        table.metadata.resolution.clone_from(&self.resolution);
        let numbers = [
            ("self", self.self_.to_string()),
            ("total", self.total.to_string()),
            ("count", self.count.to_string()),
            ("averaged_profiles", self.averaged_profiles.to_string()),
        ];
        add_numbers(&mut table, &numbers);
        table.push_texts("file", self.rows.iter().map(|row| row.file.as_str()))?;
        table.push_integers("line", self.rows.iter().map(|row| row.line));
        table.push_values("self", &self.unit, self.rows.iter().map(|row| row.self_));
        table.push_values("total", &self.unit, self.rows.iter().map(|row| row.total));
        Ok(table)
    }
}

impl TableResponse for ChangesResponse {
    fn to_table(&self) -> Result<ResponseTable, ArrowError> {
        let mut table = ResponseTable::default();
        table.metadata.unit.clone_from(&self.unit);
        table.metadata.resolution.clone_from(&self.resolution);
        let [left, right] = [&self.left, &self.right].map(|side| side.unwrap_or_default());
        let numbers = [
            ("count", self.count.to_string()),
            ("untested", self.untested.clone()),
            ("left.total", left.total.to_string()),
            ("left.profiles", left.profiles.to_string()),
            ("left.averaged_profiles", left.averaged_profiles.to_string()),
            ("right.total", right.total.to_string()),
            ("right.profiles", right.profiles.to_string()),
            ("right.averaged_profiles", right.averaged_profiles.to_string()),
        ];
        add_numbers(&mut table, &numbers);
        let rows = || self.rows.iter();
        table.push_texts("function", rows().map(|row| row.function.as_str()))?;
        table.push_texts("file", rows().map(|row| row.file.as_str()))?;
        table.push_integers("line", rows().map(|row| row.line));
        let left = |row: &ChangeRow| row.left.unwrap_or_default();
        let right = |row: &ChangeRow| row.right.unwrap_or_default();
        let mut push = |name: &str, value: &dyn Fn(&ChangeRow) -> i64| {
            table.push_values(name, &self.unit, self.rows.iter().map(value));
        };
        push("left_self", &|row| {
            let Weights { self_, .. } = left(row);
            self_
        });
        push("left_total", &|row| left(row).total);
        push("right_self", &|row| right(row).self_);
        push("right_total", &|row| right(row).total);
        table.push_numbers("share_change", rows().map(|row| row.share_change));
        table.push_numbers("p_value", rows().map(|row| row.p_value));
        let verdict = |row: &ChangeRow| Verdict::try_from(row.verdict).unwrap_or_default().as_str_name();
        table.push_texts("verdict", rows().map(verdict))?;
        Ok(table)
    }
}

impl TableResponse for ProfilesResponse {
    fn to_table(&self) -> Result<ResponseTable, ArrowError> {
        let mut table = ResponseTable::default();
        table.metadata.unit.clone_from(&self.unit);
        table.metadata.resolution.clone_from(&self.resolution);
        add_numbers(&mut table, &[("count", self.count.to_string())]);
        table.push_texts("profile_id", self.rows.iter().map(|row| row.id.as_str()))?;
        table.push_times("time", self.rows.iter().map(|row| row.time_nanos));
        table.push_durations("duration", self.rows.iter().map(|row| row.duration_nanos));
        let sets: Vec<&[LabelPair]> = self.rows.iter().map(|row| row.labels.as_slice()).collect();
        table.push_labels("labels", &sets, (0..sets.len() as i32).collect())?;
        table.push_integers("period", self.rows.iter().map(|row| row.period));
        table.push_values("total", &self.unit, self.rows.iter().map(|row| row.total));
        Ok(table)
    }
}

impl TableResponse for SelectSeriesResponse {
    fn to_table(&self) -> Result<ResponseTable, ArrowError> {
        let mut table = ResponseTable::default();
        let sets: Vec<&[LabelPair]> = self.series.iter().map(|series| series.labels.as_slice()).collect();
        let numbered = (0i32..).zip(&self.series);
        let rows = numbered.flat_map(|(set, series)| series.points.iter().map(move |_| set)).collect();
        let points = || self.series.iter().flat_map(|series| &series.points);
        table.push_labels("labels", &sets, rows)?;
        table.push_times("time", points().map(|point| point.timestamp.saturating_mul(NANOS_PER_MILLI)));
        table.push_numbers("value", points().map(|point| point.value));
        Ok(table)
    }
}

impl TableResponse for LabelValuesResponse {
    fn to_table(&self) -> Result<ResponseTable, ArrowError> {
        let mut table = ResponseTable::default();
        add_numbers(&mut table, &[("more", self.more.to_string())]);
        table.push_texts("value", self.names.iter().map(String::as_str))?;
        table.push_integers("profiles", self.counts.iter().copied());
        Ok(table)
    }
}

impl TableResponse for SeriesResponse {
    fn to_table(&self) -> Result<ResponseTable, ArrowError> {
        let mut table = ResponseTable::default();
        let sets: Vec<&[LabelPair]> = self.labels_set.iter().map(|set| set.labels.as_slice()).collect();
        table.push_labels("labels", &sets, (0..sets.len() as i32).collect())?;
        Ok(table)
    }
}
