//! Resolution of a result: the tier by stretch of time.

use std::collections::BTreeMap;
use std::fmt;

use athanor_chassis::{Tier, Timestamp};

/// Maximum number of stretches that a result states.
const MAX_RESOLUTION_STRETCHES: usize = 16;
const NANOS_PER_MILLISECOND: i64 = 1_000_000;

/// Stretch of time with one resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolutionStretch {
    /// Coarsest tier that was read.
    pub tier: Tier,
    /// Time before the stretch, Unix nanoseconds.
    pub after: i64,
    /// Last time of the stretch, Unix nanoseconds.
    pub until: i64,
}

/// Resolution of a result by stretch of time: few stretches, ascending and disjoint. Uncovered raw rows may add to
/// a stretch of a coarser tier.
///
/// Its text is `raw` if all data is raw. Otherwise it lists stretches, such as
/// `1h 2026-01-01T00:00:00Z/2026-01-02T00:00:00Z, raw 2026-01-02T00:00:00Z/2026-01-02T06:00:00Z`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultResolution {
    stretches: Vec<ResolutionStretch>,
}

impl ResultResolution {
    /// Creates a resolution from stretches in any order. Where they overlap, the coarsest tier remains.
    pub fn from_stretches(stretches: impl IntoIterator<Item = ResolutionStretch>) -> Self {
        let all: Vec<ResolutionStretch> =
            stretches.into_iter().filter(|stretch| stretch.after < stretch.until).collect();
        // Number of stretches of each tier that begin or end at a time.
        let mut changes: BTreeMap<i64, [i32; Tier::ALL.len()]> = BTreeMap::new();
        for stretch in &all {
            let tier = usize::from(stretch.tier.number());
            changes.entry(stretch.after).or_default()[tier] += 1;
            changes.entry(stretch.until).or_default()[tier] -= 1;
        }
        let mut open = [0; Tier::ALL.len()];
        let mut stretches: Vec<ResolutionStretch> = Vec::new();
        let ends = changes.keys().skip(1).copied().collect::<Vec<i64>>();
        for ((after, change), until) in changes.into_iter().zip(ends) {
            open.iter_mut().zip(change).for_each(|(count, change)| *count += change);
            let coarsest = Tier::ALL.into_iter().rev().find(|tier| open[usize::from(tier.number())] > 0);
            let Some(tier) = coarsest else { continue };
            match stretches.last_mut().filter(|last| last.tier == tier && last.until == after) {
                Some(last) => last.until = until,
                None => stretches.push(ResolutionStretch { tier, after, until }),
            }
        }
        let mut resolution = ResultResolution { stretches };
        resolution.join_smallest();
        resolution
    }

    /// Adds the resolution of another result of the same response.
    pub fn merge(&mut self, other: &Self) {
        let all = self.stretches.iter().chain(&other.stretches).copied();
        *self = Self::from_stretches(all);
    }

    /// Returns the stretches.
    pub fn stretches(&self) -> &[ResolutionStretch] {
        &self.stretches
    }

    /// Returns true if nothing was read from a downsampled tier.
    pub fn is_raw(&self) -> bool {
        self.stretches.iter().all(|stretch| stretch.tier.is_raw())
    }

    /// Joins the smallest stretches with their neighbors, until there are few.
    fn join_smallest(&mut self) {
        while self.stretches.len() > MAX_RESOLUTION_STRETCHES {
            let length = |stretch: &ResolutionStretch| i128::from(stretch.until) - i128::from(stretch.after);
            let pairs = self.stretches.windows(2).map(|pair| length(&pair[0]).min(length(&pair[1])));
            let Some((place, _)) = pairs.enumerate().min_by_key(|(_, length)| *length) else { return };
            let next = self.stretches.remove(place + 1);
            let joined = &mut self.stretches[place];
            joined.tier = joined.tier.max(next.tier);
            joined.until = next.until;
        }
    }
}

impl fmt::Display for ResultResolution {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_raw() {
            return out.write_str(Tier::Raw.name());
        }
        for (number, ResolutionStretch { tier, after, until }) in self.stretches.iter().enumerate() {
            let separator = if number > 0 { ", " } else { "" };
            let [after, until] = [*after, *until].map(format_time);
            write!(out, "{separator}{tier} {after}/{until}")?;
        }
        Ok(())
    }
}

/// Formats a time, rounded to milliseconds: ranges of requests end just before one. Full seconds have no fraction.
fn format_time(nanos: i64) -> String {
    let past = nanos.rem_euclid(NANOS_PER_MILLISECOND);
    let rounded = if past * 2 < NANOS_PER_MILLISECOND {
        nanos.saturating_sub(past)
    } else {
        nanos.saturating_add(NANOS_PER_MILLISECOND - past)
    };
    Timestamp::from_nanos(rounded).to_string().replace(".000Z", "Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn stretch(tier: Tier, after: i64, until: i64) -> ResolutionStretch {
        ResolutionStretch { tier, after: after * HOUR, until: until * HOUR }
    }

    #[test]
    fn resolution_without_downsampled_stretch_is_raw() {
        assert_eq!(ResultResolution::default().to_string(), "raw");
        let raw = ResultResolution::from_stretches([stretch(Tier::Raw, 1, 2), stretch(Tier::Raw, 5, 6)]);
        assert!(raw.is_raw());
        assert_eq!(raw.to_string(), "raw");
        let mixed =
            [stretch(Tier::Raw, 24, 25), ResolutionStretch { after: -1, ..stretch(Tier::OneDay, 0, 24) }];
        assert_eq!(
            ResultResolution::from_stretches(mixed).to_string(),
            "1d 1970-01-01T00:00:00Z/1970-01-02T00:00:00Z, raw 1970-01-02T00:00:00Z/1970-01-02T01:00:00Z"
        );
    }

    #[test]
    fn merged_resolution_is_coarsest_of_each_stretch() {
        let mut merged =
            ResultResolution::from_stretches([stretch(Tier::OneHour, 0, 4), stretch(Tier::Raw, 4, 6)]);
        merged.merge(&ResultResolution::from_stretches([
            stretch(Tier::Raw, -1, 1),
            stretch(Tier::FiveMinutes, 3, 5),
            stretch(Tier::OneDay, 8, 9),
        ]));
        let expected = [
            stretch(Tier::Raw, -1, 0),
            stretch(Tier::OneHour, 0, 4),
            stretch(Tier::FiveMinutes, 4, 5),
            stretch(Tier::Raw, 5, 6),
            stretch(Tier::OneDay, 8, 9),
        ];
        assert_eq!(merged.stretches(), expected);
    }

    #[test]
    fn many_stretches_join_to_few_of_the_coarser_tier() {
        let tiers = [Tier::Raw, Tier::FiveMinutes, Tier::OneHour];
        let many = (0..100).map(|hour| stretch(tiers[hour % 3], hour as i64 * 2, hour as i64 * 2 + 2));
        let resolution = ResultResolution::from_stretches(many.clone());
        assert!(resolution.stretches().len() <= MAX_RESOLUTION_STRETCHES);
        for part in many {
            let within = |of: &&ResolutionStretch| of.after <= part.after && part.until <= of.until;
            let stated = resolution.stretches().iter().find(within).expect("a stretch of this time");
            assert!(stated.tier >= part.tier);
        }
    }
}
