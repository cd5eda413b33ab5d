//! Services outgrow their slots, and time goes on until the table that follows holds: profiles of both its sides, and
//! repeats of all of them, also at a door that has not heard of it.

use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_chassis::Timestamp;
use futures::stream::{FuturesUnordered, StreamExt};

use super::machine::{Machine, Running};
use super::scenario::Fleet;
use crate::client::Breach;
use crate::model::{ABOUT, Request};

/// Services outgrow their slots in one of so many seeds.
pub const GROWING: u64 = 20;
/// Services have grown so much within that time.
const GROWN: Duration = Duration::from_secs(15 * 60);
/// Between pushes: at first, and until the table holds, at most.
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(180);
/// Within which shards log a fence, mostly.
const FENCED: Duration = Duration::from_secs(10);
/// The time until a table holds is lived through in one of so many.
const LIVED_THROUGH: u64 = 4;
/// Pushes on both sides, and between them.
const BOTH: u32 = 12;
const STEP: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);

fn is_door(running: &Running) -> bool {
    running.roles.distributor.is_some()
}

/// From which time of profiles on the newest table holds, or the one that is proposed; none while there is but one.
fn next(view: &RoutingView) -> Option<Timestamp> {
    let newest =
        view.tables.as_ref().map(|tables| tables.table_at(i64::MAX)).filter(|table| table.version() > 1);
    let proposed = view.pending.as_ref().map(|pending| &pending.table);
    proposed.or(newest).map(|table| Timestamp::from_nanos(table.from()))
}

impl Fleet {
    /// All of it; nothing else fails meanwhile.
    pub async fn outgrow(&self) -> Result<(), Breach> {
        self.machines.iter().for_each(|machine| machine.world.spare());
        self.model.borrow_mut().tables_change = true;
        let Some((deaf, _)) = self.door(is_door) else { return Ok(()) };
        self.cut_off(deaf);
        let from = self.until_a_table_follows(deaf).await?;
        self.ground.world.tell(format_args!("a table is to hold from {from:?} on"));
        let mut sent = self.until_it_holds(deaf, from.minus(ABOUT)).await?;
        sent.extend(self.push_on_both_sides(deaf, from).await?);
        self.ground.world.tell(format_args!("healed"));
        self.ground.wires.heal();
        // What came since it has never been told of.
        let more = (0..BOTH).map(|_| self.draw_about(from));
        let all: Vec<Request> = sent.into_iter().chain(more).collect();
        self.push_all_at(|| Some(deaf), &all).await?;
        self.push_all_at(|| self.other_than(deaf), &all).await
    }

    /// A door does not hear of the catalogue any more: it is alone, or it reaches those alone who do not vote.
    fn cut_off(&self, deaf: &Machine) {
        let alone = self.random.next_below(2) == 0;
        self.ground.world.tell(format_args!("deaf is {}, alone {alone}", deaf.number));
        self.ground.world.count("doors that were deaf");
        for other in &self.machines {
            let votes = other.running().is_some_and(|running| running.roles.is_voter());
            if alone || votes {
                self.ground.wires.cut(deaf.address(), other.address());
                self.ground.wires.cut(other.address(), deaf.address());
            }
        }
    }

    fn other_than(&self, deaf: &Machine) -> Option<&Machine> {
        let is_other = |machine: &&Machine| {
            machine.number != deaf.number && machine.running().is_some_and(|running| is_door(&running))
        };
        let others: Vec<&Machine> = self.machines.iter().filter(is_other).collect();
        (!others.is_empty()).then(|| others[self.draw(&others)])
    }

    fn draw_about(&self, time: Timestamp) -> Request {
        self.model.borrow_mut().draw_about(&self.random, self.ground.clock.wall(), time)
    }

    async fn push_something(&self, deaf: &Machine) -> Result<Request, Breach> {
        let request = self.model.borrow_mut().draw(&self.random, self.ground.clock.wall());
        self.push_at(self.other_than(deaf), request.clone(), PATIENCE).await?;
        Ok(request)
    }

    /// Services send until those who decide propose another table; gives from which time on it holds.
    async fn until_a_table_follows(&self, deaf: &Machine) -> Result<Timestamp, Breach> {
        let until = self.ground.clock.monotonic() + GROWN;
        while self.ground.clock.monotonic() < until {
            for machine in self.machines.iter().filter(|machine| machine.number != deaf.number) {
                let view = machine.running().map(|running| running.roles.views.current());
                if let Some(from) = view.and_then(|view| next(&view)) {
                    return Ok(from);
                }
            }
            self.push_something(deaf).await?;
            self.sleep(Duration::from_nanos(self.random.next_below(OFTEN.as_nanos() as u64))).await;
        }
        Err(format!("services outgrew their slots, and no table followed within {GROWN:?}"))
    }

    /// Lets time pass, and pushes now and then. It takes as long as many seeds do to live through all of it, so few do.
    async fn until_it_holds(&self, deaf: &Machine, until: Timestamp) -> Result<Vec<Request>, Breach> {
        let mut sent = Vec::new();
        let lives = self.random.next_below(LIVED_THROUGH) == 0;
        loop {
            let left = until.since(self.ground.clock.wall());
            if left.is_zero() {
                return Ok(sent);
            }
            let often = if lives { SELDOM } else { FENCED };
            self.sleep(left.min(Duration::from_nanos(self.random.next_below(often.as_nanos() as u64)))).await;
            sent.push(self.push_something(deaf).await?);
            if !lives {
                self.skip(until.since(self.ground.clock.wall()));
            }
        }
    }

    /// Pushes profiles of both sides as that time passes, some of them at the door that has not heard of it.
    async fn push_on_both_sides(&self, deaf: &Machine, from: Timestamp) -> Result<Vec<Request>, Breach> {
        let mut sent = Vec::new();
        for _ in 0..BOTH {
            let request = self.draw_about(from);
            sent.push(request.clone());
            let at = if self.random.next_below(3) == 0 { Some(deaf) } else { self.other_than(deaf) };
            self.push_at(at, request, PATIENCE).await?;
            self.ask(None).await?;
            self.sleep(STEP).await;
        }
        Ok(sent)
    }

    /// Pushes several at once.
    async fn push_all_at<'a>(
        &'a self,
        at: impl Fn() -> Option<&'a Machine>,
        all: &[Request],
    ) -> Result<(), Breach> {
        let now = self.ground.clock.wall();
        let known = all.iter().filter(|request| !self.model.borrow().is_forgotten(request, now));
        let pushes = known.map(|request| self.push_at(at(), request.clone(), PATIENCE));
        let mut pushes: FuturesUnordered<_> = pushes.collect();
        while let Some(pushed) = pushes.next().await {
            pushed?;
        }
        Ok(())
    }
}
