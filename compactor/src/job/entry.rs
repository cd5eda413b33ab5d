//! Entries of outputs in the catalog, and their origin in `meta.json`.

use std::collections::{BTreeMap, BTreeSet};

use athanor_block::{BlockMeta, BlockOrigin, JobOrigin, LogRange, TenantMeta};
use athanor_catalog::{BlockEntry, BlockId, CompactionJob, ShardLogRange, TENANT_FOLDER_LEVEL, TenantSpan};
use athanor_chassis::{TenantId, Tier, Timestamp};

use crate::error::JobError;

/// Facts about a job that its outputs record.
pub(crate) struct OutputOrigins<'j> {
    pub(crate) job: &'j CompactionJob,
    pub(crate) token: u64,
    /// Id of the cluster, as blocks record it.
    pub(crate) cluster: &'j str,
    /// Ids of all outputs.
    pub(crate) outputs: Vec<String>,
}

impl OutputOrigins<'_> {
    /// Returns the origin of an output of a tier with rows of some tenants. Its log ranges are those of the input
    /// blocks with a part of one of them.
    pub(crate) fn origin(&self, tenants: &BTreeSet<String>, tier: Tier) -> Result<BlockOrigin, JobError> {
        let has_part =
            |input: &&BlockEntry| input.tenants.iter().any(|span| tenants.contains(span.tenant.as_str()));
        let inputs = self.job.inputs.iter().filter(has_part);
        let mut ranges = ShardLogRange::join_adjacent(inputs.flat_map(BlockEntry::log_ranges)).into_iter();
        let first = ranges.next().ok_or_else(|| JobError::from_reason("no input has rows of an output"))?;
        let additional_ranges =
            ranges.map(|ShardLogRange { shard, epoch, from, to }| LogRange { shard, epoch, from, to });
        Ok(BlockOrigin {
            cluster: self.cluster.to_owned(),
            shard: first.shard,
            epoch: first.epoch,
            from: first.from,
            to: first.to,
            lost: 0,
            level: self.job.level,
            additional_ranges: additional_ranges.collect(),
            tier,
            is_covered: tier.is_raw() && writes_tiers(self.job),
            job: Some(self.job_origin()),
        })
    }

    /// Returns the record of the job, from which a rebuilt catalog learns the inputs of an output.
    pub(crate) fn job_origin(&self) -> JobOrigin {
        let parts = self.job.parts();
        let tenants = parts.tenants.into_iter().map(|(tenant, indexes)| (tenant.to_string(), indexes));
        JobOrigin {
            token: self.token,
            outputs: self.outputs.clone(),
            blocks: parts.blocks.iter().map(BlockId::to_string).collect(),
            tenants: tenants.collect(),
        }
    }
}

/// Returns whether a job adds the rows of its inputs to the downsampled tiers.
pub(crate) fn writes_tiers(job: &CompactionJob) -> bool {
    job.tier.is_raw() && job.level >= TENANT_FOLDER_LEVEL
}

/// Returns the newest arrival of each tenant's rows in a job, in Unix nanoseconds.
pub(crate) fn newest_arrivals(job: &CompactionJob) -> BTreeMap<String, u64> {
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for input in &job.inputs {
        for span in &input.tenants {
            let arrival = u64::try_from(input.newest_arrival(span).nanos()).unwrap_or_default();
            let of_tenant = newest.entry(span.tenant.to_string()).or_default();
            *of_tenant = arrival.max(*of_tenant);
        }
    }
    newest
}

/// Returns the catalog's entry of an output.
pub(crate) fn output_entry(
    id: BlockId,
    meta: &BlockMeta,
    origin: &BlockOrigin,
) -> Result<BlockEntry, JobError> {
    let range = |&LogRange { shard, epoch, from, to }: &LogRange| ShardLogRange { shard, epoch, from, to };
    Ok(BlockEntry {
        id,
        shard: origin.shard,
        epoch: origin.epoch,
        from: origin.from,
        to: origin.to,
        bytes: meta.bytes(),
        samples: meta.samples(),
        lost: origin.lost,
        level: origin.level,
        additional_ranges: origin.additional_ranges.iter().map(range).collect(),
        tier: origin.tier,
        is_covered: origin.is_covered,
        job: origin.job.as_ref().map(|job| job.token),
        tenants: meta.tenants.iter().map(tenant_span).collect::<Result<_, _>>()?,
    })
}

fn tenant_span(part: &TenantMeta) -> Result<TenantSpan, JobError> {
    Ok(TenantSpan {
        tenant: parse_tenant(&part.tenant)?,
        min_time: part.min_time,
        max_time: part.max_time,
        profiles: part.profile_count(),
        samples: part.samples,
        sum: part.sum,
        newest_arrival: Timestamp::from_nanos(i64::try_from(part.newest_arrival).unwrap_or(i64::MAX)),
    })
}

/// Parses a tenant as blocks name it.
pub(crate) fn parse_tenant(name: &str) -> Result<TenantId, JobError> {
    name.parse().map_err(|error| JobError::from_reason(format!("output has an invalid tenant: {error}")))
}
