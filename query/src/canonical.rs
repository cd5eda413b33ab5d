//! Questions to something that never changes, spelled so that all that have one answer look alike.
//!
//! A dashboard that is refreshed asks for a time that ends later, and often begins later. What lies between never changed,
//! and neither did its answer: so the time is widened to all time where all that is there was taken within it, the grid of
//! points is moved to where a grid of that step and phase begins, and what has no order is sorted.

use std::collections::BTreeMap;

use athanor_profile::Labels;
use athanor_profile::hash::{self, Hash};

use crate::ask::{Ask, Heat, Points, Steps, Trees, What};
use crate::heat::SpotKey;
use crate::partial::Partial;
use crate::query::TimeRange;
use crate::wire::WireError;

/// A question as it is put to a source whose profiles are of a certain time.
#[derive(Clone, Debug)]
pub struct Canonical {
    /// It. Its answer is the one that was asked for, but for the places of points.
    pub ask: Ask,
    /// By what it is known.
    pub key: Hash,
    /// By how many places its points lie later than those that were asked for, and how many were.
    moved: Option<(u64, u64)>,
}

impl Ask {
    /// Whether its answer is worth keeping: it is the same as long as the source is.
    pub fn is_lasting(&self) -> bool {
        // What a question would read depends on what is at hand.
        self.what != What::Sizes
    }

    /// The question to a source of which nothing is earlier than `first` or later than `last`.
    pub fn canonical(&self, first: i64, last: i64) -> Result<Canonical, WireError> {
        let mut ask = self.clone();
        let asked = ask.selection.time;
        ask.selection.selector.sort();
        ask.selection.time = widened(asked, first, last);
        let moved = match &mut ask.what {
            What::Points(Points { steps, group_by, .. }) | What::Heat(Heat { steps, group_by, .. }) => {
                sort(group_by);
                // Where the time goes beyond the points, they say as well which profiles are meant.
                let covers = |time: TimeRange| time.from <= asked.from && asked.to <= time.to;
                covers(steps.time()).then(|| move_grid(steps)).flatten()
            }
            What::Trees(Trees { group_by, .. }) => {
                sort(group_by);
                None
            }
            What::Series(names) => {
                sort(names);
                None
            }
            _ => None,
        };
        let key = hash::bytes(&ask.pack()?);
        Ok(Canonical { ask, key, moved })
    }
}

impl Canonical {
    /// Whether its answer differs from the one that was asked for: then [`answer`](Self::answer) takes a while.
    pub fn is_moved(&self) -> bool {
        self.moved.is_some()
    }

    /// Its answer as the answer to what was asked.
    pub fn answer(&self, partial: Partial) -> Partial {
        let Some((moved, count)) = self.moved else { return partial };
        let place = |place: u64| place.checked_sub(moved).filter(|place| *place < count);
        match partial {
            Partial::Points(series) => {
                Partial::Points(moved_back(series, |at, cell| place(at).map(|at| (at, cell))))
            }
            Partial::Heat(series) => Partial::Heat(moved_back(series, |key: SpotKey, spot| {
                place(key.column).map(|column| (SpotKey { column, ..key }, spot))
            })),
            other => other,
        }
    }
}

fn moved_back<K: Ord, V>(
    series: BTreeMap<Labels, BTreeMap<K, V>>,
    back: impl Fn(K, V) -> Option<(K, V)>,
) -> BTreeMap<Labels, BTreeMap<K, V>> {
    let of_series = |cells: BTreeMap<K, V>| -> BTreeMap<K, V> {
        cells.into_iter().filter_map(|(key, value)| back(key, value)).collect()
    };
    let all = series.into_iter().map(|(labels, cells)| (labels, of_series(cells)));
    all.filter(|(_, cells)| !cells.is_empty()).collect()
}

/// A range that holds the same of what lies from `first` to `last`.
fn widened(asked: TimeRange, first: i64, last: i64) -> TimeRange {
    let all = TimeRange::default();
    TimeRange {
        from: if asked.from <= first { all.from } else { asked.from },
        to: if asked.contains(last) || asked.to > last { all.to } else { asked.to },
    }
}

/// Moves the points to the earliest ones of their step and phase; says by how many places, and how many there were.
fn move_grid(steps: &mut Steps) -> Option<(u64, u64)> {
    let Steps { start, step, count } = *steps;
    // With steps of a nanosecond there are more moments than places.
    if step < 2 {
        return None;
    }
    let least = i128::from(i64::MIN);
    let first = least + (i128::from(start) - least).rem_euclid(i128::from(step));
    let moved = u64::try_from((i128::from(start) - first) / i128::from(step)).ok()?;
    *steps = Steps { start: i64::try_from(first).ok()?, step, count: u64::MAX };
    Some((moved, count))
}

fn sort(names: &mut Vec<String>) {
    names.sort_unstable();
    names.dedup();
}

#[cfg(test)]
mod tests {
    use athanor_profile::source::MemorySource;
    use athanor_profile::{Profile, ValueType};
    use proptest::prelude::*;

    use super::*;
    use crate::{Bounds, Selection, StackFilter, run};

    fn source(times: &[i64]) -> MemorySource {
        let mut source = MemorySource::default();
        for (number, &time) in times.iter().enumerate() {
            let mut profile = Profile::default();
            profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
            profile.header.time_nanos = time;
            let stack = profile.dictionary.named_stack(["main", ["a", "b"][number % 2]].into_iter());
            profile.samples.push(stack, 0, &[number as i64 + 1]);
            let pod = ("pod".to_owned(), (number % 3).to_string());
            source.add(&Labels::new([pod]), &profile, number as u128 + 1);
        }
        source
    }

    fn ask(from: i64, to: i64, what: What) -> Ask {
        let selection = Selection { time: TimeRange { from, to }, ..Selection::default() };
        Ask { selection, what, bounds: Bounds::default() }
    }

    fn whats(start: i64, step: i64, count: u64) -> Vec<What> {
        let steps = Steps { start, step, count };
        let group_by = vec!["pod".to_owned(), "pod".to_owned()];
        vec![
            What::Tree(StackFilter::default()),
            What::Series(vec!["pod".to_owned(), "__type__".to_owned()]),
            What::Points(Points { steps, group_by: group_by.clone(), mean: true, ..Points::default() }),
            What::Points(Points { steps, exemplars: true, ..Points::default() }),
            What::Heat(Heat { steps, group_by, ..Heat::default() }),
        ]
    }

    fn shown(partial: &Partial) -> String {
        match partial {
            Partial::Tree(tree) => format!("{:?}", tree.nodes()),
            other => format!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn the_answer_is_the_one_that_was_asked_for(
            times in prop::collection::vec(1i64..200, 1..12),
            (from, to) in (0i64..210, 0i64..210),
            (start, step, count) in (0i64..60, 1i64..70, 1u64..40),
            points_say_when in any::<bool>(),
        ) {
            let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
            let source = source(&times);
            for what in whats(start, step, count) {
                let mut ask = ask(from, to, what);
                if points_say_when {
                    ask.selection.time = Steps { start, step, count }.time();
                }
                let asked = run(&ask, &source).unwrap();
                let canonical = ask.canonical(first, last).unwrap();
                let seen = canonical.answer(run(&canonical.ask, &source).unwrap());
                prop_assert_eq!(shown(&seen), shown(&asked));
                // As it is kept.
                let kept = run(&canonical.ask, &source).unwrap().pack().unwrap();
                let bytes: Vec<u8> = kept.flatten().collect();
                let read = Partial::unpack(&bytes, &canonical.ask).unwrap();
                prop_assert_eq!(shown(&canonical.answer(read)), shown(&asked));
            }
        }
    }

    #[test]
    fn a_later_end_is_the_same_question_and_an_earlier_one_is_not() {
        let key = |from, to, what: &What| ask(from, to, what.clone()).canonical(10, 20).unwrap().key;
        let tree = What::Tree(StackFilter::default());
        let all = key(10, 21, &tree);
        assert_eq!([key(0, 21, &tree), key(10, 99, &tree), key(i64::MIN, i64::MAX, &tree)], [all; 3]);
        assert_ne!(key(11, 21, &tree), all);
        assert_ne!(key(10, 20, &tree), all);
        assert_eq!(key(11, 21, &tree), key(11, 50, &tree));
        assert_ne!(key(10, 21, &What::LabelNames), all);
        let points = |start| {
            let steps = Steps { start, step: 5, count: 100 };
            let what = What::Points(Points { steps, ..Points::default() });
            let time = steps.time();
            ask(time.from, time.to, what).canonical(10, 20).unwrap().key
        };
        assert_eq!(points(0), points(5));
        assert_ne!(points(0), points(6), "points lie elsewhere");
    }

    #[test]
    fn the_order_of_conditions_says_nothing() {
        let key = |selector: &str| {
            let selection = Selection { selector: selector.parse().unwrap(), ..Selection::default() };
            Ask { selection, ..Ask::default() }.canonical(0, 1).unwrap().key
        };
        assert_eq!(key(r#"{a="b",c=~"d"}"#), key(r#"{c=~"d", a="b", a="b"}"#));
        assert_ne!(key(r#"{a="b"}"#), key(r#"{a!="b"}"#));
    }
}
