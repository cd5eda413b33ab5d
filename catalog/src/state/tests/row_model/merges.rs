//! Merges of the model's jobs, correct ones and wrong ones.

use std::collections::BTreeSet;

use athanor_chassis::Tier;

use super::super::jobs::output;
use super::super::*;
use super::{Job, MINUTE, Model, Row, SAMPLES_PER_ROW, newest_arrivals};
use crate::{DropReason, DroppedRows};

const WINDOW: i64 = 10;

/// Rows of one output before it is written.
#[derive(Default)]
struct OutputRows {
    all: BTreeSet<Row>,
    /// Rows of inputs that the tiers lack.
    uncovered: BTreeSet<Row>,
}

/// Rows of a job that it writes, by window and group of tenants, and rows that it drops.
#[derive(Default)]
struct MergedRows {
    outputs: BTreeMap<(i64, usize), OutputRows>,
    dropped: BTreeMap<(TenantId, bool), DroppedRows>,
}

impl Model {
    /// Merges the inputs of a job by windows, and drops a few rows. A final merge of raw parts writes the
    /// uncovered rows to all tiers.
    pub(super) fn merge(&mut self, job: &Job) -> CatalogCommand {
        let arrivals = newest_arrivals(&job.inputs);
        let tier = job.inputs[0].tier;
        let is_apart = self.below(2) == 0 || job.inputs.iter().any(|input| input.level > 1);
        let level = if tier.is_raw() { if is_apart { 3 } else { 1 } } else { 3 + self.below(2) as u8 };
        let MergedRows { outputs: groups, dropped } = self.divide_rows(job, is_apart);
        let mut outputs = Vec::new();
        for rows in groups.into_values() {
            outputs.push(self.write_output(job, tier, level, &rows.all, &arrivals));
            let downsampled = Tier::DOWNSAMPLED.into_iter().filter(|_| tier.is_raw() && level > 1);
            for lower in downsampled.filter(|_| !rows.uncovered.is_empty()) {
                outputs.push(self.write_output(job, lower, level, &rows.uncovered, &arrivals));
            }
        }
        let compared = match self.below(8) {
            0 => Vec::new(),
            _ => self.state.blocks().filter(|block| block.is_covered).map(|block| block.id).collect(),
        };
        CatalogCommand::FinishJob {
            token: job.token,
            outputs,
            dropped: dropped.into_values().collect(),
            compared,
        }
    }

    fn divide_rows(&self, job: &Job, is_apart: bool) -> MergedRows {
        let drops = self.below(3) == 0;
        let mut merged = MergedRows::default();
        for input in &job.inputs {
            for part in JobParts::from_entries([input]).iter() {
                for row in self.files[&part].clone() {
                    if drops && self.below(5) == 0 {
                        merged.drop_row(input, part.tenant.clone(), row);
                        continue;
                    }
                    let window = (row.time - 1).div_euclid(WINDOW);
                    let group = if is_apart { row.tenant } else { 0 };
                    let rows = merged.outputs.entry((window, group)).or_default();
                    rows.all.insert(row);
                    if !input.is_covered {
                        rows.uncovered.insert(row);
                    }
                }
            }
        }
        merged
    }

    fn write_output(
        &mut self,
        job: &Job,
        tier: Tier,
        level: u8,
        rows: &BTreeSet<Row>,
        arrivals: &BTreeMap<TenantId, Timestamp>,
    ) -> BlockEntry {
        let id = self.next_id();
        let spans = self.write(id, tier, rows, |tenant| arrivals[tenant]);
        let output = output(&job.inputs, id.number(), spans, job.token);
        let level = output.level.max(level);
        BlockEntry { level, tier, is_covered: tier.is_raw() && level > 1, ..output }
    }

    /// Changes one fact of one output or of the dropped rows, or leaves an output out. The result loses rows, adds
    /// some, or marks them wrongly.
    pub(super) fn corrupt(&self, job: &Job, command: CatalogCommand) -> CatalogCommand {
        let CatalogCommand::FinishJob { token, mut outputs, mut dropped, compared } = command else {
            return command;
        };
        let choice = self.below(outputs.len() as u64) as usize;
        let covered = job.inputs.iter().find(|input| input.is_covered).map(|input| input.tenants[0].clone());
        let flagged = dropped.iter().position(|rows| rows.profiles > 0).filter(|_| self.below(4) == 0);
        let Some(output) = outputs.get_mut(choice) else {
            dropped.iter_mut().for_each(|rows| rows.profiles += 1);
            return CatalogCommand::FinishJob { token, outputs, dropped, compared };
        };
        if let Some(position) = flagged {
            dropped[position].is_covered ^= true;
            return CatalogCommand::FinishJob { token, outputs, dropped, compared };
        }
        let span = &mut output.tenants[0];
        match (self.below(9), covered) {
            (0, _) => span.profiles += 1,
            (1, _) => span.sum = span.sum.map(|sum| sum.wrapping_sub(1)),
            (2, _) if output.tier == job.inputs[0].tier => {
                span.samples += 1;
                output.samples += 1;
            }
            (3, _) => span.newest_arrival = span.newest_arrival.plus(MINUTE),
            (4, _) => output.job = Some(token + 1),
            (5, _) => output.is_covered ^= true,
            (6, _) => {
                let next = (usize::from(output.tier.number()) + 1) % Tier::ALL.len();
                output.tier = Tier::ALL[next];
            }
            // A row of a covered part is written to a tier once more.
            (7, Some(rows)) if !output.tier.is_raw() && rows.tenant == span.tenant => {
                span.profiles += rows.profiles;
                span.sum = span.sum.map(|sum| sum.wrapping_add(rows.sum.unwrap()));
            }
            _ => drop(outputs.remove(choice)),
        }
        CatalogCommand::FinishJob { token, outputs, dropped, compared }
    }
}

impl MergedRows {
    fn drop_row(&mut self, input: &BlockEntry, tenant: TenantId, row: Row) {
        let is_covered = input.is_covered;
        let none = DroppedRows {
            tenant: tenant.clone(),
            reason: DropReason::Duplicate,
            profiles: 0,
            samples: 0,
            sum: 0,
            is_covered,
        };
        let rows = self.dropped.entry((tenant, is_covered)).or_insert(none);
        rows.profiles += 1;
        rows.samples += if input.tier.is_raw() { SAMPLES_PER_ROW } else { 1 };
        rows.sum = rows.sum.wrapping_add(row.value());
    }
}
