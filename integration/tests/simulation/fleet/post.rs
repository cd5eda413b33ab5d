//! Datagrams of gossip: some are lost, and none arrives where the way is cut.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Clock, Random};
use athanor_profile::encoding::hash;
use chitchat::ChitchatEnvelope;
use chitchat::transport::{RecvOutcome, SendOutcome, Socket, Transport};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::net::Wires;
use crate::world::World;

/// All letter boxes of a seed. Cheap to clone.
#[derive(Clone)]
pub struct Post {
    pub clock: Clock,
    pub random: Random,
    pub wires: Wires,
    boxes: Arc<Mutex<BTreeMap<SocketAddr, Arc<LetterBox>>>>,
}

#[derive(Default)]
struct LetterBox {
    /// By when they arrive, then by number.
    letters: Mutex<BTreeMap<(Duration, u64), (SocketAddr, ChitchatEnvelope)>>,
    came: Notify,
}

impl Post {
    pub fn new(clock: Clock, random: Random, wires: Wires) -> Self {
        Self { clock, random, wires, boxes: Arc::default() }
    }
}

/// The post, as one process has it.
pub struct Office {
    pub post: Post,
    pub world: World,
    pub boot: u64,
}

struct Desk {
    at: SocketAddr,
    letters: Arc<LetterBox>,
    post: Post,
    world: World,
    boot: u64,
    sent: u64,
}

#[async_trait]
impl Transport for Office {
    async fn open(&self, at: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let letters = Arc::<LetterBox>::default();
        self.post.boxes.lock().insert(at, Arc::clone(&letters));
        let (post, world, boot) = (self.post.clone(), self.world.clone(), self.boot);
        Ok(Box::new(Desk { at, letters, post, world, boot, sent: 0 }))
    }
}

#[async_trait]
impl Socket for Desk {
    fn local_addr(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.at)
    }

    async fn send(&mut self, to: SocketAddr, letter: ChitchatEnvelope) -> anyhow::Result<SendOutcome> {
        let text = format!("{letter:?}");
        let sent = SendOutcome { num_bytes_sent: text.len() };
        if self.world.is_over(self.boot) {
            return Ok(sent);
        }
        let is_lost = self.post.random.next_below(100) == 0;
        self.world.tell(format_args!(
            "gossip to {to} {} {:032x}",
            text.len(),
            hash::hash_bytes(text.as_bytes())
        ));
        let (from, there) = (self.at.ip(), to.ip());
        let reached = self.post.boxes.lock().get(&to).cloned();
        if let Some(reached) = reached.filter(|_| !is_lost && self.post.wires.flows(from, there)) {
            self.sent += 1;
            let at = self.post.wires.awake(from) + self.post.wires.latency(from, there);
            reached.letters.lock().insert((at, hash_of(self.at, self.sent)), (self.at, letter));
            reached.came.notify_one();
        }
        Ok(sent)
    }

    async fn recv(&mut self) -> anyhow::Result<RecvOutcome> {
        loop {
            let next = self.letters.letters.lock().keys().next().copied();
            let now = self.post.clock.monotonic();
            let awake = self.post.wires.awake(self.at.ip());
            match next {
                _ if self.world.is_over(self.boot) => std::future::pending().await,
                Some(_) if awake > now => self.post.clock.sleep(awake - now).await,
                Some(key) if key.0 <= now => {
                    let Some((from_addr, envelope)) = self.letters.letters.lock().remove(&key) else {
                        continue;
                    };
                    return Ok(RecvOutcome { from_addr, envelope, num_bytes_received: 1 });
                }
                Some((at, _)) => {
                    tokio::select! {
                        biased;
                        () = self.letters.came.notified() => {}
                        () = self.post.clock.sleep(at - now) => {}
                    }
                }
                None => self.letters.came.notified().await,
            }
        }
    }
}

/// Tells letters of one moment apart.
fn hash_of(from: SocketAddr, number: u64) -> u64 {
    hash::hash_bytes(format!("{from} {number}").as_bytes()) as u64
}
