//! Regular expressions of selectors against those of Go, which Prometheus uses: made patterns, and which values each
//! matches.

use std::process::Command;

use athanor_chassis::Random;
use athanor_integration::report_skipped;
use athanor_profile::Labels;
use athanor_query::Selector;

const PATTERNS: usize = 20_000;
const PIECES: &[&str] = &[
    "a",
    "b",
    "-",
    "&",
    "~",
    "^",
    "$",
    ".",
    "*",
    "+",
    "?",
    "|",
    "(",
    ")",
    "(?:",
    "(?i)",
    "(?-s:",
    "(?P<n>",
    "[",
    "]",
    "[^",
    "[:alpha:]",
    "[:^digit:]",
    "{",
    "}",
    ",",
    "{2}",
    "{0,2}",
    "{1,}",
    "{,2}",
    "{02}",
    "\\",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\b",
    "\\B",
    "\\A",
    "\\z",
    "\\Q",
    "\\E",
    "\\pL",
    "\\P{L}",
    "\\p{^N}",
    "\\x61",
    "\\x{e9}",
    "\\141",
    "\\0",
    "\\1",
    "\\n",
    "\\-",
    "\\]",
    "\\[",
    "\\_",
    "\\<",
    "é",
    "1",
    "\n",
    " ",
    "_",
];
const VALUES: &[&str] = &[
    "", "a", "b", "A", "aa", "ab", "ba", "aab", "-", "&", "&&", "~", "^", "[", "]", "{", "}", "a{,2}",
    "a{02}", "é", "É", "1", "11", "١", "\n", "a\nb", " ", "a b", "_", "\\", "<", "\u{a0}", ".", "?", "a-b",
    "[a]", "\0",
];

/// Reads patterns as JSON, a line each, and prints for each a digit for each value, or a minus where it is refused.
const PROGRAM: &str = r#"package main

import ("bufio"; "encoding/json"; "fmt"; "os"; "regexp")

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	var values []string
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &values); err != nil { panic(err) }
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var pattern string
		if err := json.Unmarshal(lines.Bytes(), &pattern); err != nil { panic(err) }
		compiled, err := regexp.Compile("^(?s:" + pattern + ")$")
		if _, alone := regexp.Compile(pattern); err != nil || alone != nil { fmt.Fprintln(out, "-"); continue }
		for _, value := range values {
			if compiled.MatchString(value) { fmt.Fprint(out, 1) } else { fmt.Fprint(out, 0) }
		}
		fmt.Fprintln(out)
	}
}
"#;

/// What Go says of each pattern; none where there is no Go.
fn of_go(patterns: &[String]) -> Option<Vec<String>> {
    Command::new("go").arg("version").output().ok().filter(|output| output.status.success())?;
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("main.go"), folder.path().join("patterns"));
    std::fs::write(&source, PROGRAM).expect("written");
    let built =
        Command::new("go").arg("build").arg("-o").arg(&program).arg(&source).output().expect("go runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut text = serde_json::to_string(VALUES).expect("JSON");
    for pattern in patterns {
        text.push('\n');
        text.push_str(&serde_json::to_string(pattern).expect("JSON"));
    }
    let input = folder.path().join("patterns.json");
    std::fs::write(&input, text).expect("written");
    let input = std::fs::File::open(&input).expect("readable");
    let output = Command::new(&program).stdin(input).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("digits").lines().map(str::to_owned).collect())
}

fn quoted(pattern: &str) -> String {
    pattern.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn ours(pattern: &str) -> String {
    let Ok(selector) = format!("{{v=~\"{}\"}}", quoted(pattern)).parse::<Selector>() else {
        return "-".into();
    };
    let labels = |value: &str| Labels::new([("v".to_owned(), value.to_owned())]);
    VALUES.iter().map(|value| if selector.matches(&labels(value)) { '1' } else { '0' }).collect()
}

#[test]
fn made_patterns_match_what_they_match_in_go() {
    let random = Random::from_seed(11);
    let one = |_| {
        let pieces = 1 + random.next_below(7);
        (0..pieces).map(|_| PIECES[random.next_below(PIECES.len() as u64) as usize]).collect::<String>()
    };
    // Go repeats what stands before flags, though the sign stands behind them; we refuse that.
    let is_odd =
        |pattern: &String| ["(?i)*", "(?i)+", "(?i)?", "(?i){"].iter().any(|odd| pattern.contains(odd));
    let patterns: Vec<String> = (0..PATTERNS).map(one).filter(|pattern| !is_odd(pattern)).collect();
    let Some(expected) = of_go(&patterns) else {
        return report_skipped("no Go to compare regular expressions with", "");
    };
    assert_eq!(expected.len(), patterns.len());
    let sound = expected.iter().filter(|line| *line != "-").count();
    assert!(sound > PATTERNS / 10, "only {sound} patterns are sound");
    let different = patterns.iter().zip(&expected).map(|(pattern, line)| (pattern, line, ours(pattern)));
    let different: Vec<_> = different.filter(|(_, line, ours)| *line != ours).collect();
    let shown: Vec<String> = different
        .iter()
        .take(20)
        .map(|(pattern, line, ours)| format!("{pattern:?}\n  go   {line}\n  ours {ours}"))
        .collect();
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), shown.join("\n"));
}
