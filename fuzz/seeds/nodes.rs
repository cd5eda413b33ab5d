//! Messages between nodes, and files that they store.

use std::collections::BTreeMap;
use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{BlockId, CatalogCommand, CatalogLogEntry, CatalogState, RoutingView};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{Clock, Disk, Timestamp};
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_consensus::StateMachine;
use athanor_ingester::{DedupWindow, RunFiles, ShardLogEntry, ShardStateMachine};
use athanor_profile::encoding::codec::{put_bytes, put_varint};
use athanor_proto::athanor::internal::v1::raft_frame::Frame;
use athanor_proto::athanor::internal::v1::{
    Continuation, Hello, RaftCall, RaftFrame, RaftResponse, RpcStatus,
};
use bytes::Bytes;
use prost::Message;

pub fn seeds(save: &impl Fn(&str, &str, &[u8]) -> Result<()>) -> Result<()> {
    for (number, stream) in frames().iter().enumerate() {
        save("internal-frames", &format!("seed-{number}"), stream)?;
    }
    for (number, message) in raft_messages().iter().enumerate() {
        save("raft-messages", &format!("seed-{number}"), message)?;
    }
    catalogue(save)?;
    shard(save)
}

/// Commands, an empty catalogue, and what nodes are told of one.
fn catalogue(save: &impl Fn(&str, &str, &[u8]) -> Result<()>) -> Result<()> {
    let commands = [
        CatalogCommand::OpenSlots {
            count: 3,
            members: vec![[1].into(), [2].into()],
            zones: [(1, "a".into())].into(),
        },
        CatalogCommand::OpenShard { slot: 1, members: [1, 2].into() },
        CatalogCommand::AddVoter { node: 4, address: "127.0.0.1:9".into() },
        CatalogCommand::ExpireTombstones,
    ];
    let time = Timestamp::from_seconds(1_800_000_000);
    let mut state = CatalogState::default();
    for (number, command) in commands.into_iter().enumerate() {
        let logged = CatalogLogEntry { time, command: command.clone() }.encode();
        save("catalogue", &format!("command-{number}"), &[&[0][..], &logged].concat())?;
        state.apply(time, command);
        save("catalogue", &format!("state-{number}"), &[&[1][..], &state.encode()].concat())?;
    }
    let view = zstd::encode_all(&serde_json::to_vec(&RoutingView::default())?[..], 1)?;
    save("catalogue", "view", &[&[2][..], &view].concat())?;
    save("catalogue", "zeros", &[&[3][..], &zstd::encode_all(&[0u8; 4 << 20][..], 1)?].concat())
}

/// Messages between raft members, and their stored state, each after a byte with its kind.
fn raft_messages() -> Vec<Vec<u8>> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let bytes = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    let id = |term: u64, index: u64| [&[1][..], &words(&[term, index])].concat();
    let vote = [&words(&[4])[..], &[1], &words(&[2]), &[1]].concat();
    // Two configurations and learners.
    let members =
        [&[2 | 0x80, 2][..], &words(&[1, 2]), &[3], &words(&[1, 2, 3]), &[1], &words(&[4])].concat();
    let entry = |index: u64, payload: &[u8]| [&words(&[3, index])[..], &bytes(payload)].concat();
    let payload = |kind: u8, rest: &[u8]| [&b"\xa7athraft"[..], &[kind], rest].concat();
    let entries =
        [entry(9, b""), entry(10, b"x"), entry(11, &payload(1, b"")), entry(12, &payload(2, &members))];
    let append = [&[1][..], &vote, &id(3, 8), &id(2, 7), &4u32.to_le_bytes(), &entries.concat()].concat();
    let meta = [&id(3, 8)[..], &id(1, 0), &members, &bytes(b"a-1")].concat();
    let snapshot = [&[3][..], &vote, &meta, &words(&[9, 3]), &bytes(b"part")].concat();
    let file = [&[6][..], &bytes(b"ids-1-7"), &words(&[9, 5, 77]), &bytes(b"rest")].concat();
    let asks = [
        append,
        [&[2][..], &vote, &id(3, 8)].concat(),
        snapshot,
        vec![4],
        [&[5][..], &words(&[3, 8])].concat(),
        file,
    ];
    let replies = [
        vec![1],
        [&[2][..], &id(1, 2)].concat(),
        [&[4][..], &vote].concat(),
        [&[5][..], &vote, &[1], &id(1, 2)].concat(),
        [&[8][..], &bytes(b"no")].concat(),
        [&[9][..], &words(&[7])].concat(),
    ];
    let state = [&[1][..], &vote, &id(2, 3), &[2], &words(&[1, 2])].concat();
    let of = |kind: u8| move |message: Vec<u8>| [&[kind][..], &message].concat();
    let all = asks.into_iter().map(of(0)).chain(replies.into_iter().map(of(1)));
    all.chain([of(2)(state), of(3)(meta)]).collect()
}

/// Streams of nodes: a hello, then small and long messages of one direction.
fn frames() -> Vec<Vec<u8>> {
    let handshake = PeerHandshake::new(NodeIdentity { cluster: 7, node: 2, boot: 3 });
    let header = Some(handshake.call_header(1, Duration::from_secs(1)));
    let frame = |frame| RaftFrame { frame: Some(frame) };
    let hello = frame(Frame::Hello(Hello { header }));
    let data = |size: usize| Bytes::from(vec![5; size]);
    let more = |size, is_response| {
        frame(Frame::Continuation(Continuation { call_id: 1, data: data(size), is_response }))
    };
    let call = |call_id, remaining_bytes| {
        frame(Frame::Call(RaftCall { call_id, group: 9, data: data(20), remaining_bytes }))
    };
    let response = |call_id, remaining_bytes, error| {
        frame(Frame::Response(RaftResponse { call_id, data: data(20), remaining_bytes, error }))
    };
    let error =
        RpcStatus { code: "not_leader".to_owned(), message: "ask 3".to_owned(), ..RpcStatus::default() };
    let streams = [
        vec![hello.clone()],
        vec![call(1, 0), call(2, 0)],
        vec![call(1, 50), call(2, 0), more(30, false), more(20, false), call(3, 0)],
        vec![response(1, 50, None), response(2, 0, Some(error)), more(50, true)],
        vec![hello.clone(), hello],
    ];
    let written = |frame: &RaftFrame| {
        let bytes = frame.encode_to_vec();
        [&(bytes.len() as u16).to_le_bytes()[..], &bytes].concat()
    };
    streams.iter().map(|stream| stream.iter().flat_map(written).collect()).collect()
}

/// Entries of a log, alone and in turn, snapshots of what they make of a shard, and its files of ids.
fn shard(save: &impl Fn(&str, &str, &[u8]) -> Result<()>) -> Result<()> {
    let entries = entries();
    for (number, entry) in entries.iter().enumerate() {
        save("entry", &format!("entry-{number}"), &[&[0][..], entry].concat())?;
    }
    let behind_length = |entry: &Vec<u8>| [&(entry.len() as u16).to_le_bytes()[..], entry].concat();
    let log: Vec<u8> = entries.iter().flat_map(behind_length).collect();
    save("entry", "log", &[&[1][..], &log].concat())?;
    let alone = 6;
    // So many ids of a file have one page, and two.
    for ids in [3, 5, 250] {
        let inherit = inherit(1, &(0..ids).map(|id| id << 100 | id).collect::<Vec<u128>>());
        let (snapshot, files) = kept(
            &[&entries[..2], &[inherit, ShardLogEntry::encode_flush_marker(3, 9, BlockId::from_number(3))]]
                .concat(),
        );
        save("entry", &format!("snapshot-{ids}"), &[&[alone][..], &snapshot].concat())?;
        for file in files.values() {
            save("entry", &format!("file-{ids}"), &[&[3][..], file].concat())?;
        }
    }
    Ok(())
}

/// The snapshot of a shard with such a log, and the files that it names.
fn kept(log: &[Vec<u8>]) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let disk = Arc::new(MemoryDisk::new());
    let shelf = RunFiles::open(Arc::clone(&disk) as _, 1, 1, 4).expect("the disk is sound");
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    let mut machine = ShardStateMachine::new(Arc::default(), Arc::default(), clock, DedupWindow::new(shelf));
    for (index, entry) in (1..).zip(log) {
        machine.apply(index, entry);
    }
    let snapshot = (machine.snapshot().write)().expect("the disk is sound");
    let read = |name: String| {
        let mut bytes = vec![0; disk.len(&name).expect("it is there") as usize];
        disk.read_at(&name, 0, &mut bytes).expect("the disk is sound");
        (name, bytes)
    };
    let files = machine.snapshot_files(&snapshot).expect("it was written").into_iter().map(read).collect();
    (snapshot, files)
}

/// One of each kind, as a log may have them.
fn entries() -> Vec<Vec<u8>> {
    let block = BlockId::from_number(3);
    vec![
        ShardLogEntry::encode_term_start(7, 1, 5),
        ShardLogEntry::encode_generation_end(7),
        inherit(1, &[1, 2]),
        batch(2, [8, 8, 0], &[1, 3]),
        batch(3, [9, 8, 1], &[4]),
        ShardLogEntry::encode_generation_end(8),
        ShardLogEntry::encode_flush_marker(6, 20, block),
        ShardLogEntry::encode_fence(2, 1_000, 3),
        ShardLogEntry::encode_fence_voided(2),
        inherit(3, &[3, 5]),
        ShardLogEntry::encode_foreign_ids(&[3]),
        ShardLogEntry::encode_hold_released(9),
        ShardLogEntry::encode_delta_state(&[1, 2]),
        batch(2, [11, 11, 0], &[6, 7, 8, 9, 10]),
        batch(2, [12, 11, 1], &[11]),
        ShardLogEntry::encode_seal(),
        ShardLogEntry::encode_flush_marker(16, 40, block),
    ]
}

/// Ids that are taken over from shard 9, the last of them.
fn inherit(source: u64, ids: &[u128]) -> Vec<u8> {
    let mut out = vec![9];
    [source, 9, 2, 8, 100].into_iter().for_each(|number| put_varint(&mut out, number));
    put_ids(&mut out, ids);
    // The first was taken over before, from shard 4; those of shard 5 are to be held, too.
    out.extend([1, 0, 4, 1, 5]);
    out
}

/// Encodes a batch of one upload with a token, a generation and a position in it.
fn batch(kind: u8, numbers: [u64; 3], ids: &[u128]) -> Vec<u8> {
    let mut out = vec![kind];
    let has_delta_records = kind == 3;
    let [token, generation, sequence] = numbers;
    // Then stamp and window, and the number of uploads.
    let numbers = [token, generation, sequence, 10 + token, 50, 1];
    numbers.into_iter().for_each(|number| put_varint(&mut out, number));
    put_ids(&mut out, ids);
    // Timestamp, and version of the slot table.
    out.extend([20, 1]);
    // One tenant, without names, that knows no series but this one: a label, the type of values and that of the period.
    put_varint(&mut out, 1);
    [&b"acme"[..], &[]].into_iter().for_each(|bytes| put_bytes(&mut out, bytes));
    out.extend([0, 1, 1]);
    let texts = ["service_name", "a", "cpu", "nanoseconds", "", ""];
    texts.into_iter().for_each(|text| put_bytes(&mut out, text.as_bytes()));
    // The upload's tenant; of each record series, time, duration, period, samples, what it counts, and rows.
    put_varint(&mut out, 0);
    for _ in ids {
        out.extend([0, 20, 2, 2, 1]);
        if has_delta_records {
            out.push(2);
            out.extend([5; 16]);
        }
        put_bytes(&mut out, &[1, 2]);
    }
    out
}

fn put_ids(out: &mut Vec<u8>, ids: &[u128]) {
    put_varint(out, ids.len() as u64);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
}
