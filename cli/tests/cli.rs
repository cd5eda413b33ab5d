//! The real binary, as people and scripts use it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use athanor_profile::generate::ReferenceDataset;
use proptest::prelude::*;
use serde_json::{Value, json as object};
use tempfile::TempDir;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/checkout.pb.gz");

fn athanor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_athanor"));
    // Whoever runs the tests has variables of their own, which would be settings.
    command.env_clear();
    command
}

fn run(args: &[&str]) -> Output {
    athanor().args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--json"]].concat())).unwrap()
}

/// Exit code and message.
fn refused(args: &[&str]) -> (i32, String) {
    let output = run(args);
    assert!(output.stdout.is_empty(), "{args:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn piped(args: &[&str], input: &[u8]) -> Output {
    let mut child = athanor()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The child may refuse its input before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// A folder with two files of folded stacks.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        fs::write(files.path("a.txt"), "main;work 30\nmain;idle 10\n").unwrap();
        fs::write(files.path("b.txt"), "main;work 5\nmain;work;deep 50\nother 5\n").unwrap();
        files
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
    fn block(&self, out: &str, file: &str) -> String {
        let out = self.name(out);
        text(&["block", "build", &self.name(file), "--out", &out, "--label", "service_name=shop"]);
        out
    }
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn top_lists_functions_as_pprof_does() {
    let files = Files::new();
    let (a, b) = (files.name("a.txt"), files.name("b.txt"));
    let shown = text(&["top", &a, &b]);
    let rows: Vec<Vec<&str>> = shown.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["50", "50.00%", "50.00%", "50", "50.00%", "deep"], "{shown}");
    assert_eq!(rows[1], ["35", "35.00%", "85.00%", "85", "85.00%", "work"]);
    assert!(shown.contains("of 100 total"), "{shown}");
    let table = json(&["top", &a, &b, "--limit", "1"]);
    assert_eq!((table["total"].as_i64(), table["functions"].as_i64()), (Some(100), Some(5)));
    assert_eq!((table["rows"].as_array().unwrap().len(), table["rows"][0]["flat"].as_i64()), (1, Some(50)));
}

/// Each told by its content, whatever its name.
#[test]
fn files_of_other_tools_are_read() {
    let files = Files::new();
    let (a, speedscope) = (files.name("a.txt"), files.name("a.speedscope.json"));
    text(&["convert", &a, "-o", &speedscope]);
    assert_eq!(json(&["top", &speedscope]), json(&["top", &a]));
    let bars = object!({ "names": ["total", "main", "work", "idle"],
        "levels": [[0, 40, 0, 0], [0, 40, 0, 1], [0, 10, 10, 3, 0, 30, 30, 2]], "numTicks": 40 });
    let metadata = object!({ "format": "single", "units": "objects", "sampleRate": 100, "name": "samples" });
    let flamebearer = object!({ "version": 1, "flamebearer": bars, "metadata": metadata }).to_string();
    fs::write(files.path("graph"), flamebearer).unwrap();
    assert_eq!(json(&["top", &files.name("graph")]), json(&["top", &a]));
    let printed = "main 7 [000] 1.000001: 30 cycles:u: \n\t 55d0 work+0x10 (/bin/main)\n\n\
                   main 7 [000] 1.000002: 10 cycles:u: \n\t 55e0 idle+0x10 (/bin/main)\n\n";
    fs::write(files.path("printed"), printed).unwrap();
    let top = json(&["top", &files.name("printed")]);
    assert_eq!((&top["type"], &top["rows"]), (&object!("cycles/count"), &json(&["top", &a])["rows"]));
    let samples = json(&["top", &files.name("printed"), "--type", "samples"]);
    assert_eq!(samples["total"].as_i64(), Some(2));
    let folded = piped(&["convert", "-", "--to", "folded", "-o", "-"], printed.as_bytes());
    assert_eq!(lines(&String::from_utf8(folded.stdout).unwrap()), ["main;idle 10", "main;work 30"]);
    for (content, message) in [
        ("{\"traceEvents\": []}", "JSON is neither a speedscope document"),
        ("{\"shared\": {\"frames\": []}, \"profiles\": []}", "the document has no profiles"),
        ("main;work\n", "not folded stacks: line 1, column 10: "),
    ] {
        fs::write(files.path("bad"), content).unwrap();
        let (code, said) = refused(&["top", &files.name("bad")]);
        assert!(
            code == 65 && said.contains(message) && said.contains("supported formats are pprof"),
            "{said}"
        );
    }
}

#[test]
fn sandwich_shows_callers_and_callees() {
    let files = Files::new();
    let b = files.name("b.txt");
    let shown = text(&["top", &b, "--sandwich", "work"]);
    assert!(shown.contains("work: 55, 91.67% of 60 total"), "{shown}");
    assert!(shown.contains("Called by") && shown.contains("main") && shown.contains("deep"), "{shown}");
    let (code, message) = refused(&["top", &b, "--sandwich", "wor"]);
    assert_eq!(
        (code, message.as_str()),
        (66, "athanor: no function \"wor\" in the profile; similar: work\n")
    );
}

#[test]
fn transforms_are_applied_in_the_order_of_the_command_line() {
    let files = Files::new();
    let b = files.name("b.txt");
    let names = |options: &[&str]| {
        let table = json(&[&["top", &b], options].concat());
        let rows = table["rows"].as_array().unwrap().iter();
        let mut names: Vec<String> = rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        (table["total"].as_i64().unwrap(), names.join(" "))
    };
    assert_eq!(json(&["flamegraph", &b, "--show-from", "=work"])["total"].as_i64(), Some(55));
    let (all, functions) = names(&[]);
    assert!(all == 60 && functions.contains("main") && functions.contains("work"), "{functions}");
    assert_eq!(names(&["--focus", "w.rk"]).0, 55);
    assert_eq!(names(&["--ignore==work"]).0, 5);
    assert_eq!(names(&["--show", "=work"]), (55, "work".to_owned()));
    assert_eq!(names(&["--show", "^main$", "--collapse", "recursion"]), (55, "main".to_owned()));
    assert_eq!(names(&["--collapse", "below:=main"]), (60, "main other".to_owned()));
    assert_eq!(names(&["--focus", "=work", "--hide", "=work"]).0, 55);
    let (code, message) = refused(&["top", &b, "--hide", "=work", "--focus", "=work"]);
    assert!(code == 66 && message.contains("transforms leave no stack"), "{message}");
    let (code, message) = refused(&["top", &b, "--focus", "a", "--show", "b(c"]);
    let expected = "transform 2 (show): regular expression \"b(c\" at character 3";
    assert!(code == 64 && message.contains(expected), "{code} {message}");
    let (code, message) = refused(&["flamegraph", &b, "--collapse", "all"]);
    assert!(
        code == 64 && message.contains("write recursion, recursion:PATTERN or below:PATTERN"),
        "{message}"
    );
    let converted = piped(&["convert", &b, "--show-from", "=work", "--to", "folded", "-o", "-"], b"");
    let converted = String::from_utf8(converted.stdout).unwrap();
    assert!(!converted.is_empty() && converted.lines().all(|line| line.starts_with("work")), "{converted}");
}

#[test]
fn the_example_fits_the_terminal() {
    for width in ["40", "100", "173"] {
        let shown = text(&["flamegraph", EXAMPLE, "--width", width]);
        let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.parse().unwrap(), "{widest} of {width}");
    }
    assert!(text(&["flamegraph", EXAMPLE, "--color", "always"]).contains('\x1b'));
    assert!(!text(&["flamegraph", EXAMPLE]).contains('\x1b'));
    let graph = json(&["flamegraph", EXAMPLE, "--type", "samples"]);
    assert_eq!((graph["total"].as_i64(), graph["names"][0].as_str()), (Some(4200), Some("total")));
    let info = json(&["info", EXAMPLE]);
    assert_eq!(
        (info["shown"].as_str(), info["types"][1]["total"].as_i64()),
        (Some("cpu/nanoseconds"), Some(42_000_000_000))
    );
    assert!(text(&["info", EXAMPLE]).contains("2024-01-01T12:00:00.000Z"));
}

#[test]
fn diff_tells_what_changed() {
    let files = Files::new();
    let (a, b) = (files.name("a.txt"), files.name("b.txt"));
    let rows = json(&["diff", &a, &b]);
    assert_eq!(
        (rows["rows"][0]["name"].as_str(), rows["rows"][0]["delta"].as_i64()),
        (Some("deep"), Some(50))
    );
    assert!(text(&["diff", &a, &b]).contains("40 before, 60 after, +20 (+50.00%)"));
    let (code, message) = refused(&["diff", &a, EXAMPLE]);
    assert_eq!(code, 65);
    assert!(message.contains("select one with --type"), "{message}");
}

#[test]
fn convert_there_and_back_is_the_same() {
    let files = Files::new();
    let (a, b, both) = (files.name("a.txt"), files.name("b.txt"), files.name("both.pb.gz"));
    text(&["convert", &a, &b, "-o", &both]);
    let folded = text(&["convert", &both, "--to", "folded", "-o", "-"]);
    assert_eq!(lines(&folded), ["main;idle 10", "main;work 35", "main;work;deep 50", "other 5"]);
    for (name, starts) in [("x.svg", "<"), ("x.dot", "digraph"), ("x.speedscope.json", "{")] {
        let out = files.name(name);
        let said = json(&["convert", &both, "-o", &out]);
        assert_eq!(said["bytes"].as_u64(), Some(fs::metadata(&out).unwrap().len()));
        assert!(fs::read_to_string(&out).unwrap().starts_with(starts), "{name}");
    }
    for name in ["again.pb", "again.pprof.gz"] {
        text(&["convert", &both, "-o", &files.name(name)]);
        assert_eq!(fs::read(files.path(name)).unwrap(), fs::read(&both).unwrap());
    }
    let (code, message) = refused(&["convert", &a, "-o", &files.name("x.unknown")]);
    assert!(code == 64 && message.contains("add --to pprof"), "{message}");
    assert!(!files.path("x.unknown").exists());
}

#[test]
fn negative_counts_go_there_and_back() {
    let files = Files::new();
    fs::write(files.path("neg.txt"), "main;freed -7\nmain;kept 5\n").unwrap();
    let (pprof, folded) = (files.name("neg.pb.gz"), files.name("neg.folded"));
    text(&["convert", &files.name("neg.txt"), "-o", &pprof]);
    text(&["convert", &pprof, "-o", &folded]);
    assert_eq!(lines(&fs::read_to_string(&folded).unwrap()), ["main;freed -7", "main;kept 5"]);
    assert_eq!(json(&["top", &folded]), json(&["top", &pprof]));
    assert_eq!(json(&["top", &folded])["total"].as_i64(), Some(-2));
}

#[test]
fn an_output_harms_no_other_file() {
    let files = Files::new();
    let (a, out) = (files.name("a.txt"), files.name("y.svg"));
    fs::write(files.path("y.svg.tmp"), "mine").unwrap();
    fs::write(files.path("y.svg"), "old").unwrap();
    text(&["convert", &a, "-o", &out]);
    assert!(fs::read_to_string(&out).unwrap().starts_with('<'));
    assert_eq!(fs::read_to_string(files.path("y.svg.tmp")).unwrap(), "mine");
    let mode = |name: &str| std::os::unix::fs::MetadataExt::mode(&fs::metadata(files.path(name)).unwrap());
    assert_eq!(mode("y.svg"), mode("a.txt"), "as any new file");
    fs::create_dir(files.path("folder.svg")).unwrap();
    let (code, message) = refused(&["convert", &a, "-o", &files.name("folder.svg")]);
    assert!(code == 66 && message.contains("folder.svg"), "{code}: {message}");
    let left = fs::read_dir(files.folder.path()).unwrap().count();
    assert_eq!(left, 5, "nothing temporary stays");
}

#[test]
fn what_only_blocks_can_tell_is_refused_for_files() {
    let files = Files::new();
    let (a, block) = (files.name("a.txt"), files.block("day1", "a.txt"));
    let asked: [&[&str]; 4] =
        [&["--selector", "{a=\"b\"}"], &["--tenant", "foo"], &["--since", "5"], &["--until", "5"]];
    for filter in asked {
        for command in [&["top", &a][..], &["flamegraph", &a, &block], &["info", &a], &["diff", &block, &a]] {
            let (code, message) = refused(&[command, filter].concat());
            assert!(code == 64 && message.contains(&a) && message.contains(filter[0]), "{message}");
        }
    }
    let (code, message) = refused(&["convert", "-", "-o", "x.svg", "--since", "5"]);
    assert!(code == 64 && message.contains("applies only to blocks"), "{message}");
    assert_eq!(json(&["top", &block, "--selector", "{service_name=\"shop\"}"])["total"].as_i64(), Some(40));
    assert_eq!(refused(&["top", &files.name("missing"), "--since", "5"]).0, 66);
    let (code, message) = refused(&["top", &a, "--width", "foo"]);
    assert!(code == 64 && message.contains("--width"), "{message}");
    let (code, message) = refused(&["top", &a, "--type", ""]);
    assert!(code == 64 && message.contains("a type needs a name"), "{message}");
}

#[test]
fn types_that_not_all_files_have_are_reported() {
    let files = Files::new();
    let output = run(&["top", &files.name("a.txt"), EXAMPLE]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "athanor: dropped value types that not all files have: cpu/nanoseconds\n");
    assert!(output.status.success() && run(&["top", EXAMPLE, EXAMPLE]).stderr.is_empty());
}

#[test]
fn blocks_are_listed_by_the_folder_that_holds_them() {
    let files = Files::new();
    fs::create_dir(files.path("blocks")).unwrap();
    let (one, two) = (files.block("blocks/one", "a.txt"), files.block("blocks/two", "b.txt"));
    let listed = json(&["block", "list", &files.name("blocks"), &one]);
    let folders: Vec<&str> =
        listed.as_array().unwrap().iter().map(|of| of["folder"].as_str().unwrap()).collect();
    assert_eq!(folders, [&one, &two, &one]);
    let (code, message) = refused(&["block", "list", files.folder.path().to_str().unwrap()]);
    assert!(code == 66 && message.contains("not a block"), "{message}");
}

/// The commands that have no commands below them, with their help.
fn commands() -> Vec<(Vec<String>, String)> {
    let mut commands = Vec::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(command) = open.pop() {
        let args: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = text(&args);
        let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        let names = listed.lines().take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  "));
        let names = names
            .filter(|line| !line[2..].starts_with(' '))
            .filter_map(|line| line.split_whitespace().next());
        let before = open.len();
        open.extend(
            names.filter(|name| *name != "help").map(|name| [&command[..], &[name.to_owned()]].concat()),
        );
        if open.len() == before {
            commands.push((command, help));
        }
    }
    commands
}

#[test]
fn the_help_of_every_command_has_examples() {
    let commands = commands();
    assert!(commands.len() > 20, "only {} commands", commands.len());
    for (command, help) in commands {
        assert!(help.contains("Example"), "{command:?}: {help}");
    }
}

/// Those that need a server are tried with one, elsewhere; generating writes hundreds of megabytes.
const ELSEWHERE: [&str; 36] = [
    "dev generate",
    "dev cluster",
    "metastore voters list",
    "metastore voters add",
    "metastore voters remove",
    "metastore voters replace",
    "metastore recover",
    "shard list",
    "shard seal",
    "shard abandon",
    "compaction status",
    "compaction pause",
    "compaction resume",
    "compaction retry",
    "retention status",
    "retention apply",
    "retention restore",
    "retention confirm-clock",
    "upload list",
    "upload delete",
    "settings list",
    "settings delete",
    "serve",
    "flush",
    "quarantine list",
    "quarantine clear",
    "push",
    "dev bench",
    "query top",
    "query flamegraph",
    "query series",
    "query samples",
    "query functions",
    "query labels",
    "query types",
    "query diff",
];

#[test]
fn every_command_gives_json() {
    let files = Files::new();
    let (a, b) = (files.name("a.txt"), files.name("b.txt"));
    let (block, other, svg) =
        (files.block("block", "a.txt"), files.block("other", "b.txt"), files.name("a.svg"));
    let (out, example) = (files.name("merged"), files.name("example.pb.gz"));
    let (built, folded) = (files.name("built"), files.name("a.folded"));
    let parent = files.folder.path().to_str().unwrap();
    let lines: &[&[&str]] = &[
        &["config"],
        &["top", &a],
        &["flamegraph", &a],
        &["info", &a],
        &["diff", &a, &b],
        &["convert", &a, "-o", &svg],
        &["block", "build", &a, "--out", &built, "--label", "service_name=shop"],
        &["block", "list", parent],
        &["block", "show", &block],
        &["block", "verify", &block],
        &["block", "cat", &block, "-o", &folded],
        &["block", "merge", &block, &other, "--out", &out],
        &["dev", "example", "--out", &example],
    ];
    for (command, _) in commands() {
        let name = command.join(" ");
        let tried = lines
            .iter()
            .any(|line| line.iter().zip(&command).filter(|(one, two)| *one == two).count() == command.len());
        assert!(tried || ELSEWHERE.contains(&name.as_str()), "{name} is not tried");
    }
    for line in lines {
        let told = json(line);
        assert!(told.as_array().map_or_else(|| told.is_object(), |all| !all.is_empty()), "{line:?}: {told}");
    }
}

#[test]
fn standard_input_is_a_file_too() {
    let bytes = fs::read(EXAMPLE).unwrap();
    assert_eq!(piped(&["top", "-"], &bytes).stdout, run(&["top", EXAMPLE]).stdout);
    let output = piped(&["convert", "-", "--to", "folded", "-o", "-"], b"a;b 1\na;b 2\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "a;b 3\n");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = athanor()
        .args(["convert", EXAMPLE, "--to", "folded", "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let files = Files::new();
    fs::write(files.path("empty"), "").unwrap();
    fs::write(files.path("words"), "no profile at all\n").unwrap();
    fs::write(files.path("cut.pb.gz"), &fs::read(EXAMPLE).unwrap()[..500]).unwrap();
    for (name, code, message) in [
        ("missing", 66, "No such file"),
        ("empty", 65, "file is empty"),
        ("words", 65, "line 1"),
        ("cut.pb.gz", 65, "gzip"),
    ] {
        let path = files.name(name);
        let (seen, text) = refused(&["top", &files.name("a.txt"), &path]);
        assert_eq!(seen, code, "{text}");
        assert!(text.contains(&path) && text.contains(message), "{text}");
    }
    assert_eq!(refused(&["top"]).0, 64);
    assert_eq!(refused(&["frobnicate"]).0, 64);
    let (code, message) = refused(&["top", EXAMPLE, "--type", "heap"]);
    assert!(code == 66 && message.contains("samples/count, cpu/nanoseconds"), "{message}");
    let (code, message) = refused(&["top", EXAMPLE, "--selector", "{a=}"]);
    assert!(code == 64 && message.contains("needs a quoted value at character 4"), "{message}");
    assert!(text(&["--help"]).contains("Examples:"));
}

#[test]
fn a_block_gives_back_what_went_in() {
    let files = Files::new();
    let (a, b, out) = (files.name("a.txt"), files.name("b.txt"), files.name("day1"));
    let args = [
        "block",
        "build",
        &a,
        &b,
        EXAMPLE,
        "--out",
        &out,
        "--label",
        "service_name=shop",
        "--max-memory",
        "1KiB",
    ];
    let made = json(&args);
    assert_eq!((made["profiles"].as_i64(), made["inputs"]["uploads"].as_i64()), (Some(4), Some(3)));
    assert!(text(&["block", "verify", &out]).contains("valid"));
    let cat = text(&["block", "cat", &out, "--type", "samples", "--to", "folded"]);
    let merged = text(&["convert", &a, &b, EXAMPLE, "--type", "samples", "--to", "folded", "-o", "-"]);
    assert_eq!(lines(&cat), lines(&merged));
    assert_eq!(json(&["top", &out, "--type", "cpu"])["total"].as_i64(), Some(42_000_000_000));
    assert_eq!(json(&["block", "list", &out])[0]["profiles"].as_i64(), Some(4));
    let shown = json(&["block", "show", &out]);
    assert_eq!(shown["tenants"][0]["series"][0]["labels"]["service_name"].as_str(), Some("shop"));
    assert!(text(&["block", "show", &out]).contains("bytes per sample"));
    let (code, message) = refused(&["block", "cat", &out, "--selector", "{zone=\"x\"}"]);
    assert!(code == 66 && message.contains("with labels service_name"), "{message}");
    let (code, message) = refused(&["block", "build", &a, "--out", &out]);
    assert!(code == 73 && message.contains("not empty"), "{message}");
    let left: Vec<_> =
        fs::read_dir(files.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "nothing temporary stays: {left:?}");
}

/// The first profiles of the reference set, in a folder as `dev generate` writes it: files, times.
fn reference(files: &Files, count: usize) -> Vec<(String, i64)> {
    let set = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
    fs::create_dir(files.path("set")).unwrap();
    let mut listed = Vec::new();
    let mut profiles = Vec::new();
    for i in 0..count {
        let file = format!("{i}.pb");
        let labels = set.labels(i);
        let labels: Value =
            labels.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
        fs::write(files.path("set").join(&file), set.pprof(i)).unwrap();
        profiles.push((files.name(&format!("set/{file}")), set.time(i)));
        listed.push(object!({ "file": file, "labels": labels }));
    }
    fs::write(files.path("set/set.json"), object!({ "profiles": listed }).to_string()).unwrap();
    profiles
}

#[test]
fn a_block_of_a_set_is_worth_its_files_and_times_pick_from_it() {
    let files = Files::new();
    let profiles = reference(&files, 4);
    let (set, block) = (files.name("set"), files.name("block"));
    text(&["block", "build", &set, "--out", &block]);
    assert!(text(&["block", "verify", &block]).contains("valid"));
    let top_of_files = |range: std::ops::Range<usize>| {
        let mut args = vec!["top", "--type", "cpu", "--limit", "100000"];
        args.extend(profiles[range].iter().map(|(file, _)| file.as_str()));
        json(&args)
    };
    let top_of_block =
        |times: &[&str]| json(&[&["top", &block, "--type", "cpu", "--limit", "100000"], times].concat());
    assert_eq!(top_of_block(&[]), top_of_files(0..4));
    let [since, until] = [profiles[1].1.to_string(), profiles[3].1.to_string()];
    assert_eq!(top_of_block(&["--since", &since, "--until", &until]), top_of_files(1..3));
    assert_eq!(top_of_block(&["--until", &since]), top_of_files(0..1));
    assert_eq!(top_of_block(&["--since", &until]), top_of_files(3..4));
}

#[test]
fn merging_blocks_keeps_equal_profiles_once() {
    let files = Files::new();
    let (one, two, all) = (files.block("one", "a.txt"), files.block("two", "b.txt"), files.name("all"));
    text(&["block", "merge", &one, &two, &one, "--out", &all]);
    let cat = text(&["block", "cat", &all, "--to", "folded"]);
    assert_eq!(lines(&cat), ["main;idle 10", "main;work 35", "main;work;deep 50", "other 5"]);
}

#[test]
fn a_flipped_byte_is_found_and_named() {
    let files = Files::new();
    for (name, time) in [("first", 100_000_000_000), ("second", 200_000_000_000)] {
        let mut profile = athanor_profile::Profile::default();
        profile.header.types = vec![athanor_profile::ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = time;
        let stack = profile.dictionary.intern_named_stack(["main", "work"].into_iter());
        profile.samples.push(stack, 0, &[time]);
        fs::write(files.path(name), athanor_profile::formats::pprof::encode(&profile)).unwrap();
    }
    let block = files.name("two");
    text(&["block", "build", &files.name("first"), &files.name("second"), "--out", &block]);
    for file in ["samples.parquet", "functions.parquet", "rollup.parquet"] {
        let path = Path::new(&block).join(file);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let (code, message) = refused(&["block", "verify", &block]);
        assert_eq!(code, 65);
        let expected = format!("{block}: {file} is damaged within bytes 0..{}", whole.len());
        assert!(message.contains(&expected), "{message}");
        // All time is answered from the roll-up, less from the samples.
        let times: &[&str] = if file == "rollup.parquet" { &[] } else { &["--until", "200"] };
        let (code, message) = refused(&[&["top", block.as_str()], times].concat());
        let damage = format!("{file} is damaged within bytes 0..{}", whole.len());
        assert!(code == 65 && message.contains(&block) && message.contains(&damage), "{message}");
        fs::write(&path, whole).unwrap();
    }
    assert!(text(&["block", "verify", &block]).contains("valid"));
    fs::write(Path::new(&block).join("meta.json"), "{}").unwrap();
    assert_eq!(refused(&["block", "verify", &block]).0, 65);
    assert_eq!(refused(&["block", "verify", &files.name("nowhere")]).0, 66);
}

#[test]
fn the_example_is_the_shipped_one() {
    let files = Files::new();
    let out = files.name("example.pb.gz");
    text(&["dev", "example", "--out", &out]);
    assert_eq!(fs::read(out).unwrap(), fs::read(EXAMPLE).unwrap());
}

#[test]
fn names_cannot_steer_the_terminal() {
    let output = piped(&["top", "-"], "a\u{9b}2J;b\u{85}c\u{202e}d 1\n".as_bytes());
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && shown.contains("\\u{9b}2J"), "{shown}");
    assert!(shown.contains("\\u{202e}d"), "{shown}");
    let output = piped(&["top", "-", "--type", "\u{202e}x"], b"a 1\n");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("\\u{202e}x"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn hostile_bytes_are_refused_without_a_panic(at in 0usize..2000, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut hostile = fs::read(EXAMPLE).unwrap();
        let at = at.min(hostile.len() - bytes.len());
        hostile[at..at + bytes.len()].copy_from_slice(&bytes);
        for input in [&hostile, &bytes] {
            let output = piped(&["top", "-"], input);
            let code = output.status.code().unwrap();
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            prop_assert!(code == 0 || code == 65, "{code}: {message}");
            prop_assert!(!message.contains("panicked"), "{message}");
        }
    }
}
