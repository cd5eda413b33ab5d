//! Profiles of many languages, weighed as `go tool pprof` weighs them: tables, merges, and what is written back.
//!
//! Where the two differ by design the expectation is translated, nowhere loosened: Go calls a frame without a
//! name after its binary and drops its address.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use athanor_integration::report_skipped;
use athanor_profile::analysis::merge::ProfileMerger;
use athanor_profile::analysis::prune::prune;
use athanor_profile::analysis::top_table::TopTable;
use athanor_profile::data_model::symbols::{NO_ENTRY, SymbolTable};
use athanor_profile::formats::pprof::{DecodeLimits, decode, encode};
use athanor_profile::generate::ReferenceDataset;
use athanor_profile::render::dot::{self, StackTotals};
use athanor_profile::{Profile, ProfileHeader};

/// A file that both read.
pub struct File {
    pub path: PathBuf,
    pub profile: Profile,
    /// Where it was made here, it lies there as long as it is looked at.
    pub _made: Option<tempfile::TempPath>,
}

/// Profiles of this repository, of other profilers where there are such, and made ones; none where Go is missing.
pub fn corpus() -> Vec<File> {
    if pprof().is_none() {
        report_skipped("no go tool pprof to compare with", "");
        return Vec::new();
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/checkout.pb.gz");
    let bytes = std::fs::read(&example).expect("readable");
    let (profile, _) = decode(&bytes, &DecodeLimits::default()).expect("the example is a profile");
    let mut files = vec![File { path: example, profile, _made: None }];
    files.extend((0..3).map(made));
    files.extend(real());
    files
}

/// A profile as services send them, with labels and several types.
fn made(number: usize) -> File {
    let raw = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED).pprof(number);
    let (profile, _) = decode(&raw, &DecodeLimits::default()).expect("a profile");
    let path = written(&profile).into_temp_path();
    File { path: path.to_path_buf(), profile, _made: Some(path) }
}

/// Files of other profilers, where they are.
fn real() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pprof");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        report_skipped("no corpus of real profiles at ../shared/data/pprof", "");
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_none_or(|extension| extension != "json"));
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        match decode(&std::fs::read(&path).expect("readable"), &DecodeLimits::default()) {
            Ok((profile, _)) => files.push(File { path, profile, _made: None }),
            Err(error) => assert!(path.to_string_lossy().contains("invalid"), "{path:?}: {error}"),
        }
    }
    assert!(files.len() >= 15, "only {} files are profiles", files.len());
    files
}

/// The program behind `go tool pprof`; the first run builds it.
fn pprof() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let run = |args: &[&str]| Command::new("go").args(args).output().ok();
        run(&["tool", "pprof", "-help"])?;
        let output = run(&["tool", "-n", "pprof"]).filter(|output| output.status.success())?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim())).filter(|path| path.is_file())
    };
    PROGRAM.get_or_init(find).as_deref()
}

fn go(options: &[&str], files: &[&Path]) -> String {
    let mut command = Command::new(pprof().expect("Go is there"));
    command.arg("-symbolize=none").args(options).args(files);
    let output = command.output().expect("go runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Flat and cumulative value by name.
pub type Weights = BTreeMap<String, (i64, i64)>;

/// What `-top` says.
fn top(header: &ProfileHeader, value: usize, files: &[&Path]) -> Weights {
    top_with(&[], header, value, files)
}

/// Returns the table of `-top` with further options.
pub fn top_with(options: &[String], header: &ProfileHeader, value: usize, files: &[&Path]) -> Weights {
    let index = format!("-sample_index={value}");
    let unit = format!("-unit={}", header.types[value].unit);
    let fixed = ["-top", "-nodecount=0", "-nodefraction=0", "-edgefraction=0", &index, &unit];
    let options = fixed.into_iter().chain(options.iter().map(String::as_str));
    let text = go(&options.collect::<Vec<_>>(), files);
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("flat  flat%"));
    assert!(lines.next().is_some(), "no table in {text}");
    let mut weights = Weights::new();
    for line in lines {
        let mut rest = line;
        let columns: [&str; 5] = std::array::from_fn(|_| {
            let (column, after) = rest.trim_start().split_once(' ').expect("five columns and a name");
            rest = after;
            column
        });
        let name = rest.strip_prefix(' ').expect("two spaces before the name");
        let name = name.strip_suffix(" (inline)").unwrap_or(name);
        let name = name.strip_suffix(" (partial-inline)").unwrap_or(name);
        let before = weights.insert(name.to_owned(), (number(columns[0]), number(columns[3])));
        assert_eq!(before, None, "{name} is there twice");
    }
    weights
}

/// A number with a unit behind it.
fn number(text: &str) -> i64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
    assert!(!text[end..].starts_with('.'), "{text} is rounded");
    text[..end].parse().expect("a number")
}

/// What our table says of a profile that Go prunes too.
fn ours(profile: &Profile, value: usize) -> Weights {
    let (pruned, bad) = prune(profile.clone());
    assert_eq!(bad, None);
    weigh_like_go(pruned, value)
}

/// Returns our table of a pruned profile, with frames without a name called as Go calls them.
pub fn weigh_like_go(pruned: Profile, value: usize) -> Weights {
    let symbols = &pruned.dictionary.symbols;
    let nameless = |location| {
        let lines = symbols.lines(location);
        lines.is_empty() || lines.iter().any(|line| symbols.function_name(line.function).is_empty())
    };
    let pruned = match (0..symbols.locations().len() as u32).any(nameless) {
        true => named_like_go(&pruned),
        false => pruned,
    };
    let rows = TopTable::from_profile(&pruned, value).rows.into_iter();
    rows.filter(|row| (row.flat, row.cum) != (0, 0)).map(|row| (row.name, (row.flat, row.cum))).collect()
}

/// The same stacks, frames without a name called as Go calls them.
fn named_like_go(profile: &Profile) -> Profile {
    let symbols = &profile.dictionary.symbols;
    let mut named = Profile { header: profile.header.clone(), ..Profile::default() };
    for (stack, _, values) in profile.samples.rows(profile.header.types.len()) {
        let mut names = Vec::new();
        for location in profile.dictionary.stacks.locations(stack) {
            let lines = symbols.lines(location);
            if lines.is_empty() {
                names.push(binary(symbols, location));
            }
            names.extend(lines.iter().map(|line| match symbols.function_name(line.function) {
                "" => binary(symbols, location),
                name => name.to_owned(),
            }));
        }
        let stack = named.dictionary.intern_named_stack(names.iter().rev().map(String::as_str));
        named.samples.push(stack, 0, values);
    }
    named
}

fn binary(symbols: &SymbolTable, location: u32) -> String {
    let mapping = symbols.locations()[location as usize].mapping;
    let file = match mapping {
        NO_ENTRY => "",
        mapping => symbols.strings.get(symbols.mappings()[mapping as usize].filename),
    };
    match file.rsplit('/').next() {
        None | Some("") => "<unknown>".into(),
        Some(name) => format!("[{name}]"),
    }
}

fn written(profile: &Profile) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), encode(profile)).expect("written");
    file
}

#[test]
fn tables_are_those_of_go() {
    for File { path, profile, _made } in corpus() {
        for value in 0..profile.header.types.len() {
            let go = top(&profile.header, value, &[&path]);
            assert_eq!(ours(&profile, value), go, "value {value} of {}", path.display());
        }
    }
}

#[test]
fn go_reads_what_is_written_the_same() {
    for File { path, profile, _made } in corpus() {
        let again = written(&profile);
        for value in 0..profile.header.types.len() {
            let go = top(&profile.header, value, &[again.path()]);
            assert_eq!(ours(&profile, value), go, "value {value} of {}", path.display());
        }
    }
}

#[test]
fn frames_are_dropped_as_go_drops_them() {
    let files = corpus();
    let (enough, mut shortened) = (files.len() / 2, 0);
    for File { path, mut profile, _made } in files {
        let before = our_rows(&profile);
        profile.header.drop_frames = ".*[.]r.*|.*alloc.*|.*et.*|.*\\d.*".into();
        profile.header.keep_frames = ".*get.*|.*malloc".into();
        let again = written(&profile);
        let (ours, value) = (our_rows(&profile), profile.header.types.len() - 1);
        shortened += usize::from(ours != before);
        let go = raw(&[again.path()]);
        assert!(ours == go, "{}: {}", path.display(), first_difference(&ours, &go));
        assert_eq!(self::ours(&profile, value), top(&profile.header, value, &[again.path()]), "{path:?}");
    }
    assert!(shortened >= enough, "only {shortened} files have such frames");
}

#[test]
fn merges_are_those_of_go() {
    let files = corpus();
    let mut merges = 0;
    for (at, left) in files.iter().enumerate() {
        let like_left = |right: &&File| {
            let (left, right) = (&left.profile.header, &right.profile.header);
            left.types == right.types && left.period_type == right.period_type
        };
        for right in files[at..].iter().filter(like_left) {
            let mut merger = ProfileMerger::default();
            for file in [left, right] {
                let bytes = std::fs::read(&file.path).expect("readable");
                merger.add_bytes(&bytes, &DecodeLimits::default()).expect("merges");
            }
            let merged = merger.finish();
            let again = written(&merged);
            let value = merged.header.types.len() - 1;
            let ours = ours(&merged, value);
            let names = format!("{} and {}", left.path.display(), right.path.display());
            assert_eq!(ours, top(&merged.header, value, &[&left.path, &right.path]), "{names}");
            assert_eq!(ours, top(&merged.header, value, &[again.path()]), "{names}, written by us");
            merges += 1;
        }
    }
    assert!(files.is_empty() || merges > files.len(), "more than each file with itself");
}

/// Values by stack and labels: the lines of all frames, leaf first, then the labels.
type Rows = BTreeMap<(Vec<String>, String), Vec<i64>>;

fn add(rows: &mut Rows, key: (Vec<String>, String), values: &[i64]) {
    let sums = rows.entry(key).or_insert_with(|| vec![0; values.len()]);
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
}

/// What `-raw` says.
fn raw(files: &[&Path]) -> Rows {
    let text = go(&["-raw"], files);
    let (_, text) = text.split_once("\nSamples:\n").expect("samples");
    let (samples, locations) = text.split_once("\nLocations\n").expect("locations");
    let (locations, _) = locations.split_once("\nMappings\n").unwrap_or((locations, ""));
    let mut frames: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut last = "";
    for line in locations.lines() {
        let mut text = match line.strip_prefix("             ") {
            Some(inlined) => inlined,
            None => {
                let (id, rest) = line.trim_start().split_once(": 0x").expect("an id and an address");
                last = id;
                rest.split_once(' ').expect("a space after the address").1
            }
        };
        if let Some(mapping) = text.strip_prefix("M=") {
            text = mapping.split_once(' ').expect("a space after the mapping").1;
        }
        let entry = frames.entry(last).or_default();
        entry.extend((!text.is_empty()).then(|| text.strip_prefix("[F] ").unwrap_or(text).to_owned()));
    }
    let mut rows = Rows::new();
    let mut pending: Option<(Vec<String>, String, Vec<i64>)> = None;
    for line in samples.lines().skip(1) {
        if let Some(labels) = line.strip_prefix("                ").filter(|labels| labels.contains(":[")) {
            pending.as_mut().expect("a sample before its labels").1 += labels;
            continue;
        }
        let (values, ids) = line.split_once(": ").expect("values and locations");
        let values = values.split_whitespace().map(|value| value.parse().expect("a number")).collect();
        let stack = ids.split_whitespace().flat_map(|id| frames[id].clone()).collect();
        let before = pending.replace((stack, String::new(), values));
        before.into_iter().for_each(|(stack, labels, values)| add(&mut rows, (stack, labels), &values));
    }
    pending.into_iter().for_each(|(stack, labels, values)| add(&mut rows, (stack, labels), &values));
    rows.retain(|_, values| values.iter().any(|&value| value != 0));
    rows
}

/// The same of a profile of ours.
fn our_rows(profile: &Profile) -> Rows {
    let pruned = prune(profile.clone()).0;
    let symbols = &pruned.dictionary.symbols;
    let mut rows = Rows::new();
    for (stack, labels, values) in pruned.samples.rows(pruned.header.types.len()) {
        let mut lines = Vec::new();
        for location in pruned.dictionary.stacks.locations(stack) {
            lines.extend(symbols.lines(location).iter().map(|line| {
                let function = symbols.functions()[line.function as usize];
                let texts = [function.name, function.filename, function.system_name];
                let [name, file, system_name] = texts.map(|text| symbols.strings.get(text));
                let place = format!("{name} {file}:{}:{} s={}", line.line, line.column, function.start_line);
                if name == system_name { place } else { format!("{place}({system_name})") }
            }));
        }
        add(&mut rows, (lines, our_labels(&pruned, labels)), values);
    }
    rows.retain(|_, values| values.iter().any(|&value| value != 0));
    rows
}

fn our_labels(profile: &Profile, set: u32) -> String {
    let strings = &profile.dictionary.symbols.strings;
    let (mut texts, mut numbers) = (BTreeMap::<_, Vec<String>>::new(), BTreeMap::<_, Vec<String>>::new());
    for label in profile.dictionary.label_sets.get(set) {
        let key = strings.get(label.key);
        match (strings.get(label.text), strings.get(label.unit)) {
            ("", "") => numbers.entry(key).or_default().push(label.number.to_string()),
            ("", unit) => numbers.entry(key).or_default().push(format!("{} {unit}", label.number)),
            (text, _) => texts.entry(key).or_default().push(text.to_owned()),
        }
    }
    let list = |labels: BTreeMap<&str, Vec<String>>| {
        let parts: Vec<String> =
            labels.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
        parts.join(" ")
    };
    list(texts) + &list(numbers)
}

#[test]
fn rows_are_those_of_go() {
    for File { path, profile, _made } in corpus() {
        let ours = our_rows(&profile);
        assert!(ours == raw(&[&path]), "{}: {}", path.display(), first_difference(&ours, &raw(&[&path])));
        let again = raw(&[written(&profile).path()]);
        assert!(ours == again, "{} written: {}", path.display(), first_difference(&ours, &again));
    }
}

/// A call graph: nodes by their names in full with self and total value, calls by caller and callee with their value and how
/// they are drawn.
#[derive(Debug, Default, PartialEq)]
struct Graph {
    nodes: BTreeMap<String, (i64, i64)>,
    calls: BTreeMap<(String, String), (i64, Vec<String>)>,
}

/// Reads a graph in DOT, ours or Go's.
fn graph(dot: &str) -> Graph {
    let (mut graph, mut names) = (Graph::default(), BTreeMap::new());
    for line in dot.lines().filter(|line| line.starts_with('N')) {
        let (place, rest) = line.split_once(" [label=\"").expect("a label");
        let (label, rest) = rest.split_once("\" ").unwrap_or((rest.trim_end_matches("\"]"), ""));
        let drawn = rest.trim_end_matches(']').split(' ');
        let drawn =
            drawn.filter(|one| ["weight=", "penwidth=", "style="].iter().any(|name| one.starts_with(name)));
        if let Some((caller, callee)) = place.split_once(" -> ") {
            let pair = (String::clone(&names[caller]), String::clone(&names[callee]));
            let call = (number(label.trim_start()), drawn.map(str::to_owned).collect());
            graph.calls.insert(pair, call);
            continue;
        }
        let (_, tooltip) = rest.split_once("tooltip=\"").expect("a tooltip");
        let (tooltip, _) = tooltip.split_once('"').expect("its end");
        let (name, _) = tooltip.rsplit_once(" (").expect("a value behind the name");
        let parts: Vec<&str> = label.split("\\n").collect();
        let [before, last] = &parts[parts.len() - 2..] else { panic!("{label}") };
        let (self_value, total) = match last.strip_prefix("of ") {
            Some(total) => (*before, total),
            None => last.split_once(" of ").unwrap_or((last, last)),
        };
        graph.nodes.insert(name.to_owned(), (number(self_value), number(total)));
        names.insert(place.to_owned(), name.to_owned());
    }
    graph
}

#[test]
fn call_graphs_are_those_of_go() {
    let mut compared = 0;
    for File { path, profile, _made } in corpus() {
        let (pruned, _) = prune(profile);
        let symbols = &pruned.dictionary.symbols;
        let is_named = |location| {
            let lines = symbols.lines(location);
            // Go calls others after their binary, and writes names on one line.
            !lines.is_empty()
                && lines.iter().all(|line| {
                    let name = symbols.function_name(line.function);
                    !name.is_empty() && name.len() < 1_000 && !name.contains(['"', '\\', '\n'])
                })
        };
        if !(0..symbols.locations().len() as u32).all(is_named) {
            continue;
        }
        // Labels would be nodes as well.
        let (value, mut plain) = (pruned.header.types.len() - 1, Profile::default());
        plain.header.types = vec![pruned.header.types[value].clone()];
        let totals = pruned.totals_by_stack(value);
        for (stack, &total) in (0u32..).zip(&totals).filter(|(_, total)| **total != 0) {
            plain.samples.push(stack, 0, &[total]);
        }
        plain.dictionary = pruned.dictionary;
        let file = written(&plain);
        for count in [3, 30] {
            let stacks = StackTotals { dictionary: &plain.dictionary, totals: &totals, addresses: false };
            let mut ours = graph(&dot::write(stacks, "count", count));
            // Go leaves out what calls itself.
            ours.calls.retain(|(caller, callee), _| caller != callee);
            let (nodes, unit) =
                (format!("-nodecount={count}"), format!("-unit={}", plain.header.types[0].unit));
            let fixed = ["-dot", "-lines", "-nodefraction=0", "-edgefraction=0", &nodes, &unit];
            // Go adds fractions in an order of chance, so of two nodes that tell as much it may show either.
            let of_go = || graph(&go(&fixed, &[file.path()]));
            if (0..5).all(|_| of_go() != ours) {
                assert_eq!(ours, of_go(), "{count} nodes of {}", path.display());
            }
            compared += 1;
        }
    }
    assert!(pprof().is_none() || compared >= 6, "only {compared} graphs were compared");
}

fn first_difference(ours: &Rows, go: &Rows) -> String {
    let left = ours.iter().find(|(key, values)| go.get(*key) != Some(*values));
    let right = go.iter().find(|(key, values)| ours.get(*key) != Some(*values));
    format!("ours {left:#?}, Go's {right:#?}")
}
