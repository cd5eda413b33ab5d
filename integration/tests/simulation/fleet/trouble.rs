//! What fails in a cluster while clients go on.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::CatalogCommand;
use athanor_chassis::{Random, TenantId, Timestamp};
use athanor_integration::compactor::{CompactionOutcome, TestCompactor};
use futures::future::LocalBoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};

use super::machine::{Harm, Machine, Running};
use super::scenario::{Fleet, ID};
use crate::client::{Breach, Clients, Question};
use crate::model::Asked;
use crate::world::{Death, Weather};

/// One of so many times of trouble begins with an hour without a bucket.
const LONG_OUTAGES: u64 = 100;
/// Until blocks are merged again, at most, milliseconds; where that failed before, later.
const SOON: u64 = 8_000;
const LATER: u64 = 120_000;
const HOUR: Duration = Duration::from_secs(60 * 60);
/// So long a client waits for what must succeed.
pub const PATIENT: Duration = Duration::from_secs(30);

/// What happens to one of them, or between them, is under way.
type UnderWay<'a> = FuturesUnordered<LocalBoxFuture<'a, Result<(), Breach>>>;

impl Fleet {
    /// Anything happens, several things at once, and the catalogue is looked at all the while.
    pub async fn trouble(&self) -> Result<(), Breach> {
        let looking = async {
            loop {
                self.list().await?;
                self.machines.iter().for_each(|machine| machine.correct_far_clock(false));
                self.sleep(Duration::from_millis(self.random.next_below(300))).await;
            }
        };
        tokio::select! {
            biased;
            done = self.fail_and_go_on() => done,
            breach = looking => breach,
            () = self.merge_all_the_while() => Ok(()),
        }
    }

    /// Two do, neither of whom knows of the other.
    async fn merge_all_the_while(&self) {
        let Some(random) = &self.merges else { return std::future::pending().await };
        let merging = async || {
            loop {
                let longest = if self.merge(random).await { SOON } else { LATER };
                self.sleep(Duration::from_millis(random.next_below(longest))).await;
            }
        };
        tokio::join!(biased; merging(), merging());
    }

    /// Somebody merges some blocks, at one of the machines that list them all, which may die meanwhile. Whether it went.
    pub async fn merge(&self, random: &Random) -> bool {
        let votes = |running: &Running| running.roles.is_voter();
        let Some((machine, Running { boot, roles, .. })) = self.door(votes) else { return false };
        let compactor = TestCompactor {
            catalog: Arc::clone(&roles.catalog),
            store: machine.store(boot, random.split()),
            clock: machine.clock(),
            random: random.split(),
            cluster: ID.to_owned(),
            written: Arc::new(random.next_u64().into()),
            gives_up_claims: random.next_below(2) == 0,
        };
        drop(roles);
        let round = compactor.compact_once().await;
        machine.world.tell(format_args!("merged: {round:?}"));
        self.ground.world.count(match round {
            Ok(CompactionOutcome::Replaced) => "blocks replaced",
            Ok(CompactionOutcome::Left) => "blocks made in vain",
            Ok(CompactionOutcome::Late) => "merges that came late",
            Ok(CompactionOutcome::Idle) => "merges of nothing",
            Err(_) => "merges that failed",
        });
        round.is_ok()
    }

    async fn fail_and_go_on(&self) -> Result<(), Breach> {
        let random = &self.random;
        let mut under_way: UnderWay<'_> = FuturesUnordered::new();
        let width = 2 + random.next_below(6) as usize;
        if random.next_below(LONG_OUTAGES) == 0 {
            self.go_without_a_bucket().await?;
        }
        for _ in 0..30 + random.next_below(60) {
            match random.next_below(40) {
                0..=15 => {
                    let request = self.model.borrow_mut().draw(random, self.ground.clock.wall());
                    let patience = Duration::from_millis([20, 2_000, 30_000][random.next_below(3) as usize]);
                    under_way.push(Box::pin(self.push(request, patience)));
                }
                16..=21 => under_way.push(Box::pin(self.ask(None))),
                22..=24 => self.sleep(Duration::from_secs(random.next_below(8))).await,
                25..=27 => self.sleep(Duration::from_millis(random.next_below(500))).await,
                _ => self.fail(&mut under_way).await,
            }
            while under_way.len() >= width {
                under_way.next().await.transpose()?;
            }
        }
        while let Some(done) = under_way.next().await {
            done?;
        }
        Ok(())
    }

    /// Something fails.
    async fn fail<'a>(&'a self, under_way: &mut UnderWay<'a>) {
        let random = &self.random;
        let machine = &self.machines[self.draw(&self.machines)];
        match random.next_below(20) {
            0..=3 => self.crash(machine),
            // Several at once.
            4 => {
                for machine in &self.machines {
                    if random.next_below(2) == 0 {
                        self.crash(machine);
                    }
                }
            }
            5 | 6 => machine.polite.notify_one(),
            7..=9 => {
                let other = &self.machines[self.draw(&self.machines)];
                self.ground.world.count("cuts between machines");
                self.ground.world.tell(format_args!("cut {} {}", machine.number, other.number));
                self.ground.wires.cut(machine.address(), other.address());
                if random.next_below(4) > 0 {
                    self.ground.wires.cut(other.address(), machine.address());
                }
            }
            // One is alone.
            10 => {
                self.ground.world.count("machines cut off");
                self.ground.world.tell(format_args!("cut off {}", machine.number));
                for other in &self.machines {
                    self.ground.wires.cut(machine.address(), other.address());
                    self.ground.wires.cut(other.address(), machine.address());
                }
            }
            11 => {
                let other = &self.machines[self.draw(&self.machines)];
                let most = Duration::from_millis(50 + random.next_below(1_000));
                self.ground.wires.slow(machine.address(), other.address(), most);
            }
            12 | 13 => {
                self.ground.world.tell(format_args!("healed"));
                self.ground.wires.heal();
            }
            14 => {
                let weather = match random.next_below(6) {
                    0 => Weather::Down,
                    1 => Weather::Mute,
                    2 | 3 => Weather::Rough,
                    _ => Weather::Fair,
                };
                self.ground.world.tell(format_args!("the weather is {weather:?}"));
                self.ground.world.set_weather(weather);
            }
            15 => under_way.push(Box::pin(self.fail_a_disk(machine))),
            16 => under_way.push(Box::pin(self.seal_a_shard())),
            17 => {
                self.ground.world.count("pauses");
                machine.pause(Duration::from_secs(1 + random.next_below(60)));
            }
            18 if !self.apart.is_zero() => {
                self.ground.world.count("clocks that jumped");
                machine.jump();
            }
            _ => self.harm_disks(),
        }
    }

    /// For an hour the bucket does nothing, and nothing else fails: clients go on, profiles are stored, and answers have
    /// all that came meanwhile.
    async fn go_without_a_bucket(&self) -> Result<(), Breach> {
        self.ground.world.tell(format_args!("the bucket is down for an hour"));
        self.model.borrow_mut().tables_change = true;
        self.machines.iter().for_each(|machine| machine.world.spare());
        self.ground.world.set_weather(Weather::Down);
        let (begun, began) = (self.ground.clock.monotonic(), self.ground.clock.wall());
        while self.ground.clock.monotonic() < begun + HOUR {
            self.sleep(Duration::from_secs(1 + self.random.next_below(600))).await;
            self.use_without_a_bucket(began).await.map_err(|breach| format!("without a bucket: {breach}"))?;
            self.ask(None).await?;
        }
        self.ground.world.set_weather(Weather::Fair);
        self.ground.world.count("outages of an hour");
        Ok(())
    }

    /// A push, and a question for what no block has. Where disks were lost, shards may have been as well: who follows a
    /// lost one has to read blocks.
    async fn use_without_a_bucket(&self, began: Timestamp) -> Result<(), Breach> {
        let strict = !self.harmed.get();
        let request = self.model.borrow_mut().draw(&self.random, self.ground.clock.wall());
        if let Some((machine, running)) = self.door(|running| running.roles.distributor.is_some()) {
            let clients = Clients { strict, ..self.clients(machine, &running) };
            clients.push(request, PATIENT).await?;
        }
        // What says no time has that of a clock that may be ahead.
        let (from, to) = (began.plus(self.apart).millis() + 1, self.ground.clock.wall().millis());
        if let Some((machine, running)) = self.door(|running| running.roles.querier.is_some())
            && from < to
        {
            let clients = Clients { strict, ..self.clients(machine, &running) };
            let question = [Question::Tree, Question::Pprof][self.random.next_below(2) as usize];
            let asked = Asked { range: Some((from, to)), ..clients.draw().1 };
            clients.ask(question, asked).await?;
            self.ground.world.count("answers without a bucket");
        }
        Ok(())
    }

    /// Whatever anybody was told of the catalogue is so for everybody who asks after that.
    async fn list(&self) -> Result<(), Breach> {
        let Some((machine, running)) = self.door(|_| true) else { return Ok(()) };
        let known = self.listed.borrow().clone();
        let listed = running.roles.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await;
        let Ok(listed) = listed else { return Ok(()) };
        if machine.world.is_over(running.boot) {
            return Ok(());
        }
        machine.world.tell(format_args!("listed at {}", listed.revision));
        self.ground.world.count("listings");
        known.allows(&listed)?;
        self.listed.borrow_mut().learn(&listed);
        Ok(())
    }

    fn crash(&self, machine: &Machine) {
        let Some(_) = machine.running() else { return };
        let death = if self.random.next_below(2) == 0 { Death::Kill } else { Death::Power };
        let off = match self.random.next_below(6) {
            0 => Duration::from_secs(self.random.next_below(40)),
            1 | 2 => Duration::from_secs(self.random.next_below(5)),
            _ => Duration::from_millis(self.random.next_below(300)),
        };
        self.ground.world.count(if death == Death::Kill {
            "killed in between"
        } else {
            "power lost in between"
        });
        machine.crash(death, off);
    }

    /// The disks of one machine are harmed, in the whole of a seed: others have all that it had.
    fn harm_disks(&self) {
        let harmed = &self.machines[self.draw(&self.machines)];
        let Some(running) = harmed.running() else { return };
        if !self.harmed.replace(true) {
            let address = harmed.internal();
            let view = running.roles.views.current();
            let voter = view.voters.iter().find(|(_, voter)| voter.address == address);
            harmed.voted.set(voter.map(|(node, _)| *node));
            let rots = self.random.next_below(2) > 0;
            harmed.harm(if rots { Harm::Rotten } else { Harm::Gone });
        }
    }

    /// Somebody has a shard give its slot to another one.
    async fn seal_a_shard(&self) -> Result<(), Breach> {
        let Some((machine, running)) = self.door(|_| true) else { return Ok(()) };
        let serving: Vec<u32> = {
            let view = running.roles.views.current();
            view.shards.iter().filter(|shard| shard.serves()).map(|shard| shard.id).collect()
        };
        if !serving.is_empty() {
            let shard = serving[self.draw(&serving)];
            let told = running.roles.catalog.apply_command(CatalogCommand::RequestSeal { shard }).await;
            self.ground.world.count("shards told to seal");
            machine.world.tell(format_args!("shard {shard} is told to seal: {told:?}"));
        }
        Ok(())
    }

    /// A disk is full for a while, or does not sync.
    async fn fail_a_disk(&self, machine: &Machine) -> Result<(), Breach> {
        let Some(running) = machine.running() else { return Ok(()) };
        machine.disk_faults.set(machine.disk_faults.get() + 1);
        if self.random.next_below(2) == 0 {
            self.ground.world.count("disks that did not sync");
            machine.world.tell(format_args!("syncs fail"));
            running.log.disk.fail_syncs(1 + self.random.next_below(2));
            return Ok(());
        }
        self.ground.world.count("full disks");
        machine.world.tell(format_args!("its disk is full"));
        running.log.leave(Some(self.random.next_below(100 << 10)));
        self.sleep(Duration::from_millis(self.random.next_below(20_000))).await;
        running.log.leave(None);
        Ok(())
    }
}
