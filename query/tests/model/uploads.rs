//! Uploads, the sources that hold them, and the selections of queries about them.

use athanor_profile::data_model::identity::record_id;
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, SampleLabel, SpanFilter, ValueType};
use athanor_query::{
    FrameFilter, FramePatterns, ProfileQuery, ProfileSelection, QueryKind, ResultLimits, StackFilter,
    TimeRange, TimeSeriesQuery,
};
use proptest::prelude::*;

/// A profile as the model knows it.
#[derive(Clone, Debug)]
pub struct Upload {
    pub service: u8,
    pub pod: u8,
    pub time: i64,
    pub rows: Vec<Row>,
    /// Which source holds it.
    pub source: u8,
}

/// A sample of it.
#[derive(Clone, Debug)]
pub struct Row {
    pub frames: Vec<u8>,
    /// Whether a text label splits it off.
    pub labelled: bool,
    /// Its span, 0 for none.
    pub span: u8,
    /// Its trace, 0 for none.
    pub trace: u8,
    pub values: [i8; 2],
}

pub const TYPES: [(&str, &str); 2] = [("samples", "count"), ("cpu", "nanoseconds")];
const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

pub fn upload() -> impl Strategy<Value = Upload> {
    let row = (prop::collection::vec(0..3u8, 0..4), any::<bool>(), 0..4u8, 0..3u8, any::<[i8; 2]>());
    let row =
        row.prop_map(|(frames, labelled, span, trace, values)| Row { frames, labelled, span, trace, values });
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
        for Row { frames, labelled, span, trace, values } in &self.rows {
            let path = path(frames);
            let stack = profile.dictionary.intern_named_stack(path.iter().map(String::as_str));
            let strings = &mut profile.dictionary.symbols.strings;
            let texts = [
                ("endpoint", labelled.then(|| "/x".to_owned())),
                // The old name means the same.
                (
                    ["span_id", "profile_id"][usize::from(span % 2)],
                    (*span > 0).then(|| format!("{span:016x}")),
                ),
                ("trace_id", (*trace > 0).then(|| format!("{trace:032x}"))),
            ];
            let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text?)));
            let set: Vec<SampleLabel> = texts
                .map(|(key, text)| {
                    let (key, text) = (strings.intern(key), strings.intern(&text));
                    SampleLabel { key, text, number: 0, unit: 0 }
                })
                .collect();
            let set = profile.dictionary.label_sets.intern(&profile.dictionary.symbols.strings, &set);
            profile.samples.push(stack, set, &values.map(i64::from));
        }
        profile
    }
}

/// Selection of a query, as the model knows it.
#[derive(Clone, Debug, Default)]
pub struct SelectionCase {
    pub service: u8,
    pub from: i64,
    pub to: i64,
    pub call_site: Vec<u8>,
    /// Frames that must be there, the first as a name, others as expressions.
    pub included: Vec<u8>,
    /// The one that must not be there.
    pub excluded: Option<u8>,
    /// Spans, or traces.
    pub requests: Option<(bool, Vec<u8>)>,
    /// Places of uploads; whether all of each is meant, or only what no label splits off.
    pub profiles: Option<(Vec<usize>, bool)>,
}

pub fn selection_case() -> impl Strategy<Value = SelectionCase> {
    let ids = || prop::collection::vec(0..4u8, 0..3);
    let frames = (prop::collection::vec(0..3u8, 0..3), prop::option::weighted(0.3, 0..3u8));
    let requests = prop::option::weighted(0.4, (any::<bool>(), ids()));
    let profiles = (prop::collection::vec(0..12usize, 1..5), any::<bool>());
    let profiles = prop::option::weighted(0.3, profiles);
    let call_site = prop::collection::vec(0..3u8, 0..3);
    (0..2u8, 0..20i64, 10..45i64, call_site, frames, requests, profiles).prop_map(
        |(service, from, to, call_site, (included, excluded), requests, profiles)| SelectionCase {
            service,
            from,
            to,
            call_site,
            included,
            excluded,
            requests,
            profiles,
        },
    )
}

impl SelectionCase {
    pub fn stacks(&self) -> StackFilter {
        let (mut included, mut excluded) = (FramePatterns::default(), FramePatterns::default());
        for (place, frame) in self.included.iter().enumerate() {
            match place {
                0 => included.names.push(format!("f{frame}")),
                _ => included.regexes.push(format!("[a-f]{frame}")),
            }
        }
        excluded.regexes.extend(self.excluded.map(|frame| format!("^.{frame}$")));
        let frames = FrameFilter::new(included, excluded).expect("it compiles");
        StackFilter { call_site: path(&self.call_site), frames, ..StackFilter::default() }
    }
}

/// Four sources, each with the uploads that it holds.
pub fn sources(uploads: &[Upload]) -> Vec<MemorySource> {
    let mut sources: Vec<MemorySource> = (0..4).map(|_| MemorySource::default()).collect();
    for (place, upload) in uploads.iter().enumerate() {
        sources[upload.source as usize].add(&upload.labels(), &upload.profile(), place as u128);
    }
    sources
}

/// The id of an upload's record of CPU time, or of all its records.
pub fn id(place: usize, whole: bool) -> u128 {
    let (kind, unit) = TYPES[1];
    let id = record_id(place as u128, &ValueType::new(kind, unit), &Labels::default(), 0);
    if whole { athanor_profile::data_model::identity::profile_id_of_record(id) } else { id }
}

pub fn question(case: &SelectionCase, what: QueryKind) -> ProfileQuery {
    let time = match &what {
        QueryKind::Points(TimeSeriesQuery { steps, .. }) => steps.time_range(),
        QueryKind::Heat(heat) => heat.steps.time_range(),
        _ => TimeRange { from: case.from, to: case.to },
    };
    let selector = format!("{{service_name=\"s{}\"}}", case.service).parse().expect("a selector");
    let lists =
        matches!(what, QueryKind::Series(_) | QueryKind::LabelValues(_) | QueryKind::LabelNameCounts { .. });
    let profile_type = (!lists).then(|| CPU.parse().expect("a type"));
    let mut selection = ProfileSelection { selector, profile_type, time, ..ProfileSelection::default() };
    if !lists {
        let profiles = case.profiles.iter();
        selection.profiles =
            profiles.flat_map(|(places, whole)| places.iter().map(|&place| id(place, *whole))).collect();
        selection.requests = case.requests.as_ref().map(|(of_traces, ids)| match of_traces {
            true => SpanFilter::traces(ids.iter().map(|&id| u128::from(id))),
            false => SpanFilter::spans(ids.iter().map(|&id| u64::from(id))),
        });
    }
    ProfileQuery { selection, what, bounds: ResultLimits::default() }
}
