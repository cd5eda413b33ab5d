//! Encoding of a dictionary's growth since a mark, so that a log contains each name only once.
//!
//! A reader that has read everything up to the mark gets the same entries with the same ids. Any other reader
//! returns an error, because the ids would have another meaning. Labels of samples are not encoded. Logs
//! store rows that have series labels instead.

use crate::data_model::model::Dictionary;
use crate::data_model::stacks::StackNode;
use crate::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};
use crate::encoding::codec::{CodecError, CodecReader, put_bytes, put_signed_varint, put_varint};
use crate::encoding::hash::ContentHash;

/// Maximum number of lines to reserve memory for. Their number is a claim of the bytes, and a line takes many times more
/// memory than bytes.
const MAX_RESERVED_LINES: usize = 16_384;

/// Numbers of entries of each table in a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictionaryMark {
    strings: usize,
    functions: usize,
    mappings: usize,
    locations: usize,
    nodes: usize,
    stacks: usize,
}

impl Default for DictionaryMark {
    /// Returns the mark of a new dictionary, which contains only the empty string.
    fn default() -> Self {
        DictionaryMark { strings: 1, functions: 0, mappings: 0, locations: 0, nodes: 0, stacks: 0 }
    }
}

/// Returns an id plus one, so that [`NO_ENTRY`] becomes 0.
fn id(id: u32) -> u64 {
    u64::from(id.wrapping_add(1))
}

impl DictionaryMark {
    /// Returns the mark of a dictionary's current end.
    pub fn end_of(dictionary: &Dictionary) -> DictionaryMark {
        let symbols = &dictionary.symbols;
        let stacks = &dictionary.stacks;
        DictionaryMark {
            strings: symbols.strings.len(),
            functions: symbols.functions().len(),
            mappings: symbols.mappings().len(),
            locations: symbols.locations().len(),
            nodes: stacks.nodes().len(),
            stacks: stacks.len(),
        }
    }
}

impl DictionaryMark {
    fn counts(self) -> [usize; 6] {
        [self.strings, self.functions, self.mappings, self.locations, self.nodes, self.stacks]
    }
}

/// Appends the entries that were added to `dictionary` since `since`.
pub fn write(dictionary: &Dictionary, since: DictionaryMark, out: &mut Vec<u8>) {
    let now = DictionaryMark::end_of(dictionary);
    since.counts().into_iter().for_each(|count| put_varint(out, count as u64));
    let symbols = &dictionary.symbols;
    let stacks = &dictionary.stacks;
    put_varint(out, (now.strings - since.strings) as u64);
    for text in since.strings..now.strings {
        put_bytes(out, symbols.strings.get(text as u32).as_bytes());
    }
    put_varint(out, (now.functions - since.functions) as u64);
    for function in &symbols.functions()[since.functions..] {
        [function.name, function.system_name, function.filename]
            .into_iter()
            .for_each(|text| put_varint(out, u64::from(text)));
        put_signed_varint(out, function.start_line);
    }
    put_varint(out, (now.mappings - since.mappings) as u64);
    for mapping in &symbols.mappings()[since.mappings..] {
        [mapping.start, mapping.size, mapping.offset].into_iter().for_each(|number| put_varint(out, number));
        [mapping.filename, mapping.build_id].into_iter().for_each(|text| put_varint(out, u64::from(text)));
        out.push(mapping.flags);
    }
    put_varint(out, (now.locations - since.locations) as u64);
    for location in since.locations as u32..now.locations as u32 {
        write_location(dictionary, location, out);
    }
    put_varint(out, (now.nodes - since.nodes) as u64);
    for (place, node) in stacks.nodes().iter().enumerate().skip(since.nodes) {
        // The parent is mostly the previous node, because paths are added root first.
        put_varint(out, if node.parent == NO_ENTRY { 0 } else { (place - node.parent as usize) as u64 });
        put_varint(out, u64::from(node.location));
    }
    put_varint(out, (now.stacks - since.stacks) as u64);
    for stack in since.stacks as u32..now.stacks as u32 {
        put_varint(out, id(stacks.leaf(stack)));
    }
}

/// Returns an upper bound of the bytes that [`write`] appends. Cheap enough to call after every profile.
pub fn max_written_bytes(dictionary: &Dictionary, since: DictionaryMark) -> usize {
    let now = DictionaryMark::end_of(dictionary);
    let symbols = &dictionary.symbols;
    let [strings, functions, mappings, locations, nodes, stacks] = {
        let mut new = now.counts();
        let old = since.counts();
        new.iter_mut().zip(old).for_each(|(new, old)| *new -= old);
        new
    };
    // A varint of 32 bits takes up to five bytes, one of 64 bits up to ten.
    let texts = symbols.strings.bytes_from(since.strings) + strings * 5;
    let names = functions * 25 + mappings * 41 + locations * 20 + symbols.lines_from(since.locations) * 25;
    let counts = 12 * 10;
    texts + names + nodes * 10 + stacks * 5 + counts
}

fn write_location(dictionary: &Dictionary, location: u32, out: &mut Vec<u8>) {
    let symbols = &dictionary.symbols;
    let entry = &symbols.locations()[location as usize];
    let lines = symbols.lines(location);
    put_varint(out, id(entry.mapping));
    put_varint(out, entry.address);
    put_varint(out, (lines.len() as u64) << 1 | u64::from(entry.folded));
    for line in lines {
        put_varint(out, u64::from(line.function));
        put_signed_varint(out, line.line);
        put_signed_varint(out, line.column);
    }
}

/// Reads the entries that [`write`] wrote. After an error the dictionary may contain a part of them.
pub fn read(dictionary: &mut Dictionary, unpacker: &mut CodecReader<'_>) -> Result<(), CodecError> {
    for known in DictionaryMark::end_of(dictionary).counts() {
        if unpacker.read_number()? != known as u64 {
            return Err(unpacker.error_here("a dictionary delta with another base"));
        }
    }
    let symbols = &mut dictionary.symbols;
    for _ in 0..unpacker.read_count()? {
        let before = symbols.strings.len();
        let new = symbols.strings.intern(unpacker.read_text()?);
        check_is_new(unpacker, new, before)?;
    }
    for _ in 0..unpacker.read_count()? {
        let mut text = || within(unpacker, symbols.strings.len());
        let name = text()?;
        let system_name = text()?;
        let filename = text()?;
        let start_line = unpacker.read_signed()?;
        let before = symbols.functions().len();
        let new = symbols.intern_function(Function { name, system_name, filename, start_line });
        check_is_new(unpacker, new, before)?;
    }
    for _ in 0..unpacker.read_count()? {
        let start = unpacker.read_number()?;
        let size = unpacker.read_number()?;
        let offset = unpacker.read_number()?;
        let mut text = || within(unpacker, symbols.strings.len());
        let filename = text()?;
        let build_id = text()?;
        let flags = unpacker.read_slice(1)?[0];
        let before = symbols.mappings().len();
        let new = symbols.intern_mapping(Mapping { start, size, offset, filename, build_id, flags });
        check_is_new(unpacker, new, before)?;
    }
    for _ in 0..unpacker.read_count()? {
        read_location(dictionary, unpacker)?;
    }
    read_stacks(dictionary, unpacker)
}

fn read_location(dictionary: &mut Dictionary, unpacker: &mut CodecReader<'_>) -> Result<(), CodecError> {
    let symbols = &mut dictionary.symbols;
    let mapping = within_or_none(unpacker, symbols.mappings().len())?;
    let address = unpacker.read_number()?;
    let count = unpacker.read_count()?;
    let mut lines = Vec::with_capacity((count >> 1).min(MAX_RESERVED_LINES));
    for _ in 0..count >> 1 {
        let function = within(unpacker, symbols.functions().len())?;
        lines.push(Line { function, line: unpacker.read_signed()?, column: unpacker.read_signed()? });
    }
    let before = symbols.locations().len();
    let new = symbols.intern_location(mapping, address, count & 1 == 1, &lines);
    check_is_new(unpacker, new, before)
}

fn read_stacks(dictionary: &mut Dictionary, unpacker: &mut CodecReader<'_>) -> Result<(), CodecError> {
    let symbols = &dictionary.symbols;
    let stacks = &mut dictionary.stacks;
    // Without a reservation: the stated memory of a result includes spare capacity, and must be the same wherever a result
    // is computed.
    for _ in 0..unpacker.read_count()? {
        let before = stacks.nodes().len();
        let wrong = unpacker.error_here("an unknown parent id");
        let parent = match unpacker.read_number()? {
            0 => NO_ENTRY,
            back => before.checked_sub(back as usize).ok_or(wrong)? as u32,
        };
        let location = within(unpacker, symbols.locations().len())?;
        let new = stacks.add_node(StackNode { parent, location });
        check_is_new(unpacker, new, before)?;
    }
    let mut hashes: Vec<ContentHash> = Vec::new();
    for _ in 0..unpacker.read_count()? {
        let leaf = within_or_none(unpacker, stacks.nodes().len())?;
        hashes.clear();
        hashes.extend(stacks.path(leaf).map(|location| symbols.location_hash(location)));
        let before = stacks.len();
        let new = stacks.add_leaf(leaf, &hashes);
        check_is_new(unpacker, new, before)?;
    }
    Ok(())
}

fn within(unpacker: &mut CodecReader<'_>, length: usize) -> Result<u32, CodecError> {
    let wrong = unpacker.error_here("an unknown id");
    let id = unpacker.read_u32()?;
    if (id as usize) < length { Ok(id) } else { Err(wrong) }
}

fn within_or_none(unpacker: &mut CodecReader<'_>, length: usize) -> Result<u32, CodecError> {
    let wrong = unpacker.error_here("an unknown id");
    match unpacker.read_u32()?.checked_sub(1) {
        None => Ok(NO_ENTRY),
        Some(id) if (id as usize) < length => Ok(id),
        Some(_) => Err(wrong),
    }
}

/// Checks that an entry is new. It was new to the writer, so it must be new to a reader at the same mark.
fn check_is_new(unpacker: &CodecReader<'_>, new: u32, before: usize) -> Result<(), CodecError> {
    if new as usize == before { Ok(()) } else { Err(unpacker.error_here("a duplicate entry")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::pprof::{DecodeLimits, DecodedProfile, PprofDecoder, encode};
    use crate::generate::arbitrary_profile;

    #[test]
    fn a_reader_learns_the_same_ids() {
        let (mut writer, mut reader) = (Dictionary::default(), Dictionary::default());
        let (mut decoder, mut decoded) = (PprofDecoder::default(), DecodedProfile::default());
        let mut mark = DictionaryMark::default();
        for seed in 0..40 {
            let raw = encode(&arbitrary_profile(seed % 30));
            decoder.decode(&raw, &DecodeLimits::default(), &mut writer, &mut decoded).unwrap();
            let mut out = Vec::new();
            write(&writer, mark, &mut out);
            let most = max_written_bytes(&writer, mark);
            assert!(out.len() <= most && most < 20 * out.len(), "{} {most}", out.len());
            mark = DictionaryMark::end_of(&writer);
            let mut unpacker = CodecReader::new(&out);
            read(&mut reader, &mut unpacker).unwrap();
            assert!(unpacker.is_done());
            assert_eq!(DictionaryMark::end_of(&reader), mark);
        }
        for stack in 0..writer.stacks.len() as u32 {
            assert_eq!(writer.stacks.hash(stack), reader.stacks.hash(stack));
            let (ours, theirs) = (writer.stacks.locations(stack), reader.stacks.locations(stack));
            assert!(ours.eq(theirs));
        }
        for location in 0..writer.symbols.locations().len() as u32 {
            assert_eq!(writer.symbols.location_hash(location), reader.symbols.location_hash(location));
        }
    }

    #[test]
    fn bytes_that_were_not_written_so_are_refused() {
        let mut dictionary = Dictionary::default();
        dictionary.intern_named_stack(["main", "work"].into_iter());
        let mut out = Vec::new();
        write(&dictionary, DictionaryMark::default(), &mut out);
        for cut in 0..out.len() {
            assert!(read(&mut Dictionary::default(), &mut CodecReader::new(&out[..cut])).is_err());
        }
        assert!(read(&mut dictionary, &mut CodecReader::new(&out)).is_err(), "it knows all of that");
        for place in 0..out.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = out.clone();
                bad[place] ^= flip;
                // Refused or learnt: never a panic.
                let _ = read(&mut Dictionary::default(), &mut CodecReader::new(&bad));
            }
        }
    }
}
