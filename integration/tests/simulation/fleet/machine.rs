//! A machine of the cluster: a process on it lives, dies and is started again, on the disks that are left.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{Clock, ComputePool, ErrorCode, ErrorCodeExt, LimitOverrides, Random};
use athanor_cluster::NodeId;
use athanor_consensus::log::CommitMode;
use athanor_server::{NodeDeps, NodeRoles, ServerConfig, StartError};
use athanor_storage::test_bucket::TestBucket;
use athanor_storage::{StorageConfig as StoreConfig, Store, StoreDeps};
use tokio::sync::Notify;

use super::net::{SimNet, Wires, address};
use super::post::{Office, Post};
use crate::bucket::{Bucket, Objects};
use crate::client::Breach;
use crate::disk::Platter;
use crate::world::{Death, Fate, World};

/// Nothing takes a node longer.
const FOREVER: Duration = Duration::from_secs(10 * 60);

/// How far ahead a clock is that was far ahead at boot: further than blocks are kept.
pub const FAR_AHEAD: Duration = Duration::from_secs(40 * 24 * 3600);

/// What all machines share.
pub struct Ground {
    pub world: World,
    pub random: Random,
    /// The true time.
    pub clock: Clock,
    /// Nanoseconds that have passed at once, for nobody to live through.
    pub skipped: Cell<i64>,
    pub wires: Wires,
    pub post: Post,
    pub objects: Arc<Objects>,
    /// Nothing fails by itself any more.
    pub is_quiet: Cell<bool>,
    /// Clocks may be far ahead at boot, of one machine at a time.
    pub goes_far: bool,
    /// The clock of a machine is far ahead.
    pub has_far: Cell<bool>,
}

pub struct Machine {
    pub number: u8,
    pub config: ServerConfig,
    pub world: World,
    /// Its clock, which may be wrong, and jumps.
    clock: RefCell<Clock>,
    /// How far it may be wrong, either way.
    skew: Duration,
    /// Its clock is far ahead until then.
    far_until: Cell<Option<Duration>>,
    /// It has run before.
    has_lived: Cell<bool>,
    ground: Rc<Ground>,
    random: Random,
    disks: RefCell<[MemoryDisk; 2]>,
    running: RefCell<Option<Running>>,
    /// How long it is off after the next death.
    off: Cell<Duration>,
    /// What becomes of its disks then.
    harm: Cell<Option<Harm>>,
    /// As whom it voted in the catalogue before that.
    pub voted: Cell<Option<NodeId>>,
    /// Its disks are rotten, and it has not told.
    is_rotten: Cell<bool>,
    /// It has been given other disks.
    pub is_new: Cell<bool>,
    /// It stopped politely, so that its log attests what it holds.
    rests: Cell<bool>,
    /// How long it took to end politely, the last time.
    pub stopped_within: Cell<Duration>,
    /// It is to end politely.
    pub polite: Notify,
    /// A disk of it failed, or was full.
    pub disk_faults: Cell<u64>,
}

/// What may become of the disks of a machine that is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// It gets new ones, and is another node then.
    Gone,
    /// A bit of what was synced has flipped.
    Rotten,
}

/// A process that serves.
#[derive(Clone)]
pub struct Running {
    pub boot: u64,
    pub roles: Rc<NodeRoles>,
    pub log: Arc<Platter>,
}

impl Machine {
    pub fn new(ground: &Rc<Ground>, number: u8, config: ServerConfig, skew: Duration) -> Self {
        let name = config.cluster.node_name.clone().unwrap_or_default();
        Self {
            number,
            config,
            world: ground.world.machine(&name),
            clock: RefCell::new(ground.clock.with_skew(0)),
            skew,
            far_until: Cell::default(),
            has_lived: Cell::new(false),
            ground: Rc::clone(ground),
            random: ground.random.split(),
            disks: RefCell::default(),
            running: RefCell::default(),
            off: Cell::new(Duration::ZERO),
            harm: Cell::new(None),
            voted: Cell::new(None),
            is_rotten: Cell::new(false),
            is_new: Cell::new(false),
            rests: Cell::new(false),
            stopped_within: Cell::default(),
            polite: Notify::new(),
            disk_faults: Cell::new(0),
        }
    }

    pub fn address(&self) -> IpAddr {
        address(self.number)
    }

    /// What serves on it now.
    pub fn running(&self) -> Option<Running> {
        self.running.borrow().clone()
    }

    /// Its clock, as it goes now.
    pub fn clock(&self) -> Clock {
        self.clock.borrow().clone()
    }

    /// Where other nodes reach it.
    pub fn internal(&self) -> String {
        self.config.cluster.internal_listen_address.clone().unwrap_or_default()
    }

    /// The process ends, and its disks are harmed before it comes back.
    pub fn harm(&self, harm: Harm) {
        self.harm.set(Some(harm));
        match harm {
            Harm::Gone => self.crash(Death::Power, Duration::from_secs(1)),
            // Else what rots could be what was being written when the power went, which nothing tells apart.
            Harm::Rotten => self.polite.notify_one(),
        }
    }

    /// The process ends, and comes back after a while.
    pub fn crash(&self, death: Death, off: Duration) {
        self.off.set(off);
        self.world.die(death);
    }

    /// Its processes, one after the other.
    pub async fn live(&self) -> Breach {
        loop {
            if let Err(breach) = self.life().await {
                return format!("{}: {breach}", self.world.name());
            }
        }
    }

    fn harmed(&self, harm: Harm, disks: [MemoryDisk; 2]) -> [MemoryDisk; 2] {
        self.world.tell(format_args!("its disks are {harm:?}"));
        match harm {
            Harm::Gone => {
                self.world.count("lost disks");
                self.is_new.set(true);
                <[MemoryDisk; 2]>::default()
            }
            Harm::Rotten => {
                self.is_rotten.set(true);
                disks.iter().for_each(|disk| Platter::rot(disk, 1, &self.world, &self.random));
                disks
            }
        }
    }

    /// Its clock may jump while it is off.
    fn set_clock(&self) {
        self.correct_far_clock(true);
        // A process that is over keeps the clock that it had.
        let clock = match self.random.next_below(3) {
            _ if self.boots_far_ahead() => FAR_AHEAD.as_nanos() as i64,
            0 => self.wrong_by(),
            _ => self.clock().wall().nanos() - self.ground.clock.wall().nanos(),
        };
        *self.clock.borrow_mut() = self.ground.clock.with_skew(clock);
    }

    /// True if its clock is far ahead from now on, for some minutes.
    fn boots_far_ahead(&self) -> bool {
        let Ground { goes_far, has_far, is_quiet, clock, world, .. } = &*self.ground;
        let may = *goes_far && self.has_lived.replace(true) && !is_quiet.get() && !has_far.get();
        if !may || self.random.next_below(2) > 0 {
            return false;
        }
        world.count("clocks far ahead at boot");
        self.world.tell(format_args!("its clock is far ahead"));
        has_far.set(true);
        self.far_until.set(Some(clock.monotonic() + Duration::from_secs(70 + self.random.next_below(120))));
        true
    }

    /// A clock that is far ahead is set right, when its time has come or at once.
    pub fn correct_far_clock(&self, at_once: bool) {
        let Some(until) = self.far_until.get() else { return };
        if at_once || self.ground.clock.monotonic() >= until {
            self.far_until.set(None);
            self.ground.has_far.set(false);
            self.jump();
        }
    }

    fn wrong_by(&self) -> i64 {
        let most = self.skew.as_nanos() as u64;
        if most == 0 { 0 } else { self.random.next_below(2 * most) as i64 - most as i64 }
    }

    /// Its clock jumps while it is used.
    pub fn jump(&self) {
        let nanos = self.wrong_by();
        self.world.tell(format_args!("its clock is wrong by {nanos} ns from now on"));
        self.clock().jump_wall_time(self.ground.skipped.get() + nanos);
    }

    /// The true time goes on at once, and its clock is as wrong as it was.
    pub fn skip(&self, nanos: i64) {
        let wrong = self.clock().wall().nanos() - self.ground.clock.wall().nanos();
        self.clock().jump_wall_time(self.ground.skipped.get() + nanos + wrong);
    }

    /// Its process stands still for a while, and so does all that it says and hears.
    pub fn pause(&self, span: Duration) {
        self.world.tell(format_args!("it stands still for {span:?}"));
        let until = self.ground.clock.monotonic() + span;
        self.world.pause(until);
        self.ground.wires.pause(self.address(), until);
    }

    fn fate(&self) -> Option<Fate> {
        let random = &self.random;
        if self.ground.is_quiet.get() || random.next_below(3) > 0 {
            return None;
        }
        let calls = random.next_below([40, 200, 1000, 3000][random.next_below(4) as usize]);
        let death = if random.next_below(2) == 0 { Death::Kill } else { Death::Power };
        Some(Fate { calls, disk: random.next_below(3) > 0, death })
    }

    async fn life(&self) -> Result<(), Breach> {
        let (ground, world) = (&self.ground, &self.world);
        ground.wires.begin(self.address());
        self.set_clock();
        self.rests.set(false);
        let boot = world.boot(self.clock(), self.fate());
        let platters = {
            let disks = self.disks.borrow();
            [("log", &disks[0]), ("state", &disks[1])].map(|(name, disk)| {
                Arc::new(Platter { world: world.clone(), boot, name, disk: disk.clone() })
            })
        };
        let lived = self.serve(boot, &platters).await;
        let death = world.death().unwrap_or(Death::Kill);
        world.die(death);
        ground.wires.end(self.address(), death);
        let left = self.running.take();
        world.tell(format_args!("ended by {death:?}"));
        let seed = self.random.next_u64();
        let disks = [&platters[0], &platters[1]].map(|disk| {
            disk.leave(None);
            disk.survives(Some(death), seed)
        });
        let harm = self.harm.take().filter(|harm| *harm == Harm::Gone || self.rests.take());
        *self.disks.borrow_mut() = match harm {
            None => disks,
            Some(harm) => self.harmed(harm, disks),
        };
        let ghost = async {
            if let Some(Running { roles, .. }) = left {
                roles.abandon().await;
            }
        };
        let off = self.off.replace(Duration::from_millis(50 + self.random.next_below(2_000)));
        tokio::join!(ghost, ground.clock.sleep(off));
        lived
    }

    async fn serve(&self, boot: u64, platters: &[Arc<Platter>; 2]) -> Result<(), Breach> {
        let (world, clock) = (&self.world, self.clock());
        let opened = tokio::select! {
            biased;
            () = world.ended(boot) => {
                world.count("died while starting");
                return Ok(());
            }
            opened = clock.timeout(FOREVER, self.open(boot, platters)) => opened,
        };
        let roles = match opened.map_err(|_| "it does not start".to_owned())? {
            Ok(roles) => Rc::new(roles),
            Err(_) if world.is_over(boot) => return Ok(()),
            Err(error) if self.disk_faults.get() > 0 => {
                world.tell(format_args!("it does not start on a disk that fails: {error}"));
                return Ok(());
            }
            // Somebody reads that, and gives it other disks.
            Err(error) if error.code() == ErrorCode::DataLoss && self.is_rotten.replace(false) => {
                world.tell(format_args!("it does not start: {error}"));
                world.count("damaged nodes replaced");
                self.harm.set(Some(Harm::Gone));
                return Ok(());
            }
            Err(error) => return Err(format!("it does not start: {error:?}")),
        };
        world.tell(format_args!("started"));
        world.count("starts");
        let running = Running { boot, roles, log: Arc::clone(&platters[0]) };
        self.running.replace(Some(running.clone()));
        tokio::select! {
            biased;
            () = world.ended(boot) => return Ok(()),
            () = self.polite.notified() => {}
        }
        self.running.take();
        self.leave(running).await
    }

    /// Ends politely: first it hands over what it leads.
    async fn leave(&self, Running { boot, mut roles, .. }: Running) -> Result<(), Breach> {
        let clock = self.clock();
        let begun = clock.monotonic();
        // Those who ask it now are answered first.
        let roles = loop {
            match Rc::try_unwrap(roles) {
                Ok(roles) => break roles,
                Err(shared) => roles = shared,
            }
            self.ground.clock.sleep(Duration::from_millis(20)).await;
            if self.world.is_over(boot) {
                return Ok(());
            }
        };
        tokio::select! {
            biased;
            () = self.world.ended(boot) => {}
            closed = clock.timeout(FOREVER, roles.close()) => {
                let closed = closed.map_err(|_| "it does not stop".to_owned())?;
                self.stopped_within.set(clock.monotonic() - begun);
                self.world.tell(format_args!("stopped: {closed:?}, within {:?}", self.stopped_within.get()));
                self.world.count("stopped politely");
                self.rests.set(closed.is_ok());
            }
        }
        Ok(())
    }

    /// The bucket, as a process of this machine has it.
    pub fn store(&self, boot: u64, random: Random) -> Store {
        let objects = Arc::clone(&self.ground.objects);
        let bucket = Bucket { world: self.world.clone(), boot, clock: self.clock(), objects };
        let mut storage = StoreConfig::default();
        storage.retry.max_attempts = 3;
        storage.retry.attempt_timeout = Duration::from_secs(5);
        storage.retry.total_timeout = Duration::from_secs(20);
        Store::with_object_store(
            Arc::new(TestBucket(bucket)),
            &storage,
            StoreDeps { clock: self.clock(), random },
        )
    }

    async fn open(&self, boot: u64, [log, state]: &[Arc<Platter>; 2]) -> Result<NodeRoles, StartError> {
        let Ground { wires, post, .. } = &*self.ground;
        let store = self.store(boot, self.random.split());
        let system = NodeDeps {
            clock: self.clock(),
            random: self.random.split(),
            compute: ComputePool::inline(),
            log: Arc::clone(log) as _,
            state: Arc::clone(state) as _,
            // What is found in blocks is no promise: a machine that begins anew finds it again.
            cache: None,
            scratch: Arc::new(athanor_compactor::MemoryScratch),
            activity: None,
            pump: CommitMode::Inline,
            store,
            net: Arc::new(SimNet {
                wires: wires.clone(),
                machine: self.address(),
                world: self.world.clone(),
                boot,
            }),
            gossip: Arc::new(Office { post: post.clone(), world: self.world.clone(), boot }),
        };
        NodeRoles::open(&self.config, system, LimitOverrides::new(self.config.limits.clone())).await
    }
}
