//! A strict reader of Prometheus' text formats: what the formats forbid, panics.

use std::collections::{BTreeMap, BTreeSet};

/// Labels in their order.
pub type Labels = Vec<(String, String)>;

/// One family.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// Name of the sample, its labels, its value.
    pub samples: Vec<(String, Labels, f64)>,
}

/// Reads a page; `open_metrics` says which format it must be in.
pub fn read(text: &str, open_metrics: bool) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line ends");
    assert_eq!(text.ends_with("\n# EOF\n"), open_metrics, "OpenMetrics ends with EOF, and nothing else does");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        assert!(!line.is_empty() && line.trim() == line, "{line:?}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            let new = Family { help: help.to_owned(), ..Family::default() };
            assert!(families.insert(name.to_owned(), new).is_none(), "{name} is there twice, or in pieces");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, current, "a type follows its help");
            let family = families.get_mut(name).unwrap();
            assert!(
                family.kind.is_empty() && family.samples.is_empty(),
                "{name}: one type, before all samples"
            );
            family.kind = kind.to_owned();
        } else {
            let (name, labels, value) = sample(line);
            let family = families.get_mut(&current).expect("a family begins with its help");
            assert!(name.starts_with(&current), "{name} stands under {current}");
            family.samples.push((name, labels, value));
        }
    }
    families.iter().for_each(|(name, family)| check(name, family, open_metrics));
    families
}

/// `name{label="value",…} number`.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line:?}"));
    let (name, mut rest) = line.split_at(end);
    is_name(name);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line:?}"));
            is_name(label);
            assert!(!label.contains(':') && !label.starts_with("__"), "{label}");
            let (value, after) = quoted(after);
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let number = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line:?}"));
    assert!(!number.contains(' '), "no timestamp: {line:?}");
    let value = if number == "+Inf" { f64::INFINITY } else { number.parse().unwrap() };
    let names: BTreeSet<&String> = labels.iter().map(|(label, _)| label).collect();
    assert_eq!(names.len(), labels.len(), "each label once: {line:?}");
    (name.to_owned(), labels, value)
}

fn is_name(name: &str) {
    let first = name.chars().next().unwrap_or('0');
    assert!(first.is_ascii_alphabetic() || first == '_', "{name:?}");
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c)), "{name:?}");
}

/// A value behind its opening quote, and what follows its closing one.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match (escaped, c) {
            (true, 'n') => value.push('\n'),
            (true, '"' | '\\') => value.push(c),
            (true, other) => panic!("\\{other} is no escape"),
            (false, '\\') => {}
            (false, '"') => return (value, &text[at + 1..]),
            (false, other) => value.push(other),
        }
        escaped = !escaped && c == '\\';
    }
    panic!("{text:?} has no closing quote")
}

fn check(name: &str, family: &Family, open_metrics: bool) {
    assert!(family.help.len() > 3, "{name} says what it is");
    let is_counter = family.kind == "counter";
    let bare = name.strip_suffix("_total");
    assert_eq!(bare.is_some(), is_counter && !open_metrics, "{name} is a {}", family.kind);
    let mut seen = BTreeSet::new();
    for (sample, labels, value) in &family.samples {
        assert!(seen.insert((sample.clone(), labels.clone())), "{sample}{labels:?} is there twice");
        let suffix = &sample[name.len()..];
        let fits = match family.kind.as_str() {
            "counter" => suffix == if open_metrics { "_total" } else { "" } && *value >= 0.0,
            "gauge" => suffix.is_empty(),
            "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
            other => panic!("{name}: {other} is no type that is used here"),
        };
        assert!(fits && !value.is_nan(), "{sample} {value} in a {}", family.kind);
    }
    if family.kind == "histogram" {
        let without = |labels: &Labels| -> Labels {
            labels.iter().filter(|(label, _)| label != "le").cloned().collect()
        };
        let sets: BTreeSet<Labels> = family.samples.iter().map(|(_, labels, _)| without(labels)).collect();
        sets.iter().for_each(|labels| histogram(name, family, labels));
    }
}

/// Buckets ascend, are cumulative and end with all.
fn histogram(name: &str, family: &Family, of: &Labels) {
    let is_le = |(label, _): &&(String, String)| label == "le";
    let (mut last, mut before, mut count, mut sums) = (f64::NEG_INFINITY, 0.0, None, 0);
    for (sample, labels, value) in &family.samples {
        let rest: Labels = labels.iter().filter(|label| !is_le(label)).cloned().collect();
        if rest != *of {
            continue;
        }
        match &sample[name.len()..] {
            "_count" => count = Some(*value),
            "_sum" => sums += 1,
            _ => {
                let (_, end) = labels.iter().find(is_le).expect("a bucket has an end");
                let end: f64 = if end == "+Inf" { f64::INFINITY } else { end.parse().unwrap() };
                assert!(end > last && *value >= before, "{name}{of:?} at {end}");
                (last, before) = (end, *value);
            }
        }
    }
    assert!(last.is_infinite() && sums == 1 && count == Some(before), "{name}{of:?}: {count:?} of {before}");
}

#[test]
fn what_the_formats_forbid_is_noticed() {
    let good = "# HELP a_seconds Some time\n# TYPE a_seconds gauge\na_seconds{x=\"1\\\"\"} 1\n";
    let page = read(good, false);
    assert_eq!(page["a_seconds"].samples[0].1, [("x".to_owned(), "1\"".to_owned())]);
    let wrong = [
        good.replace("gauge", "counter"),
        good.replace("{x", "{9x"),
        good.replace(" 1\n", " 1\na_seconds{x=\"1\\\"\"} 2\n"),
        good.replace("# TYPE a_seconds gauge\n", ""),
        good.replace(" 1\n", " one\n"),
        good.repeat(2),
        good.replace("gauge", "histogram"),
        format!("{good}# EOF\n"),
    ];
    for text in wrong {
        let hook = std::panic::catch_unwind(|| read(&text, false));
        assert!(hook.is_err(), "{text}");
    }
}
