use super::*;

/// Which of the values a pattern matches as a whole; none where it is refused.
fn matched<'a>(pattern: &str, values: &[&'a str]) -> Option<Vec<&'a str>> {
    let translated = translate(pattern, None).ok()?;
    let regex = Regex::new(&format!("^(?s:{translated})$")).expect("what is written is sound");
    Some(values.iter().filter(|value| regex.is_match(value)).copied().collect())
}

#[test]
fn each_piece_means_what_it_means_to_prometheus() {
    let values = ["a", "b", "&", "-", "[", "é", "_", "1", "١", "x{,5}", "xx", "a\nb", "K", "^", "]"];
    let cases: &[(&str, &[&str])] = &[
        ("[a&&b]", &["a", "b", "&"]),
        ("[[a]", &["a", "["]),
        ("[^[]", &["a", "b", "&", "-", "é", "_", "1", "١", "K", "^", "]"]),
        ("[]a]", &["a", "]"]),
        ("[a\\-]", &["a", "-"]),
        ("[a-]", &["a", "-"]),
        ("[[:alpha:]_]", &["a", "b", "_", "K"]),
        ("[[:^alpha:]]", &["&", "-", "[", "é", "_", "1", "١", "^", "]"]),
        ("\\w", &["a", "b", "_", "1", "K"]),
        ("[\\W]", &["&", "-", "[", "é", "١", "^", "]"]),
        ("\\d", &["1"]),
        ("\\pN", &["1", "١"]),
        ("\\p{^L}", &["&", "-", "[", "_", "1", "١", "^", "]"]),
        ("\\Qx{,5}\\E", &["x{,5}"]),
        ("x{,5}", &["x{,5}"]),
        ("x{2}", &["xx"]),
        ("a.b", &["a\nb"]),
        ("(?-s:a.b)", &[]),
        ("(?i)A|k", &["a", "K"]),
        ("(?P<one>a)|(?<two>b)", &["a", "b"]),
        ("\\x61|\\x{62}|\\137", &["a", "b", "_"]),
        ("\\_|\\&", &["&", "_"]),
        ("\\ba\\b", &["a"]),
    ];
    for (pattern, expected) in cases {
        assert_eq!(matched(pattern, &values).as_deref(), Some(*expected), "{pattern}");
    }
}

#[test]
fn what_prometheus_refuses_is_refused() {
    for pattern in [
        "a**",
        "a*+",
        "a{2}{3}",
        "*",
        "(*a)",
        "a|*",
        "(?x)a",
        "(?u)a",
        "(?i",
        "(?i-)a",
        "(",
        ")",
        "[",
        "[a",
        "[z-a]",
        "[[:alfa:]]",
        "[a-\\d]",
        "\\",
        "\\1",
        "\\E",
        "\\u0041",
        "\\xg",
        "\\x{110000}",
        "\\p{",
        "\\p{a b}",
        "a{1001}",
        "a{3,2}",
        "(?P<>a)",
        "(?=a)",
        "\\Z",
    ] {
        let translated = translate(pattern, None);
        assert!(translated.is_err(), "{pattern} became {translated:?}");
    }
}

#[test]
fn error_of_compiler_has_position() {
    let position = |pattern: &str| {
        let partial = compile_partial_match(pattern).unwrap_err().position;
        assert_eq!(compile_full_match(pattern).unwrap_err().position, partial, "{pattern}");
        assert_eq!(compile_with_groups(pattern).unwrap_err().position, partial, "{pattern}");
        partial
    };
    assert_eq!(position("a\\p{Nope}"), Some(9));
    assert_eq!(position("(ä)[b\\p{Nope}]\\pN"), Some(14));
    let deep = format!("{}{}", "(".repeat(60), ")".repeat(60));
    let deep = compile_partial_match(&deep).unwrap_err().position;
    assert!(deep.is_some_and(|position| position <= 60), "{deep:?}");
    assert_eq!(position("(a{1000}){1000}"), None, "no character is wrong");
}
