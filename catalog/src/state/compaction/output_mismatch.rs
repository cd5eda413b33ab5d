//! Properties in which outputs of a job differ from what its inputs require.

use std::fmt;

use athanor_chassis::{TenantId, Tier};
use serde::{Deserialize, Serialize};

use crate::block::BlockId;

/// Property in which an output differs from what its inputs require.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMismatch {
    /// The block's log ranges differ from those of the input blocks of its tenants.
    LogRanges,
    /// The block's level is not 1 to 3, or below that of an input. The field is the lowest permitted level.
    Level(u8),
    /// The level of a merged downsampled block is not 3 or 4, or below that of an input. The field is the
    /// lowest permitted level.
    TierLevel(u8),
    /// The block's level differs from that of the job's first raw output, which is the field.
    JobLevel(u8),
    /// The block is of a tier that the job does not write. The field is the tier of the inputs.
    Tier(Tier),
    /// The job merges raw parts below level 2, so it writes no downsampled block.
    UnexpectedTier(Tier),
    /// A raw block from level 2 on is not marked as covered.
    NotCovered,
    /// The block is marked as covered, but it is downsampled, or its level is below 2.
    UnexpectedCoverage,
    /// The block's level requires exactly one tenant, or the block has none. The field is their number.
    TenantCount(usize),
    /// The block does not name the token of the job.
    Token(u64),
    /// The block's id is in use already.
    IdInUse,
    /// The block's id is older than one of its inputs. A rebuild of the catalog could not order the two.
    OlderThanInput(BlockId),
    /// The block states lost entries, which only the catalog moves.
    LostEntries,
    /// The block's number of samples differs from the sum over its tenants.
    SampleCount,
    /// A tenant is not in the job, or is in the block more than once.
    UnknownTenant(TenantId),
    /// The block states no profiles of a tenant, or no sum of its values.
    MissingTotals(TenantId),
    /// A tenant's profiles are earlier or later than those of the inputs.
    ProfileTimes(TenantId),
    /// The times of a tenant's downsampled rows are not ends of buckets in which the inputs have rows.
    BucketTimes(TenantId),
    /// The newest arrival of a tenant's rows differs from that of the inputs.
    NewestArrival(TenantId),
    /// A block that stays listed may hold the same rows.
    OverlapsBlock(BlockId),
}

/// Count that a job has to conserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConservedCount {
    /// Number of profiles.
    Profiles,
    /// Number of samples.
    Samples,
    /// Sum of the sample values, modulo 2^64.
    Sum,
}

/// Highest level of a raw merged block: windows of one day.
pub(in crate::state) const MAX_RAW_LEVEL: u8 = 3;
/// Highest level of a downsampled block: windows of 30 days.
pub(in crate::state) const MAX_TIER_LEVEL: u8 = 4;

impl fmt::Display for ConservedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Profiles => "number of profiles",
            Self::Samples => "number of samples",
            Self::Sum => "sum of values",
        })
    }
}

impl fmt::Display for OutputMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogRanges => f.write_str(
                "its log ranges differ; list the ranges of all input blocks of its tenants, joined and in order",
            ),
            Self::Level(lowest) => write!(f, "its level is not {lowest} to {MAX_RAW_LEVEL}"),
            Self::TierLevel(lowest) => {
                write!(f, "it is a merge of downsampled blocks, and its level is not {lowest} to {MAX_TIER_LEVEL}")
            }
            Self::JobLevel(level) => {
                write!(f, "its level is not {level}, the level of the job's first raw block; write all blocks of one level")
            }
            Self::Tier(inputs) => {
                write!(f, "its tier differs from {inputs}, the tier of the inputs; merge each tier alone")
            }
            Self::UnexpectedTier(tier) => write!(
                f,
                "it is of tier {tier}, which only jobs with raw blocks from level 2 on write; write raw blocks only"
            ),
            Self::NotCovered => f.write_str(
                "it is a raw block from level 2 on and not covered; write the uncovered rows to all tiers and mark it",
            ),
            Self::UnexpectedCoverage => {
                f.write_str("it is marked as covered, which only raw blocks from level 2 on are; write it unmarked")
            }
            Self::TenantCount(seen) => {
                write!(f, "it has {seen} tenants; write at least one, and one per block from level 2 on")
            }
            Self::Token(token) => write!(f, "it does not name job {token}"),
            Self::IdInUse => f.write_str("another block has its id; write it under a new id"),
            Self::OlderThanInput(input) => {
                write!(f, "its id is older than that of its input {input}; write it under a new id")
            }
            Self::LostEntries => f.write_str("it states lost entries; leave them to the catalog"),
            Self::SampleCount => f.write_str("its number of samples is not the sum over its tenants"),
            Self::UnknownTenant(tenant) => {
                write!(f, "tenant {tenant} is not in the job, or is in the block more than once")
            }
            Self::MissingTotals(tenant) => {
                write!(f, "it states no profiles of tenant {tenant}, or no sum of their values")
            }
            Self::ProfileTimes(tenant) => {
                write!(f, "profiles of tenant {tenant} are earlier or later than those of the inputs")
            }
            Self::BucketTimes(tenant) => write!(
                f,
                "times of tenant {tenant} are not ends of buckets of the inputs; give each row the end of its bucket"
            ),
            Self::NewestArrival(tenant) => {
                write!(f, "the newest arrival of tenant {tenant} differs from that of the inputs")
            }
            Self::OverlapsBlock(other) => write!(
                f,
                "block {other} stays listed with rows of the same ranges and tenants; merge these parts as well"
            ),
        }
    }
}
