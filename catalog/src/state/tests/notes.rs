//! Notes of tenants: written only over what is expected, and within bounds.

use super::*;

fn note(state: &mut State, expected: Option<&str>, text: Option<&str>) -> Answer {
    let (expected, text) = (expected.map(str::to_owned), text.map(str::to_owned));
    let (tenant, name) = (TenantId::anonymous(), "a".to_owned());
    state.apply(NOW.plus(Duration::from_secs(7)), Command::Note { tenant, name, expected, text })
}

#[test]
fn who_expects_something_else_changes_nothing() {
    let mut state = State::default();
    let changed = Answer::Refused(Refused::NoteChanged { name: "a".to_owned() });
    assert_eq!(note(&mut state, None, None), Answer::Changed(0));
    assert_eq!(note(&mut state, None, Some("one")), Answer::Changed(1));
    assert_eq!(note(&mut state, None, Some("one")), Answer::Changed(0), "again changes nothing");
    assert_eq!(note(&mut state, None, Some("two")), changed);
    assert_eq!(note(&mut state, Some("one"), Some("two")), Answer::Changed(1));
    let notes = state.notes(&TenantId::anonymous());
    assert_eq!(notes["a"], Note { text: "two".to_owned(), at: NOW.plus(Duration::from_secs(7)) });
    assert!(state.notes(&"other".parse().unwrap()).is_empty());
    assert_eq!(State::decode(&state.encode()).unwrap(), state);
    assert_eq!(note(&mut state, Some("one"), None), changed);
    assert_eq!(note(&mut state, Some("two"), None), Answer::Changed(1));
    assert_eq!(note(&mut state, Some("two"), None), Answer::Changed(0));
    assert!(!String::from_utf8(state.encode()).unwrap().contains("notes"), "as before there were any");
}

#[test]
fn notes_are_bounded() {
    let mut state = State::default();
    let long = "x".repeat(MAX_NOTE);
    let refused = |answer: Answer| matches!(answer, Answer::Refused(_));
    assert_eq!(
        note(&mut state, None, Some(&long)),
        Answer::Refused(Refused::LongNote { seen: MAX_NOTE + 1 })
    );
    let mut add = |tenant: String, name: usize, text: &str| {
        let (tenant, name) = (tenant.parse().unwrap(), name.to_string());
        state.apply(NOW, Command::Note { tenant, name, expected: None, text: Some(text.to_owned()) })
    };
    let count = (0..2_000).take_while(|name| !refused(add("many".to_owned(), *name, "x"))).count();
    assert_eq!(count, MAX_NOTES);
    let long = "x".repeat(MAX_NOTE - 10);
    let count = (0..100).take_while(|name| !refused(add("large".to_owned(), *name, &long))).count();
    assert_eq!(count, MAX_TENANT_NOTES / (MAX_NOTE - 10));
    let count = (0..1_000).take_while(|at| !refused(add(format!("t{}", at / 15), at % 15, &long))).count();
    assert!(count > 200 && count < MAX_ALL_NOTES / (MAX_NOTE - 10), "{count}");
    state.check().unwrap();
}

#[test]
fn notes_come_back_with_the_snapshot() {
    let mut state = State::default();
    note(&mut state, None, Some("one"));
    let (rebuilt, _) =
        State::rebuilt(Remains { snapshot: Some(state.clone()), ..Remains::default() }).unwrap();
    assert_eq!(rebuilt.notes(&TenantId::anonymous()), state.notes(&TenantId::anonymous()));
}
