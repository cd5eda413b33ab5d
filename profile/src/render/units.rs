//! Formatting of values with units.

const TIME_UNITS: [(&str, f64); 6] =
    [("h", 3.6e12), ("min", 6e10), ("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)];
const BYTE_UNITS: [(&str, f64); 6] = [
    ("PB", (1u64 << 50) as f64),
    ("TB", (1u64 << 40) as f64),
    ("GB", (1u64 << 30) as f64),
    ("MB", (1u64 << 20) as f64),
    ("kB", 1024.0),
    ("B", 1.0),
];

/// Formats a value in the largest unit of its kind that leaves at least 1 before the point, such as `1.23s`
/// or `12MB`. Byte units are powers of 1024, as in `go tool pprof`. An unknown unit is appended as it is, and
/// a count has no unit.
pub fn format_value(value: i64, unit: &str) -> String {
    let (scale, factor): (&[(&str, f64)], f64) = match unit.to_ascii_lowercase().as_str() {
        "ns" | "nanosecond" | "nanoseconds" => (&TIME_UNITS, 1.0),
        "us" | "µs" | "microsecond" | "microseconds" => (&TIME_UNITS, 1e3),
        "ms" | "millisecond" | "milliseconds" => (&TIME_UNITS, 1e6),
        "s" | "second" | "seconds" => (&TIME_UNITS, 1e9),
        "b" | "byte" | "bytes" => (&BYTE_UNITS, 1.0),
        "kb" | "kilobyte" | "kilobytes" => (&BYTE_UNITS, 1024.0),
        "" | "count" | "samples" | "objects" | "none" => return value.to_string(),
        _ => return format!("{value} {unit}"),
    };
    if value == 0 {
        return "0".into();
    }
    let base = value as f64 * factor;
    let fits = scale.iter().find(|(_, size)| base.abs() >= *size);
    let (name, size) = fits.copied().unwrap_or(scale[scale.len() - 1]);
    let text = format!("{:.2}", base / size);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::format_value;

    #[test]
    fn values_are_shown_in_the_largest_unit_that_fits() {
        let cases = [
            (1_230_000_000, "nanoseconds", "1.23s"),
            (12 << 20, "bytes", "12MB"),
            (-1536, "bytes", "-1.5kB"),
            (999, "nanoseconds", "999ns"),
            (90, "seconds", "1.5min"),
            (0, "bytes", "0"),
            (100, "count", "100"),
            (7, "widgets", "7 widgets"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(format_value(value, unit), expected);
        }
    }
}
