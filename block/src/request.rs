//! Which request a sample belongs to: ids of its span and its trace, as clients send them in labels.

use athanor_profile::Dictionary;
use athanor_profile::hash::{HashedMap, list_memory};

/// Ids of a span and a trace; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The span.
    pub span: u64,
    /// The trace.
    pub trace: u128,
}

/// Which of its columns a block has: both are left out of a block where no sample has such an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestColumns {
    pub(crate) span: bool,
    pub(crate) trace: bool,
}

impl RequestColumns {
    pub(crate) fn or(self, other: Self) -> Self {
        RequestColumns { span: self.span || other.span, trace: self.trace || other.trace }
    }
    pub(crate) fn any(self) -> bool {
        self.span || self.trace
    }
}

/// A sample row on its way into a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) stack: u32,
    /// Place in a list of requests that goes with the rows; at 0 is the one without ids.
    pub(crate) request: u32,
    pub(crate) value: i64,
}

/// Requests, each once.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    all: Vec<Request>,
    places: HashedMap<u128, u32>,
}

impl Default for Requests {
    fn default() -> Self {
        Requests { all: vec![Request::default()], places: HashedMap::default() }
    }
}

impl Requests {
    pub(crate) fn intern(&mut self, request: Request) -> u32 {
        if request == Request::default() {
            return 0;
        }
        // Two ids that meet in one key would be confused: so the entry is compared.
        let key = request.trace ^ u128::from(request.span).rotate_left(64);
        match self.places.get(&key) {
            Some(&place) if self.all[place as usize] == request => place,
            _ => {
                let place = self.all.len() as u32;
                self.all.push(request);
                self.places.insert(key, place);
                place
            }
        }
    }
    pub(crate) fn all(&self) -> &[Request] {
        &self.all
    }
    /// Bytes that it has taken.
    pub(crate) fn memory(&self) -> usize {
        list_memory(&self.all) + self.places.allocation_size()
    }
    /// Forgets all and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.all.truncate(1);
        self.places.clear();
    }
}

/// Labels of samples that name one request, not a series. The last is what older clients call a span.
pub(crate) const REQUEST_LABELS: [&str; 3] = ["span_id", "trace_id", "profile_id"];

/// The request that a set of labels names, and how many of its labels say so.
pub(crate) fn of_labels(dictionary: &Dictionary, set: u32) -> (Request, usize) {
    let text = |id| dictionary.symbols.strings.get(id);
    let mut request = Request::default();
    let mut used = 0;
    for label in dictionary.label_sets.get(set) {
        // Labels come by name, so an old name is seen before the new one, which wins.
        let known = match text(label.key) {
            "profile_id" | "span_id" => hex(text(label.text), 16).map(|id| request.span = id as u64),
            "trace_id" => hex(text(label.text), 32).map(|id| request.trace = id),
            _ => None,
        };
        used += usize::from(known.is_some());
    }
    (request, used)
}

/// An id of exactly so many hex digits that is not 0.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|&id| is_hex && id != 0)
}
