//! What is in no block yet has bounds for all shards of a node together, as they share its memory and its disk.
//!
//! While the bucket takes nothing, profiles stay in heads and in the log. They are taken until one of the bounds is reached,
//! and refused from then on until blocks are written again. What was acknowledged is lost by none of it.

use athanor_chassis::{ByteSize, Code, Status};
use athanor_consensus::log::Space;

use crate::ingester::{Config, Ingester};
use crate::shard::BUSY;

impl Ingester {
    /// Whether there are profiles that are in no block yet.
    pub fn has_unregistered(&self) -> bool {
        self.led().flat_map(|led| led.shard.heads().unregistered()).any(|head| !head.is_empty())
    }

    /// Bytes of profiles in memory that are in no block yet.
    pub fn unregistered_bytes(&self) -> u64 {
        self.led().map(|led| led.shard.heads().unregistered_bytes() as u64).sum()
    }

    /// Refuses profiles where too much is in no block yet.
    pub(crate) fn admit(&self) -> Result<(), Status> {
        let Config { unregistered, unregistered_share, .. } = &self.parts.config;
        let refused = |bound: String| {
            let message =
                format!("{bound}: the bucket does not take them fast enough; send them again later");
            Err(Status::new(Code::Exhausted, message).because("unregistered_limit").after(BUSY))
        };
        let held = self.unregistered_bytes();
        if held > unregistered.get() {
            let held = ByteSize::bytes(held).about();
            return refused(format!(
                "profiles that are in no block yet take {held} of memory, the limit is {unregistered} \
                 (ingester.unregistered)"
            ));
        }
        match self.parts.deps.consensus.log.space() {
            Some(Space { taken, disk }) if exceeds(taken, disk, *unregistered_share) => refused(format!(
                "the log, with the profiles that are in no block yet, takes {} of a disk of {}, the limit is \
                 {unregistered_share} percent (ingester.unregistered_share)",
                taken.about(),
                disk.about()
            )),
            // A disk that does not tell is asked again by the log, which refuses then.
            Some(_) | None => Ok(()),
        }
    }
}

fn exceeds(taken: ByteSize, disk: ByteSize, percent: u32) -> bool {
    u128::from(taken.get()) * 100 > u128::from(disk.get()) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_whole_disk() {
        let exceeds = |taken, disk, percent| exceeds(ByteSize::bytes(taken), ByteSize::bytes(disk), percent);
        assert!(!exceeds(80, 100, 80) && exceeds(81, 100, 80));
        assert!(!exceeds(u64::MAX, u64::MAX, 100) && exceeds(u64::MAX, u64::MAX, 99));
        assert!(!exceeds(0, 0, 80) && exceeds(1, 0, 80));
    }
}
