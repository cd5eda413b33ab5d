//! Three zones and a hub between them, each a network namespace.
//!
//! A zone has a second link that leads nowhere. Routes to other zones that go there cut it off from them, without a
//! word to either side, while clients of the hub still reach it.

use std::path::Path;
use std::process::Command;

/// What names of our namespaces begin with; then comes the process that made them.
const NAME: &str = "athanor-chaos-";
pub const ZONES: [&str; 3] = ["a", "b", "c"];

/// How a zone is cut off.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Nobody reaches it.
    Wholly,
    /// Other zones do not reach it, and it does not reach them; clients do.
    FromOtherZones,
}

/// The namespaces of a run.
#[derive(Clone, Debug)]
pub struct Inside {
    pub tag: String,
}

/// Makes the namespaces, and removes them and whatever runs in them.
pub struct World(Inside);

impl Inside {
    pub fn of(tag: &str) -> Self {
        Self { tag: tag.to_owned() }
    }

    pub fn hub(&self) -> String {
        format!("{NAME}{}-hub", self.tag)
    }

    pub fn zone(&self, zone: usize) -> String {
        format!("{NAME}{}-{}", self.tag, ZONES[zone])
    }

    pub fn cut(&self, zone: usize, cut: Cut) {
        self.change(zone, cut, true);
    }

    pub fn heal(&self, zone: usize, cut: Cut) {
        self.change(zone, cut, false);
    }

    fn change(&self, zone: usize, cut: Cut, is_cut: bool) {
        let changed = match cut {
            Cut::Wholly => {
                let state = if is_cut { "down" } else { "up" };
                ip(&format!("-n {} link set to-{} {state}", self.hub(), ZONES[zone]))
            }
            Cut::FromOtherZones => {
                let verb = if is_cut { "add" } else { "del" };
                let others = (0..ZONES.len()).filter(|other| *other != zone);
                let ways = others.flat_map(|other| [(zone, other), (other, zone)]);
                ways.map(|(from, to)| {
                    ip(&format!("-n {} route {verb} {} dev hole", self.zone(from), network(to)))
                })
                .collect()
            }
        };
        changed.unwrap_or_else(|why| panic!("{cut:?} of zone {}: {why}", ZONES[zone]));
    }
}

impl World {
    /// Makes them, or says why that is not possible here.
    pub fn build(tag: &str) -> Result<Self, String> {
        sweep();
        let inside = Inside::of(tag);
        let hub = inside.hub();
        ip(&format!("netns add {hub}"))?;
        // From here on, what is made is removed again.
        let world = Self(inside.clone());
        ip(&format!("-n {hub} link set lo up"))?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} address add 10.77.0.1/16 dev bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for (zone, name) in ZONES.iter().enumerate() {
            let own = inside.zone(zone);
            ip(&format!("netns add {own}"))?;
            ip(&format!("-n {own} link set lo up"))?;
            ip(&format!("-n {hub} link add to-{name} type veth peer name eth0 netns {own}"))?;
            ip(&format!("-n {hub} link set to-{name} master bridge up"))?;
            ip(&format!("-n {hub} link add null-{name} type veth peer name hole netns {own}"))?;
            ip(&format!("-n {hub} link set null-{name} up"))?;
            ip(&format!("-n {own} link set hole arp off up"))?;
            for place in 1..=crate::chaos::process::ROLES.len() {
                ip(&format!("-n {own} address add {}/16 dev eth0", address(zone, place - 1)))?;
            }
            ip(&format!("-n {own} link set eth0 up"))?;
        }
        Ok(world)
    }

    pub fn inside(&self) -> &Inside {
        &self.0
    }
}

impl Drop for World {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Of a process, by its zone and its place there.
pub fn address(zone: usize, place: usize) -> String {
    format!("10.77.{}.{}", zone + 1, place + 1)
}

fn network(zone: usize) -> String {
    format!("10.77.{}.0/24", zone + 1)
}

/// Ends what runs in the namespaces and removes them. What was never made is no error.
fn remove(inside: &Inside) {
    for name in (0..ZONES.len()).map(|zone| inside.zone(zone)).chain([inside.hub()]) {
        let within = ip(&format!("netns pids {name}")).unwrap_or_default();
        for process in within.split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", process]).status();
        }
        let _ = ip(&format!("netns delete {name}"));
    }
}

/// Removes what runs left behind that could not: their processes are gone.
fn sweep() {
    let listed = ip("netns list").unwrap_or_default();
    let ours = listed.lines().filter_map(|line| line.strip_prefix(NAME)?.split('-').next());
    for tag in ours.filter(|tag| !Path::new("/proc").join(tag).exists()) {
        remove(&Inside::of(tag));
    }
}

/// Runs `ip`; gives what it prints, or what it complains of.
fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip of iproute2: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
