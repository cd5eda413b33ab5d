//! Rewritten stacks equal those of plain lists of frames.

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::data_model::model::{Dictionary, Profile, ValueType};
use crate::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};

/// Frame of a plain list.
#[derive(Clone, Debug, PartialEq)]
struct PlainFrame {
    /// Index of its location in the stack.
    place: usize,
    /// Function and file. None for a location without lines.
    function: Option<(&'static str, &'static str)>,
    /// Path of the binary, if the location has one.
    binary: Option<&'static str>,
    address: u64,
}

/// Location of a stack: its lines from the outermost to the innermost.
#[derive(Clone, Debug)]
struct PlainLocation {
    lines: Vec<(&'static str, &'static str)>,
    binary: Option<&'static str>,
    address: u64,
}

impl PlainFrame {
    fn address_name(&self) -> String {
        match self.binary {
            Some(path) => format!("{}+0x{:x}", path.rsplit('/').next().unwrap(), self.address),
            None => format!("0x{:x}", self.address),
        }
    }

    fn binary_name(&self) -> &str {
        self.binary.map_or("[unknown]", |path| path.rsplit('/').next().unwrap())
    }

    fn matches(&self, pattern: &FramePattern) -> bool {
        match pattern {
            FramePattern::AnyFrame => true,
            FramePattern::ExactName(name) => match self.function {
                Some((function, _)) => function == name,
                None => *name == self.address_name() || name == self.binary_name(),
            },
            FramePattern::Regex(regex) => {
                let regex = Regex::new(regex).unwrap();
                let texts = self.function.map(|(name, file)| [name, file]).into_iter().flatten();
                texts.chain(self.binary).any(|text| regex.is_match(text))
            }
        }
    }

    fn recursion_name(&self, pattern: &FramePattern) -> String {
        match (self.function, pattern) {
            (_, FramePattern::ExactName(name)) if self.matches(pattern) => name.clone(),
            (Some((name, _)), _) => name.to_owned(),
            (None, _) => self.address_name(),
        }
    }
}

/// Frames of a stack, root first.
fn plain_frames(stack: &[PlainLocation]) -> Vec<PlainFrame> {
    let mut frames = Vec::new();
    for (place, PlainLocation { lines, binary, address }) in stack.iter().enumerate() {
        let frame = |function| PlainFrame { place, function, binary: *binary, address: *address };
        match lines.is_empty() {
            true => frames.push(frame(None)),
            false => frames.extend(lines.iter().map(|line| frame(Some(*line)))),
        }
    }
    frames
}

fn transform_plainly(frames: Vec<PlainFrame>, transform: &StackTransform) -> Vec<PlainFrame> {
    let StackTransform { action, pattern } = transform;
    let has_match = frames.iter().any(|frame| frame.matches(pattern));
    let first = frames.iter().position(|frame| frame.matches(pattern));
    match action {
        TransformAction::Focus => {
            if has_match {
                frames
            } else {
                Vec::new()
            }
        }
        TransformAction::Ignore => {
            if has_match {
                Vec::new()
            } else {
                frames
            }
        }
        TransformAction::Hide => frames.into_iter().filter(|frame| !frame.matches(pattern)).collect(),
        TransformAction::Show => {
            let is_regex = matches!(pattern, FramePattern::Regex(_));
            let is_shown =
                |frame: &PlainFrame| frame.matches(pattern) && !(is_regex && frame.function.is_none());
            frames.into_iter().filter(is_shown).collect()
        }
        TransformAction::ShowFrom => {
            let Some(first) = first else { return Vec::new() };
            if !matches!(pattern, FramePattern::Regex(_)) {
                return frames[first..].to_vec();
            }
            let is_inside = |index: &usize| {
                let of_location =
                    frames.iter().enumerate().filter(|(_, frame)| frame.place == frames[*index].place);
                let outermost = of_location.clone().find(|(_, frame)| frame.matches(pattern));
                outermost.is_none_or(|(outermost, _)| outermost <= *index)
            };
            (first..frames.len()).filter(is_inside).map(|index| frames[index].clone()).collect()
        }
        TransformAction::CollapseRecursion => collapse_plainly(&frames, pattern),
        TransformAction::CollapseBelow => {
            let count = first.map_or(frames.len(), |first| first + 1);
            frames[..count].to_vec()
        }
    }
}

fn collapse_plainly(frames: &[PlainFrame], pattern: &FramePattern) -> Vec<PlainFrame> {
    let Some(first) = frames.first() else { return Vec::new() };
    let is_same = |frame: &PlainFrame| frame.recursion_name(pattern) == first.recursion_name(pattern);
    let last = match first.matches(pattern) {
        true => frames.iter().rposition(is_same).unwrap_or_default(),
        false => 0,
    };
    let mut all = vec![frames[last].clone()];
    all.extend(collapse_plainly(&frames[last + 1..], pattern));
    all
}

fn intern_stack(dictionary: &mut Dictionary, stack: &[PlainLocation]) -> u32 {
    let mut path = Vec::new();
    for PlainLocation { lines, binary, address } in stack.iter().rev() {
        let symbols = &mut dictionary.symbols;
        let mapping = binary.map_or(NO_ENTRY, |path| {
            let filename = symbols.strings.intern(path);
            symbols.intern_mapping(Mapping { start: 0, size: 1, offset: 0, filename, build_id: 0, flags: 0 })
        });
        let mut interned = Vec::new();
        for (name, file) in lines.iter().rev() {
            let name = symbols.strings.intern(name);
            let filename = symbols.strings.intern(file);
            let function =
                symbols.intern_function(Function { name, system_name: name, filename, start_line: 0 });
            interned.push(Line { function, line: 0, column: 0 });
        }
        path.push(symbols.intern_location(mapping, *address, false, &interned));
    }
    dictionary.stacks.intern(&dictionary.symbols, &path)
}

/// Text of a stack: locations in brackets, with their lines, address and binary.
fn stack_text(dictionary: &Dictionary, stack: u32) -> String {
    let symbols = &dictionary.symbols;
    let path: Vec<u32> = dictionary.stacks.locations(stack).collect();
    let mut text = String::new();
    for &location in path.iter().rev() {
        let lines = symbols.lines(location).iter().rev();
        let lines = lines.map(|line| {
            let function = symbols.functions()[line.function as usize];
            format!("{}:{}", symbols.strings.get(function.name), symbols.strings.get(function.filename))
        });
        let lines: Vec<String> = lines.collect();
        text += &format!("[{} {}]", lines.join(","), symbols.address_name(location));
    }
    text
}

fn plain_text(frames: &[PlainFrame]) -> String {
    let mut text = String::new();
    for of_location in frames.chunk_by(|left, right| left.place == right.place) {
        let lines = of_location.iter().filter_map(|frame| frame.function);
        let lines: Vec<String> = lines.map(|(name, file)| format!("{name}:{file}")).collect();
        text += &format!("[{} {}]", lines.join(","), of_location[0].address_name());
    }
    text
}

fn locations() -> impl Strategy<Value = PlainLocation> {
    let name = prop::sample::select(vec!["a", "b", "ab", "x"]);
    let file = prop::sample::select(vec!["", "f.go", "a.go"]);
    let binary = prop::sample::select(vec![None, Some("/bin/x"), Some("/lib/y")]);
    (prop::collection::vec((name, file), 0..4), binary, 1..3u64)
        .prop_map(|(lines, binary, address)| PlainLocation { lines, binary, address })
}

fn transforms() -> impl Strategy<Value = Vec<StackTransform>> {
    let names = vec!["a", "b", "x", "y", "x+0x1", "0x1", "[unknown]", "z"];
    let regexes = vec!["a", "^b$", "f[.]go", "/lib", "x", "^$", "^a$|y"];
    let pattern = prop_oneof![
        prop::sample::select(names).prop_map(|name| FramePattern::ExactName(name.to_owned())),
        prop::sample::select(regexes).prop_map(|regex| FramePattern::Regex(regex.to_owned())),
    ];
    let action = prop::sample::select(vec![
        TransformAction::Focus,
        TransformAction::Ignore,
        TransformAction::Hide,
        TransformAction::Show,
        TransformAction::ShowFrom,
        TransformAction::CollapseRecursion,
        TransformAction::CollapseBelow,
    ]);
    let patterned = (action, pattern).prop_map(|(action, pattern)| StackTransform { action, pattern });
    let recursion =
        StackTransform { action: TransformAction::CollapseRecursion, pattern: FramePattern::AnyFrame };
    prop::collection::vec(prop_oneof![7 => patterned, 1 => Just(recursion)], 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn rewritten_stacks_equal_those_of_plain_lists(
        stacks in prop::collection::vec(prop::collection::vec(locations(), 0..6), 1..6), list in transforms(),
    ) {
        let mut from = Dictionary::default();
        let ids: Vec<u32> = stacks.iter().map(|stack| intern_stack(&mut from, stack)).collect();
        let transforms = StackTransforms::new(list.clone()).unwrap();
        let mut rewriter = StackRewriter::new(&transforms, &from);
        let mut into = Dictionary::default();
        for (stack, &id) in stacks.iter().zip(&ids) {
            let frames = list.iter().fold(plain_frames(stack), transform_plainly);
            let is_kept = list.is_empty() || !frames.is_empty();
            prop_assert_eq!(rewriter.keeps_stack(id), is_kept);
            let seen = rewriter.rewrite(id, &mut into).map(|stack| stack_text(&into, stack));
            prop_assert_eq!(seen, is_kept.then(|| plain_text(&frames)));
        }
    }
}

/// Stack of `A;B;C`-like texts after transforms that are written as options. None if it is dropped.
fn rewrite_names(stack: &str, options: &[(&str, &str)]) -> Option<String> {
    let parse = |(name, text): &(&str, &str)| StackTransform::parse_option(name, text).unwrap().unwrap();
    let transforms = StackTransforms::new(options.iter().map(parse).collect()).unwrap();
    let mut from = Dictionary::default();
    let stack = from.intern_named_stack(stack.split(';').filter(|name| !name.is_empty()));
    let mut into = Dictionary::default();
    let stack = StackRewriter::new(&transforms, &from).rewrite(stack, &mut into)?;
    let symbols = &into.symbols;
    let mut names: Vec<&str> = Vec::new();
    for location in into.stacks.locations(stack) {
        names.extend(symbols.lines(location).iter().map(|line| symbols.function_name(line.function)));
    }
    names.reverse();
    Some(names.join(";"))
}

#[test]
fn examples_of_pprof_have_its_results() {
    let stack = "A;B;C;B";
    let cases = [
        ("show_from", "A", Some("A;B;C;B")),
        ("show_from", "B", Some("B;C;B")),
        ("show_from", "C", Some("C;B")),
        ("show_from", "D", None),
        ("focus", "C", Some("A;B;C;B")),
        ("focus", "D", None),
        ("ignore", "C", None),
        ("ignore", "D", Some("A;B;C;B")),
        ("hide", "B", Some("A;C")),
        ("hide", "[ABC]", None),
        ("show", "B|C", Some("B;C;B")),
        ("show", "=D", None),
        ("collapse", "recursion", Some("A;B")),
        ("collapse", "recursion:=B", Some("A;B")),
        ("collapse", "recursion:C", Some("A;B;C;B")),
        ("collapse", "below:B", Some("A;B")),
        ("collapse", "below:=D", Some("A;B;C;B")),
    ];
    for (name, text, expected) in cases {
        assert_eq!(rewrite_names(stack, &[(name, text)]).as_deref(), expected, "{name} {text}");
    }
    assert_eq!(rewrite_names("", &[("hide", "B")]), None, "stack without frames");
    assert_eq!(rewrite_names("", &[]).as_deref(), Some(""));
    let in_order = [("hide", "=A"), ("focus", "A")];
    assert_eq!(rewrite_names(stack, &in_order), None, "later transforms see earlier ones");
    assert_eq!(rewrite_names("A;B;A;C;B;C", &[("collapse", "recursion")]).as_deref(), Some("A;C"));
}

#[test]
fn deep_stacks_are_rewritten() {
    const DEPTH: usize = 100_000;
    let names: Vec<String> = (0..DEPTH).map(|depth| format!("f{}", depth % 1_000)).collect();
    let stack = names.join(";");
    let options =
        [("focus", "f7"), ("show", "f"), ("hide", "^f9$"), ("collapse", "recursion:f1"), ("show_from", "f1")];
    let rewritten = rewrite_names(&stack, &options).unwrap();
    assert!(rewritten.starts_with("f1;f2;f3;f4") && rewritten.ends_with(";f999"), "{rewritten}");
}

#[test]
fn invalid_lists_are_rejected_with_value_and_position() {
    let refused = |options: &[(&str, &str)]| {
        let parse = |(name, text): &(&str, &str)| StackTransform::parse_option(name, text).unwrap();
        let list: Result<Vec<StackTransform>, TransformError> = options.iter().map(parse).collect();
        list.and_then(StackTransforms::new).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&[("hide", "a"), ("show_from", "b[z-a]c")]),
        "transform 2 (show_from): regular expression \"b[z-a]c\" at character 5: range 'z' to 'a' is reversed"
    );
    assert!(
        refused(&[("focus", "ä(")]).contains("(focus): regular expression \"ä(\" at character 2: a group is")
    );
    assert!(refused(&[("focus", "\\pX")]).starts_with("transform 1 (focus): regular expression \"\\\\pX\""));
    assert_eq!(
        refused(&[("collapse", "down")]),
        "collapse is \"down\"; write recursion, recursion:PATTERN or below:PATTERN"
    );
    assert!(refused(&[("hide", "a"); MAX_TRANSFORMS + 1]).contains("has 33 transforms, the limit is 32"));
    let long = "a".repeat(MAX_TRANSFORM_BYTES);
    assert!(refused(&[("hide", &format!("={long}")), ("hide", "b")]).contains("have 65537 bytes"));
    let nothing = StackTransform { action: TransformAction::Focus, pattern: FramePattern::AnyFrame };
    let refused = StackTransforms::new(vec![nothing]).unwrap_err().to_string();
    assert!(refused.starts_with("transform 1 (focus) has no pattern"), "{refused}");
}

#[test]
fn options_of_transforms_have_their_meaning() {
    let options = [
        ("focus", "a.*b"),
        ("ignore", "=a=b"),
        ("show_from", "=f"),
        ("collapse", "recursion"),
        ("collapse", "recursion:a:b"),
        ("collapse", "below:=a"),
    ];
    for (name, text) in options {
        let transform = StackTransform::parse_option(name, text).unwrap().unwrap();
        assert_eq!(transform.to_option(), (name, text.to_owned()));
    }
    let regex = FramePattern::Regex("=a".to_owned());
    let (name, text) = StackTransform { action: TransformAction::Hide, pattern: regex }.to_option();
    assert_eq!((name, text.as_str()), ("hide", "(?:)=a"));
    assert_eq!(StackTransform::parse_option("from", "a"), None);
}

#[test]
fn profile_keeps_values_and_labels_of_remaining_stacks() {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("samples", "count"), ValueType::new("cpu", "nanoseconds")];
    for (stack, values) in [("main;work", [1, 10]), ("main;work;hidden", [2, 20]), ("idle", [4, 40])] {
        let stack = profile.dictionary.intern_named_stack(stack.split(';'));
        profile.samples.push(stack, 0, &values);
    }
    let options = [("hide", "=hidden"), ("focus", "work")];
    let parse = |(name, text)| StackTransform::parse_option(name, text).unwrap().unwrap();
    let transforms = StackTransforms::new(options.into_iter().map(parse).collect()).unwrap();
    let transformed = transforms.apply_to(&profile);
    assert_eq!([transformed.total(0), transformed.total(1)], [3, 30]);
    assert_eq!(transformed.samples.len(), 1);
}
