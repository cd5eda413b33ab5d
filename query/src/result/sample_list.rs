//! Samples of single profiles, in order of time. Each source returns the first ones that it has, so the merged list ends
//! where the first truncated source ended.

use std::collections::BTreeSet;

use athanor_profile::encoding::hash::{ContentHash, vec_memory};
use athanor_profile::{Dictionary, Labels, SpanContext, StackCopier};

use crate::request::profile_position::ProfilePosition;
use crate::request::profile_query::SamplesQuery;
use crate::result::memory_size::labels_bytes;

/// Samples of the first profiles of a time range.
#[derive(Clone, Debug, Default)]
pub struct SampleList {
    /// Names and locations of the stacks.
    pub dictionary: Dictionary,
    pub(crate) max_rows: u64,
    pub(crate) profiles: Vec<SampledProfile>,
    pub(crate) stacks: Vec<u32>,
    pub(crate) values: Vec<i64>,
    /// Span context of each sample. Empty if no sample has one.
    pub(crate) spans: Vec<SpanContext>,
    /// First profile that is left out because the list is full.
    pub(crate) end: Option<ProfilePosition>,
}

/// Profile with samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledProfile {
    /// Record id of the profile.
    pub id: ContentHash,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// All labels by which the profile can be selected.
    pub labels: Labels,
    /// Number of its samples.
    pub samples: u32,
}

/// Sample of a profile. Its stack is one of the list's dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedSample {
    /// Stack of the sample.
    pub stack: u32,
    /// Value of the sample.
    pub value: i64,
    /// Span context of the sample.
    pub span: SpanContext,
}

impl SampledProfile {
    /// Returns the place of the profile.
    pub fn position(&self) -> ProfilePosition {
        ProfilePosition { time: self.time, id: self.id }
    }
}

impl SampleList {
    /// Returns the list of a query without any source.
    pub(crate) fn empty(query: &SamplesQuery) -> Self {
        SampleList { max_rows: query.max_rows, ..SampleList::default() }
    }

    /// Returns the profiles in order of time, with their samples.
    pub fn profiles(&self) -> impl Iterator<Item = (&SampledProfile, impl Iterator<Item = ListedSample>)> {
        let mut next = 0;
        self.profiles.iter().map(move |profile| {
            let first = next;
            next += profile.samples as usize;
            (profile, (first..next).map(|row| self.sample(row)))
        })
    }

    /// Returns true if no profile was found or left out.
    pub fn is_empty(&self) -> bool {
        self.profiles.is_empty() && self.end.is_none()
    }

    /// Returns the number of samples.
    pub fn sample_count(&self) -> usize {
        self.values.len()
    }

    /// Returns the first profile that was left out. None if the list has all profiles of the query.
    pub fn end(&self) -> Option<ProfilePosition> {
        self.end
    }

    /// Appends a profile, which comes after all others.
    pub(crate) fn push_profile(
        &mut self,
        profile: SampledProfile,
        samples: impl IntoIterator<Item = ListedSample>,
    ) {
        for ListedSample { stack, value, span } in samples {
            if span != SpanContext::default() && self.spans.is_empty() {
                self.spans.resize(self.values.len(), SpanContext::default());
            }
            if span != SpanContext::default() || !self.spans.is_empty() {
                self.spans.push(span);
            }
            self.stacks.push(stack);
            self.values.push(value);
        }
        self.profiles.push(profile);
    }

    fn sample(&self, row: usize) -> ListedSample {
        let span = self.spans.get(row).copied().unwrap_or_default();
        ListedSample { stack: self.stacks[row], value: self.values[row], span }
    }

    /// Merges the list of other sources.
    #[must_use]
    pub(crate) fn merge(mut self, other: SampleList) -> SampleList {
        if other.profiles.is_empty() {
            self.end = first_end(self.end, other.end);
            self.truncate();
            return self;
        }
        let mut merged = SampleList { max_rows: self.max_rows, ..SampleList::default() };
        merged.end = first_end(self.end, other.end);
        merged.dictionary = std::mem::take(&mut self.dictionary);
        let mut adopted: Vec<Option<u32>> = vec![None; other.dictionary.stacks.len()];
        let mut copier = StackCopier::new(&other.dictionary);
        let mut left = self.profiles().peekable();
        let mut right = other.profiles().peekable();
        loop {
            let takes_left = match (left.peek(), right.peek()) {
                (Some((left, _)), Some((right, _))) => left.position() <= right.position(),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let next =
                if takes_left { left.peek().map(|next| next.0) } else { right.peek().map(|next| next.0) };
            if next.is_some_and(|profile| !merged.has_space(profile)) {
                break;
            }
            if takes_left && let Some((profile, samples)) = left.next() {
                merged.push_profile(profile.clone(), samples);
            } else if let Some((profile, samples)) = right.next() {
                let samples: Vec<ListedSample> = samples
                    .map(|sample| {
                        let adopted = &mut adopted[sample.stack as usize];
                        let stack = *adopted
                            .get_or_insert_with(|| copier.copy_stack(sample.stack, &mut merged.dictionary));
                        ListedSample { stack, ..sample }
                    })
                    .collect();
                merged.push_profile(profile.clone(), samples);
            }
        }
        merged
    }

    /// Returns true if a profile belongs to the list. Otherwise the list ends before it.
    pub(crate) fn has_space(&mut self, profile: &SampledProfile) -> bool {
        let position = profile.position();
        let is_before_end = self.end.is_none_or(|end| position < end);
        let rows = self.values.len() as u64 + u64::from(profile.samples);
        let has_space = self.profiles.is_empty() || rows <= self.max_rows;
        if is_before_end && !has_space {
            self.end = Some(position);
        }
        is_before_end && has_space
    }

    /// Drops the profiles from the end of the list on.
    fn truncate(&mut self) {
        let Some(end) = self.end else { return };
        let profiles = self.profiles.iter().take_while(|profile| profile.position() < end);
        let mut kept = 0;
        let mut rows = 0;
        for profile in profiles {
            kept += 1;
            rows += profile.samples as usize;
        }
        self.profiles.truncate(kept);
        self.stacks.truncate(rows);
        self.values.truncate(rows);
        self.spans.truncate(rows);
    }

    /// Returns the approximate memory in bytes. Profiles of a series share its labels.
    pub(crate) fn bytes(&self) -> usize {
        let sets: BTreeSet<&Labels> = self.profiles.iter().map(|profile| &profile.labels).collect();
        let labels: usize = sets.into_iter().map(labels_bytes).sum();
        let rows = vec_memory(&self.stacks) + vec_memory(&self.values) + vec_memory(&self.spans);
        self.dictionary.memory() + rows + vec_memory(&self.profiles) + labels
    }
}

fn first_end(left: Option<ProfilePosition>, right: Option<ProfilePosition>) -> Option<ProfilePosition> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}
