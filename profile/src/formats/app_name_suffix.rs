//! Suffixes of application names, by which older clients name the profile type: `checkout.cpu`.

use crate::data_model::model::ValueType;

/// Value of the label `__name__` for processor time.
pub const CPU_METRIC: &str = "process_cpu";
/// Value of the label `__name__` for wall-clock time.
pub const WALL_METRIC: &str = "wall";
/// Value of the label `__name__` for allocated memory and memory in use.
pub const MEMORY_METRIC: &str = "memory";
/// Value of the label `__name__` for waiting on locks.
pub const MUTEX_METRIC: &str = "mutex";
/// Value of the label `__name__` for other waiting.
pub const BLOCK_METRIC: &str = "block";

/// Application name, split at its suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppNameSuffix<'a> {
    /// Application name without the suffix.
    pub app: &'a str,
    /// Value of the label `__name__` for profiles that were sent as text under this name.
    pub metric: &'static str,
    /// Type and unit of the sample values before any scaling.
    pub value_type: ValueType,
}

impl<'a> AppNameSuffix<'a> {
    /// Parses the part after the last dot. A name without a dot means CPU time. Returns `None` if the suffix
    /// is unknown.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (app, suffix) = name.rsplit_once('.').unwrap_or((name, "cpu"));
        let (metric, kind, unit) = match suffix {
            "cpu" | "itimer" => (CPU_METRIC, "samples", "count"),
            "wall" | "seconds" | "nanoseconds" | "microseconds" | "milliseconds" => {
                (WALL_METRIC, "samples", "count")
            }
            "inuse_objects"
            | "alloc_objects"
            | "alloc_in_new_tlab_objects"
            | "alloc_outside_tlab_objects"
            | "live" => (MEMORY_METRIC, suffix, "count"),
            "inuse_space" | "alloc_space" | "alloc_in_new_tlab_bytes" | "alloc_outside_tlab_bytes" => {
                (MEMORY_METRIC, suffix, "bytes")
            }
            "bytes" => (MEMORY_METRIC, "samples", "bytes"),
            "goroutines" => ("goroutine", suffix, "count"),
            "mutex_count" => (MUTEX_METRIC, "contentions", "count"),
            "mutex_duration" => (MUTEX_METRIC, "delay", "nanoseconds"),
            "block_count" | "lock_count" => (BLOCK_METRIC, "contentions", "count"),
            "block_duration" | "lock_duration" => (BLOCK_METRIC, "delay", "nanoseconds"),
            "exceptions" => ("exceptions", "samples", "count"),
            _ => return None,
        };
        Some(AppNameSuffix { app, metric, value_type: ValueType::new(kind, unit) })
    }

    /// Returns the type of the time that samples represent: `cpu`, `wall` or none.
    pub fn sampled_time(&self) -> Option<&'static str> {
        match self.metric {
            CPU_METRIC => Some("cpu"),
            WALL_METRIC => Some("wall"),
            _ => None,
        }
    }

    /// Returns the value type that is stored. Samples of time are stored as nanoseconds.
    pub fn stored_type(&self) -> ValueType {
        self.sampled_time()
            .map_or_else(|| self.value_type.clone(), |time| ValueType::new(time, "nanoseconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_says_what_text_counts() {
        for (name, expected) in [
            ("app", "process_cpu samples count app"),
            ("app.cpu", "process_cpu samples count app"),
            ("a.b.itimer", "process_cpu samples count a.b"),
            ("app.seconds", "wall samples count app"),
            ("app.live", "memory live count app"),
            ("app.alloc_outside_tlab_bytes", "memory alloc_outside_tlab_bytes bytes app"),
            ("app.bytes", "memory samples bytes app"),
            ("app.goroutines", "goroutine goroutines count app"),
            ("app.mutex_duration", "mutex delay nanoseconds app"),
            ("app.lock_count", "block contentions count app"),
            ("app.exceptions", "exceptions samples count app"),
        ] {
            let suffix = AppNameSuffix::parse(name).unwrap();
            let ValueType { kind, unit } = &suffix.value_type;
            assert_eq!(format!("{} {kind} {unit} {}", suffix.metric, suffix.app), expected);
        }
        assert_eq!(AppNameSuffix::parse("app.nosuch"), None);
        assert_eq!(AppNameSuffix::parse("app."), None);
        assert_eq!(
            AppNameSuffix::parse("app.wall").unwrap().stored_type(),
            ValueType::new("wall", "nanoseconds")
        );
        assert_eq!(
            AppNameSuffix::parse("app.bytes").unwrap().stored_type(),
            ValueType::new("samples", "bytes")
        );
    }
}
