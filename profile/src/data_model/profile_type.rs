//! Full type of a profile: `process_cpu:cpu:nanoseconds:cpu:nanoseconds`.

use std::fmt;
use std::str::FromStr;

use crate::data_model::model::ValueType;

/// Maximum bytes of a profile type.
pub const MAX_PROFILE_TYPE_BYTES: usize = 4096;

/// Name of a metric, type of its values, and type of the sampling period.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileType {
    /// Name of the metric, such as `process_cpu` or `memory`.
    pub name: String,
    /// Type and unit of the values.
    pub value: ValueType,
    /// Type and unit of the sampling period; empty if unknown.
    pub period: ValueType,
}

/// Reason that a text is not a profile type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileTypeError {
    /// The text does not have five parts.
    #[error("profile type {text:?} has {seen} parts, it needs 5: name:type:unit:period_type:period_unit")]
    Parts {
        /// Text that was given.
        text: String,
        /// Number of parts in the text.
        seen: usize,
    },
    /// The text is longer than the limit.
    #[error("profile type has {seen} bytes, the limit is {MAX_PROFILE_TYPE_BYTES}")]
    TooLong {
        /// Length of the text in bytes.
        seen: usize,
    },
}

/// Kinds of values that state a level at one time, such as memory in use. The plural counts as well.
const GAUGE_KINDS: [&str; 8] = [
    "inuse_objects",
    "inuse_space",
    "goroutine",
    "thread",
    "threadcreate",
    "live",
    "live_objects",
    "live_space",
];

impl ProfileType {
    /// Returns whether values state a level, such as memory in use or the number of goroutines. Levels of
    /// several times are averaged. Values of all other types are amounts, such as CPU time or allocations, and
    /// are added up. Unknown types are amounts.
    pub fn is_gauge(&self) -> bool {
        let kind = self.value.kind.as_str();
        let singular = kind.strip_suffix('s').unwrap_or(kind);
        GAUGE_KINDS.iter().any(|gauge| kind == *gauge || singular == *gauge)
    }
}

impl FromStr for ProfileType {
    type Err = ProfileTypeError;

    /// Parses five parts. Older clients add a sixth, `delta`, which is ignored.
    fn from_str(text: &str) -> Result<Self, ProfileTypeError> {
        if text.len() > MAX_PROFILE_TYPE_BYTES {
            return Err(ProfileTypeError::TooLong { seen: text.len() });
        }
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            [name, kind, unit, period_kind, period_unit]
            | [name, kind, unit, period_kind, period_unit, _] => Ok(ProfileType {
                name: name.to_owned(),
                value: ValueType::new(kind, unit),
                period: ValueType::new(period_kind, period_unit),
            }),
            _ => {
                let seen = if text.is_empty() { 0 } else { parts.len() };
                Err(ProfileTypeError::Parts { text: text.to_owned(), seen })
            }
        }
    }
}

impl fmt::Display for ProfileType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProfileType { name, value, period } = self;
        write!(out, "{name}:{}:{}:{}:{}", value.kind, value.unit, period.kind, period.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_and_goroutines_are_gauges_and_amounts_are_not() {
        let is_gauge = |text: &str| text.parse::<ProfileType>().unwrap().is_gauge();
        for gauge in [
            "memory:inuse_space:bytes:space:bytes",
            "memory:inuse_objects:count:space:bytes",
            "goroutine:goroutine:count:goroutine:count",
            "goroutines:goroutines:count:goroutine:count",
            "threadcreate:threadcreate:count::",
            "memory:live:count:objects:count",
        ] {
            assert!(is_gauge(gauge), "{gauge}");
        }
        for amount in [
            "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
            "process_cpu:samples:count:cpu:nanoseconds",
            "memory:alloc_space:bytes:space:bytes",
            "mutex:contentions:count:contentions:count",
            "block:delay:nanoseconds:contentions:count",
            "custom:things:count::",
        ] {
            assert!(!is_gauge(amount), "{amount}");
        }
    }

    #[test]
    fn five_parts_and_a_sixth_that_is_ignored() {
        let text = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
        let parsed: ProfileType = text.parse().unwrap();
        assert_eq!(parsed.value, ValueType::new("cpu", "nanoseconds"));
        assert_eq!(format!("{text}:delta").parse::<ProfileType>().unwrap(), parsed);
        assert_eq!(parsed.to_string(), text);
        let bare = "off_cpu:off_cpu:nanoseconds::";
        assert_eq!(bare.parse::<ProfileType>().unwrap().to_string(), bare);
    }

    #[test]
    fn anything_else_is_refused() {
        for (text, seen) in [("", 0), ("cpu", 1), ("a:b:c:d", 4), ("a:b:c:d:e:f:g", 7)] {
            let refused = text.parse::<ProfileType>().unwrap_err();
            assert_eq!(refused, ProfileTypeError::Parts { text: text.into(), seen });
        }
        assert!("x".repeat(5000).parse::<ProfileType>().is_err());
    }
}
