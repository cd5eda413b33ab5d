//! Encodings of raft: entries and votes in the log, messages between members, memberships in snapshots.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, EntryPayload, LeaderId, SnapshotMeta, Vote};

use super::type_config::{RaftEntry, RaftLogId, RaftMembership, RaftProposal, Types, log_id};

/// Prefix of encoded entries that are not a proposal, and of proposals that begin with the same bytes. All
/// other proposals are logged unchanged, without a copy.
const ENTRY_MARK: [u8; 8] = *b"\xa7athraft";
const PROPOSAL_TAG: u8 = 1;
const MEMBERSHIP_TAG: u8 = 2;
/// Limit of voters or learners per group. All of them are in the state that each segment begins with.
const MAX_MEMBERS: usize = 32;
/// Flag in the number of configurations: a list of learners follows.
const LEARNERS_FLAG: u8 = 0x80;
/// Limit of entries per message.
const MAX_ENTRIES: usize = 1 << 16;

/// Request from one member to another.
#[derive(Debug)]
pub(crate) enum RaftRequest {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    /// Chunk of a snapshot of `total` bytes, from `offset` on.
    Snapshot {
        vote: Vote<u64>,
        meta: SnapshotMeta<u64, EmptyNode>,
        total: u64,
        offset: u64,
        part: Bytes,
    },
    /// Chunk of a file that the next snapshot names.
    File(SnapshotFileChunk),
    /// Request to the leader for its current read index.
    ReadIndex,
    /// Request of the leader to stand for election, if the receiver has the log up to `last` in the leader's
    /// `term`.
    TakeOver {
        term: u64,
        last: u64,
    },
}

/// Chunk of a snapshot file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotFileChunk {
    /// Name of the file.
    pub(crate) name: String,
    /// Length of the whole file, in bytes.
    pub(crate) total: u64,
    /// Offset of the chunk in the file.
    pub(crate) offset: u64,
    /// Checksum of the chunk.
    pub(crate) sum: u64,
    /// Bytes of the chunk.
    pub(crate) data: Bytes,
}

/// Response of one member to another.
#[derive(Debug)]
pub(crate) enum RaftResponse {
    Append(AppendEntriesResponse<u64>),
    Vote(VoteResponse<u64>),
    Snapshot(SnapshotResponse<u64>),
    /// The chunk or request was accepted. More chunks may follow.
    More,
    /// Index in the log, or number of received bytes of a file.
    Index(u64),
    Failed(String),
}

// --- entries ---

/// Encodes the payload of an entry for the log and for messages. Blank entries have an empty payload.
pub(crate) fn encode_payload(entry: &RaftEntry) -> Bytes {
    match &entry.payload {
        EntryPayload::Blank => Bytes::new(),
        EntryPayload::Normal(RaftProposal(data)) if !data.is_empty() && !data.starts_with(&ENTRY_MARK) => {
            data.clone()
        }
        EntryPayload::Normal(RaftProposal(data)) => [&ENTRY_MARK[..], &[PROPOSAL_TAG], data].concat().into(),
        EntryPayload::Membership(membership) => {
            let mut bytes = [&ENTRY_MARK[..], &[MEMBERSHIP_TAG]].concat();
            put_members(&mut bytes, membership);
            bytes.into()
        }
    }
}

pub(crate) fn decode_entry(term: u64, index: u64, payload: Bytes) -> Option<RaftEntry> {
    let payload = match payload.strip_prefix(&ENTRY_MARK) {
        None if payload.is_empty() => EntryPayload::Blank,
        None => EntryPayload::Normal(RaftProposal(payload)),
        Some([PROPOSAL_TAG, ..]) => EntryPayload::Normal(RaftProposal(payload.slice(ENTRY_MARK.len() + 1..))),
        Some([MEMBERSHIP_TAG, rest @ ..]) => EntryPayload::Membership(RaftWireReader(rest).members()?),
        Some(_) => return None,
    };
    Some(RaftEntry { log_id: log_id(term, index), payload })
}

/// Returns a replacement for a lost entry. The first entry of a group contains its members.
pub(crate) fn placeholder_entry(term: u64, index: u64, node: u64) -> RaftEntry {
    let payload =
        if index == 0 { EntryPayload::Membership(members([node].into())) } else { EntryPayload::Blank };
    RaftEntry { log_id: log_id(term, index), payload }
}

pub(crate) fn members(voters: BTreeSet<u64>) -> openraft::Membership<u64, EmptyNode> {
    openraft::Membership::new(vec![voters], ())
}

// --- vote and committed ---

/// Raft state of a member besides its entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HardState {
    pub(crate) vote: Option<Vote<u64>>,
    pub(crate) committed: Option<RaftLogId>,
    pub(crate) voters: BTreeSet<u64>,
}

pub(crate) fn encode_hard_state(
    vote: Option<Vote<u64>>,
    committed: Option<RaftLogId>,
    voters: &BTreeSet<u64>,
) -> Bytes {
    let mut bytes = Vec::new();
    bytes.put_u8(u8::from(vote.is_some()));
    put_vote(&mut bytes, &vote.unwrap_or_default());
    put_id(&mut bytes, committed);
    put_nodes(&mut bytes, voters.iter().copied());
    bytes.into()
}

pub(crate) fn decode_hard_state(bytes: &[u8]) -> Option<HardState> {
    if bytes.is_empty() {
        return Some(HardState::default());
    }
    let mut reader = RaftWireReader(bytes);
    let voted = reader.byte()? != 0;
    let vote = reader.vote()?;
    let committed = reader.id()?;
    // Logs of the first version do not contain the voters.
    let voters = if reader.0.is_empty() { BTreeSet::new() } else { reader.nodes()? };
    reader.0.is_empty().then_some(HardState { vote: voted.then_some(vote), committed, voters })
}

// --- snapshots ---

pub(crate) fn put_meta(bytes: &mut Vec<u8>, meta: &SnapshotMeta<u64, EmptyNode>) {
    put_id(bytes, meta.last_log_id);
    put_id(bytes, *meta.last_membership.log_id());
    put_members(bytes, meta.last_membership.membership());
    put_bytes(bytes, meta.snapshot_id.as_bytes());
}

pub(crate) fn meta(bytes: &[u8]) -> Option<SnapshotMeta<u64, EmptyNode>> {
    RaftWireReader(bytes).meta()
}

// --- messages ---

impl RaftRequest {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        match self {
            Self::Append(append) => {
                bytes.put_u8(1);
                put_vote(&mut bytes, &append.vote);
                put_id(&mut bytes, append.prev_log_id);
                put_id(&mut bytes, append.leader_commit);
                bytes.put_u32_le(append.entries.len() as u32);
                for entry in &append.entries {
                    bytes.put_u64_le(entry.log_id.leader_id.term);
                    bytes.put_u64_le(entry.log_id.index);
                    put_bytes(&mut bytes, &encode_payload(entry));
                }
            }
            Self::Vote(vote) => {
                bytes.put_u8(2);
                put_vote(&mut bytes, &vote.vote);
                put_id(&mut bytes, vote.last_log_id);
            }
            Self::Snapshot { vote, meta, total, offset, part } => {
                bytes.put_u8(3);
                put_vote(&mut bytes, vote);
                put_meta(&mut bytes, meta);
                bytes.put_u64_le(*total);
                bytes.put_u64_le(*offset);
                put_bytes(&mut bytes, part);
            }
            Self::File(SnapshotFileChunk { name, total, offset, sum, data }) => {
                bytes.put_u8(6);
                put_bytes(&mut bytes, name.as_bytes());
                [*total, *offset, *sum].into_iter().for_each(|word| bytes.put_u64_le(word));
                put_bytes(&mut bytes, data);
            }
            Self::ReadIndex => bytes.put_u8(4),
            Self::TakeOver { term, last } => {
                bytes.put_u8(5);
                bytes.put_u64_le(*term);
                bytes.put_u64_le(*last);
            }
        }
        bytes.into()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut reader = RaftWireReader(bytes);
        let ask = match reader.byte()? {
            1 => {
                let vote = reader.vote()?;
                let prev_log_id = reader.id()?;
                let leader_commit = reader.id()?;
                let count = reader.half()? as usize;
                let mut entries = Vec::new();
                for _ in 0..Some(count).filter(|count| *count <= MAX_ENTRIES)? {
                    let term = reader.word()?;
                    let index = reader.word()?;
                    entries.push(decode_entry(term, index, bytes.slice_ref(reader.bytes()?))?);
                }
                Self::Append(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
            }
            2 => Self::Vote(VoteRequest { vote: reader.vote()?, last_log_id: reader.id()? }),
            3 => Self::Snapshot {
                vote: reader.vote()?,
                meta: reader.meta()?,
                total: reader.word()?,
                offset: reader.word()?,
                part: bytes.slice_ref(reader.bytes()?),
            },
            4 => Self::ReadIndex,
            5 => Self::TakeOver { term: reader.word()?, last: reader.word()? },
            6 => Self::File(SnapshotFileChunk {
                name: std::str::from_utf8(reader.bytes()?).ok()?.to_owned(),
                total: reader.word()?,
                offset: reader.word()?,
                sum: reader.word()?,
                data: bytes.slice_ref(reader.bytes()?),
            }),
            _ => return None,
        };
        reader.0.is_empty().then_some(ask)
    }
}

impl RaftResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        match self {
            Self::Append(AppendEntriesResponse::Success) => bytes.put_u8(1),
            Self::Append(AppendEntriesResponse::PartialSuccess(id)) => {
                bytes.put_u8(2);
                put_id(&mut bytes, *id);
            }
            Self::Append(AppendEntriesResponse::Conflict) => bytes.put_u8(3),
            Self::Append(AppendEntriesResponse::HigherVote(vote)) => {
                bytes.put_u8(4);
                put_vote(&mut bytes, vote);
            }
            Self::Vote(vote) => {
                bytes.put_u8(5);
                put_vote(&mut bytes, &vote.vote);
                bytes.put_u8(u8::from(vote.vote_granted));
                put_id(&mut bytes, vote.last_log_id);
            }
            Self::Snapshot(snapshot) => {
                bytes.put_u8(6);
                put_vote(&mut bytes, &snapshot.vote);
            }
            Self::More => bytes.put_u8(7),
            Self::Failed(why) => {
                bytes.put_u8(8);
                put_bytes(&mut bytes, why.as_bytes());
            }
            Self::Index(index) => {
                bytes.put_u8(9);
                bytes.put_u64_le(*index);
            }
        }
        bytes.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = RaftWireReader(bytes);
        let reply = match reader.byte()? {
            1 => Self::Append(AppendEntriesResponse::Success),
            2 => Self::Append(AppendEntriesResponse::PartialSuccess(reader.id()?)),
            3 => Self::Append(AppendEntriesResponse::Conflict),
            4 => Self::Append(AppendEntriesResponse::HigherVote(reader.vote()?)),
            5 => Self::Vote(VoteResponse {
                vote: reader.vote()?,
                vote_granted: reader.byte()? != 0,
                last_log_id: reader.id()?,
            }),
            6 => Self::Snapshot(SnapshotResponse { vote: reader.vote()? }),
            7 => Self::More,
            8 => Self::Failed(String::from_utf8_lossy(reader.bytes()?).into_owned()),
            9 => Self::Index(reader.word()?),
            _ => return None,
        };
        reader.0.is_empty().then_some(reply)
    }
}

/// Kind of raft encoding, for tests of the decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaftEncoding {
    /// Request between members.
    Ask,
    /// Response between members.
    Reply,
    /// Vote, committed index and voters of a member.
    State,
    /// Metadata of a snapshot.
    Meta,
}

/// Decodes bytes and encodes the result. Returns `None` if the bytes are invalid. For fuzzing of inputs that
/// no member writes.
pub fn reencode(what: RaftEncoding, bytes: &Bytes) -> Option<Bytes> {
    match what {
        RaftEncoding::Ask => RaftRequest::decode(bytes).map(|ask| ask.encode()),
        RaftEncoding::Reply => RaftResponse::decode(bytes).map(|reply| reply.encode()),
        RaftEncoding::State => decode_hard_state(bytes)
            .map(|known| encode_hard_state(known.vote, known.committed, &known.voters)),
        RaftEncoding::Meta => meta(bytes).map(|meta| {
            let mut bytes = Vec::new();
            put_meta(&mut bytes, &meta);
            bytes.into()
        }),
    }
}

// --- parts ---

fn put_bytes(bytes: &mut Vec<u8>, data: &[u8]) {
    bytes.put_u32_le(data.len() as u32);
    bytes.extend_from_slice(data);
}

fn put_id(bytes: &mut Vec<u8>, id: Option<RaftLogId>) {
    bytes.put_u8(u8::from(id.is_some()));
    let id = id.unwrap_or_default();
    bytes.put_u64_le(id.leader_id.term);
    bytes.put_u64_le(id.index);
}

fn put_vote(bytes: &mut Vec<u8>, vote: &Vote<u64>) {
    bytes.put_u64_le(vote.leader_id.term);
    bytes.put_u8(u8::from(vote.leader_id.voted_for.is_some()));
    bytes.put_u64_le(vote.leader_id.voted_for.unwrap_or_default());
    bytes.put_u8(u8::from(vote.committed));
}

fn put_members(bytes: &mut Vec<u8>, membership: &openraft::Membership<u64, EmptyNode>) {
    let configs = membership.get_joint_config();
    let learners: Vec<u64> = membership.learner_ids().collect();
    let flag = if learners.is_empty() { 0 } else { LEARNERS_FLAG };
    bytes.put_u8(configs.len() as u8 | flag);
    configs.iter().for_each(|config| put_nodes(bytes, config.iter().copied()));
    if flag != 0 {
        put_nodes(bytes, learners.into_iter());
    }
}

fn put_nodes(bytes: &mut Vec<u8>, nodes: impl Iterator<Item = u64>) {
    let nodes: Vec<u64> = nodes.collect();
    bytes.put_u8(nodes.len() as u8);
    nodes.into_iter().for_each(|node| bytes.put_u64_le(node));
}

/// Reader of untrusted bytes from another member or from a disk.
struct RaftWireReader<'a>(&'a [u8]);

impl<'a> RaftWireReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn half(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.half()?;
        self.take(length as usize)
    }

    fn id(&mut self) -> Option<Option<RaftLogId>> {
        let known = self.byte()? != 0;
        let found = log_id(self.word()?, self.word()?);
        Some(known.then_some(found))
    }

    fn vote(&mut self) -> Option<Vote<u64>> {
        let term = self.word()?;
        let known = self.byte()? != 0;
        let node = self.word()?;
        let leader_id = LeaderId { term, voted_for: known.then_some(node) };
        Some(Vote { leader_id, committed: self.byte()? != 0 })
    }

    fn members(&mut self) -> Option<openraft::Membership<u64, EmptyNode>> {
        let count = self.byte()?;
        let configs = (0..count & !LEARNERS_FLAG).map(|_| self.nodes()).collect::<Option<Vec<_>>>()?;
        let learners = if count & LEARNERS_FLAG == 0 { BTreeSet::new() } else { self.nodes()? };
        // Raft derives the learners: they are the nodes that are in no configuration.
        Some(openraft::Membership::new(configs, learners))
    }

    fn nodes(&mut self) -> Option<BTreeSet<u64>> {
        let count = usize::from(self.byte()?);
        (0..Some(count).filter(|count| *count <= MAX_MEMBERS)?).map(|_| self.word()).collect()
    }

    fn meta(&mut self) -> Option<SnapshotMeta<u64, EmptyNode>> {
        let last_log_id = self.id()?;
        let membership_id = self.id()?;
        let last_membership = RaftMembership::new(membership_id, self.members()?);
        let snapshot_id = String::from_utf8_lossy(self.bytes()?).into_owned();
        Some(SnapshotMeta { last_log_id, last_membership, snapshot_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_messages_come_back_as_they_were() {
        let proposals: [&[u8]; 4] = [b"", b"x", &ENTRY_MARK, b"\xa7athraft\x02"];
        let mut entries: Vec<RaftEntry> = proposals
            .iter()
            .map(|data| RaftEntry {
                log_id: log_id(3, 9),
                payload: EntryPayload::Normal(RaftProposal(Bytes::copy_from_slice(data))),
            })
            .collect();
        entries.push(RaftEntry {
            log_id: log_id(1, 0),
            payload: EntryPayload::Membership(members([1, 2, 3].into())),
        });
        let (voters, learning) = (vec![[1, 2].into(), [1, 2, 3].into()], BTreeSet::from([3, 4]));
        let joint = openraft::Membership::new(voters, learning);
        entries.push(RaftEntry { log_id: log_id(1, 2), payload: EntryPayload::Membership(joint) });
        entries.push(RaftEntry { log_id: log_id(1, 1), payload: EntryPayload::Blank });
        let vote = Vote { leader_id: LeaderId { term: 4, voted_for: Some(2) }, committed: true };
        let asks = [
            RaftRequest::Append(AppendEntriesRequest {
                vote,
                prev_log_id: None,
                entries,
                leader_commit: Some(log_id(1, 1)),
            }),
            RaftRequest::Vote(VoteRequest { vote, last_log_id: None }),
            RaftRequest::File(SnapshotFileChunk {
                name: "ids-1-7".into(),
                total: 9,
                offset: 5,
                sum: u64::MAX,
                data: Bytes::from_static(b"rest"),
            }),
            RaftRequest::Snapshot {
                vote,
                meta: SnapshotMeta {
                    last_log_id: Some(log_id(2, 8)),
                    last_membership: RaftMembership::new(Some(log_id(1, 0)), members([1].into())),
                    snapshot_id: "a-1".into(),
                },
                total: 9,
                offset: 3,
                part: Bytes::from_static(b"part"),
            },
            RaftRequest::ReadIndex,
            RaftRequest::TakeOver { term: 3, last: 8 },
        ];
        for ask in asks {
            let bytes = ask.encode();
            assert_eq!(format!("{:?}", RaftRequest::decode(&bytes).unwrap()), format!("{ask:?}"));
            assert!((0..bytes.len()).all(|cut| RaftRequest::decode(&bytes.slice(..cut)).is_none()));
        }
        let replies = [
            RaftResponse::Append(AppendEntriesResponse::Success),
            RaftResponse::Append(AppendEntriesResponse::PartialSuccess(Some(log_id(1, 2)))),
            RaftResponse::Append(AppendEntriesResponse::Conflict),
            RaftResponse::Append(AppendEntriesResponse::HigherVote(vote)),
            RaftResponse::Vote(VoteResponse { vote, vote_granted: true, last_log_id: Some(log_id(1, 2)) }),
            RaftResponse::Snapshot(SnapshotResponse { vote }),
            RaftResponse::More,
            RaftResponse::Failed("no".into()),
            RaftResponse::Index(7),
        ];
        for reply in replies {
            let bytes = reply.encode();
            assert_eq!(format!("{:?}", RaftResponse::decode(&bytes).unwrap()), format!("{reply:?}"));
        }
    }

    #[test]
    fn hard_state_decodes_to_what_was_encoded() {
        let vote = Vote { leader_id: LeaderId { term: 4, voted_for: Some(2) }, committed: true };
        let known = HardState { vote: Some(vote), committed: Some(log_id(2, 3)), voters: [1, 2].into() };
        assert_eq!(
            decode_hard_state(&encode_hard_state(known.vote, known.committed, &known.voters)),
            Some(known)
        );
        assert_eq!(decode_hard_state(b""), Some(HardState::default()));
    }

    /// Whatever comes is refused, or is a message that comes out the same when it is sent on.
    #[test]
    fn other_bytes_are_refused_or_read() {
        let vote = Vote { leader_id: LeaderId { term: 4, voted_for: Some(2) }, committed: true };
        let voters = (vec![[1, 2].into(), [1, 2, 3].into()], BTreeSet::from([3, 4]));
        let joint = openraft::Membership::new(voters.0, voters.1);
        let last_membership = RaftMembership::new(Some(log_id(1, 0)), joint.clone());
        let entries = vec![RaftEntry { log_id: log_id(1, 2), payload: EntryPayload::Membership(joint) }];
        let (prev_log_id, leader_commit) = (Some(log_id(1, 1)), None);
        let append = RaftRequest::Append(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit });
        let meta = SnapshotMeta { last_log_id: None, last_membership, snapshot_id: "a-1".into() };
        let part = Bytes::from_static(b"part");
        let snapshot = RaftRequest::Snapshot { vote, meta, total: 9, offset: 3, part };
        for bytes in [append.encode(), snapshot.encode()] {
            for (place, flip) in (0..bytes.len()).flat_map(|place| [1, 0x80, 0xff].map(|flip| (place, flip)))
            {
                let mut bad = bytes.to_vec();
                bad[place] ^= flip;
                let Some(read) = reencode(RaftEncoding::Ask, &bad.into()) else { continue };
                assert_eq!(reencode(RaftEncoding::Ask, &read), Some(read.clone()), "byte {place} ^ {flip}");
            }
        }
    }
}
