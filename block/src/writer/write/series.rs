//! Series of one tenant's part.

use athanor_profile::store_interface::series::ProfileSeries;
use parquet::data_type::ByteArray;

use super::BlockWriter;
use super::names::chunk_by_text;
use crate::format::columns::ColumnValues;
use crate::format::error::BlockError;
use crate::format::meta::{SERIES_FILE, TenantMeta};

/// Writes the series of a tenant's part.
pub(super) fn write_series(
    block: &mut BlockWriter<'_>,
    meta: &TenantMeta,
    series: &[ProfileSeries],
) -> Result<(), BlockError> {
    let length =
        |series: &ProfileSeries| series.labels().iter().map(|(name, value)| name.len() + value.len()).sum();
    let mut first = meta.series.0 as i32;
    for group in chunk_by_text(series, length) {
        write_series_group(block, &meta.tenant, first, group)?;
        first += group.len() as i32;
    }
    Ok(())
}

fn write_series_group(
    block: &mut BlockWriter<'_>,
    tenant: &str,
    first: i32,
    series: &[ProfileSeries],
) -> Result<(), BlockError> {
    let text = |text: &str| ByteArray::from(text);
    let ids: Vec<i32> = (first..).take(series.len()).collect();
    let tenants = vec![text(tenant); series.len()];
    let mut keys = Vec::new();
    let mut values = Vec::new();
    let mut repetition = Vec::new();
    let mut definition = Vec::new();
    for series in series {
        if series.labels().is_empty() {
            repetition.push(0);
            definition.push(0);
        }
        for (at, (name, value)) in series.labels().iter().enumerate() {
            repetition.push(i16::from(at > 0));
            definition.push(1);
            keys.push(text(name));
            values.push(text(value));
        }
    }
    let column =
        |of: fn(&ProfileSeries) -> &str| series.iter().map(|series| text(of(series))).collect::<Vec<_>>();
    let types = [
        column(|series| &series.value_type.kind),
        column(|series| &series.value_type.unit),
        column(|series| &series.period_type.kind),
        column(|series| &series.period_type.unit),
    ];
    block.write_row_group(
        SERIES_FILE,
        &[
            ColumnValues::I32(&ids),
            ColumnValues::Text(&tenants),
            ColumnValues::Nested(&keys, &repetition, &definition),
            ColumnValues::Nested(&values, &repetition, &definition),
            ColumnValues::Text(&types[0]),
            ColumnValues::Text(&types[1]),
            ColumnValues::Text(&types[2]),
            ColumnValues::Text(&types[3]),
        ],
    )
}
