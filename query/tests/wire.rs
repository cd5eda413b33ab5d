//! Asking two processes over the wire is asking all of their sources here.

use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_query::{
    GoPgoOptions, HeatmapQuery, LabelValuesQuery, PartialChunkBuffer, PartialResult, ProfileQuery, QueryKind,
    SamplesQuery, StackFilter, TimeSeriesQuery, run_all,
};
use proptest::prelude::*;

#[path = "model/orders.rs"]
mod orders;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/uploads.rs"]
mod uploads;

use orders::orders;
use steps::steps;
use uploads::{TYPES, question, selection_case, sources, upload};

/// What another process answers from its sources.
fn from_afar<'s>(ask: &ProfileQuery, sources: impl Iterator<Item = &'s dyn ProfileSource>) -> PartialResult {
    let there = ProfileQuery::unpack(&ask.pack().expect("it is small")).expect("it was packed");
    let pieces = run_all(&there, sources).expect("an answer").pack().expect("it is small");
    let mut received = PartialChunkBuffer::default();
    for piece in pieces {
        received.push(&piece).expect("it fits");
    }
    received.unpack(ask).expect("it was packed")
}

fn packed(partial: &PartialResult) -> Vec<u8> {
    partial.pack().expect("it is small").flatten().collect()
}

proptest! {
    #[test]
    fn answers_from_afar_are_those_from_here(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(),
        split in 0..5usize, steps in steps(), flags: [bool; 3],
    ) {
        let sources = sources(&uploads);
        let all = || order.iter().map(|&at| &sources[at] as &dyn ProfileSource);
        let (group_by, stacks) = (vec!["pod".to_owned()], case.stacks());
        let [mean, exemplars, spans] = flags;
        let points = TimeSeriesQuery { steps, group_by: group_by.clone(), stacks: stacks.clone(), mean, exemplars };
        let pgo = GoPgoOptions { keep_locations: 2, aggregate_callees: true };
        let values = LabelValuesQuery { name: "pod".to_owned(), prefix: "p".to_owned(), most: 1 };
        let samples = SamplesQuery { stacks: stacks.clone(), max_rows: 9, spans, ..SamplesQuery::default() };
        for what in [
            QueryKind::ProfileTypes,
            QueryKind::LabelNames,
            QueryKind::LabelNameCounts { prefix: "__p".to_owned() },
            QueryKind::LabelValues(values),
            QueryKind::Series(vec!["pod".to_owned(), "__type__".to_owned()]),
            QueryKind::Tree(stacks.clone()),
            QueryKind::Profile(stacks.clone(), None),
            QueryKind::Profile(stacks.clone(), Some(pgo)),
            QueryKind::Points(points),
            QueryKind::Heat(HeatmapQuery { steps, group_by, spans, exemplars }),
            QueryKind::Samples(samples),
        ] {
            let ask = question(&case, what);
            // The first come from one process, the rest from another.
            let first = from_afar(&ask, all().take(split));
            let merged = first.merge(from_afar(&ask, all().skip(split)), &ask.bounds).expect("a sum");
            let here = run_all(&ask, all().take(split)).expect("an answer");
            let rest = run_all(&ask, all().skip(split)).expect("an answer");
            let here = here.merge(rest, &ask.bounds).expect("a sum");
            // Equal answers are equal bytes, since ids are kept.
            prop_assert_eq!(packed(&merged), packed(&here));
        }
    }
}

#[test]
fn an_answer_of_many_pieces_comes_whole() {
    let mut profile = Profile::default();
    profile.header.types = TYPES.map(|(kind, unit)| ValueType::new(kind, unit)).to_vec();
    for stack in 0..60_000i64 {
        let names = [format!("caller {}", stack % 7), format!("a function of some length, number {stack}")];
        let stack_id = profile.dictionary.intern_named_stack(names.iter().map(String::as_str));
        profile.samples.push(stack_id, 0, &[1, stack + 1]);
    }
    let mut source = MemorySource::default();
    source.add(&Labels::default(), &profile, 1);
    for what in [QueryKind::Tree(StackFilter::default()), QueryKind::Profile(StackFilter::default(), None)] {
        let ask = ProfileQuery { what, ..ProfileQuery::default() };
        let here = run_all(&ask, [&source as &dyn ProfileSource]).expect("an answer");
        assert!(here.pack().expect("it is small").count() > 2);
        assert_eq!(packed(&from_afar(&ask, [&source as &dyn ProfileSource].into_iter())), packed(&here));
    }
}
