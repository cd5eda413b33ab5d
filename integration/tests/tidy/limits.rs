//! Measures of style with their committed limits. A limit only falls, until it reaches its goal.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::measurement::{Measurement, Place};
use super::source::Workspace;
use super::{comments, imports, names, prose, shape};

/// Places that a failure lists.
const MAX_LISTED_PLACES: usize = 20;
/// Findings of one file that a failure lists.
const MAX_MERGED_DETAILS: usize = 4;
/// Distance below a limit, in percent of it, from which the limit has to be lowered.
const MAX_SLACK_PERCENT: u64 = 2;

/// Measure of style and the values that it may have.
struct StyleLimit {
    name: &'static str,
    /// Committed limit, in tenths of the unit.
    limit_tenths: u64,
    /// Value from which the limit need not fall any more, in tenths of the unit.
    goal_tenths: u64,
    unit: &'static str,
    measure: fn(&Workspace) -> Measurement,
    /// Way to lower the measure.
    remedy: &'static str,
}

#[rustfmt::skip]
const STYLE_LIMITS: [StyleLimit; 16] = [
    StyleLimit {
        name: "types of one word", limit_tenths: 350, goal_tenths: 350, unit: "%",
        measure: names::one_word_types, remedy: "name a type after its concept in two words",
    },
    StyleLimit {
        name: "types that share their name", limit_tenths: 150, goal_tenths: 150, unit: "%",
        measure: names::shared_type_names, remedy: "give each type a name of its own",
    },
    StyleLimit {
        name: "constants of one word", limit_tenths: 120, goal_tenths: 120, unit: "%",
        measure: names::one_word_constants, remedy: "put the kind last: MAX_IDS_PER_PAGE",
    },
    StyleLimit {
        name: "documentation with a weak first word", limit_tenths: 50, goal_tenths: 50, unit: "%",
        measure: comments::weak_first_words, remedy: "begin with a noun phrase or a verb in the third person",
    },
    StyleLimit {
        name: "\"what\" in comments", limit_tenths: 150, goal_tenths: 150, unit: "per 10 000 words",
        measure: comments::uses_of_what, remedy: "name the thing instead",
    },
    StyleLimit {
        name: "\"who\" and its forms in comments", limit_tenths: 80, goal_tenths: 80, unit: "per 10 000 words",
        measure: comments::uses_of_who, remedy: "name the component instead",
    },
    StyleLimit {
        name: "\"tell\" and \"say\" in comments", limit_tenths: 50, goal_tenths: 50, unit: "per 10 000 words",
        measure: comments::uses_of_tell, remedy: "components send, return or report",
    },
    StyleLimit {
        name: "lets that bind a literal tuple", limit_tenths: 3, goal_tenths: 3, unit: "per 1000 lines",
        measure: shape::tuple_lets, remedy: "write one let per binding",
    },
    StyleLimit {
        name: "tuple parameters of functions", limit_tenths: 0, goal_tenths: 0, unit: "parameters",
        measure: shape::tuple_parameters, remedy: "pass a struct with named fields",
    },
    StyleLimit {
        name: "files in one folder", limit_tenths: 150, goal_tenths: 150, unit: "files",
        measure: shape::files_in_one_folder, remedy: "group files by concern in folders",
    },
    StyleLimit {
        name: "import cycles", limit_tenths: 0, goal_tenths: 0, unit: "cycles",
        measure: imports::import_cycles, remedy: "move the shared item to a file that both import",
    },
    StyleLimit {
        name: "files over 500 lines of code", limit_tenths: 0, goal_tenths: 0, unit: "files",
        measure: shape::long_files, remedy: "split the file by concern",
    },
    StyleLimit {
        name: "functions over 70 lines of code", limit_tenths: 0, goal_tenths: 0, unit: "functions",
        measure: shape::long_functions, remedy: "extract functions with a name",
    },
    StyleLimit {
        name: "longest sentence of the documents", limit_tenths: 400, goal_tenths: 400, unit: "words",
        measure: prose::longest_sentence, remedy: "write one fact per sentence",
    },
    StyleLimit {
        name: "ARCHITECTURE.md", limit_tenths: 20_000, goal_tenths: 20_000, unit: "words",
        measure: prose::architecture_words, remedy: "move details to pages in docs, or delete them",
    },
    StyleLimit {
        name: "README.md", limit_tenths: 5000, goal_tenths: 5000, unit: "words",
        measure: prose::readme_words, remedy: "move details to pages in docs, or delete them",
    },
];

/// Result of comparing a measure with its limit.
#[derive(Debug, PartialEq)]
enum LimitVerdict {
    Within,
    Exceeded,
    /// The limit has to be lowered to this number of tenths.
    Loose(u64),
}

impl StyleLimit {
    fn judge(&self, today_tenths: u64) -> LimitVerdict {
        let lowest = self.limit_tenths * (100 - MAX_SLACK_PERCENT);
        if today_tenths > self.limit_tenths {
            LimitVerdict::Exceeded
        } else if self.limit_tenths > self.goal_tenths && today_tenths * 100 < lowest {
            LimitVerdict::Loose(today_tenths.max(self.goal_tenths))
        } else {
            LimitVerdict::Within
        }
    }
    /// Returns the failure of a measure, with its worst places and the way out.
    fn find_failure(&self, measured: Measurement) -> Option<String> {
        let today = in_units(measured.tenths);
        let limit = in_units(self.limit_tenths);
        match self.judge(measured.tenths) {
            LimitVerdict::Within => None,
            LimitVerdict::Exceeded => {
                let places = list_worst(measured.places);
                let Self { name, unit, remedy, .. } = self;
                Some(format!(
                    "{name}: {today} {unit}, the limit is {limit}; {remedy}. Worst places:\n{places}"
                ))
            }
            LimitVerdict::Loose(lower) => Some(format!(
                "{}: {today} {}, well below the limit of {limit}; lower its limit_tenths to {lower} in {}",
                self.name,
                self.unit,
                file!()
            )),
        }
    }
}

/// Returns tenths as a decimal number.
fn in_units(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Returns the worst places, one per line. Findings without a rank are listed by file.
fn list_worst(places: Vec<Place>) -> String {
    let mut places = merge_findings(places);
    places.sort_by_key(|place| std::cmp::Reverse(place.weight));
    let listed: Vec<String> =
        places.iter().take(MAX_LISTED_PLACES).map(|place| format!("  {place}")).collect();
    let mut text = listed.join("\n");
    if places.len() > MAX_LISTED_PLACES {
        write!(text, "\n  and {} others", places.len() - MAX_LISTED_PLACES).expect("a string grows");
    }
    text
}

/// Merges the findings of each file, the places of weight 1.
fn merge_findings(places: Vec<Place>) -> Vec<Place> {
    let (findings, mut ranked): (Vec<Place>, Vec<Place>) =
        places.into_iter().partition(|place| place.weight == 1);
    let mut by_file: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for finding in findings {
        by_file.entry(finding.path.clone()).or_default().push(finding);
    }
    ranked.extend(by_file.into_iter().map(|(path, findings)| merge_file(path, &findings)));
    ranked
}

fn merge_file(path: String, findings: &[Place]) -> Place {
    let mut detail = findings[0].detail.clone();
    for finding in findings.iter().take(MAX_MERGED_DETAILS).skip(1) {
        write!(detail, "; line {}: {}", finding.line, finding.detail).expect("a string grows");
    }
    if findings.len() > MAX_MERGED_DETAILS {
        write!(detail, "; and {} more", findings.len() - MAX_MERGED_DETAILS).expect("a string grows");
    }
    Place { path, line: findings[0].line, weight: findings.len(), detail }
}

#[test]
fn measures_stay_within_their_limits() {
    let workspace = Workspace::read();
    assert!(workspace.files.len() > 100, "the source files are not found");
    let mut failures = Vec::new();
    println!("{:<42} {:>8} {:>8} {:>8}  unit", "measure", "today", "limit", "goal");
    for style in &STYLE_LIMITS {
        let measured = (style.measure)(&workspace);
        let [today, limit, goal] = [measured.tenths, style.limit_tenths, style.goal_tenths].map(in_units);
        println!("{:<42} {today:>8} {limit:>8} {goal:>8}  {}", style.name, style.unit);
        failures.extend(style.find_failure(measured));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

#[test]
fn limit_above_its_goal_follows_the_measure_down() {
    let style = |limit_tenths| StyleLimit { limit_tenths, goal_tenths: 350, ..STYLE_LIMITS[0] };
    assert_eq!(style(800).judge(801), LimitVerdict::Exceeded);
    assert_eq!(style(800).judge(784), LimitVerdict::Within);
    assert_eq!(style(800).judge(783), LimitVerdict::Loose(783));
    assert_eq!(style(800).judge(300), LimitVerdict::Loose(350));
    assert_eq!(style(350).judge(300), LimitVerdict::Within);
}

#[test]
fn findings_of_one_file_are_listed_in_one_line() {
    let place = |path: &str, line| Place { path: path.to_owned(), line, weight: 1, detail: "b".to_owned() };
    let mut places: Vec<Place> = (2..=6).map(|line| place("a.rs", line)).collect();
    places.insert(0, place("0.rs", 1));
    let expected = "  a.rs:2: b; line 3: b; line 4: b; line 5: b; and 1 more\n  0.rs:1: b";
    assert_eq!(list_worst(places), expected);
}

#[test]
fn failure_lists_the_worst_places_and_the_way_out() {
    let style = StyleLimit { limit_tenths: 35, goal_tenths: 0, ..STYLE_LIMITS[0] };
    let place = |weight| Place { path: "a.rs".to_owned(), line: weight, weight, detail: "b".to_owned() };
    let exceeded = Measurement { tenths: 36, places: (2..=23).map(place).collect() };
    let failure = style.find_failure(exceeded).expect("a failure");
    assert!(failure.contains("3.6 %, the limit is 3.5; ") && failure.contains(style.remedy), "{failure}");
    assert!(
        failure.contains("\n  a.rs:23: b\n") && failure.ends_with("\n  a.rs:4: b\n  and 2 others"),
        "{failure}"
    );
    let loose = Measurement { tenths: 12, places: Vec::new() };
    assert!(style.find_failure(loose).expect("a failure").contains("lower its limit_tenths to 12 in "));
}
