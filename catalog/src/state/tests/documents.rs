//! Notes of tenants: written only over what is expected, and within bounds.

use super::*;

fn document(state: &mut CatalogState, expected: Option<&str>, text: Option<&str>) -> CommandResult {
    let (expected, text) = (expected.map(str::to_owned), text.map(str::to_owned));
    let (tenant, name) = (TenantId::anonymous(), "a".to_owned());
    state.apply(
        NOW.plus(Duration::from_secs(7)),
        CatalogCommand::PutTenantDocument { tenant, name, expected, text },
    )
}

#[test]
fn who_expects_something_else_changes_nothing() {
    let mut state = CatalogState::default();
    let changed = CommandResult::Refused(CommandError::DocumentChanged { name: "a".to_owned() });
    assert_eq!(document(&mut state, None, None), CommandResult::Changed(0));
    assert_eq!(document(&mut state, None, Some("one")), CommandResult::Changed(1));
    assert_eq!(document(&mut state, None, Some("one")), CommandResult::Changed(0), "again changes nothing");
    assert_eq!(document(&mut state, None, Some("two")), changed);
    assert_eq!(document(&mut state, Some("one"), Some("two")), CommandResult::Changed(1));
    let documents = state.tenant_documents(&TenantId::anonymous());
    assert_eq!(
        documents["a"],
        TenantDocument { text: "two".to_owned(), updated_at: NOW.plus(Duration::from_secs(7)) }
    );
    assert!(state.tenant_documents(&"other".parse().unwrap()).is_empty());
    assert_eq!(CatalogState::decode(&state.encode()).unwrap(), state);
    assert_eq!(document(&mut state, Some("one"), None), changed);
    assert_eq!(document(&mut state, Some("two"), None), CommandResult::Changed(1));
    assert_eq!(document(&mut state, Some("two"), None), CommandResult::Changed(0));
    assert_eq!(state.documents.len(), 0);
}

#[test]
fn documents_are_bounded() {
    let mut state = CatalogState::default();
    let long = "x".repeat(MAX_DOCUMENT_BYTES);
    let refused = |answer: CommandResult| matches!(answer, CommandResult::Refused(_));
    assert_eq!(
        document(&mut state, None, Some(&long)),
        CommandResult::Refused(CommandError::DocumentTooLarge { seen: MAX_DOCUMENT_BYTES + 1 })
    );
    let mut add = |tenant: String, name: usize, text: &str| {
        let (tenant, name) = (tenant.parse().unwrap(), name.to_string());
        state.apply(
            NOW,
            CatalogCommand::PutTenantDocument { tenant, name, expected: None, text: Some(text.to_owned()) },
        )
    };
    let count = (0..2_000).take_while(|name| !refused(add("many".to_owned(), *name, "x"))).count();
    assert_eq!(count, MAX_DOCUMENTS_PER_TENANT);
    let long = "x".repeat(MAX_DOCUMENT_BYTES - 10);
    let count = (0..100).take_while(|name| !refused(add("large".to_owned(), *name, &long))).count();
    assert_eq!(count, MAX_DOCUMENT_BYTES_PER_TENANT / (MAX_DOCUMENT_BYTES - 10));
    let count = (0..1_000).take_while(|at| !refused(add(format!("t{}", at / 15), at % 15, &long))).count();
    assert!(count > 200 && count < MAX_TOTAL_DOCUMENT_BYTES / (MAX_DOCUMENT_BYTES - 10), "{count}");
    state.check().unwrap();
}

#[test]
fn notes_come_back_with_the_snapshot() {
    let mut state = CatalogState::default();
    document(&mut state, None, Some("one"));
    let (rebuilt, _) =
        CatalogState::recover(RecoveryInput { snapshot: Some(state.clone()), ..RecoveryInput::default() })
            .unwrap();
    assert_eq!(
        rebuilt.tenant_documents(&TenantId::anonymous()),
        state.tenant_documents(&TenantId::anonymous())
    );
}
