//! Span context of a sample: ids of its span and its trace, as clients send them in labels.

use crate::data_model::model::Dictionary;
use crate::encoding::hex::parse_hex_id;

/// Ids of a span and a trace; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanContext {
    /// Id of the span.
    pub span: u64,
    /// Id of the trace.
    pub trace: u128,
}

/// Sample labels with ids of a span or trace, which do not become series labels. Older clients use the last
/// for the span.
pub const SPAN_CONTEXT_LABELS: [&str; 3] = ["span_id", "trace_id", "profile_id"];

/// Returns the span context in a label set, and the number of labels that give it.
pub fn span_context_from_labels(dictionary: &Dictionary, set: u32) -> (SpanContext, usize) {
    let text = |id| dictionary.symbols.strings.get(id);
    // A label with id 0 gives no context, and stays a label.
    let id = |value, digits| parse_hex_id(text(value), digits).filter(|&id| id != 0);
    let mut request = SpanContext::default();
    let mut used = 0;
    for label in dictionary.label_sets.get(set) {
        // Labels are sorted by name. The old name thus comes before the new one, which wins.
        let known = match text(label.key) {
            "profile_id" | "span_id" => id(label.text, 16).map(|id| request.span = id as u64),
            "trace_id" => id(label.text, 32).map(|id| request.trace = id),
            _ => None,
        };
        used += usize::from(known.is_some());
    }
    (request, used)
}

/// Filter of samples by their spans or by their traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanFilter {
    /// Ids of spans, ascending.
    Spans(Vec<u64>),
    /// Ids of traces, ascending.
    Traces(Vec<u128>),
}

impl SpanFilter {
    /// Creates a filter for these spans. Id 0 means "no span", so it selects nothing.
    pub fn spans(ids: impl IntoIterator<Item = u64>) -> Self {
        SpanFilter::Spans(in_order(ids))
    }
    /// Creates a filter for these traces. Id 0 means "no trace", so it selects nothing.
    pub fn traces(ids: impl IntoIterator<Item = u128>) -> Self {
        SpanFilter::Traces(in_order(ids))
    }
    /// Returns whether the filter selects a span context.
    #[inline]
    pub fn contains(&self, request: SpanContext) -> bool {
        match self {
            SpanFilter::Spans(ids) => request.span != 0 && is_among(ids, request.span),
            SpanFilter::Traces(ids) => request.trace != 0 && is_among(ids, request.trace),
        }
    }
}

fn in_order<T: Ord + Default>(ids: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut ids: Vec<T> = ids.into_iter().filter(|id| *id != T::default()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[inline]
fn is_among<T: Ord>(ids: &[T], id: T) -> bool {
    match ids {
        [only] => *only == id,
        _ => ids.binary_search(&id).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_asked_for_by_span_or_by_trace() {
        let [none, span, both] = [(0, 0), (7, 0), (9, 5)].map(|(span, trace)| SpanContext { span, trace });
        let found = |filter: &SpanFilter| [none, span, both].map(|request| filter.contains(request));
        assert_eq!(found(&SpanFilter::spans([9, 0, 7, 9])), [false, true, true]);
        assert_eq!(found(&SpanFilter::spans([7])), [false, true, false]);
        assert_eq!(found(&SpanFilter::traces([5, 6])), [false, false, true]);
        assert_eq!(found(&SpanFilter::traces([0])), [false; 3]);
        assert_eq!(SpanFilter::spans([9, 0, 7, 9]), SpanFilter::Spans(vec![7, 9]));
    }
}
