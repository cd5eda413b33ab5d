//! Rows of an upload, split by the labels that make series of them, and the requests that they name.

use std::collections::HashMap;

use athanor_chassis::{ByteSize, ErrorCode, Status};
use athanor_profile::Labels;
use athanor_profile::encoding::hex::parse_hex_id;
use athanor_profile::formats::pprof::PprofReader;
use athanor_profile::labeling::normalize::{LabelLimits, promote};

/// Maximum records of one upload: some hundred bytes each, so that no batch grows beyond the upload's size.
pub const MAX_RECORDS_PER_UPLOAD: usize = 20_000;
/// Maximum bytes of labels before rules change them: those of the series are in each set.
const MAX_UNRELABELED_TEXT_BYTES: usize = 64 << 20;

/// Labels of samples that name one request, not a series. Older clients name a span `profile_id`.
const SPAN_ID_LABELS: [&str; 2] = ["span_id", "profile_id"];
const TRACE_ID_LABEL: &str = "trace_id";

/// Rows of a profile that share the labels that split them off.
pub struct LabelSplit {
    /// The labels that split it off.
    pub promoted: Labels,
    /// All labels of its series.
    pub labels: Labels,
    /// Row of the profile, span and trace.
    pub rows: Vec<(u32, u64, u128)>,
}

/// Numbers of rows that were dropped, or that lost a part.
#[derive(Clone, Copy, Debug, Default)]
pub struct DroppedRows {
    /// Rows with a negative value, which are dropped, as by all servers of this protocol.
    pub negative: u64,
    /// Rows with an invalid span or trace.
    pub ids: u64,
}

/// Span and trace of a request.
#[derive(Clone, Copy, Default)]
struct ParsedSpanContext {
    span: u64,
    trace: u128,
    /// True if a label names no valid id.
    malformed: bool,
}

/// Splits that were found until now.
struct LabelSplitter<'a> {
    walk: &'a PprofReader,
    of_series: &'a Labels,
    limits: &'a LabelLimits,
    splits: Vec<LabelSplit>,
    by_labels: HashMap<Labels, usize>,
    text: usize,
}

/// Groups the rows of an upload; `of_series` are the labels of its series.
pub fn split_by_labels(
    walk: &PprofReader,
    of_series: &Labels,
    limits: &LabelLimits,
) -> Result<(Vec<LabelSplit>, DroppedRows), Status> {
    let decoded = walk.decoded();
    let samples = &decoded.samples;
    let width = decoded.header.types.len();
    let mut places: HashMap<u32, (usize, ParsedSpanContext)> = HashMap::new();
    let by_labels = HashMap::new();
    let splits = Vec::new();
    let mut splitting = LabelSplitter { walk, of_series, limits, splits, by_labels, text: 0 };
    let mut lost = DroppedRows::default();
    for (row, &set) in (0u32..).zip(&samples.labels) {
        let values = &samples.values[row as usize * width..][..width];
        if values.iter().any(|&value| value < 0) {
            lost.negative += 1;
            continue;
        }
        let (place, request) = match places.get(&set) {
            Some(known) => *known,
            None => {
                let known = (splitting.place(set)?, request(walk, set));
                *places.entry(set).or_insert(known)
            }
        };
        lost.ids += u64::from(request.malformed);
        splitting.splits[place].rows.push((row, request.span, request.trace));
    }
    Ok((splitting.splits, lost))
}

impl LabelSplitter<'_> {
    /// Returns the split of rows with a set of labels.
    fn place(&mut self, set: u32) -> Result<usize, Status> {
        let labels = self.walk.labels();
        let text = |id| labels.symbols.strings.get(id);
        let texts = labels.label_sets.get(set).iter().map(|label| (text(label.key), text(label.text)));
        let texts = texts.filter(|(_, value)| !value.is_empty());
        let labels = promote(self.of_series, texts, self.limits).map_err(|error| {
            Status::new(ErrorCode::Invalid, format!("labels of a sample: {error}"))
                .with_reason(error.reason())
        })?;
        if let Some(&place) = self.by_labels.get(&labels) {
            return Ok(place);
        }
        self.text += labels.text_bytes();
        self.check()?;
        let new = labels.iter().filter(|(name, _)| self.of_series.get(name).is_none());
        let promoted = Labels::new(new.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self.by_labels.insert(labels.clone(), self.splits.len());
        self.splits.push(LabelSplit { promoted, labels, rows: Vec::new() });
        Ok(self.splits.len() - 1)
    }

    /// Checks the limits for one more split.
    fn check(&self) -> Result<(), Status> {
        let records = (self.splits.len() + 1) * self.walk.decoded().header.types.len();
        let message = if records > MAX_RECORDS_PER_UPLOAD {
            format!(
                "the profile has {records} series or more (sample types times sets of sample text labels), the limit is {MAX_RECORDS_PER_UPLOAD} (not configurable); drop labels that differ from sample to sample"
            )
        } else if self.text > MAX_UNRELABELED_TEXT_BYTES {
            let [seen, limit] =
                [self.text, MAX_UNRELABELED_TEXT_BYTES].map(|bytes| ByteSize::bytes(bytes as u64));
            format!(
                "the labels of all series of the profile have {seen} or more, the limit is {limit} (not configurable); shorten or drop labels"
            )
        } else {
            return Ok(());
        };
        Err(Status::new(ErrorCode::Invalid, message).with_reason("series_limit"))
    }
}

/// Returns the request that a set of labels names.
fn request(walk: &PprofReader, set: u32) -> ParsedSpanContext {
    let labels = walk.labels();
    let text = |id| labels.symbols.strings.get(id);
    let mut request = ParsedSpanContext::default();
    for label in labels.label_sets.get(set) {
        let name = text(label.key);
        let value = text(label.text);
        let is_span = SPAN_ID_LABELS.contains(&name);
        if !is_span && name != TRACE_ID_LABEL || value.is_empty() {
            continue;
        }
        match parse_hex_id(value, if is_span { 16 } else { 32 }) {
            Some(id) if is_span => request.span = id as u64,
            Some(id) => request.trace = id,
            None => request.malformed = true,
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use athanor_profile::data_model::labels::SampleLabel;
    use athanor_profile::formats::pprof::{DecodeLimits, encode};
    use athanor_profile::{Profile, ValueType};

    use super::*;

    const LIMITS: LabelLimits =
        LabelLimits { name_length: 1 << 22, value_length: 1 << 22, names: 30, sessions: 0, sanitise: false };

    /// A profile of two types, with a sample for each set of labels.
    fn walked(sets: &[&[(&str, &str)]]) -> PprofReader {
        let mut profile = Profile::default();
        profile.header.types = ["a", "b"].map(|kind| ValueType::new(kind, "count")).into();
        let dictionary = &mut profile.dictionary;
        let stack = dictionary.intern_named_stack(["main"].into_iter());
        for set in sets {
            let strings = &mut dictionary.symbols.strings;
            let mut label = |(key, text): &(&str, &str)| {
                let (key, text) = (strings.intern(key), strings.intern(text));
                SampleLabel { key, text, number: 0, unit: 0 }
            };
            let labels: Vec<SampleLabel> = set.iter().map(&mut label).collect();
            let set = dictionary.label_sets.intern(&dictionary.symbols.strings, &labels);
            profile.samples.push(stack, set, &[1, 2]);
        }
        let mut walk = PprofReader::default();
        walk.read(&encode(&profile).into(), &DecodeLimits::default()).unwrap();
        walk
    }

    fn series(pod: &str) -> Labels {
        let pairs = [("__name__", "cpu"), ("service_name", "s"), ("pod", pod)];
        Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn ids_that_are_none_are_counted() {
        let trace = "0123456789abcdef0123456789ABCDEF";
        for (set, expected, lost) in [
            (
                &[("span_id", "00000000000000ff"), ("trace_id", trace)][..],
                (255, u128::from_str_radix(trace, 16).unwrap()),
                0,
            ),
            (&[("profile_id", "00000000000000ff")], (255, 0), 0),
            (&[("span_id", "+0000000000000ff")], (0, 0), 1),
            (&[("span_id", "ff")], (0, 0), 1),
            (&[("trace_id", "xyz"), ("span_id", "00000000000000ff")], (255, 0), 1),
            (&[("pod", "xyz")], (0, 0), 0),
        ] {
            let (splits, told) = split_by_labels(&walked(&[set]), &series("p"), &LIMITS).unwrap();
            assert_eq!(splits[0].rows, [(0, expected.0, expected.1)], "{set:?}");
            assert_eq!(told.ids, lost, "{set:?}");
        }
    }

    #[test]
    fn series_are_bounded_before_rules_drop_some() {
        let values: Vec<String> = (0..=MAX_RECORDS_PER_UPLOAD / 2).map(|value| value.to_string()).collect();
        let sets: Vec<[(&str, &str); 1]> = values.iter().map(|value| [("thread", value.as_str())]).collect();
        let sets: Vec<&[(&str, &str)]> = sets.iter().map(|set| &set[..]).collect();
        let refused = |sets: &[&[(&str, &str)]], pod: &str| {
            let refused = split_by_labels(&walked(sets), &series(pod), &LIMITS).err()?;
            assert_eq!((refused.code, refused.metric_reason()), (ErrorCode::Invalid, "series_limit"));
            Some(refused.message)
        };
        assert_eq!(refused(&sets[1..], "p"), None);
        assert!(refused(&sets, "p").unwrap().contains("has 20002 series or more"));
        let long = "p".repeat(1 << 20);
        assert_eq!(refused(&sets[..63], &long), None);
        assert!(refused(&sets[..64], &long).unwrap().contains("the limit is 64MiB"));
    }
}
