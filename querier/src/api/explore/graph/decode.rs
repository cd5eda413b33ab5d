//! Strict decoder of the columns of a graph, for clients in Rust and for tests.

use athanor_proto::athanor::v1::{GraphResponse, TextTable};
use thiserror::Error;

/// Maximum number of bytes that a text shares with the one before.
pub(super) const MAX_SHARED_BYTES: usize = 255;
/// Maximum number of bytes of all decoded texts of a message, so that a short response cannot demand much memory. The
/// contract of the API states it, so the encoder checks it too.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// Columns that break the format.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GraphFormatError {
    /// Columns of one length have different ones.
    #[error("column {column} has {length} entries instead of {expected}")]
    Length {
        /// Name of the column.
        column: &'static str,
        /// Number of its entries.
        length: usize,
        /// Length of the column that it belongs to.
        expected: usize,
    },
    /// An entry of a column has no meaning.
    #[error("entry {entry} of column {column} is {fault}")]
    Entry {
        /// Name of the column.
        column: &'static str,
        /// Index of the entry.
        entry: usize,
        /// Reason for the rejection.
        fault: &'static str,
    },
    /// The numbers of callees do not describe one tree.
    #[error("numbers of callees do not describe one tree of {nodes} nodes")]
    Shape {
        /// Number of nodes in the columns.
        nodes: usize,
    },
    /// The divisor is not positive.
    #[error("divisor is {0}")]
    Divisor(i64),
    /// Texts are too long together.
    #[error(
        "names, files, binaries and packages have {bytes} bytes, the limit is {limit}",
        limit = MAX_TEXT_BYTES
    )]
    TextBytes {
        /// Number of bytes of all decoded texts.
        bytes: u64,
    },
}

/// Columns of a graph with one entry a node, or one entry a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedGraph {
    /// Number of callees of each node.
    pub callees: Vec<u32>,
    /// Caller of each node. The root is its own.
    pub parents: Vec<u32>,
    /// Index of each node's name.
    pub node_names: Vec<u32>,
    /// Self value of each node.
    pub self_values: Vec<i64>,
    /// Weight of the callees that were left out, of each node.
    pub truncated: Vec<i64>,
    /// Total of each node.
    pub totals: Vec<i64>,
    /// Names in the order of their bytes.
    pub names: Vec<String>,
    /// Line of each name, 0 if it is not known.
    pub lines: Vec<u32>,
    files: IndexedTexts,
    binaries: IndexedTexts,
    packages: IndexedTexts,
}

/// Table of texts, and an entry of each name that refers to it. A text with many names is in memory once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct IndexedTexts {
    texts: Vec<String>,
    entries: Vec<u32>,
}

impl DecodedGraph {
    /// Decodes the columns of a response. All texts take at most 256 MiB together. All else takes memory in proportion to
    /// the length of the response.
    pub fn from_response(response: &GraphResponse) -> Result<Self, GraphFormatError> {
        check_text_bytes(response)?;
        let nodes = response.callees.len();
        check_length("name", response.name.len(), nodes)?;
        let names = decode_texts("names", response.names.as_ref())?;
        let in_order = names.windows(2).position(|pair| pair[0] >= pair[1]);
        if let Some(before) = in_order {
            return Err(entry_error("names", before + 1, "not in the order of names"));
        }
        let origins =
            [&response.name_file, &response.name_binary, &response.name_package, &response.name_line];
        for column in origins {
            check_length("of names", column.len(), names.len())?;
        }
        check_indexes("name", &response.name, names.len())?;
        if response.divisor < 1 {
            return Err(GraphFormatError::Divisor(response.divisor));
        }
        let parents = parents_of_preorder(&response.callees)?;
        let dense = |column, values: &[i64], gaps: &[u32]| {
            let column = SparseEntries { column, values, gaps };
            column.decode(nodes, response.divisor)
        };
        let self_values = dense("self", &response.self_, &response.self_gap)?;
        let truncated = dense("truncated", &response.truncated, &response.truncated_gap)?;
        Ok(DecodedGraph {
            totals: sum_totals(&self_values, &truncated, &parents)?,
            callees: response.callees.clone(),
            parents,
            node_names: response.name.clone(),
            self_values,
            truncated,
            files: decode_indexed("name_file", &response.name_file, response.files.as_ref())?,
            binaries: decode_indexed("name_binary", &response.name_binary, response.binaries.as_ref())?,
            packages: decode_packages(response, &names)?,
            lines: response.name_line.clone(),
            names,
        })
    }

    /// Returns the name of a node.
    pub fn name(&self, node: usize) -> &str {
        &self.names[self.node_names[node] as usize]
    }
    /// Returns the file of a name, by the index of the name.
    pub fn file(&self, name: usize) -> &str {
        &self.files.texts[self.files.entries[name] as usize]
    }
    /// Returns the binary of a name, by the index of the name.
    pub fn binary(&self, name: usize) -> &str {
        &self.binaries.texts[self.binaries.entries[name] as usize]
    }
    /// Returns the package of a name, by the index of the name.
    pub fn package(&self, name: usize) -> &str {
        let entry = self.packages.entries[name];
        let number = (entry >> 1) as usize;
        if entry & 1 == 0 { &self.names[name][..number] } else { &self.packages.texts[number] }
    }
}

fn entry_error(column: &'static str, entry: usize, fault: &'static str) -> GraphFormatError {
    GraphFormatError::Entry { column, entry, fault }
}

fn check_length(column: &'static str, length: usize, expected: usize) -> Result<(), GraphFormatError> {
    match length == expected {
        true => Ok(()),
        false => Err(GraphFormatError::Length { column, length, expected }),
    }
}

fn check_indexes(column: &'static str, indexes: &[u32], length: usize) -> Result<(), GraphFormatError> {
    match indexes.iter().position(|&index| index as usize >= length) {
        Some(entry) => Err(entry_error(column, entry, "beyond the table")),
        None => Ok(()),
    }
}

/// Checks the number of bytes of all decoded texts of a response. The cost does not depend on the length of texts.
pub(super) fn check_text_bytes(response: &GraphResponse) -> Result<(), GraphFormatError> {
    let tables = [&response.names, &response.files, &response.binaries, &response.packages];
    let lengths = tables.into_iter().flatten().flat_map(|table| table.shared.iter().chain(&table.rest));
    let bytes: u64 = lengths.map(|&length| u64::from(length)).sum();
    if bytes > MAX_TEXT_BYTES { Err(GraphFormatError::TextBytes { bytes }) } else { Ok(()) }
}

/// Returns the texts of a table.
fn decode_texts(column: &'static str, table: Option<&TextTable>) -> Result<Vec<String>, GraphFormatError> {
    let Some(TextTable { text, shared, rest }) = table else { return Ok(Vec::new()) };
    check_length(column, rest.len(), shared.len())?;
    let mut texts: Vec<String> = Vec::with_capacity(shared.len());
    let mut left = text.as_str();
    for (entry, (&shared, &length)) in shared.iter().zip(rest).enumerate() {
        let before = texts.last().map_or("", String::as_str);
        let begin = match shared as usize {
            shared if shared > MAX_SHARED_BYTES => None,
            shared => before.get(..shared),
        };
        let begin = begin.ok_or_else(|| entry_error(column, entry, "no beginning of the text before"))?;
        let rest = left.get(..length as usize);
        let rest = rest.ok_or_else(|| entry_error(column, entry, "beyond the bytes of the texts"))?;
        left = &left[rest.len()..];
        texts.push([begin, rest].concat());
    }
    match left.is_empty() {
        true => Ok(texts),
        false => Err(entry_error(column, texts.len(), "missing for the last bytes of the texts")),
    }
}

/// Checks the indexes of texts. The first text is empty.
fn decode_indexed(
    column: &'static str,
    entries: &[u32],
    table: Option<&TextTable>,
) -> Result<IndexedTexts, GraphFormatError> {
    let texts = decode_texts(column, table)?;
    if texts.first().is_some_and(|text| !text.is_empty()) {
        return Err(entry_error(column, 0, "not the empty text"));
    }
    check_indexes(column, entries, texts.len())?;
    Ok(IndexedTexts { texts, entries: entries.to_vec() })
}

/// Checks the packages of all names.
fn decode_packages(response: &GraphResponse, names: &[String]) -> Result<IndexedTexts, GraphFormatError> {
    let column = "name_package";
    let texts = decode_texts(column, response.packages.as_ref())?;
    let entries = response.name_package.clone();
    let is_known = |(&entry, name): (&u32, &String)| {
        let number = (entry >> 1) as usize;
        if entry & 1 == 0 { name.is_char_boundary(number) } else { number < texts.len() }
    };
    match entries.iter().zip(names).position(|entry| !is_known(entry)) {
        Some(entry) => Err(entry_error(column, entry, "neither a beginning of the name nor an index")),
        None => Ok(IndexedTexts { texts, entries }),
    }
}

/// Returns the caller of each node of a preorder.
fn parents_of_preorder(callees: &[u32]) -> Result<Vec<u32>, GraphFormatError> {
    let wrong = GraphFormatError::Shape { nodes: callees.len() };
    let mut parents = Vec::with_capacity(callees.len());
    // Nodes with callees that are still to come, and the number of these.
    let mut open: Vec<(u32, u32)> = Vec::new();
    for (node, &count) in (0u32..).zip(callees) {
        let parent = match open.last_mut() {
            None if node == 0 => 0,
            None => return Err(wrong),
            Some((caller, left)) => {
                *left -= 1;
                *caller
            }
        };
        if open.last().is_some_and(|(_, left)| *left == 0) {
            open.pop();
        }
        parents.push(parent);
        if count > 0 {
            open.push((node, count));
        }
    }
    if open.is_empty() { Ok(parents) } else { Err(wrong) }
}

/// Column of the nodes that have a value.
#[derive(Clone, Copy)]
struct SparseEntries<'c> {
    column: &'static str,
    values: &'c [i64],
    gaps: &'c [u32],
}

impl SparseEntries<'_> {
    /// Returns the value of each node.
    fn decode(self, nodes: usize, divisor: i64) -> Result<Vec<i64>, GraphFormatError> {
        let SparseEntries { column, values, gaps } = self;
        check_length(column, gaps.len(), values.len())?;
        let mut all = vec![0i64; nodes];
        let mut next = 0usize;
        for (entry, (value, gap)) in values.iter().zip(gaps).enumerate() {
            let node = next.saturating_add(*gap as usize);
            let wrong = |fault| entry_error(column, entry, fault);
            let place = all.get_mut(node).ok_or_else(|| wrong("beyond the last node"))?;
            *place = value.checked_mul(divisor).ok_or_else(|| wrong("beyond 64 bits"))?;
            if *value == 0 {
                return Err(wrong("0"));
            }
            next = node + 1;
        }
        Ok(all)
    }
}

/// Returns the total of each node.
fn sum_totals(self_values: &[i64], truncated: &[i64], parents: &[u32]) -> Result<Vec<i64>, GraphFormatError> {
    let mut totals = vec![0i64; parents.len()];
    for node in (0..parents.len()).rev() {
        let own = self_values[node].checked_add(truncated[node]);
        let total = own.and_then(|own| own.checked_add(totals[node]));
        let total = total.ok_or_else(|| entry_error("totals", node, "beyond 64 bits"))?;
        totals[node] = total;
        if node > 0 {
            let caller = &mut totals[parents[node] as usize];
            let sum = caller.checked_add(total);
            *caller = sum.ok_or_else(|| entry_error("totals", node, "beyond 64 bits"))?;
        }
    }
    Ok(totals)
}
