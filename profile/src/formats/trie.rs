//! Reader of trees and tries of stacks, as old clients send them.
//!
//! ```text
//!  node:  length and text of its name │ its self value │ how many children │ the children, each a node
//!  tree:  a node is a frame; the outermost one is the whole and has no name
//!  trie:  a node continues the text of its parent; the result is a folded stack: main;ru + n
//! ```
//! Numbers are varints. A trie may expand far beyond its size, so the reader counts all bytes and frames that
//! it visits.

use crate::formats::limits::{OverLimitError, check_limit};
use crate::formats::pprof::wire::WireCursor;
use crate::formats::pprof::{DecodeError, DecodeLimits, StackAccumulator, StackAccumulatorError};

/// Meaning of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrieKind {
    /// The node is a frame.
    Tree,
    /// The node continues the text of its parent.
    Trie,
}

/// Reason that bytes are not a tree or trie. Positions are byte offsets.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TrieError {
    /// The input is truncated, or a number does not fit into 64 bits.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// Name that is not valid UTF-8.
    #[error("node at byte {at}: its name is not valid UTF-8")]
    NotUtf8 {
        /// Offset of the node.
        at: usize,
    },
    /// Value that does not fit into 63 bits.
    #[error("node at byte {at}: its value is {value}, which is over 9223372036854775807")]
    TooLarge {
        /// Offset of the node.
        at: usize,
        /// Value as read from the node.
        value: u64,
    },
    /// Bytes after the end of the outermost node.
    #[error("the outermost node ends at byte {at}, but {more} more bytes follow")]
    More {
        /// Offset of that end.
        at: usize,
        /// Number of bytes that follow.
        more: usize,
    },
    /// Stack or sum that the accumulator refuses.
    #[error("node at byte {at}: {why}")]
    Tally {
        /// Offset of the node.
        at: usize,
        /// Error of the accumulator.
        why: StackAccumulatorError,
    },
}

/// Reads the whole input. Besides the limits of [`StackAccumulator`], `depth` limits the nesting of nodes.
pub fn parse(bytes: &[u8], kind: TrieKind, limits: &DecodeLimits) -> Result<StackAccumulator, TrieError> {
    let mut reading = TrieReader {
        kind,
        limits,
        tally: StackAccumulator::new(limits),
        text: Vec::new(),
        path: Vec::new(),
        read: 0,
        open: Vec::new(),
    };
    let mut cursor = WireCursor::new(bytes);
    loop {
        reading.node(&mut cursor)?;
        while reading.open.pop_if(|node| node.children == 0).is_some() {}
        let Some(parent) = reading.open.last_mut() else { break };
        parent.children -= 1;
    }
    match cursor.remaining().len() {
        0 => Ok(reading.tally),
        more => Err(TrieError::More { at: cursor.position(), more }),
    }
}

/// Lengths of text and path after a node was read. Its children continue from there.
struct OpenTrieNode {
    /// Number of children still to be read.
    children: u64,
    text: usize,
    /// Start of the frame that the text ends in.
    frame: usize,
    path: usize,
}

struct TrieReader<'a> {
    kind: TrieKind,
    limits: &'a DecodeLimits,
    tally: StackAccumulator,
    /// Text from the outermost node to the current one.
    text: Vec<u8>,
    /// Frames of the current path up to the kept depth. In a trie, only complete ones.
    path: Vec<u32>,
    /// Bytes and frames visited so far.
    read: usize,
    /// Ancestors of the next node.
    open: Vec<OpenTrieNode>,
}

impl TrieReader<'_> {
    /// Reads a node up to its children.
    fn node(&mut self, cursor: &mut WireCursor<'_>) -> Result<(), TrieError> {
        let at = cursor.position();
        let name = cursor.bytes("the name of a node")?;
        let value = cursor.varint("the value of a node")?;
        let children = cursor.varint("the number of children of a node")?;
        let value = i64::try_from(value).map_err(|_| TrieError::TooLarge { at, value })?;

        let (text, mut frame, path) =
            self.open.last().map_or((0, 0, 0), |parent| (parent.text, parent.frame, parent.path));
        self.text.truncate(text);
        self.path.truncate(path);
        match self.kind {
            TrieKind::Tree if self.open.is_empty() && name.is_empty() => {}
            TrieKind::Tree => self.frame(at, name)?,
            TrieKind::Trie => {
                self.text.extend_from_slice(name);
                for end in memchr::memchr_iter(b';', name).map(|end| text + end) {
                    self.frame_of_text(at, frame, end)?;
                    frame = end + 1;
                }
            }
        }
        let open = OpenTrieNode { children, text: self.text.len(), frame, path: self.path.len() };
        if value > 0 {
            self.sample(at, frame, value)?;
        }
        self.open.push(open);
        check_limit("nested nodes", self.open.len(), self.limits.depth)
            .map_err(|over| TrieError::Tally { at, why: over.into() })
    }

    /// Adds the value of the stack that ends at the current node.
    fn sample(&mut self, at: usize, frame: usize, value: i64) -> Result<(), TrieError> {
        if self.kind == TrieKind::Trie {
            self.frame_of_text(at, frame, self.text.len())?;
        }
        self.count(at, self.path.len())?;
        let added = self.tally.intern_stack(&self.path).and_then(|stack| self.tally.add(stack, value));
        added.map_err(|why| TrieError::Tally { at, why })
    }

    fn frame_of_text(&mut self, at: usize, start: usize, end: usize) -> Result<(), TrieError> {
        let text = std::mem::take(&mut self.text);
        let done = self.frame(at, &text[start..end]);
        self.text = text;
        done
    }

    fn frame(&mut self, at: usize, name: &[u8]) -> Result<(), TrieError> {
        if self.path.len() >= self.limits.kept_depth {
            return Ok(());
        }
        self.count(at, name.len() + 1)?;
        let name = std::str::from_utf8(name).map_err(|_| TrieError::NotUtf8 { at })?;
        let number = self.tally.intern_frame(name).map_err(|why| TrieError::Tally { at, why })?;
        self.path.push(number);
        Ok(())
    }

    fn count(&mut self, at: usize, more: usize) -> Result<(), TrieError> {
        self.read = self.read.saturating_add(more);
        let counted: Result<(), OverLimitError> = check_limit("bytes", self.read, self.limits.bytes);
        counted.map_err(|over| TrieError::Tally { at, why: over.into() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::call_tree::tree::Tree;
    use crate::data_model::model::{ProfileHeader, ValueType};
    use crate::formats::folded;
    use crate::formats::pprof::decode;

    /// A node, its children following.
    fn node(name: &[u8], value: u8, children: u8) -> Vec<u8> {
        [&[name.len() as u8][..], name, &[value, children]].concat()
    }

    fn nodes(nodes: &[(&str, u8, u8)]) -> Vec<u8> {
        nodes.iter().flat_map(|(name, value, children)| node(name.as_bytes(), *value, *children)).collect()
    }

    fn limits() -> DecodeLimits {
        DecodeLimits { samples: 4, kept_depth: 3, bytes: 149, depth: 5, ..DecodeLimits::default() }
    }

    fn read(bytes: &[u8], kind: TrieKind) -> Result<String, String> {
        let tally = parse(bytes, kind, &limits()).map_err(|error| error.to_string())?;
        let header =
            ProfileHeader { types: vec![ValueType::new("samples", "count")], ..ProfileHeader::default() };
        let (profile, _) = decode(&tally.write(&header, 1).unwrap(), &DecodeLimits::default()).unwrap();
        let mut lines: Vec<String> =
            folded::write(&Tree::from_profile(&profile, 0)).lines().map(str::to_owned).collect();
        lines.sort();
        Ok(lines.join("\n"))
    }

    #[test]
    fn nodes_of_a_tree_are_frames() {
        let tree = nodes(&[("", 0, 1), ("main", 1, 2), ("run;it", 2, 1), ("work", 5, 0), ("idle", 3, 0)]);
        let expected = "main 1\nmain;idle 3\nmain;run:it 2\nmain;run:it;work 5";
        assert_eq!(read(&tree, TrieKind::Tree).unwrap(), expected);
        let whole = nodes(&[("", 7, 1), ("a", 0, 1), ("a", 0, 1), ("a", 0, 1), ("b", 1, 0)]);
        assert_eq!(read(&whole, TrieKind::Tree).unwrap(), " 7\na;a;a 1", "a stack is as deep as it may be");
    }

    #[test]
    fn nodes_of_a_trie_continue_texts() {
        let trie = nodes(&[
            ("", 0, 3),
            ("", 0, 0),
            ("main;", 0, 2),
            ("run", 4, 1),
            ("ner", 2, 0),
            ("idle", 1, 0),
            ("x", 2, 0),
        ]);
        assert_eq!(read(&trie, TrieKind::Trie).unwrap(), "main;idle 1\nmain;run 4\nmain;runner 2\nx 2");
        let split = nodes(&[("ab", 1, 1), ("c;;d", 0, 2), (";e;f", 3, 0), ("e", 4, 0)]);
        assert_eq!(read(&split, TrieKind::Trie).unwrap(), "ab 1\nabc;;d 3\nabc;;de 4");
        let letter = "é".as_bytes();
        let halves = [node(&letter[..1], 0, 1), node(&letter[1..], 1, 0)].concat();
        assert_eq!(read(&halves, TrieKind::Trie).unwrap(), "é 1", "a letter may lie in two nodes");
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let deep: Vec<(&str, u8, u8)> = vec![("", 0, 1); 9];
        let long = "x".repeat(127);
        let stacks: Vec<(&str, u8, u8)> = ["a", "b", "c", "d", "e"].map(|name| (name, 1, 0)).into();
        for (bytes, expected) in [
            (vec![], "profile is truncated at byte 0, within the name of a node"),
            (vec![0xff], "profile is truncated at byte 1, within the name of a node"),
            (vec![3, b'a'], "profile is truncated at byte 2, within the name of a node"),
            (nodes(&[("", 0, 2), ("a", 1, 0)]), "profile is truncated at byte 7, within the name of a node"),
            (node(b"\xff", 1, 0), "node at byte 0: its name is not valid UTF-8"),
            (
                nodes(&[("a", 1, 0), ("b", 1, 0)]),
                "the outermost node ends at byte 4, but 4 more bytes follow",
            ),
            (
                [&[1, b'a'][..], &[0xff; 9], &[1, 0]].concat(),
                "node at byte 0: its value is 18446744073709551615, which is over 9223372036854775807",
            ),
            (nodes(&deep), "node at byte 15: profile has 6 nested nodes, the limit is 5"),
            (nodes(&[(&long, 1, 0)]), "node at byte 0: profile has 150 bytes, the limit is 149"),
            (
                [nodes(&[("", 0, 5)]), nodes(&stacks)].concat(),
                "node at byte 19: profile has 5 stacks, the limit is 4",
            ),
        ] {
            let both = [TrieKind::Trie, TrieKind::Tree].map(|kind| read(&bytes, kind));
            assert!(both.contains(&Err(expected.to_owned())), "{both:?}, not {expected}");
        }
    }

    /// A text that many nodes continue is read again for each of them.
    #[test]
    fn what_is_written_once_and_read_often_is_counted() {
        let mut bytes = [&[60u8][..], "x".repeat(60).as_bytes(), &[0, 200, 1]].concat();
        (0..200).for_each(|_| bytes.extend(node(b"", 1, 0)));
        let refused = read(&bytes, TrieKind::Trie).unwrap_err();
        assert!(refused.contains("bytes, the limit is 149"), "{refused}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(0u8..8, 0..80), trie: bool) {
            let _ = read(&bytes, if trie { TrieKind::Trie } else { TrieKind::Tree });
        }
    }
}
