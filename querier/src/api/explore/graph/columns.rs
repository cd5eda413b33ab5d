//! Encoder of the columns of a graph.

use std::sync::Arc;

use athanor_profile::analysis::frame_origins::{FrameOrigins, OriginIds};
use athanor_profile::call_tree::tree::GraphColumns;
use athanor_proto::athanor::v1::{GraphResponse, TextTable};

use super::decode::MAX_SHARED_BYTES;

/// Rank of a text that no entry has.
const NOT_USED: u32 = u32::MAX;
/// Number of bytes of texts that are compared at once.
const WORD_BYTES: usize = 8;

/// Returns a response with the columns of a graph and the origins of its names. All other fields are empty.
pub fn encode_graph(columns: GraphColumns, origins: &FrameOrigins) -> GraphResponse {
    let texts = origins.texts();
    let name_origins = origins.ids_of_sorted(&columns.names);
    let files = SortedTexts::select(texts, name_origins.iter().map(|ids| ids.file));
    let binaries = SortedTexts::select(texts, name_origins.iter().map(|ids| ids.binary));
    let name_packages = columns.names.iter().zip(&name_origins).map(|(name, ids)| {
        // Most packages are the beginning of the name.
        let is_beginning = name.starts_with(&*texts[ids.package as usize]);
        if is_beginning { 0 } else { ids.package }
    });
    let packages = SortedTexts::select(texts, name_packages);
    let package_bytes = |ids: &OriginIds| (texts[ids.package as usize].len() as u32) << 1;
    let mut name_package: Vec<u32> = name_origins.iter().map(package_bytes).collect();
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
        // Negative lines are damaged, and none is that great.
        name_line: name_origins.iter().map(|ids| u32::try_from(ids.line).unwrap_or(0)).collect(),
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

impl SortedTexts {
    /// Returns a column of some of these sorted texts. The empty text is the first.
    fn select(texts: &[Arc<str>], ids: impl Iterator<Item = u32>) -> SortedTexts {
        let mut entries: Vec<u32> = ids.collect();
        let mut ranks = vec![NOT_USED; texts.len()];
        ranks[0] = 0;
        entries.iter().for_each(|&id| ranks[id as usize] = 0);
        let used = ranks.iter_mut().zip(texts).filter(|(rank, _)| **rank != NOT_USED);
        let mut count = 0;
        let used = used.map(|(rank, text)| {
            *rank = count;
            count += 1;
            &**text
        });
        let table = front_code(used);
        entries.iter_mut().for_each(|entry| *entry = ranks[*entry as usize]);
        SortedTexts { table, entries }
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
    let length = left.len().min(right.len()).min(MAX_SHARED_BYTES);
    let left = &left.as_bytes()[..length];
    let right_bytes = &right.as_bytes()[..length];
    let mut shared = 0;
    while let Some(word) = left[shared..].first_chunk::<WORD_BYTES>()
        && right_bytes[shared..].first_chunk() == Some(word)
    {
        shared += WORD_BYTES;
    }
    while shared < length && left[shared] == right_bytes[shared] {
        shared += 1;
    }
    while !right.is_char_boundary(shared) {
        shared -= 1;
    }
    shared
}
