//! Synthetic flight recordings in the JDK's format, with any events and both encodings of numbers.

use std::collections::BTreeMap;

/// Event of a synthetic recording.
#[derive(Clone, Debug, Default)]
pub struct FlightEvent {
    /// Type of the event, such as `jdk.ExecutionSample`.
    pub name: &'static str,
    /// Class, method and line of each frame, leaf first. An empty list means no stack.
    pub stack: Vec<(String, String, u32)>,
    /// Names and values of number fields.
    pub numbers: Vec<(&'static str, u64)>,
    /// Names and values of text fields.
    pub texts: Vec<(&'static str, String)>,
    /// State of the event's thread.
    pub state: Option<&'static str>,
}

/// Chunk of a synthetic recording.
#[derive(Clone, Debug)]
pub struct FlightChunk {
    /// Set if numbers have a variable length.
    pub compressed: bool,
    /// Ticks per second of the chunk's clock.
    pub ticks: u64,
    /// Events in the order of the file.
    pub events: Vec<FlightEvent>,
}

/// Start of every synthetic recording in Unix nanoseconds.
pub const FLIGHT_START_NANOS: u64 = 1_800_000_000_000_000_000;
/// Duration of every synthetic chunk in nanoseconds.
pub const FLIGHT_DURATION_NANOS: u64 = 10_000_000_000;

/// First id of the fixed types. Event types follow from [`FIRST_EVENT_TYPE_ID`].
const LONG_TYPE_ID: u64 = 10;
const INT_TYPE_ID: u64 = 11;
const BOOLEAN_TYPE_ID: u64 = 12;
const STRING_TYPE_ID: u64 = 20;
const CLASS_TYPE_ID: u64 = 21;
const STACK_TRACE_TYPE_ID: u64 = 22;
const STACK_FRAME_TYPE_ID: u64 = 23;
const METHOD_TYPE_ID: u64 = 24;
const SYMBOL_TYPE_ID: u64 = 25;
const THREAD_STATE_TYPE_ID: u64 = 26;
const FIRST_EVENT_TYPE_ID: u64 = 100;

/// Name and type of a field, whether it is a constant's id, and whether it is a list.
type FlightFieldSpec<'a> = (&'a str, u64, bool, bool);

impl FlightChunk {
    /// Returns the encoded chunk.
    pub fn chunk(&self) -> Vec<u8> {
        let mut out = FlightWriter { bytes: vec![0; 68], compressed: self.compressed };
        let mut constants = FlightConstants::default();
        let names = self.names();
        for event in &self.events {
            let class = FIRST_EVENT_TYPE_ID
                + names.iter().position(|name| *name == event.name).unwrap_or_default() as u64;
            out.event(class, |out| out.fields(event, &mut constants));
        }
        let checkpoint = out.bytes.len();
        out.event(1, |out| constants.write(out));
        let metadata = out.bytes.len();
        out.event(0, |out| self.metadata(out, &names));
        let mut bytes = out.bytes;
        bytes[..8].copy_from_slice(b"FLR\0\0\x02\0\x01");
        let size = bytes.len() as u64;
        let words = [
            size,
            checkpoint as u64,
            metadata as u64,
            FLIGHT_START_NANOS,
            FLIGHT_DURATION_NANOS,
            1_000,
            self.ticks,
        ];
        for (at, word) in (8..).step_by(8).zip(words) {
            bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
        }
        bytes[67] = u8::from(self.compressed);
        bytes
    }

    /// Returns the distinct types of the events.
    fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for event in &self.events {
            if !names.contains(&event.name) {
                names.push(event.name);
            }
        }
        names
    }

    fn metadata(&self, out: &mut FlightWriter, names: &[&'static str]) {
        let mut texts = FlightStrings::default();
        let mut tree = FlightWriter { bytes: Vec::new(), compressed: self.compressed };
        let known: [(&str, u64, &[FlightFieldSpec<'_>]); 10] = [
            ("long", LONG_TYPE_ID, &[]),
            ("int", INT_TYPE_ID, &[]),
            ("boolean", BOOLEAN_TYPE_ID, &[]),
            ("java.lang.String", STRING_TYPE_ID, &[]),
            ("java.lang.Class", CLASS_TYPE_ID, &[("name", SYMBOL_TYPE_ID, true, false)]),
            (
                "jdk.types.StackTrace",
                STACK_TRACE_TYPE_ID,
                &[("truncated", BOOLEAN_TYPE_ID, false, false), ("frames", STACK_FRAME_TYPE_ID, false, true)],
            ),
            (
                "jdk.types.StackFrame",
                STACK_FRAME_TYPE_ID,
                &[("method", METHOD_TYPE_ID, true, false), ("lineNumber", INT_TYPE_ID, false, false)],
            ),
            (
                "jdk.types.Method",
                METHOD_TYPE_ID,
                &[("type", CLASS_TYPE_ID, true, false), ("name", SYMBOL_TYPE_ID, true, false)],
            ),
            ("jdk.types.Symbol", SYMBOL_TYPE_ID, &[("string", STRING_TYPE_ID, false, false)]),
            ("jdk.types.ThreadState", THREAD_STATE_TYPE_ID, &[("name", STRING_TYPE_ID, false, false)]),
        ];
        tree.element(&mut texts, "root", &[], 1);
        tree.element(&mut texts, "metadata", &[], known.len() + names.len());
        for (name, id, fields) in known {
            tree.class(&mut texts, name, id, fields);
        }
        for (id, name) in (FIRST_EVENT_TYPE_ID..).zip(names) {
            let event = self.events.iter().find(|event| event.name == *name);
            let mut fields = vec![
                ("startTime", LONG_TYPE_ID, false, false),
                ("stackTrace", STACK_TRACE_TYPE_ID, true, false),
            ];
            let Some(event) = event else { continue };
            fields.extend(event.numbers.iter().map(|(name, _)| (*name, LONG_TYPE_ID, false, false)));
            fields.extend(event.texts.iter().map(|(name, _)| (*name, STRING_TYPE_ID, false, false)));
            fields.extend(event.state.map(|_| ("state", THREAD_STATE_TYPE_ID, true, false)));
            tree.class(&mut texts, name, id, &fields);
        }
        out.longs(&[1_000, 0, 1]);
        out.number(texts.0.len() as u64, 4);
        texts.0.iter().for_each(|text| out.text(text));
        out.bytes.extend(tree.bytes);
    }
}

#[derive(Default)]
struct FlightStrings(Vec<String>);

impl FlightStrings {
    fn id(&mut self, text: &str) -> u64 {
        let known = self.0.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        }) as u64
    }
}

#[derive(Default)]
struct FlightConstants {
    symbols: BTreeMap<String, u64>,
    classes: BTreeMap<u64, u64>,
    methods: BTreeMap<(u64, u64), u64>,
    stacks: BTreeMap<Vec<(u64, u32)>, u64>,
    states: BTreeMap<&'static str, u64>,
}

/// Returns the id of a constant, numbered from 1.
fn id<K: Ord>(ids: &mut BTreeMap<K, u64>, key: K) -> u64 {
    let next = ids.len() as u64 + 1;
    *ids.entry(key).or_insert(next)
}

impl FlightConstants {
    fn stack(&mut self, stack: &[(String, String, u32)]) -> u64 {
        if stack.is_empty() {
            return 0;
        }
        let frames = stack.iter().map(|(class, method, line)| {
            let class = id(&mut self.symbols, class.clone());
            let class = id(&mut self.classes, class);
            let name = id(&mut self.symbols, method.clone());
            (id(&mut self.methods, (class, name)), *line)
        });
        let frames = frames.collect();
        id(&mut self.stacks, frames)
    }

    fn write(&self, out: &mut FlightWriter) {
        out.longs(&[1_000, 0, 0]);
        out.bytes.push(1);
        out.number(5, 4);
        out.pool(SYMBOL_TYPE_ID, &self.symbols, |out, text| out.text(text));
        out.pool(CLASS_TYPE_ID, &self.classes, |out, name| out.longs(&[*name]));
        out.pool(METHOD_TYPE_ID, &self.methods, |out, (class, name)| out.longs(&[*class, *name]));
        out.pool(THREAD_STATE_TYPE_ID, &self.states, |out, name| out.text(name));
        out.pool(STACK_TRACE_TYPE_ID, &self.stacks, |out, frames| {
            out.bytes.push(0);
            out.number(frames.len() as u64, 4);
            for (method, line) in frames {
                out.longs(&[*method]);
                out.number(u64::from(*line), 4);
            }
        });
    }
}

struct FlightWriter {
    bytes: Vec<u8>,
    compressed: bool,
}

impl FlightWriter {
    fn number(&mut self, mut value: u64, width: usize) {
        if !self.compressed {
            return self.bytes.extend(&value.to_be_bytes()[8 - width..]);
        }
        for _ in 0..8 {
            if value < 0x80 {
                return self.bytes.push(value as u8);
            }
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn longs(&mut self, values: &[u64]) {
        values.iter().for_each(|&value| self.number(value, 8));
    }

    fn text(&mut self, text: &str) {
        self.bytes.push(3);
        self.number(text.len() as u64, 4);
        self.bytes.extend(text.as_bytes());
    }

    /// Writes an event behind its size, which takes four bytes in either encoding.
    fn event(&mut self, class: u64, write: impl FnOnce(&mut FlightWriter)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.longs(&[class]);
        write(self);
        let size = (self.bytes.len() - start) as u32;
        let compressed =
            [size | 0x80, size >> 7 | 0x80, size >> 14 | 0x80, size >> 21].map(|part| part as u8);
        let written = if self.compressed { compressed } else { size.to_be_bytes() };
        self.bytes[start..start + 4].copy_from_slice(&written);
    }

    fn fields(&mut self, event: &FlightEvent, constants: &mut FlightConstants) {
        self.longs(&[2_000, constants.stack(&event.stack)]);
        event.numbers.iter().for_each(|(_, value)| self.longs(&[*value]));
        event.texts.iter().for_each(|(_, text)| self.text(text));
        if let Some(state) = event.state {
            self.longs(&[id(&mut constants.states, state)]);
        }
    }

    fn pool<K>(&mut self, class: u64, ids: &BTreeMap<K, u64>, write: impl Fn(&mut FlightWriter, &K)) {
        self.longs(&[class]);
        self.number(ids.len() as u64, 4);
        for (key, id) in ids {
            self.longs(&[*id]);
            write(self, key);
        }
    }

    fn element(
        &mut self,
        texts: &mut FlightStrings,
        name: &str,
        attributes: &[(&str, &str)],
        children: usize,
    ) {
        self.number(texts.id(name), 4);
        self.number(attributes.len() as u64, 4);
        for (key, value) in attributes {
            self.number(texts.id(key), 4);
            self.number(texts.id(value), 4);
        }
        self.number(children as u64, 4);
    }

    fn class(&mut self, texts: &mut FlightStrings, name: &str, id: u64, fields: &[FlightFieldSpec<'_>]) {
        self.element(texts, "class", &[("name", name), ("id", &id.to_string())], fields.len());
        for (name, class, constant, many) in fields {
            let class = class.to_string();
            let mut attributes = vec![("name", *name), ("class", &*class)];
            attributes.extend(constant.then_some(("constantPool", "true")));
            attributes.extend(many.then_some(("dimension", "1")));
            self.element(texts, "field", &attributes, 0);
        }
    }
}
