use proptest::prelude::*;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

/// What becomes of labels; none where they are dropped.
fn relabelled(rules: serde_json::Value, sent: &[(&str, &str)]) -> Option<Labels> {
    let rules = parse_rules(rules.as_array().expect("a list")).expect("the rules are sound");
    apply(&rules, &labels(sent)).expect("they are few")
}

/// Checks that the labels stay, and that these are set beside them; an empty value is one that goes.
fn sets(rules: serde_json::Value, sent: &[(&str, &str)], changed: &[(&str, &str)]) {
    let mut expected = labels(sent);
    changed.iter().for_each(|(name, value)| expected.set(name, value));
    assert_eq!(relabelled(rules.clone(), sent), Some(expected), "{rules}");
}

/// Inputs and outputs are those of Prometheus's own tests.
#[test]
fn values_are_replaced_as_prometheus_replaces_them() {
    let (one, abc) = ([("a", "foo")], [("a", "foo"), ("b", "bar"), ("c", "baz")]);
    let lines = [("a", "line1\nline2"), ("b", "bar"), ("c", "baz")];
    let tags = [("__meta_sd_tags", "path:/secret,job:some-job,label:foo=bar")];
    let replace = |source: &str, regex: &str, target: &str, with: &str| json!({"source_labels": [source], "regex": regex, "target_label": target, "replacement": with});
    sets(json!([replace("a", "f(.*)", "d", "ch${1}-ch${1}")]), &abc, &[("d", "choo-choo")]);
    let twice = json!([
        {"source_labels": ["a", "b"], "regex": "f(.*);(.*)r", "target_label": "a", "replacement": "b${1}${2}m"},
        {"source_labels": ["c", "a"], "regex": "(b).*b(.*)ba(.*)", "target_label": "d", "replacement": "$1$2$2$3"},
    ]);
    sets(twice, &abc, &[("a", "boobam"), ("d", "boooom")]);
    sets(json!([replace("a", ".*(b).*", "d", "$1")]), &[("a", "abc")], &[("d", "b")]);
    sets(json!([replace("a", "f", "b", "bar")]), &[("a", "boo")], &[]);
    sets(json!([replace("a", "(f).*", "$1", "$2")]), &[("a", "foo"), ("f", "baz")], &[("f", "")]);
    let some = "some-([^-]+)-([^,]+)";
    sets(json!([replace("a", some, "${1}", "${2}")]), &[("a", "some-name-value")], &[("name", "value")]);
    sets(json!([replace("a", some, "${1}", "${3}")]), &[("a", "some-name-value")], &[]);
    sets(json!([replace("a", some, "${3}", "${1}")]), &[("a", "some-name-0")], &[]);
    let of_tags = json!([
        replace("__meta_sd_tags", "(?:.+,|^)path:(/[^,]+).*", "__metrics_path__", "${1}"),
        replace("__meta_sd_tags", "(?:.+,|^)job:([^,]+).*", "job", "${1}"),
        replace("__meta_sd_tags", "(?:.+,|^)label:([^=]+)=([^,]+).*", "${1}", "${2}"),
    ]);
    sets(of_tags, &tags, &[("__metrics_path__", "/secret"), ("job", "some-job"), ("foo", "bar")]);
    for target in ["d", "utf-8.label", "utf-8.label${1}"] {
        let changed = [(target.trim_end_matches("${1}"), "match")];
        sets(json!([replace("a", "line1.*line2", target, "match${1}")]), &lines, &changed);
    }
    let second = "(line1).*(?<second>line2)";
    let named =
        json!([replace("a", second, "l1_${1}", "v_${second}"), replace("a", second, "l2_$1", "v_$second")]);
    sets(named, &lines, &[("l1_line1", "v_line2"), ("l2_line1", "v_line2")]);
    let total = [("__name__", "http_requests_total")];
    sets(
        json!([replace("__name__", ".*_total$", "__type__", "counter")]),
        &total,
        &[("__type__", "counter")],
    );
    sets(json!([{"target_label": "d", "replacement": "static"}]), &one, &[("d", "static")]);
}

#[test]
fn series_are_kept_and_dropped_as_prometheus_does_it() {
    let ports = [("__tmp_port", "1234"), ("__port1", "1234"), ("__port2", "5678")];
    for (action, regex, stays) in [
        ("drop", ".*o.*", false),
        ("drop", "no-match", true),
        ("drop", "f|o", true),
        ("keep", "no-match", false),
        ("keep", "f.*", true),
        ("KEEP", "(foo", true),
    ] {
        let regex = regex.trim_start_matches('(');
        let rules = json!([{"source_labels": ["a"], "regex": regex, "action": action}]);
        assert_eq!(relabelled(rules, &[("a", "foo")]).is_some(), stays, "{action} {regex}");
    }
    for (action, target, stays) in [
        ("keepequal", "__port1", true),
        ("dropequal", "__port1", false),
        ("dropequal", "__port2", true),
        ("keepequal", "__port2", false),
    ] {
        let rules = json!([{"source_labels": ["__tmp_port"], "action": action, "target_label": target}]);
        assert_eq!(relabelled(rules, &ports).is_some(), stays, "{action} {target}");
    }
}

#[test]
fn labels_are_copied_and_dropped_by_name_as_prometheus_does_it() {
    let b = [("a", "foo"), ("b1", "bar"), ("b2", "baz")];
    let by_name = |action: &str| json!([{"regex": "(b.*)", "action": action}]);
    sets(by_name("labeldrop"), &b, &[("b1", ""), ("b2", "")]);
    sets(by_name("labelkeep"), &b, &[("a", "")]);
    let map = json!([{"regex": "(b.*)", "replacement": "bar_${1}", "action": "labelmap"}]);
    sets(map, &b, &[("bar_b1", "bar"), ("bar_b2", "baz")]);
    let meta = [("a", "foo"), ("__meta_my_bar", "aaa"), ("__meta_my_baz", "bbb"), ("__meta_other", "ccc")];
    let map = json!([{"regex": "__meta_(my.*)", "replacement": "${1}", "action": "labelmap"}]);
    sets(map, &meta, &[("my_bar", "aaa"), ("my_baz", "bbb")]);
    let (name, port) = ("__meta_container_port_name", "__meta_annotation_metrics_port");
    let set_again = json!([
        {"regex": format!("^{name}$"), "action": "labeldrop"},
        {"source_labels": [port], "regex": "(.+)", "replacement": "metrics", "target_label": name},
        {"source_labels": [name], "regex": "^metrics$", "action": "keep"},
    ]);
    sets(set_again, &[(name, "foo"), (port, "9091")], &[(name, "metrics")]);
}

#[test]
fn values_are_hashed_and_changed_in_case_as_prometheus_does_it() {
    let hash = json!([{"source_labels": ["c"], "target_label": "d", "action": "hashmod", "modulus": 1000}]);
    sets(hash.clone(), &[("c", "baz")], &[("d", "976")]);
    sets(hash, &[("c", "foo\nbar")], &[("d", "734")]);
    let cases = json!([
        {"source_labels": ["foo"], "action": "Uppercase", "target_label": "upper"},
        {"source_labels": ["foo"], "action": "lowercase", "target_label": "lower"},
    ]);
    sets(cases.clone(), &[("foo", "bAr123Foo")], &[("upper", "BAR123FOO"), ("lower", "bar123foo")]);
    sets(cases, &[("foo", "ßǰİῳᾳᾀ")], &[("upper", "ßǰİῼᾼᾈ"), ("lower", "ßǰiῳᾳᾀ")]);
}

#[test]
fn an_expression_without_text_matches_what_is_empty() {
    for (rule, changed) in [(json!({"regex": null}), true), (json!({"regex": ""}), true), (json!({}), false)]
    {
        let mut rule = rule;
        (rule["source_labels"], rule["action"]) = (json!(["a"]), json!("keep"));
        assert_eq!(relabelled(json!([rule]), &[("a", "x")]).is_none(), changed);
    }
}

#[test]
fn of_names_that_become_one_that_was_set_last_wins() {
    let rules = json!([
        {"target_label": "a", "replacement": "set"},
        {"regex": "a|b", "replacement": "c", "action": "labelmap"},
    ]);
    sets(rules, &[("a", "1"), ("b", "2")], &[("a", "set"), ("c", "set")]);
}

#[test]
fn what_dollars_mean_follows_from_what_stands_behind_them() {
    for (replacement, expected) in [
        ("$1x", "nothing is called 1x"),
        ("${1}x", "ABx"),
        ("$$1", "$1"),
        ("$", "$"),
        ("${", "${"),
        ("${}", "${}"),
        ("$-", "$-"),
        ("${1", "${1"),
        ("$0", "ABC"),
        ("$00", ""),
        ("$01", ""),
        ("$7", ""),
        ("$99999999999999999999", ""),
        ("$n-$m", "AB-"),
        ("$é", ""),
    ] {
        let rule = json!([{"source_labels": ["a"], "regex": "(?P<n>AB)C|(?P<n>X)", "target_label": "b", "replacement": format!("<{replacement}>")}]);
        let expected = if expected.starts_with("nothing") { "" } else { expected };
        sets(rule, &[("a", "ABC")], &[("b", &format!("<{expected}>"))]);
    }
}

#[test]
fn rules_that_are_wrong_name_the_culprit() {
    for (rule, expected) in [
        (
            json!({"action": "replce"}),
            "rule 2: action is \"replce\": unknown action; use replace, keep, drop, ",
        ),
        (json!({}), "rule 2: target_label is \"\": replace needs a target label; set target_label"),
        (
            json!({"target_label": "a", "regex": "("}),
            "rule 2: regex is \"(\": a group is not closed: ) is missing",
        ),
        (
            json!({"target_label": "a", "action": "hashmod"}),
            "rule 2: modulus is \"0\": hashmod needs a modulus",
        ),
        (
            json!({"action": "labelmap", "replacement": ""}),
            "rule 2: replacement is \"\": labelmap needs the new name",
        ),
        (
            json!({"action": "lowercase", "target_label": "a", "replacement": "b"}),
            "rule 2: replacement is \"b\": ",
        ),
        (
            json!({"action": "labeldrop", "source_labels": ["a", "b"]}),
            "rule 2: source_labels is \"a, b\": labeldrop does not use",
        ),
        (
            json!({"action": "labelkeep", "separator": ","}),
            "rule 2: separator is \",\": labelkeep does not use the field",
        ),
        (
            json!({"action": "dropequal", "target_label": "a", "regex": "(.*)"}),
            "rule 2: regex is \"(.*)\": dropequal",
        ),
        (
            json!({"action": "keepequal", "target_label": "a", "modulus": 1}),
            "rule 2: modulus is \"1\": keepequal",
        ),
        (
            json!({"action": "drop", "source_labels": [""]}),
            "rule 2: source_labels is \"\": label names must not be empty",
        ),
        (json!({"sources": ["a"]}), "rule 2: unknown field `sources`, expected one of `source_labels`"),
        (
            json!({"target_label": "a", "action": "uppercase", "regex": "*"}),
            "rule 2: regex is \"*\": nothing to repeat before",
        ),
        (json!({"regex": 5}), "rule 2: invalid type: integer `5`, expected a string"),
        (json!("drop"), "rule 2: invalid type: string \"drop\", expected a rule, such as {action: labeldrop"),
    ] {
        let error = parse_rules(&[json!({"action": "labeldrop", "regex": "pod"}), rule.clone()])
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(expected), "{rule}: {error}");
    }
    let many = vec![json!({"action": "labeldrop", "regex": "pod"}); MAX_RULES_PER_TENANT + 1];
    assert_eq!(
        parse_rules(&many).unwrap_err(),
        RelabelRuleError::TooMany { count: MAX_RULES_PER_TENANT + 1 }
    );
}

#[test]
fn what_go_clients_subtract_is_known_by_its_plain_name() {
    let named = |name: &str| apply(default_rules(), &labels(&[("__name__", name)])).unwrap().unwrap();
    assert_eq!(
        named("godeltaprof_memory").to_string(),
        "{__delta__=\"false\", __name__=\"memory\", __name_replaced__=\"godeltaprof_memory\"}"
    );
    for name in ["godeltaprof_", "memory", "my_godeltaprof_memory"] {
        assert_eq!(named(name), labels(&[("__name__", name)]));
    }
}

#[test]
fn labels_do_not_grow_without_end() {
    let doubled = |_| json!({"source_labels": ["a", "a"], "separator": "", "target_label": "a"});
    let copied = |rule| json!({"regex": "(.+)", "replacement": format!("x{rule}_$1"), "action": "labelmap"});
    let grown = |rules: Vec<serde_json::Value>| {
        apply(&parse_rules(&rules).expect("they are sound"), &labels(&[("a", "value")]))
            .map(|_| ())
            .unwrap_err()
    };
    for error in
        [grown((0..MAX_RULES_PER_TENANT).map(doubled).collect()), grown((0..50).map(copied).collect())]
    {
        assert!(
            error.labels < 3 * MAX_LABELS_DURING_RELABEL && error.bytes < 3 * MAX_LABEL_BYTES_DURING_RELABEL,
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn any_rule_is_taken_or_refused(
        action in "replace|keep|drop|hashmod|labelmap|labeldrop|labelkeep|uppercase|keepequal|x",
        regex in "[ab.*+(|)$^\\[\\]{}?\\\\]{0,8}",
        target in "[a$1{}]{0,5}",
        replacement in "[a$1{}é]{0,8}",
        value in "[ab\n]{0,6}",
    ) {
        let rule = json!({"action": action, "source_labels": ["a"], "regex": regex, "target_label": target, "replacement": replacement, "modulus": 3});
        if let Ok(rules) = parse_rules(&[rule]) {
            let _ = apply(&rules, &labels(&[("a", &value), ("b", "1")]));
        }
    }
}
