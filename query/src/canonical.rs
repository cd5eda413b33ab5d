//! Questions to something that never changes, spelled so that all that have one answer look alike.
//!
//! A dashboard that is refreshed asks for a time that ends later, and often begins later. What lies between never changed,
//! and neither did its answer: so the time is widened to all time where all that is there was taken within it, the grid of
//! points is moved to where a grid of that step and phase begins, and what has no order is sorted. Values of a heatmap are
//! kept one by one: theirs is the grid of all moments, whatever step and phase were asked for. Points are sums of many, which
//! another phase divides otherwise.

use std::collections::BTreeMap;

use athanor_profile::hash::{self, Hash};

use crate::ask::{Ask, Heat, Points, Steps, Trees, What};
use crate::heat;
use crate::partial::{Cell, Partial, PointSeries};
use crate::query::TimeRange;
use crate::wire::WireError;

/// A question as it is put to a source whose profiles are of a certain time.
#[derive(Clone, Debug)]
pub struct Canonical {
    /// It. Its answer is the one that was asked for, but for the places of points.
    pub ask: Ask,
    /// By what it is known.
    pub key: Hash,
    /// Where its points lie, and where those that were asked for; none where that is the same.
    moved: Option<Moved>,
}

/// From one grid to another.
#[derive(Clone, Copy, Debug)]
struct Moved {
    from: Steps,
    to: Steps,
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
            What::Points(Points { steps, group_by, .. }) => {
                sort(group_by);
                moved_to(steps, asked, earliest(*steps))
            }
            What::Heat(Heat { steps, group_by, .. }) => {
                sort(group_by);
                moved_to(steps, asked, Some(MOMENTS))
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
        let Some(moved) = self.moved else { return partial };
        match partial {
            Partial::Points(series) => Partial::Points(moved_points(series, moved)),
            Partial::Heat(series) => Partial::Heat(heat::moved(series, |column| moved.place(column))),
            other => other,
        }
    }
}

impl Moved {
    /// Where something lies on the other grid, if it lies on it.
    fn place(self, place: u64) -> Option<u64> {
        let time = i128::from(self.from.start) + i128::from(place) * i128::from(self.from.step);
        self.to.place(i64::try_from(time).ok()?)
    }
}

fn moved_points(series: PointSeries, moved: Moved) -> PointSeries {
    let of_series = |cells: BTreeMap<u64, Cell>| -> BTreeMap<u64, Cell> {
        cells.into_iter().filter_map(|(place, cell)| Some((moved.place(place)?, cell))).collect()
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

/// The grid of all moments.
const MOMENTS: Steps = Steps { start: i64::MIN, step: 1, count: u64::MAX };

/// The grid of the same step and phase that begins first.
fn earliest(steps: Steps) -> Option<Steps> {
    let Steps { start, step, .. } = steps;
    // With steps of a nanosecond there are more moments than places.
    if step < 2 {
        return None;
    }
    let least = i128::from(i64::MIN);
    let first = least + (i128::from(start) - least).rem_euclid(i128::from(step));
    Some(Steps { start: i64::try_from(first).ok()?, step, count: u64::MAX })
}

/// Moves points to another grid. Not where the time goes beyond the points: then these say as well which profiles are meant.
fn moved_to(steps: &mut Steps, asked: TimeRange, grid: Option<Steps>) -> Option<Moved> {
    let of_points = steps.time();
    let covers = of_points.from <= asked.from && asked.to <= of_points.to;
    let from = grid.filter(|_| covers)?;
    Some(Moved { from, to: std::mem::replace(steps, from) })
}

fn sort(names: &mut Vec<String>) {
    names.sort_unstable();
    names.dedup();
}

#[cfg(test)]
mod tests {
    use athanor_profile::source::MemorySource;
    use athanor_profile::{Labels, Profile, ValueType};
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
        let heat = |start, step| {
            let steps = Steps { start, step, count: 100 };
            let what = What::Heat(Heat { steps, ..Heat::default() });
            let time = steps.time();
            ask(time.from, time.to, what).canonical(10, 20).unwrap().key
        };
        assert_eq!([heat(5, 5), heat(6, 5), heat(3, 7)], [heat(0, 5); 3], "values are kept one by one");
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
