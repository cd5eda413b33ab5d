//! Explanations of targets.

use athanor_profile::Labels;

use super::super::{build_targets, explain_target};
use super::{group, job, labels};

const RULES: &str = "relabel_configs: [\
    {source_labels: [__meta_role], target_label: role}, \
    {regex: team, action: labeldrop}, \
    {source_labels: [role], regex: web, action: keep}, \
    {target_label: last, replacement: x}]";

#[test]
fn each_rule_shows_the_labels_after_it() {
    let target = labels(&[("__address__", "a:1"), ("__meta_role", "web"), ("team", "red")]);
    let explained = explain_target(&job(RULES), &group(vec![target.clone()]), &target, &Labels::default());
    let changes: Vec<String> = explained
        .rules
        .iter()
        .map(|rule| {
            let changes: Vec<String> =
                rule.changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} {}", rule.number, changes.join(","))
        })
        .collect();
    assert_eq!(changes, ["1 role=web", "2 team=", "3 ", "4 last=x"]);
    assert_eq!(explained.rules[1].labels.as_ref().unwrap().get("team"), None);
    assert!(explained.rules[0].rule.contains("__meta_role"));
    let targets = explained.result.unwrap();
    assert_eq!(targets[0].labels.get("last"), Some("x"));
    assert_eq!(explained.discovered.get("job"), Some("app"));
}

#[test]
fn explanation_of_a_dropped_target_ends_with_its_rule() {
    let target = labels(&[("__address__", "a:1"), ("__meta_role", "db")]);
    let explained = explain_target(&job(RULES), &group(vec![target.clone()]), &target, &Labels::default());
    let last = explained.rules.last().unwrap();
    assert_eq!((explained.rules.len(), last.number, &last.labels), (3, 3, &None));
    let reason = explained.result.unwrap_err();
    assert!(reason.to_string().starts_with("dropped by rule 3 of relabel_configs"), "{reason}");
    let built = build_targets(&job(RULES), &[group(vec![target])], &Labels::default());
    assert_eq!(built.dropped[0].reason, reason);
}
