//! Leases on parts.
//!
//! ```text
//!  ClaimParts ──► token ──RenewLeases──► … ──FinishJob──► finished
//!                   │ ├──FailJob──────────────────────► failure counted
//!                   │ └──lease over, parts claimed────► failure counted
//!                   └──part gone──────────────────────► ended without a failure
//! ```
//! The token is the fence, not the lease: a part is in at most one claim. So a finish after the end of its
//! lease is accepted if nobody else claimed a part of it [INV-21].

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::Tier;
use athanor_cluster::NodeId;

use crate::block::{BlockEntry, PartId, TenantSpan};
use crate::compaction::{JobParts, MAX_JOB_PARTS, PartClaim};
use crate::state::compaction::failures::JobFailure;
use crate::state::{CatalogState, CommandError, CommandOutcome, CommandResult};

/// Duration of a lease, by the catalog's time.
pub const JOB_LEASE: Duration = Duration::from_secs(60);

/// Message of the failure of a claim whose lease ran out.
const LEASE_EXPIRED: &str = "lease expired";

/// Listed part with its block.
#[derive(Clone, Copy, Debug)]
pub(in crate::state) struct ListedPart<'s> {
    /// Block that holds the rows.
    pub(in crate::state) block: &'s BlockEntry,
    /// Rows of the tenant.
    pub(in crate::state) span: &'s TenantSpan,
}

/// Returns the tier of a job's parts, which have to be of one tier.
pub(in crate::state) fn tier_of_parts(inputs: &[ListedPart<'_>]) -> Result<Tier, CommandError> {
    let expected = inputs.first().map_or(Tier::Raw, |part| part.block.tier);
    match inputs.iter().find(|part| part.block.tier != expected) {
        Some(ListedPart { block, span }) => {
            let part = PartId { block: block.id, tenant: span.tenant.clone() };
            Err(CommandError::MixedTiers { part, tier: block.tier, expected })
        }
        None => Ok(expected),
    }
}

impl CatalogState {
    /// Claims parts for a job. A retry by the same worker returns the token of its running claim.
    pub(in crate::state) fn claim_parts(
        &mut self,
        worker: NodeId,
        parts: JobParts,
    ) -> Result<CommandOutcome, CommandError> {
        let now = self.now;
        let is_retry =
            |claim: &PartClaim| claim.worker == worker && claim.is_running(now) && claim.parts == parts;
        if let Some((token, _)) = self.compaction.claims.iter().find(|(_, claim)| is_retry(claim)) {
            return Ok(CommandOutcome::NoOp(CommandResult::Claimed(*token)));
        }
        self.check_claimable(&parts)?;
        for token in self.superseded_claims(&parts)? {
            let Some(superseded) = self.compaction.claims.remove(&token) else { continue };
            let failure =
                JobFailure { parts: &superseded.parts, culprit: None, reason: LEASE_EXPIRED, at: now };
            let limited = self.compaction.count_failure(&failure);
            if let Some(part) = limited.into_iter().find(|part| parts.contains(part)) {
                return Ok(CommandOutcome::Changed(CommandResult::FailureLimit(part)));
            }
        }
        let token = self.revision.saturating_add(1);
        let claim = PartClaim { worker, expires_at: now.plus(JOB_LEASE), since: now, parts };
        self.compaction.claims.insert(token, claim.into());
        Ok(CommandOutcome::Changed(CommandResult::Claimed(token)))
    }

    fn check_claimable(&self, parts: &JobParts) -> Result<(), CommandError> {
        if self.compaction.is_paused {
            return Err(CommandError::CompactionPaused);
        }
        let count = parts.len();
        if count == 0 || count > MAX_JOB_PARTS || !parts.is_canonical() {
            return Err(CommandError::InvalidJobParts { seen: count });
        }
        tier_of_parts(&self.find_parts(parts)?)?;
        match parts.iter().find(|part| self.compaction.is_quarantined(part)) {
            Some(part) => Err(CommandError::PartQuarantined(part)),
            None => Ok(()),
        }
    }

    /// Returns the tokens of expired claims that share a part. A claim with a running lease is an error.
    fn superseded_claims(&self, parts: &JobParts) -> Result<Vec<u64>, CommandError> {
        let mut superseded = Vec::new();
        for (token, claim) in &self.compaction.claims {
            let Some(part) = claim.parts.first_shared_part(parts) else { continue };
            if claim.is_running(self.now) {
                return Err(CommandError::PartClaimed { part, token: *token });
            }
            superseded.push(*token);
        }
        Ok(superseded)
    }

    /// Returns the listed parts of a job, by tenant and block.
    pub(in crate::state) fn find_parts(&self, parts: &JobParts) -> Result<Vec<ListedPart<'_>>, CommandError> {
        let mut listed: BTreeMap<PartId, ListedPart<'_>> = BTreeMap::new();
        for id in &parts.blocks {
            let Some(block) = self.blocks.get(id) else { continue };
            let block: &BlockEntry = block;
            for span in block.tenants.iter().filter(|span| parts.tenants.contains_key(&span.tenant)) {
                let part = PartId { block: block.id, tenant: span.tenant.clone() };
                listed.insert(part, ListedPart { block, span });
            }
        }
        parts.iter().map(|part| listed.remove(&part).ok_or(CommandError::PartNotListed(part))).collect()
    }

    /// Renews the leases of a worker's claims, those that ran out included. The result is the number of claims
    /// that have not ended.
    pub(in crate::state) fn renew_leases(&mut self, worker: NodeId, tokens: &[u64]) -> CommandOutcome {
        let expires_at = self.now.plus(JOB_LEASE);
        let mut renewed = 0;
        let mut is_changed = false;
        for token in tokens {
            let claim = self.compaction.claims.get_mut(token).filter(|claim| claim.worker == worker);
            let Some(claim) = claim else { continue };
            renewed += 1;
            is_changed |= claim.expires_at != expires_at;
            claim.expires_at = expires_at;
        }
        match is_changed {
            true => CommandOutcome::Changed(CommandResult::Changed(renewed)),
            false => CommandOutcome::NoOp(CommandResult::Changed(renewed)),
        }
    }

    /// Ends a claim and counts the failure. A culprit that is not in the job counts as unknown.
    pub(in crate::state) fn fail_job(
        &mut self,
        token: u64,
        reason: &str,
        culprit: Option<PartId>,
    ) -> Result<CommandOutcome, CommandError> {
        let ended = CommandError::ClaimEnded { token };
        let claim = self.compaction.claims.remove(&token).ok_or(ended)?;
        let culprit = culprit.filter(|part| claim.parts.contains(part));
        let failure = JobFailure { parts: &claim.parts, culprit: culprit.as_ref(), reason, at: self.now };
        self.compaction.count_failure(&failure);
        Ok(CommandOutcome::from_count(1))
    }
}
