//! Any node asks, and voters die or are cut off meanwhile.

use std::time::Duration;

use athanor_catalog::{
    BlockEntry, BlockId, Catalog, CatalogCommand, CatalogError, CatalogLogEntry, CatalogSettings,
    CommandResult, TenantSpan,
};
use athanor_chassis::{ErrorCode, TenantId, Tier, Timestamp};
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::propose_response::Outcome;

use crate::harness::{CLUSTER, Town, me, simulate};

const LIMIT: Duration = Duration::from_secs(2);

/// A change that is another one for each number.
pub fn change(number: u64) -> CatalogCommand {
    CatalogCommand::AddVoter { node: 1 + number % 5, address: format!("127.0.0.1:{number}") }
}

async fn revision(catalog: &dyn Catalog) -> Result<u64, CatalogError> {
    Ok(catalog.list_blocks(&TenantId::anonymous(), 0, 0).await?.revision)
}

#[test]
fn what_any_node_proposed_is_listed_by_every_other_one_right_after() {
    simulate(async {
        let town = Town::start(3, 1).await;
        let mut proposed = 0;
        for round in 0..6 {
            for node in [1, 2, 3, 8, 9] {
                proposed += 1;
                let answer = town.client(node).propose(change(proposed)).await.unwrap();
                assert_eq!(answer, CommandResult::Changed(1));
                for reader in [1, 2, 3, 8, 9] {
                    let seen = revision(&town.client(reader)).await.unwrap();
                    assert_eq!(seen, proposed, "node {reader} in round {round} after node {node}");
                }
                for voter in [1, 2, 3] {
                    assert_eq!(revision(&town.metastore(voter)).await.unwrap(), proposed, "voter {voter}");
                }
            }
        }
        let refused = town.client(8).propose(CatalogCommand::RequestSeal { shard: 7 }).await.unwrap();
        assert!(matches!(refused, CommandResult::Refused(_)), "{refused:?}");
    });
}

#[test]
fn a_note_of_any_node_is_read_by_every_other_one_right_after() {
    simulate(async {
        let town = Town::start(3, 9).await;
        let tenant: TenantId = "acme".parse().unwrap();
        let mut expected = None;
        for node in [1, 2, 3, 8, 9] {
            let text = Some(format!("of {node}"));
            let (of, name) = (tenant.clone(), "a".to_owned());
            let note = CatalogCommand::PutTenantDocument { tenant: of, name, expected, text: text.clone() };
            assert_eq!(town.client(node).propose(note).await.unwrap(), CommandResult::Changed(1));
            for reader in [1, 2, 3, 8, 9] {
                let seen = town.client(reader).tenant_documents(&tenant).await.unwrap();
                assert_eq!(seen.get("a").map(|note| note.text.clone()), text, "node {reader} after {node}");
            }
            expected = text;
        }
        assert!(town.client(8).tenant_documents(&TenantId::anonymous()).await.unwrap().is_empty());
    });
}

/// All names of the block are more than a command may have.
#[test]
fn block_of_many_tenants_registers_from_any_node() {
    simulate(async {
        let town = Town::start(3, 10).await;
        let client = town.client(8);
        let shard = client.open_shard(0, 8).await.unwrap();
        let tenant = |number: usize| format!("{number:0150}").parse::<TenantId>().unwrap();
        let span = |number| TenantSpan {
            tenant: tenant(number),
            min_time: 5,
            max_time: 9,
            profiles: 1,
            samples: 1,
            sum: Some(1),
            newest_arrival: Timestamp::UNIX_EPOCH,
        };
        let mut block = BlockEntry {
            id: BlockId::new(town.clock.wall(), &town.random),
            shard: shard.id,
            epoch: shard.epoch,
            from: 0,
            to: 7,
            bytes: 1,
            samples: 1,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
            tenants: (0..7_000).map(span).collect(),
        };
        assert_eq!(client.register_block(block.clone()).await.unwrap(), 7);
        assert_eq!(client.register_block(block.clone()).await.unwrap(), 7, "again changes nothing");
        for node in [1, 2, 3, 8, 9] {
            let known = town.client(node);
            assert_eq!(known.tenants().await.unwrap().len(), 7_000);
            let listed = known.list_blocks(&tenant(6_999), 0, 20).await.unwrap().blocks;
            assert_eq!(listed.iter().map(|listed| listed.id).collect::<Vec<_>>(), [block.id]);
        }
        block.tenants.clear();
        assert_eq!(town.client(9).blocks_of_slot(0, Timestamp::UNIX_EPOCH).await.unwrap(), [block]);
    });
}

#[test]
fn a_voter_that_does_not_lead_sends_a_proposal_on_once() {
    simulate(async {
        let town = Town::start(3, 2).await;
        let leader = town.leader().await;
        let follower = leader % 3 + 1;
        let handshake = PeerHandshake::new(me(8));
        let request = |hops| wire::ProposeRequest {
            header: Some(handshake.call_header(follower, LIMIT)),
            command: CatalogLogEntry { time: Default::default(), command: change(1) }.encode().into(),
            hops,
        };
        let ask = async |hops| {
            town.peers(8)
                .metastore(follower)
                .propose(request(hops))
                .await
                .unwrap()
                .into_inner()
                .outcome
                .unwrap()
        };
        assert!(matches!(ask(0).await, Outcome::Result(_)));
        let Outcome::Error(refused) = ask(1).await else { panic!("it was sent on again") };
        assert_eq!(
            (status_codec::decode_status(&refused).code, refused.leader_node_id),
            (ErrorCode::NotLeader, leader)
        );
    });
}

#[test]
fn proposals_and_listings_go_on_when_the_leader_dies_or_is_cut_off() {
    simulate(async {
        for seed in 3..6 {
            let mut town = Town::start(3, seed).await;
            let leader = town.leader().await;
            let client = town.client(8);
            client.propose(change(1)).await.unwrap();
            let cut_off = seed % 2 == 0;
            if cut_off {
                // It still reaches those who ask, and thinks that it leads.
                for other in [1, 2, 3] {
                    town.cut(leader, other);
                }
            } else {
                town.kill(leader).await;
            }
            for number in 2..6 {
                assert_eq!(client.propose(change(number)).await.unwrap(), CommandResult::Changed(1));
                assert_eq!(revision(&town.client(9)).await.unwrap(), number);
            }
            if cut_off {
                // Its own voter cannot say what there is, so its node asks others; it reaches none.
                let alone = revision(&town.client(leader)).await.unwrap_err();
                let CatalogError::Unavailable(status) = alone else { panic!("{alone}") };
                assert_eq!(status.code, ErrorCode::Unavailable);
                assert!(status.message.contains("this node: "), "{status}");
                town.net.heal();
            } else {
                town.boot(leader, Some(athanor_consensus::replicated::GroupBootstrap::Kept)).await;
            }
            assert_eq!(revision(&town.client(leader)).await.unwrap(), 5);
        }
    });
}

#[test]
fn who_reaches_no_voter_is_told_whom_it_tried() {
    simulate(async {
        let mut town = Town::start(1, 7).await;
        town.kill(1).await;
        let before = town.clock.monotonic();
        let error = town.client(8).propose(change(1)).await.unwrap_err().to_string();
        assert!(error.contains("within 10s") && error.contains("node 1: node 1 was not reached"), "{error}");
        assert!(town.clock.monotonic() - before <= Duration::from_secs(11));
        let blocks = town.client(8).blocks().await.unwrap_err();
        assert!(blocks.to_string().contains("only a metastore voter"), "{blocks}");
    });
}

#[test]
fn what_cannot_be_helped_is_refused_at_once() {
    simulate(async {
        let town = Town::start(3, 8).await;
        town.leader().await;
        let before = town.clock.monotonic();
        let address = "a".repeat(2 << 20);
        let error = town.client(8).propose(CatalogCommand::AddVoter { node: 1, address }).await.unwrap_err();
        assert!(error.to_string().contains("the limit is 1MiB"), "{error}");
        assert_eq!(town.clock.monotonic(), before);

        let call = async |handshake: PeerHandshake, command: &'static [u8]| {
            let header = Some(handshake.call_header(1, LIMIT));
            let request = wire::ProposeRequest { header, command: command.into(), hops: 0 };
            town.peers(8).metastore(1).propose(request).await
        };
        let odd = call(PeerHandshake::new(me(8)), b"{\"format\":99}").await.unwrap().into_inner().outcome;
        let Some(Outcome::Error(odd)) = odd else { panic!("{odd:?}") };
        assert_eq!(status_codec::decode_status(&odd).code, ErrorCode::Invalid);
        let stranger = PeerHandshake::new(NodeIdentity { cluster: CLUSTER + 1, ..me(8) });
        let refused = status_codec::from_grpc(&call(stranger, b"").await.unwrap_err());
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains("check cluster.id"), "{refused}");

        // A change that expects what is not there is refused by the facts, whoever asks.
        let settings = CatalogSettings { replication_factor: 3, ..CatalogSettings::default() };
        let wrong = CatalogSettings { replication_factor: 2, ..CatalogSettings::default() };
        let change = CatalogCommand::UpdateSettings { expected: wrong, settings };
        assert!(matches!(town.client(9).propose(change).await.unwrap(), CommandResult::Refused(_)));
    });
}

#[test]
fn the_leading_voter_says_when_something_was_proposed() {
    simulate(async {
        let town = Town::start(3, 9).await;
        let leader = town.leader().await;
        let handshake = PeerHandshake::new(me(8));
        let (now, far) = (town.clock.wall(), Duration::from_secs(1 << 30));
        for (number, time) in [now.plus(far), now.minus(far)].into_iter().enumerate() {
            for (place, voter) in [leader, leader % 3 + 1].into_iter().enumerate() {
                let block = BlockId::from_number((number * 2 + place) as u128);
                let command = CatalogLogEntry {
                    time,
                    command: CatalogCommand::TombstoneBlocks { blocks: vec![block], tenant: None },
                };
                let header = Some(handshake.call_header(voter, LIMIT));
                let request = wire::ProposeRequest { header, command: command.encode().into(), hops: 0 };
                town.peers(8).metastore(voter).propose(request).await.unwrap();
            }
        }
        let condemned = town.metastore(leader).tombstones().await.unwrap();
        let near = |at: Timestamp| at.since(now).max(now.since(at)) < Duration::from_secs(60);
        assert!(
            condemned.len() == 4 && condemned.iter().all(|(_, tombstone)| near(tombstone.since)),
            "{condemned:?}"
        );
    });
}
