//! Profiles that lie in several places count once, whatever is asked.

use std::collections::BTreeSet;

use athanor_profile::Source;
use athanor_profile::source::MemorySource;
use athanor_profile::tree::Tree;
use athanor_query::{
    Ask, Doubles, GoPgo, Heat, Lying, Partial, Place, Points, ProfileOrder, Profiles, StackFilter, Trees,
    Values, What, answer,
};
use proptest::prelude::*;

#[path = "model/steps.rs"]
mod steps;
#[path = "model/uploads.rs"]
mod uploads;

use steps::steps;
use uploads::{Asked, Upload, asked, question, sources, upload};

/// Four places: the first two are heads of one shard.
const PLACES: [Place; 4] =
    [Place::Head { shard: 3, n: 0 }, Place::Head { shard: 3, n: 1 }, Place::Block(1), Place::Block(2)];

/// The places where each upload lies, besides the one that it names.
fn doubled(uploads: &[Upload], further: &[BTreeSet<usize>]) -> Vec<MemorySource> {
    let mut all = sources(uploads);
    for (place, (upload, further)) in uploads.iter().zip(further).enumerate() {
        for &source in further.iter().filter(|source| **source != usize::from(upload.source)) {
            all[source].add(&upload.labels(), &upload.profile(), place as u128);
        }
    }
    all
}

fn whats(asked: &Asked, points: Points, heat: Heat) -> Vec<What> {
    let pgo = GoPgo { keep_locations: 2, aggregate_callees: false };
    let values = Values { name: "pod".to_owned(), ..Values::default() };
    let listed = Profiles { order: ProfileOrder::Newest, keep: 3, stacks: asked.stacks() };
    let grouped = Trees { group_by: vec!["pod".to_owned()], stacks: asked.stacks() };
    vec![
        What::Tree(asked.stacks()),
        What::Profile(asked.stacks(), None),
        What::Profile(StackFilter::default(), Some(pgo)),
        What::Points(Points { stacks: asked.stacks(), mean: true, ..points.clone() }),
        What::Points(Points { exemplars: true, ..points }),
        What::Heat(Heat { spans: true, ..heat.clone() }),
        What::Heat(heat),
        What::LabelValues(values),
        What::Trees(grouped),
        What::Profiles(Profiles { order: ProfileOrder::Heaviest, ..listed.clone() }),
        What::Profiles(listed),
    ]
}

/// What of an answer does not depend on the order in which it was merged.
fn shown(partial: Partial) -> String {
    match partial {
        Partial::Profile(merged) => {
            let tree = Tree::from_totals(&merged.dictionary, &merged.totals);
            format!("{} {:?}", merged.profiles, Partial::Tree(tree))
        }
        Partial::Values(counts) => format!("{:?}", counts.counts()),
        Partial::Profiles(list) => format!("{} {:?} {:?}", list.profiles, list.periods, list.rows()),
        other => format!("{other:?}"),
    }
}

fn told(ask: &Ask, sources: &[MemorySource], doubles: &Doubles) -> Partial {
    let nothing = BTreeSet::new();
    let lying = sources.iter().zip(PLACES).map(|(source, place)| Lying {
        source: source as &dyn Source,
        tells: Some(place),
        without: doubles.at(place).map_or(&nothing, |without| without.as_ref()),
    });
    answer(ask, lying).expect("an answer")
}

proptest! {
    #[test]
    fn each_counts_once(
        uploads in prop::collection::vec(upload(), 0..8),
        further in prop::collection::vec(prop::collection::btree_set(0..4usize, 0..3), 8),
        asked in asked(),
        steps in steps(),
    ) {
        let (once, doubled) = (sources(&uploads), doubled(&uploads, &further));
        let group_by = vec!["pod".to_owned()];
        let points = Points { steps, group_by: group_by.clone(), ..Points::default() };
        let heat = Heat { steps, group_by, ..Heat::default() };
        for what in whats(&asked, points, heat) {
            let ask = question(&asked, what);
            let expected = answer(&ask, once.iter().map(|one| one as &dyn Source)).expect("an answer");
            let (first, ids) = told(&ask, &doubled, &Doubles::default()).told();
            let seen = match ids.once(&Doubles::default()) {
                Ok(()) => first,
                Err(doubles) => {
                    let (second, ids) = told(&ask, &doubled, &doubles).told();
                    prop_assert_eq!(ids.once(&doubles), Ok(()));
                    second
                }
            };
            prop_assert_eq!(shown(seen), shown(expected));
        }
    }
}
