//! Every call is answered by its own answer, or fails; nothing waits beyond its limit.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::net::LocalNet;
use athanor_chassis::net::memory::MemoryNet;
use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, Random};
use athanor_cluster::raft_transport::{
    MAX_PART_BYTES, MAX_RAFT_MESSAGE_BYTES, RaftTransport, TransportError,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{join, join_all};

use crate::harness::{MUTE, NO_GROUP, Town, answer, me, secrets};

const LIMIT: Duration = Duration::from_secs(2);

/// What became of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    Failed,
    NotWaitedFor,
}

/// One call of any size; nobody waits for some of them.
async fn one_call(talk: &RaftTransport, clock: &Clock, random: &Random, number: u64) -> Outcome {
    clock.sleep(Duration::from_millis(random.next_below(300))).await;
    let size = match random.next_below(3) {
        0 => random.next_below(100),
        1 => random.next_below(8 << 10),
        _ => random.next_below(4 * MAX_PART_BYTES as u64),
    };
    let mut request = number.to_be_bytes().to_vec();
    request.resize(8 + size as usize, number as u8);
    let limit = if random.next_below(8) == 0 { Duration::from_millis(random.next_below(10)) } else { LIMIT };
    let begun = clock.monotonic();
    let calling = talk.call(2, random.next_below(3) as u32, request.clone().into(), limit);
    let outcome = if random.next_below(6) == 0 {
        let left = clock.timeout(Duration::from_millis(random.next_below(5)), calling).await;
        left.ok().map_or(Ok(None), |answered| answered.map(Some))
    } else {
        calling.await.map(Some)
    };
    let waited = clock.monotonic() - begun;
    assert!(waited <= limit + Duration::from_millis(2), "{waited:?} of {limit:?}");
    match outcome {
        Ok(Some(came)) => {
            assert!(came == answer(2, &request), "call {number} has the answer of another");
            Outcome::Answered
        }
        Ok(None) => Outcome::NotWaitedFor,
        Err(TransportError::Refused { status, .. }) => panic!("{status}"),
        Err(_) => Outcome::Failed,
    }
}

#[test]
fn every_call_has_its_own_answer_or_fails_within_its_limit() {
    let mut seen = Vec::new();
    for seed in 0..16 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        seen.extend(runtime.block_on(async {
            let (net, random) = (MemoryNet::default(), Random::from_seed(seed));
            let town = Town::new(Arc::new(net.clone()));
            let address = town.serve(me(2), &secrets()).await;
            let talk = town.caller(me(1), &secrets(), &[(2, address)]);
            let calls = (0..60).map(|number| one_call(&talk, &town.clock, &random, number));
            let cuts = async {
                // Half of the seeds know no cut.
                for _ in 0..(seed % 2) * 3 {
                    town.clock.sleep(Duration::from_millis(random.next_below(120))).await;
                    net.break_streams();
                }
            };
            let (outcomes, ()) = join(join_all(calls), cuts).await;
            // Whatever was cut, the next call opens a stream again.
            town.clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(talk.call(2, 1, Bytes::new(), LIMIT).await, Ok(answer(2, b"")));
            let ended = town.tasks.shutdown(Duration::from_secs(5)).await;
            assert_eq!(ended.panicked, [""; 0]);
            outcomes
        }));
    }
    let count = |outcome| seen.iter().filter(|seen| **seen == outcome).count();
    assert!(count(Outcome::Answered) > 480, "{} were answered", count(Outcome::Answered));
    assert!(count(Outcome::Failed) > 25 && count(Outcome::NotWaitedFor) > 10, "not all of it happened");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_opened_once_and_again_after_a_cut() {
    let net = MemoryNet::default();
    let town = Town::new(Arc::new(net.clone()));
    let address = town.serve(me(2), &secrets()).await;
    let talk = town.caller(me(1), &secrets(), &[(2, address)]);
    for number in 0..10_u8 {
        assert_eq!(talk.call(2, 1, vec![number].into(), LIMIT).await, Ok(answer(2, &[number])));
    }
    assert_eq!(net.stream_count(), 1);
    let mut waiting = std::pin::pin!(talk.call(2, MUTE, Bytes::new(), LIMIT));
    assert!((&mut waiting).now_or_never().is_none());
    tokio::task::yield_now().await;
    net.break_streams();
    assert_eq!(waiting.await.unwrap_err().code(), ErrorCode::Unavailable, "who waits is told at once");
    assert!(talk.call(2, 1, Bytes::new(), LIMIT).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_answered_says_why() {
    let town = Town::new(Arc::new(MemoryNet::default()));
    let address = town.serve(me(2), &secrets()).await;
    let talk = town.caller(me(1), &secrets(), &[(2, address), (3, "127.0.0.1:9999".parse().unwrap())]);
    let failed = async |to, group, size| talk.call(to, group, vec![0; size].into(), LIMIT).await.unwrap_err();
    let none = failed(2, NO_GROUP, 1).await;
    assert_eq!(
        (none.code(), none.to_string().as_str()),
        (ErrorCode::NotFound, "node 2 refused: there is no such group here")
    );
    assert_eq!(failed(2, MUTE, 1).await, TransportError::Late { to: 2, limit: LIMIT });
    assert_eq!(failed(2, 1, MAX_RAFT_MESSAGE_BYTES + 1).await.code(), ErrorCode::TooLarge);
    // The answer is eight bytes longer.
    assert!(failed(2, 1, MAX_RAFT_MESSAGE_BYTES).await.to_string().contains("the limit is 16MiB"));
    let closed = failed(3, 1, 1).await;
    assert_eq!(closed.code(), ErrorCode::Unavailable);
    assert!(closed.to_string().contains("was not reached at 127.0.0.1:9999"), "{closed}");
    assert!(failed(4, 1, 1).await.to_string().contains("node 4 is unknown"));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_peer_has_a_bound() {
    let town = Town::new(Arc::new(MemoryNet::default()));
    let address = town.serve(me(2), &secrets()).await;
    let talk = town.caller(me(1), &secrets(), &[(2, address)]);
    let big = Bytes::from(vec![0; MAX_RAFT_MESSAGE_BYTES / 2]);
    let calls = (0..8).map(|_| talk.call(2, 1, big.clone(), LIMIT));
    let outcomes = join_all(calls).await;
    let busy =
        outcomes.iter().filter(|outcome| outcome.as_ref().is_err_and(|e| e.code() == ErrorCode::Exhausted));
    // Four of them fill the room, and all that found room are answered.
    assert_eq!(busy.count(), 4);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 4);
}

#[tokio::test]
async fn real_sockets_carry_large_and_small_messages() {
    let town = Town::new(Arc::new(LocalNet::new(Clock::system())));
    let address = town.serve(me(2), &secrets()).await;
    let talk = town.caller(me(1), &secrets(), &[(2, address)]);
    let limit = Duration::from_secs(60);
    let calls = [1, MAX_PART_BYTES, 3 * MAX_PART_BYTES + 5, MAX_RAFT_MESSAGE_BYTES - 8, 10].map(|size| {
        let request = vec![size as u8; size];
        let talk = &talk;
        async move { talk.call(2, 1, request.clone().into(), limit).await == Ok(answer(2, &request)) }
    });
    assert_eq!(join_all(calls).await, [true; 5]);
    town.tasks.shutdown(Duration::from_secs(5)).await;
}
