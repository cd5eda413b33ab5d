//! Rules for labels against Prometheus's own package: made rules and labels, and what becomes of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use athanor_chassis::Random;
use athanor_integration::report_skipped;
use athanor_profile::{Labels, labeling::relabel};
use serde_json::{Map, Value, json};

const TASKS: usize = 30_000;
const NAMES: &[&str] = &["a", "b", "c", "ab", "__name__", "x.y", "é", "0"];
const VALUES: &[&str] =
    &["", "a", "b", "ab", "aab", "ba", "a;b", "a\nb", "Äß", "İx", "x.y", "$1", "1234", " "];
const REGEXES: &[&str] = &[
    "(.*)",
    "(.+)",
    "",
    "a",
    "a|b",
    "(a)|(b)",
    "(a)(b)?",
    "(a*)(b*)",
    "(a+?)(.*)",
    "(?P<n>a.*)",
    "(?<n>a)|(?<n>b)",
    "(?:a)(.)",
    "([^;]*);(.*)",
    "(a|ab)(b|)",
    "x\\.(y)",
    "(?i)(A)(B?)",
    "__(.+)__",
    "(a)*",
    "(\\w+)",
    "(\\pL)",
    "(",
    "a{1,2}(b)",
    "[[:alpha:]]+",
    "(?s:.)(.)",
    "^(a)$",
    "a$",
    "\\Qx.\\E(.)",
    "(é)",
    "*",
];
const TEMPLATES: &[&str] = &[
    "",
    "$1",
    "${1}",
    "$2",
    "$0",
    "x",
    "$n",
    "${n}_$1",
    "$1x",
    "${1}x",
    "$$",
    "$",
    "${",
    "$é",
    "a",
    "b",
    "x.y",
    "$01",
    "c$1",
    "$1$1",
    "${2}-${1}",
];
const ACTIONS: &[&str] = &[
    "replace",
    "replace",
    "replace",
    "keep",
    "drop",
    "keepequal",
    "dropequal",
    "hashmod",
    "labelmap",
    "labelmap",
    "labeldrop",
    "labelkeep",
    "lowercase",
    "Uppercase",
    "none",
];
/// Fields that an action takes; others are seldom there.
const TAKEN: &[(&str, &[&str])] = &[
    ("replace", &["source_labels", "regex", "target_label", "replacement", "separator"]),
    ("keep", &["source_labels", "regex", "separator"]),
    ("drop", &["source_labels", "regex", "separator"]),
    ("keepequal", &["source_labels", "target_label"]),
    ("dropequal", &["source_labels", "target_label"]),
    ("hashmod", &["source_labels", "target_label", "modulus", "separator"]),
    ("labelmap", &["regex", "replacement"]),
    ("labeldrop", &["regex"]),
    ("labelkeep", &["regex"]),
    ("lowercase", &["source_labels", "target_label"]),
    ("Uppercase", &["source_labels", "target_label"]),
];

fn one_of<'a>(random: &Random, all: &[&'a str]) -> &'a str {
    all[random.next_below(all.len() as u64) as usize]
}

fn rule(random: &Random) -> Value {
    let action = one_of(random, ACTIONS);
    let taken = TAKEN.iter().find(|(of, _)| *of == action).map_or(&[][..], |(_, fields)| *fields);
    let mut rule = Map::from_iter([("action".to_owned(), json!(action))]);
    for field in ["source_labels", "regex", "target_label", "replacement", "separator", "modulus"] {
        // Most are as they should be; one in some is missing, and another too many.
        let there =
            if taken.contains(&field) { random.next_below(8) > 0 } else { random.next_below(40) == 0 };
        if !there {
            continue;
        }
        let value = match field {
            "source_labels" => (0..random.next_below(4)).map(|_| one_of(random, NAMES)).collect(),
            "regex" => json!(one_of(random, REGEXES)),
            "target_label" => {
                json!(one_of(random, if random.next_below(2) == 0 { NAMES } else { TEMPLATES }))
            }
            "replacement" => json!(one_of(random, TEMPLATES)),
            "separator" => json!(one_of(random, &[";", "", ",", "ab"])),
            _ => json!(random.next_below(5)),
        };
        rule.insert(field.to_owned(), value);
    }
    Value::Object(rule)
}

fn task(random: &Random) -> Value {
    let rules: Vec<Value> = (0..=random.next_below(4)).map(|_| rule(random)).collect();
    let pair = |_| (one_of(random, NAMES).to_owned(), one_of(random, VALUES));
    let labels: BTreeMap<String, &str> = (0..random.next_below(6)).map(pair).collect();
    let labels: BTreeMap<_, _> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    json!({"Rules": rules, "Labels": labels})
}

/// What Prometheus makes of each task; none where its package cannot be had.
fn of_prometheus(tasks: &[Value]) -> Result<Vec<Value>, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/go-relabel");
    for file in ["main.go", "go.mod", "go.sum"] {
        std::fs::copy(sources.join(file), folder.path().join(file)).map_err(|error| error.to_string())?;
    }
    let built = Command::new("go").args(["build", "-o", "relabel", "."]).current_dir(folder.path()).output();
    let built = built.map_err(|error| format!("go: {error}"))?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    let input = folder.path().join("tasks.json");
    let text: String = tasks.iter().map(|task| format!("{task}\n")).collect();
    std::fs::write(&input, text).expect("written");
    let input = std::fs::File::open(&input).expect("readable");
    let output = Command::new(folder.path().join("relabel")).stdin(input).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("JSON");
    Ok(lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn ours(task: &Value) -> Value {
    let Ok(rules) = relabel::parse_rules(task["Rules"].as_array().expect("a list")) else {
        return json!("refused");
    };
    let labels = task["Labels"].as_object().expect("a table").iter();
    let labels = labels.map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned()));
    match relabel::apply(&rules, &Labels::new(labels)).expect("they stay few") {
        Some(made) => made.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect(),
        None => json!("dropped"),
    }
}

#[test]
fn made_rules_do_what_they_do_in_prometheus() {
    let random = Random::from_seed(17);
    let tasks: Vec<Value> = (0..TASKS).map(|_| task(&random)).collect();
    let expected = match of_prometheus(&tasks) {
        Ok(expected) => expected,
        Err(why) => return report_skipped("no package of Prometheus to compare rules with", &why),
    };
    assert_eq!(expected.len(), tasks.len());
    for (what, count) in [
        ("refused", expected.iter().filter(|made| **made == "refused").count()),
        ("dropped", expected.iter().filter(|made| **made == "dropped").count()),
        ("made", expected.iter().filter(|made| made.is_object()).count()),
    ] {
        assert!(count > TASKS / 20, "only {count} of {TASKS} are {what}");
    }
    let different: Vec<String> = tasks
        .iter()
        .zip(&expected)
        .filter(|(task, made)| ours(task) != **made)
        .map(|(task, made)| format!("{task}\n  prometheus {made}\n  ours       {}", ours(task)))
        .collect();
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different[..different.len().min(10)].join("\n")
    );
}
