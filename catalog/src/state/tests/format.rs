//! Formats of log entries and snapshots: known bytes, and rejection of other versions and unknown fields.

use super::*;

#[test]
fn log_entry_has_known_bytes() {
    let entry = CatalogLogEntry { time: NOW, command: CatalogCommand::RequestSeal { shard: 1 } };
    assert_eq!(entry.encode(), br#"{"format":2,"time":0,"command":{"request_seal":{"shard":1}}}"#);
    assert_eq!(CatalogLogEntry::decode(&entry.encode()).unwrap(), entry);
}

#[test]
fn log_entry_of_other_format_is_rejected_by_name() {
    for format in [1, 3] {
        let bytes = format!(r#"{{"format":{format},"time":0,"command":{{"request_seal":{{"shard":1}}}}}}"#);
        let error = CatalogLogEntry::decode(bytes.as_bytes()).unwrap_err().to_string();
        let expected = format!("catalog command has format {format}, this version reads format 2");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn log_entry_with_unknown_content_is_rejected() {
    for bytes in [
        r#"{"format":2,"time":0,"command":{"melt":{"shard":1}}}"#,
        r#"{"format":2,"time":0,"command":{"request_seal":{"shard":1,"gently":true}}}"#,
        r#"{"format":2,"time":0,"command":{"request_seal":{"shard":1}},"by":3}"#,
        r#"{"format":"x","time":0,"command":{"request_seal":{"shard":1}}}"#,
        r#"{"request_seal":{"shard":1}}"#,
        "[]",
        "{}",
        "",
    ] {
        let error = CatalogLogEntry::decode(bytes.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("run the version of the other voters"), "{bytes}: {error}");
    }
}

#[test]
fn snapshot_with_unknown_or_missing_field_is_rejected() {
    let bytes = String::from_utf8(CatalogState::default().encode()).unwrap();
    assert_eq!(CatalogState::decode(bytes.as_bytes()).unwrap(), CatalogState::default());
    let unknown = bytes.replacen('{', r#"{"moons":[],"#, 1);
    assert!(CatalogState::decode(unknown.as_bytes()).is_err(), "{unknown}");
    let missing = bytes.replacen(r#""data_losses":[],"#, "", 1);
    assert!(missing != bytes && CatalogState::decode(missing.as_bytes()).is_err(), "{missing}");
}
