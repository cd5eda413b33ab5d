//! Query of one block. It lives here because neither of the crates `query` and `block` may depend on the
//! other.

use std::collections::{BTreeMap, BTreeSet};

use athanor_block::{Block, BlockError, ProfileRow, ProfileSeries, TenantBlock};
use athanor_chassis::ComputePool;
use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::call_tree::tree::MAX_MAGNITUDE;
use athanor_profile::labeling::normalize::displayable_range;
use athanor_profile::{Profile, ProfileHeader, ProfileType, Samples, ValueType};
use athanor_query::ProfileFilter;

use crate::output::format_rfc3339;

/// Error of a query on one block.
#[derive(Debug, thiserror::Error)]
pub enum BlockQueryError {
    /// Read error of the block.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// Error for a selector that matches no series.
    #[error("no series matches {selector}; tenant {tenant} has {series} series with labels {labels}")]
    NoSeries {
        /// Selector of the query.
        selector: String,
        /// Tenant of the query.
        tenant: String,
        /// Number of series of the tenant.
        series: usize,
        /// Label names of these series.
        labels: String,
    },
    /// Error for a type that no matching series has.
    #[error("no series of type {wanted}; existing types: {known}")]
    NoType {
        /// Requested type of the query.
        wanted: String,
        /// Types that exist, as text.
        known: String,
    },
    /// Error for values of one type that do not add up.
    #[error(
        "sum of the values of type {0} does not fit in 63 bits, the limit is {max}; select fewer series or a shorter time range",
        max = i64::MAX
    )]
    SumTooLarge(String),
    /// Error for a time range without profiles.
    #[error("no profile in the time range; {}", suggestion(*.known))]
    NoProfile {
        /// Timestamps of the first and the last profile; none if no profile has a timestamp.
        known: Option<(i64, i64)>,
    },
}

/// Returns a sentence that suggests another time range.
fn suggestion(known: Option<(i64, i64)>) -> String {
    match known {
        Some((first, last)) => {
            format!("profiles exist from {} to {}", format_rfc3339(first), format_rfc3339(last))
        }
        None => "the profiles have no timestamps; remove --since and --until".to_owned(),
    }
}

impl ErrorCodeExt for BlockQueryError {
    fn code(&self) -> ErrorCode {
        match self {
            BlockQueryError::Block(error) => error.code(),
            BlockQueryError::SumTooLarge(_) => ErrorCode::Invalid,
            BlockQueryError::NoSeries { .. }
            | BlockQueryError::NoType { .. }
            | BlockQueryError::NoProfile { .. } => ErrorCode::NotFound,
        }
    }
}

/// Returns the totals by stack of the selected profiles: one column per type, sorted by type.
pub fn query_block(
    block: &Block,
    query: &ProfileFilter,
    compute: &ComputePool,
) -> Result<Profile, BlockQueryError> {
    let part = block.tenant_block(query.tenant.as_str())?;
    let series = part.read_series()?;
    let columns = columns(query, &series)?;
    let profiles = part.read_all_profiles()?;
    let wanted: BTreeSet<u32> = columns.values().flatten().copied().collect();
    let picked = |row: &ProfileRow| wanted.contains(&row.series) && query.time.contains(row.time);
    if !profiles.iter().any(picked) {
        return Err(BlockQueryError::NoProfile {
            known: displayable_range(part.meta.min_time, part.meta.max_time),
        });
    }
    // A block whose footer does not state that ids are distinct may hold one profile in two series.
    let is_distinct = part.has_distinct_ids()?;
    let once = |is_picked: &dyn Fn(&ProfileRow) -> bool| {
        let mut seen = BTreeSet::new();
        TenantBlock::sample_ranges(&profiles, |row| is_picked(row) && (is_distinct || seen.insert(row.id)))
    };
    let in_time = query.time.contains(part.meta.min_time) && query.time.contains(part.meta.max_time);
    let whole = in_time && is_distinct;
    let sums = part.read_profile_totals()?;
    let mut totals = Vec::with_capacity(columns.len());
    for (value_type, of_type) in &columns {
        let in_range = |row: &ProfileRow| of_type.contains(&row.series) && query.time.contains(row.time);
        let rows = profiles.iter().zip(&sums).filter(|(row, _)| in_range(row));
        // The values of a profile may have wrapped if their sum is negative.
        let magnitude: u128 = rows.map(|(_, sum)| u128::from(*sum as u64)).sum();
        if magnitude > u128::from(MAX_MAGNITUDE) {
            return Err(BlockQueryError::SumTooLarge(format!("{}/{}", value_type.kind, value_type.unit)));
        }
        totals.push(if whole {
            part.sum_rollup(|series| of_type.contains(&series))?
        } else {
            part.sum_by_stack(&once(&in_range), compute)?
        });
    }
    let mut timestamps: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    // Rows of several types cannot attribute a timestamp to one type.
    if columns.len() == 1 {
        part.read_timestamps(&once(&picked), |stack, times| {
            timestamps.entry(stack).or_default().extend_from_slice(times);
        })?;
    }
    let names = part.read_names()?;
    let mut samples = Samples::default();
    let mut values = vec![0; totals.len()];
    for (place, &stack) in (0u32..).zip(&names.stacks) {
        values.iter_mut().zip(&totals).for_each(|(value, total)| *value = total[place as usize]);
        let mut times = timestamps.remove(&place).unwrap_or_default();
        if !times.is_empty() || values.iter().any(|&value| value != 0) {
            times.sort_unstable();
            samples.moments.add(samples.len(), times);
            samples.push(stack, 0, &values);
        }
    }
    let header = header(&columns, &series, profiles.iter().filter(|row| picked(row)));
    Ok(Profile { header, samples, dictionary: names.dictionary })
}

/// Returns the profile types of the selected series, by value type.
pub fn matching_types(
    block: &Block,
    query: &ProfileFilter,
) -> Result<BTreeMap<ValueType, Vec<ProfileType>>, BlockQueryError> {
    let series = block.tenant_block(query.tenant.as_str())?.read_series()?;
    let columns = columns(query, &series)?;
    let profile_types = |places: BTreeSet<u32>| {
        let types = places.into_iter().map(|place| series[place as usize].profile_type());
        types.collect::<BTreeSet<ProfileType>>().into_iter().collect()
    };
    Ok(columns.into_iter().map(|(value_type, places)| (value_type, profile_types(places))).collect())
}

/// Indices of the selected series, by type.
type SeriesColumns = BTreeMap<ValueType, BTreeSet<u32>>;

fn columns(query: &ProfileFilter, series: &[ProfileSeries]) -> Result<SeriesColumns, BlockQueryError> {
    let mut all = SeriesColumns::new();
    for (place, one) in (0u32..).zip(series) {
        if query.selector.matches(one.labels()) {
            all.entry(one.value_type.clone()).or_default().insert(place);
        }
    }
    if all.is_empty() {
        let names: BTreeSet<&str> =
            series.iter().flat_map(|one| one.labels().iter().map(|pair| pair.0)).collect();
        let names: Vec<&str> = names.into_iter().take(20).collect();
        return Err(BlockQueryError::NoSeries {
            selector: query.selector.to_string(),
            tenant: query.tenant.to_string(),
            series: series.len(),
            labels: names.join(", "),
        });
    }
    let Some(filter) = &query.value_type else { return Ok(all) };
    let known: Vec<String> = all.keys().map(|value| format!("{}/{}", value.kind, value.unit)).collect();
    all.retain(|value, _| filter.matches(value));
    if all.is_empty() {
        return Err(BlockQueryError::NoType { wanted: filter.to_string(), known: known.join(", ") });
    }
    Ok(all)
}

/// Combines headers as a merge does. A profile of several types has one row per type, but its duration counts
/// once.
fn header<'r>(
    columns: &SeriesColumns,
    series: &[ProfileSeries],
    rows: impl Iterator<Item = &'r ProfileRow>,
) -> ProfileHeader {
    let types: Vec<ValueType> = columns.keys().cloned().collect();
    let mut header = ProfileHeader { types, ..ProfileHeader::default() };
    let mut durations: BTreeMap<&ValueType, i64> = BTreeMap::new();
    let mut period_types: BTreeSet<&ValueType> = BTreeSet::new();
    for row in rows {
        let of = &series[row.series as usize];
        if header.time_nanos == 0 || (row.time != 0 && row.time < header.time_nanos) {
            header.time_nanos = row.time;
        }
        header.period = header.period.max(row.period);
        period_types.insert(&of.period_type);
        let duration = durations.entry(&of.value_type).or_default();
        *duration = duration.wrapping_add(row.duration);
    }
    header.duration_nanos = durations.into_values().max().unwrap_or_default();
    let none = ValueType::default();
    header.period_type = match period_types.into_iter().collect::<Vec<_>>()[..] {
        [one] if *one != none => Some(one.clone()),
        _ => None,
    };
    header
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use athanor_block::{BlockBuilder, MemoryFolder};
    use athanor_profile::Labels;
    use athanor_profile::formats::pprof::{DecodeLimits, encode};
    use athanor_query::TimeRange;

    use super::*;

    fn profile(time: i64, rows: &[(&str, [i64; 2])]) -> Vec<u8> {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("samples", "count"), ValueType::new("cpu", "nanoseconds")];
        (profile.header.time_nanos, profile.header.duration_nanos, profile.header.period) = (time, 7, 3);
        for (stack, values) in rows {
            let stack = profile.dictionary.intern_named_stack(stack.split(';'));
            profile.samples.moments.add(profile.samples.len(), [time + values[0], time]);
            profile.samples.push(stack, 0, values);
        }
        encode(&profile)
    }

    fn block() -> Block {
        let mut scratch = || -> std::io::Result<Arc<dyn athanor_block::BlockFolder>> {
            Ok(Arc::new(MemoryFolder::default()))
        };
        let mut builder = BlockBuilder::new("b", DecodeLimits::default(), 1 << 20, &mut scratch);
        let pod = |pod: &str| Labels::new([("pod".to_owned(), pod.to_owned())]);
        builder
            .add_pprof("t", &pod("a"), &profile(100, &[("main;x", [1, 10]), ("main;y", [2, 20])]))
            .unwrap();
        builder.add_pprof("t", &pod("a"), &profile(200, &[("main;x", [4, 40])])).unwrap();
        builder.add_pprof("t", &pod("b"), &profile(300, &[("main;y", [8, 80]), ("main", [1, 1])])).unwrap();
        let folder = MemoryFolder::default();
        builder.finish(&folder).unwrap();
        Block::open(Arc::new(folder)).unwrap()
    }

    fn ask(selector: &str, kind: Option<&str>, time: TimeRange) -> Result<Profile, BlockQueryError> {
        let value_type = kind.map(|kind| kind.parse().unwrap());
        let (tenant, selector) = ("t".parse().unwrap(), selector.parse().unwrap());
        query_block(&block(), &ProfileFilter { tenant, selector, value_type, time }, &ComputePool::inline())
    }

    fn value(profile: &Profile, path: &str) -> Vec<i64> {
        let stack = profile.dictionary.clone().intern_named_stack(path.split(';'));
        let rows = profile.samples.rows(profile.header.types.len());
        rows.filter(|row| row.0 == stack).flat_map(|row| row.2.to_vec()).collect()
    }

    #[test]
    fn everything_is_added_up_by_type() {
        let all = ask("{}", None, TimeRange::default()).unwrap();
        assert_eq!(
            all.header.types,
            [ValueType::new("cpu", "nanoseconds"), ValueType::new("samples", "count")]
        );
        assert_eq!(value(&all, "main;x"), [50, 5]);
        assert_eq!(value(&all, "main;y"), [100, 10]);
        assert_eq!((all.header.time_nanos, all.header.duration_nanos, all.header.period), (100, 21, 3));
    }

    #[test]
    fn selector_type_and_time_narrow_it() {
        let of_b = ask(r#"{pod="b"}"#, Some("cpu"), TimeRange::default()).unwrap();
        assert_eq!((value(&of_b, "main;y"), value(&of_b, "main;x")), (vec![80], vec![]));
        let late = ask("{}", Some("samples/count"), TimeRange { from: 200, to: 300 }).unwrap();
        assert_eq!((value(&late, "main;x"), value(&late, "main;y")), (vec![4], vec![]));
    }

    #[test]
    fn timestamps_are_those_of_one_type() {
        let of_type = |kind, time| {
            let profile = ask("{}", kind, time).unwrap();
            let rows =
                (0..profile.samples.len()).map(|row| profile.samples.moments.row_timestamps(row).to_vec());
            let mut rows: Vec<Vec<i64>> = rows.collect();
            rows.sort_unstable();
            rows
        };
        let all = TimeRange::default();
        assert_eq!(
            of_type(Some("cpu"), all),
            [vec![100, 101, 200, 204], vec![100, 102, 300, 308], vec![300, 301]]
        );
        assert_eq!(of_type(Some("cpu"), TimeRange { from: 200, to: 250 }), [[200, 204]]);
        assert_eq!(of_type(None, all), vec![Vec::<i64>::new(); 3]);
    }

    #[test]
    fn empty_result_error_names_existing_data() {
        let refused = |selector, kind, time| ask(selector, kind, time).unwrap_err();
        let all = TimeRange::default();
        let error = refused(r#"{pod="c"}"#, None, all);
        assert_eq!(
            (error.to_string().as_str(), error.code()),
            ("no series matches {pod=\"c\"}; tenant t has 4 series with labels pod", ErrorCode::NotFound)
        );
        let error = refused("{}", Some("wall"), all).to_string();
        assert_eq!(error, "no series of type wall; existing types: cpu/nanoseconds, samples/count");
        // Timestamps of 1970 count as missing.
        let error = refused("{}", None, TimeRange { from: 0, to: 100 }).to_string();
        assert!(error.contains("the profiles have no timestamps"), "{error}");
        assert!(suggestion(Some((0, 300_000_000))).ends_with("to 1970-01-01T00:00:00.300Z"));
    }
}
