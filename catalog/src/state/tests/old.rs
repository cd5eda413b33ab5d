//! What folders hold that were written before there were members, phases and tables: bytes as they lie there.

use super::*;

const SNAPSHOT: &str = r#"{"revision":9,"shards":{"1":{"id":1,"slot":0,"epoch":1,"watermark":10},"2":{"id":2,"slot":1,"epoch":1,"watermark":0}},"blocks":{"00000000000000000000000000000001":{"id":"00000000000000000000000000000001","shard":1,"epoch":1,"from":0,"to":10,"bytes":1,"samples":1,"lost":0,"tenants":[{"tenant":"anonymous","min_time":5,"max_time":9,"profiles":1}]}},"condemned":{"00000000000000000000000000000007":5},"scars":[{"since":4,"wound":{"ids":{"shard":1,"to":6}}}]}"#;
const BLOCK: &str = r#"{"id":"00000000000000000000000000000001","shard":1,"epoch":1,"from":0,"to":10,"bytes":1,"samples":1,"lost":0,"tenants":[{"tenant":"anonymous","min_time":5,"max_time":9,"profiles":1}]}"#;

#[test]
fn a_snapshot_of_a_node_that_was_alone_is_read() {
    let state = CatalogState::decode(SNAPSHOT.as_bytes()).unwrap();
    state.check().unwrap();
    let view = state.routing_view();
    let shard = &view.shards[0];
    assert_eq!((shard.watermark, &shard.phase, shard.fenced), (10, &ShardPhase::Open, 1));
    assert!(shard.members.is_empty(), "whoever has its log is its member");
    let table = view.tables.unwrap();
    assert_eq!((table.table_at(0).version(), table.table_at(0).slots()), (1, &[0, 1][..]));
    assert_eq!(view.settings.copies, 1);
    assert_eq!(CatalogState::decode(&state.encode()).unwrap(), state);
    let empty = r#"{"revision":0,"shards":{},"blocks":{},"condemned":{}}"#;
    assert_eq!(CatalogState::decode(empty.as_bytes()).unwrap(), CatalogState::default());
}

#[test]
fn commands_without_an_envelope_are_read() {
    let at = Timestamp::from_nanos(5);
    let id = BlockId::from_number(1);
    let open = CatalogCommand::OpenSlots { count: 3, members: Vec::new(), zones: BTreeMap::new() };
    let old = [
        (r#"{"open_slots":{"count":3}}"#.to_owned(), NOW, open),
        (
            r#"{"open_shard":{"slot":2}}"#.to_owned(),
            NOW,
            CatalogCommand::OpenShard { slot: 2, members: [].into() },
        ),
        (
            format!(r#"{{"register":{{"block":{BLOCK},"at":5}}}}"#),
            at,
            CatalogCommand::Register { block: block(1, 0, 10) },
        ),
        (
            r#"{"raise":{"shard":1,"to":10,"at":5}}"#.to_owned(),
            at,
            CatalogCommand::Raise { shard: 1, to: 10 },
        ),
        (
            format!(r#"{{"recall":{{"block":{BLOCK}}}}}"#),
            NOW,
            CatalogCommand::Recall { block: block(1, 0, 10) },
        ),
        (
            r#"{"close":{"shard":1,"from":2,"to":3}}"#.to_owned(),
            NOW,
            CatalogCommand::Close { shard: 1, from: 2, to: 3 },
        ),
        (
            r#"{"mark":{"wound":{"unknown":{"from":2,"to":9}},"at":5}}"#.to_owned(),
            at,
            CatalogCommand::Mark { wound: DataLoss::Unknown { from: 2, to: 9 } },
        ),
        (r#"{"heal":{"before":5}}"#.to_owned(), NOW, CatalogCommand::Heal { before: at }),
        (
            format!(r#"{{"condemn":{{"blocks":["{id}"],"at":5}}}}"#),
            at,
            CatalogCommand::Condemn { blocks: vec![id] },
        ),
        (r#"{"forget":{"at":5}}"#.to_owned(), at, CatalogCommand::Forget),
    ];
    for (bytes, at, command) in old {
        assert_eq!(
            CatalogLogEntry::decode(bytes.as_bytes()).unwrap(),
            CatalogLogEntry { at, command },
            "{bytes}"
        );
    }
}

/// The log of a node that was alone, from its first entry on, makes what it made.
#[test]
fn an_old_log_opens_what_it_opened() {
    let mut state = CatalogState::default();
    for bytes in
        [r#"{"open_slots":{"count":2}}"#, r#"{"open_shard":{"slot":4}}"#, r#"{"open_slots":{"count":9}}"#]
    {
        let CatalogLogEntry { at, command } = CatalogLogEntry::decode(bytes.as_bytes()).unwrap();
        state.apply(at, command);
    }
    let shards = state.routing_view().shards;
    assert_eq!(shards.iter().map(|shard| shard.id).collect::<Vec<_>>(), [1, 2, 5]);
    assert!(shards.iter().all(|shard| shard.phase == ShardPhase::Open && shard.members.is_empty()));
    assert_eq!(state.routing_view().tables.unwrap().table_at(0).slots(), [0, 1, 4]);
}

#[test]
fn what_is_not_known_is_an_error() {
    let error = |bytes: &str| CatalogLogEntry::decode(bytes.as_bytes()).unwrap_err().to_string();
    let known = CatalogLogEntry { at: NOW, command: CatalogCommand::Stop { shard: 1 } };
    assert_eq!(known.encode(), br#"{"format":1,"at":0,"command":{"stop":{"shard":1}}}"#);
    let later = error(r#"{"format":2,"at":0,"command":{"stop":{"shard":1}}}"#);
    assert!(
        later.starts_with("the command is written in format 2, this version reads formats up to 1"),
        "{later}"
    );
    for bytes in [
        r#"{"format":1,"at":0,"command":{"melt":{"shard":1}}}"#,
        r#"{"format":1,"at":0,"command":{"stop":{"shard":1,"gently":true}}}"#,
        r#"{"format":1,"at":0,"command":{"stop":{"shard":1}},"by":3}"#,
        r#"{"format":"x","at":0,"command":{"stop":{"shard":1}}}"#,
        r#"{"melt":{"at":4}}"#,
        r#"{"heal":{"before":5,"at":4,"after":3}}"#,
        "[]",
        "{}",
        "",
    ] {
        assert!(error(bytes).contains("run the version of the other voters"), "{bytes}");
    }
    assert!(
        CatalogState::decode(br#"{"revision":0,"shards":{},"blocks":{},"condemned":{},"moons":[]}"#).is_err()
    );
}
