//! Uploads, the sources that hold them, and what is asked about them.

use athanor_profile::source::MemorySource;
use athanor_profile::{Labels, Profile, SampleLabel, ValueType};
use athanor_query::{Ask, Bounds, Selection, TimeRange, What};
use proptest::prelude::*;

/// A profile as the model knows it.
#[derive(Clone, Debug)]
pub struct Upload {
    pub service: u8,
    pub pod: u8,
    pub time: i64,
    /// Path, whether a text label splits it off, values.
    pub rows: Vec<(Vec<u8>, bool, [i8; 2])>,
    /// Which source holds it.
    pub source: u8,
}

pub const TYPES: [(&str, &str); 2] = [("samples", "count"), ("cpu", "nanoseconds")];
const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

pub fn upload() -> impl Strategy<Value = Upload> {
    let row = (prop::collection::vec(0..3u8, 0..4), any::<bool>(), any::<[i8; 2]>());
    let rows = prop::collection::vec(row, 0..6);
    (0..2u8, 0..3u8, 0..40i64, rows, 0..4u8).prop_map(|(service, pod, time, rows, source)| Upload {
        service,
        pod,
        time,
        rows,
        source,
    })
}

pub fn path(frames: &[u8]) -> Vec<String> {
    frames.iter().map(|frame| format!("f{frame}")).collect()
}

impl Upload {
    pub fn labels(&self) -> Labels {
        let named = [
            ("__name__", "process_cpu".to_owned()),
            ("service_name", format!("s{}", self.service)),
            // Not every series has a pod.
            ("pod", if self.pod == 0 { String::new() } else { format!("p{}", self.pod) }),
        ];
        Labels::new(named.map(|(name, value)| (name.to_owned(), value)))
    }
    pub fn profile(&self) -> Profile {
        let mut profile = Profile::default();
        profile.header.types = TYPES.map(|(kind, unit)| ValueType::new(kind, unit)).to_vec();
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        profile.header.time_nanos = self.time;
        for (frames, labelled, values) in &self.rows {
            let path = path(frames);
            let stack = profile.dictionary.named_stack(path.iter().map(String::as_str));
            let strings = &mut profile.dictionary.symbols.strings;
            let (key, text) = (strings.intern("endpoint"), strings.intern("/x"));
            let label = SampleLabel { key, text, number: 0, unit: 0 };
            let set = if *labelled { vec![label] } else { Vec::new() };
            let set = profile.dictionary.label_sets.intern(&profile.dictionary.symbols.strings, &set);
            profile.samples.push(stack, set, &values.map(i64::from));
        }
        profile
    }
}

/// What the model is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub service: u8,
    pub from: i64,
    pub to: i64,
    pub call_site: Vec<u8>,
}

pub fn asked() -> impl Strategy<Value = Asked> {
    (0..2u8, 0..20i64, 10..45i64, prop::collection::vec(0..3u8, 0..3))
        .prop_map(|(service, from, to, call_site)| Asked { service, from, to, call_site })
}

/// Four sources, each with the uploads that it holds.
pub fn sources(uploads: &[Upload]) -> Vec<MemorySource> {
    let mut sources: Vec<MemorySource> = (0..4).map(|_| MemorySource::default()).collect();
    for (id, upload) in (1u128..).zip(uploads) {
        sources[upload.source as usize].add(&upload.labels(), &upload.profile(), id);
    }
    sources
}

pub fn question(asked: &Asked, what: What) -> Ask {
    let time = match &what {
        What::Points(points) => points.time(),
        _ => TimeRange { from: asked.from, to: asked.to },
    };
    let selector = format!("{{service_name=\"s{}\"}}", asked.service).parse().expect("a selector");
    let lists = matches!(what, What::Series(_) | What::LabelValues(_));
    let profile_type = (!lists).then(|| CPU.parse().expect("a type"));
    Ask { selection: Selection { selector, profile_type, time }, what, bounds: Bounds::default() }
}

pub fn orders() -> impl Strategy<Value = Vec<usize>> {
    Just(vec![0, 1, 2, 3]).prop_shuffle()
}
