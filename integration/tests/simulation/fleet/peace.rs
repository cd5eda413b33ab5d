//! What must hold in a cluster when nothing fails any more.

use std::time::Duration;

use super::machine::{Ground, Harm, Machine, Running};
use super::scenario::{CALM, Fleet, LOOK};
use super::trouble::PATIENT;
use crate::chain;
use crate::client::{Breach, Clients, QUESTIONS};
use crate::model::{Asked, KINDS, TENANTS};
use crate::world::{Death, Weather};

/// Where nothing fails no stop takes longer.
const LONGEST_STOP: Duration = Duration::from_secs(10);
/// Before all is looked at.
const SETTLED: Duration = Duration::from_secs(15);
/// How often blocks are merged then, where they are.
const MERGES: usize = 8;

impl Fleet {
    /// Nothing fails any more; all that was sent is sent until it is stored, and compared: before a cut, and after it.
    pub async fn settle(&self) -> Result<(), Breach> {
        let Ground { world, wires, is_quiet, .. } = &*self.ground;
        world.tell(format_args!("peace"));
        is_quiet.set(true);
        self.machines.iter().for_each(|machine| machine.correct_far_clock(true));
        wires.heal();
        world.set_weather(Weather::Fair);
        // Fates that were drawn are fulfilled, and whose log has failed is started anew.
        for machine in &self.machines {
            machine.world.spare();
            if machine.disk_faults.replace(0) > 0 {
                machine.crash(Death::Kill, Duration::from_millis(100));
            }
        }
        // What a machine finds on its disks it has found by then.
        let paused = self.machines.iter().map(|machine| machine.world.paused()).max();
        self.sleep(SETTLED + paused.unwrap_or_default()).await;
        self.until("slots are open again", |view| self.is_open(view)).await?;
        self.store_all().await?;
        self.compare().await?;
        self.cut().await?;
        self.compare().await?;
        self.chain().await?;
        if let Some(random) = &self.merges {
            for _ in 0..MERGES {
                tokio::join!(biased; self.merge(random), self.merge(random));
            }
            self.compare().await?;
            self.chain().await?;
        }
        // Where disks were lost, shards may lack a member until others are called dead, and another one is too many.
        if self.random.next_below(3) == 0 && !self.harmed.get() {
            self.restart_all().await?;
            self.compare().await?;
        }
        is_quiet.set(false);
        Ok(())
    }

    /// A node whose log is damaged says what to do: its disks are given up, and it comes back as another node.
    pub async fn replace_rotten(&self) {
        for machine in self.machines.iter().filter(|_| self.harmed.get()) {
            let ready = machine.running().map(|running| running.roles.ready());
            if let Some(Err(status)) = ready
                && status.message.contains("give the node a new id")
            {
                machine.harm(Harm::Gone);
                self.ground.world.count("damaged nodes replaced");
            }
            if machine.is_new.get() {
                self.replace_voter(machine).await;
            }
        }
    }

    /// Somebody takes the node that is gone for good out of the catalogue's voters, so that another becomes one.
    async fn replace_voter(&self, machine: &Machine) {
        let Some(node) = machine.voted.get() else { return };
        let Some((_, running)) = self.door(|_| true) else { return };
        if running.roles.client().remove_voter(node).await.is_ok() {
            machine.voted.set(None);
            self.ground.world.count("voters replaced");
        }
    }

    async fn store_all(&self) -> Result<(), Breach> {
        let until = self.ground.clock.monotonic() + CALM;
        for _ in 0..3 {
            let request = self.model.borrow_mut().draw(&self.random, self.ground.clock.wall());
            self.model.borrow_mut().pending.push(request);
        }
        loop {
            let pending = std::mem::take(&mut self.model.borrow_mut().pending);
            if pending.is_empty() {
                return Ok(());
            }
            for request in pending {
                if !self.model.borrow().is_forgotten(&request, self.ground.clock.wall()) {
                    self.push(request, CALM).await?;
                }
            }
            if self.ground.clock.monotonic() > until {
                return Err(format!("not stored within {CALM:?}: {:?}", self.model.borrow().pending));
            }
            self.sleep(LOOK).await;
        }
    }

    /// Every querier is asked until its answer is whole, and that is held against the model.
    async fn compare(&self) -> Result<(), Breach> {
        for machine in &self.machines {
            let Some(running) = machine.running().filter(|running| running.roles.querier.is_some()) else {
                continue;
            };
            let mut clients = self.clients(machine, &running);
            // A first answer in this peace may be told to try again.
            self.until_whole(&clients).await?;
            clients.company = false;
            for tenant in 0..TENANTS.len() {
                for kind in 0..KINDS.len() {
                    let asked = Asked { tenant, service: None, kind, range: None };
                    let question = QUESTIONS[clients.random.next_below(2) as usize];
                    clients.ask(question, asked).await.map_err(|breach| format!("in peace: {breach}"))?;
                }
                let (question, asked) = clients.draw();
                clients.ask(question, Asked { tenant, ..asked }).await?;
            }
            self.ground.world.count("comparisons of everything");
        }
        Ok(())
    }

    /// One machine after the other is restarted politely: no push fails meanwhile, no question, and no answer lacks
    /// anything.
    async fn restart_all(&self) -> Result<(), Breach> {
        self.ground.world.tell(format_args!("all are restarted, one by one"));
        let restarts = async {
            for machine in &self.machines {
                let before = machine.running().map(|running| running.boot);
                machine.polite.notify_one();
                let is_back = || machine.running().is_some_and(|running| Some(running.boot) != before);
                while !is_back() {
                    self.sleep(LOOK).await;
                }
                let took = machine.stopped_within.take();
                if took > LONGEST_STOP {
                    let name = machine.world.name();
                    return Err(format!("{name} stopped within {took:?}, and had {LONGEST_STOP:?}"));
                }
                self.until("a machine that was restarted serves", |view| self.is_open(view)).await?;
                self.ground.world.count("restarts under load");
            }
            Ok(())
        };
        let load = async {
            loop {
                self.use_all().await?;
                self.sleep(Duration::from_millis(self.random.next_below(500))).await;
            }
        };
        tokio::select! {
            biased;
            restarted = restarts => restarted,
            failed = load => failed,
        }
    }

    /// A push and a question that must succeed, each at a machine that says that it is ready.
    async fn use_all(&self) -> Result<(), Breach> {
        let is_ready = |running: &Running| running.roles.ready().is_ok();
        if let Some((machine, running)) =
            self.door(|running| is_ready(running) && running.roles.distributor.is_some())
        {
            let request = self.model.borrow_mut().draw(&self.random, self.ground.clock.wall());
            let clients = Clients { strict: true, ..self.clients(machine, &running) };
            clients.push(request, PATIENT).await.map_err(|breach| format!("at a restart: {breach}"))?;
        }
        if let Some((machine, running)) =
            self.door(|running| is_ready(running) && running.roles.querier.is_some())
        {
            let clients = Clients { strict: true, ..self.clients(machine, &running) };
            let (question, asked) = clients.draw();
            clients.ask(question, asked).await.map_err(|breach| format!("at a restart: {breach}"))?;
        }
        Ok(())
    }

    async fn until_whole(&self, clients: &Clients<'_>) -> Result<(), Breach> {
        let until = self.ground.clock.monotonic() + CALM;
        loop {
            match clients.lacks().await {
                None => return Ok(()),
                Some(what) if self.ground.clock.monotonic() > until => {
                    return Err(format!("no whole answer within {CALM:?}: {what}"));
                }
                Some(_) => self.sleep(LOOK).await,
            }
        }
    }

    async fn cut(&self) -> Result<(), Breach> {
        for machine in &self.machines {
            let Some(running) = machine.running() else { continue };
            let Some(ingester) = &running.roles.ingester else { continue };
            let cut = ingester.flush_all(&machine.clock(), CALM).await;
            machine.world.tell(format_args!("cut: {cut:?}"));
            cut.map_err(|status| format!("{}: a cut failed in peace: {status}", machine.world.name()))?;
        }
        Ok(())
    }

    /// The blocks of each shard are a chain that does not go beyond its watermark.
    async fn chain(&self) -> Result<(), Breach> {
        let Some((_, running)) = self.door(|running| running.roles.is_voter()) else {
            return Err("nobody votes".to_owned());
        };
        chain::check(&*running.roles.catalog, &self.ground.world, false, |ranges, watermark| {
            ranges.last().is_none_or(|range| range.1 <= watermark)
        })
        .await
    }
}
