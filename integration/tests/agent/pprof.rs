//! pprof of one stack, encoded without code of this project.

use athanor_chassis::Timestamp;
use athanor_integration::bodies::gzip;
use prost::Message;

/// Nanoseconds of one CPU sample, at 100 samples a second.
pub const SAMPLE_NANOS: i64 = 10_000_000;

/// Profile with one stack of one function.
pub struct CountedProfile {
    function: String,
    /// Type and unit of each value.
    types: [(&'static str, &'static str); 2],
    values: [i64; 2],
    /// Index of the type of a period.
    period_type: usize,
    /// Length of a recording. A snapshot of values since the start of the process has none.
    duration_nanos: i64,
}

impl CountedProfile {
    /// Returns a CPU profile.
    pub fn cpu(function: &str, samples: i64) -> Self {
        Self {
            function: function.to_owned(),
            types: [("samples", "count"), ("cpu", "nanoseconds")],
            values: [samples, samples * SAMPLE_NANOS],
            period_type: 1,
            duration_nanos: 1_000_000_000,
        }
    }

    /// Returns a profile of contentions in the function `contended`.
    pub fn mutex(count: i64) -> Self {
        Self {
            function: "contended".to_owned(),
            types: [("contentions", "count"), ("delay", "nanoseconds")],
            values: [count, count * 1000],
            period_type: 0,
            duration_nanos: 0,
        }
    }

    /// Encodes the profile. Without a time the field is absent.
    pub fn encode_pprof(&self, time: Option<Timestamp>) -> Vec<u8> {
        let [(first, first_unit), (second, second_unit)] = self.types;
        let strings = ["", first, first_unit, second, second_unit, &self.function];
        let sample_types = vec![ValueType { kind: 1, unit: 2 }, ValueType { kind: 3, unit: 4 }];
        let profile = Pprof {
            period_type: sample_types.get(self.period_type).cloned(),
            sample_types,
            samples: vec![Sample { locations: vec![1], values: self.values.to_vec() }],
            locations: vec![Location { id: 1, lines: vec![Line { function: 1 }] }],
            functions: vec![Function { id: 1, name: 5, system_name: 5 }],
            strings: strings.map(str::to_owned).to_vec(),
            time_nanos: time.map_or(0, Timestamp::nanos),
            duration_nanos: self.duration_nanos,
            period: SAMPLE_NANOS,
        };
        gzip(&profile.encode_to_vec())
    }
}

#[derive(Clone, PartialEq, Message)]
struct Pprof {
    #[prost(message, repeated, tag = "1")]
    sample_types: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
}
