//! Encoder of the columns of a graph.

use std::collections::BTreeMap;

use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::GraphColumns;
use athanor_proto::athanor::v1::{GraphResponse, TextTable};

use super::decode::MAX_SHARED_BYTES;

/// Returns a response with the columns of a graph and the origins of its names. All other fields are empty.
pub fn encode_graph(columns: GraphColumns, origins: &FrameOrigins) -> GraphResponse {
    let mut files = TextIndex::default();
    let mut binaries = TextIndex::default();
    let mut packages = TextIndex::default();
    let mut name_line = Vec::with_capacity(columns.names.len());
    let mut name_package = Vec::with_capacity(columns.names.len());
    for name in &columns.names {
        let origin = origins.get(name);
        files.push(origin.file);
        binaries.push(origin.binary);
        // Most packages are the beginning of the name.
        let is_beginning = name.starts_with(origin.package);
        packages.push(if is_beginning { "" } else { origin.package });
        name_package.push((origin.package.len() as u32) << 1);
        // Negative lines are damaged, and none is that great.
        name_line.push(u32::try_from(origin.line).unwrap_or(0));
    }
    let files = files.finish();
    let binaries = binaries.finish();
    let packages = packages.finish();
    for (entry, index) in name_package.iter_mut().zip(packages.entries).filter(|(_, index)| *index > 0) {
        *entry = index << 1 | 1;
    }
    GraphResponse {
        callees: columns.callees,
        name: columns.node_names,
        self_: columns.self_values.values,
        self_gap: columns.self_values.gaps,
        truncated: columns.truncated.values,
        truncated_gap: columns.truncated.gaps,
        divisor: columns.divisor,
        name_file: files.entries,
        name_binary: binaries.entries,
        name_package,
        name_line,
        files: Some(files.table),
        binaries: Some(binaries.table),
        packages: Some(packages.table),
        names: Some(front_code(columns.names.iter().map(|name| &**name))),
        ..GraphResponse::default()
    }
}

/// Column of texts: the sorted texts, and the index of each entry.
struct SortedTexts {
    table: TextTable,
    entries: Vec<u32>,
}

/// Column of texts before they are sorted.
struct TextIndex<'t> {
    /// Distinct texts with the number of their first entry.
    ids: BTreeMap<&'t str, u32>,
    /// Text of each entry.
    entries: Vec<u32>,
}

impl Default for TextIndex<'_> {
    fn default() -> Self {
        TextIndex { ids: BTreeMap::from([("", 0)]), entries: Vec::new() }
    }
}

impl<'t> TextIndex<'t> {
    fn push(&mut self, text: &'t str) {
        let next = self.ids.len() as u32;
        self.entries.push(*self.ids.entry(text).or_insert(next));
    }

    /// Sorts the texts. The empty text is the first.
    fn finish(self) -> SortedTexts {
        let mut ranks = vec![0u32; self.ids.len()];
        (0..).zip(self.ids.values()).for_each(|(rank, id)| ranks[*id as usize] = rank);
        SortedTexts {
            table: front_code(self.ids.keys().copied()),
            entries: self.entries.into_iter().map(|id| ranks[id as usize]).collect(),
        }
    }
}

/// Returns the front-coded form of texts.
pub(super) fn front_code<'t>(texts: impl Iterator<Item = &'t str>) -> TextTable {
    let mut table = TextTable::default();
    let mut before = "";
    for text in texts {
        let shared = shared_bytes(before, text);
        let rest = &text[shared..];
        table.shared.push(shared as u32);
        table.rest.push(rest.len() as u32);
        table.text.push_str(rest);
        before = text;
    }
    table
}

/// Returns the length of the beginning that two texts share, without a part of a character.
fn shared_bytes(left: &str, right: &str) -> usize {
    let pairs = left.as_bytes().iter().zip(right.as_bytes()).take(MAX_SHARED_BYTES);
    let mut shared = pairs.take_while(|(left, right)| left == right).count();
    while !right.is_char_boundary(shared) {
        shared -= 1;
    }
    shared
}
