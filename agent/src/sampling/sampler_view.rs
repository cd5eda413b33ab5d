//! State of the sampler, as pages show it.

use std::collections::BTreeMap;

use athanor_agent_ebpf::layout::{LostReason, StackEnd};

use super::collector_state::CollectorStats;
use super::labels::LabelDrop;
use crate::operator::views::SamplerView;

/// Returns the state of the sampler for pages.
pub fn sampler_view(stats: &CollectorStats) -> SamplerView {
    let sampler = &stats.sampler;
    let by_name = |names: &mut dyn Iterator<Item = &'static str>, counts: &[u64]| -> BTreeMap<String, u64> {
        names.map(str::to_owned).zip(counts.iter().copied()).collect()
    };
    let mut incomplete = by_name(&mut StackEnd::ALL.iter().map(|end| end.name()), &sampler.samples_by_end);
    incomplete.remove(StackEnd::Complete.name());
    let evictions = [sampler.pages_evicted, sampler.processes_evicted, sampler.names_evicted];
    SamplerView {
        state: stats.phase.name().to_owned(),
        problem: stats.phase.problem().map(str::to_owned),
        rate_hz: sampler.rate_hz,
        cpu_percent: sampler.cpu_percent,
        processes: sampler.processes,
        pages: sampler.pages,
        rows: sampler.rows,
        map_bytes: sampler.map_bytes,
        table_bytes: sampler.table_bytes,
        evictions: by_name(&mut ["page", "process", "names"].into_iter(), &evictions),
        program_nanos_per_sample: sampler
            .program_nanos
            .checked_div(sampler.samples_taken)
            .unwrap_or_default(),
        windows: stats.windows,
        lost_windows: stats.lost_windows,
        samples_taken: sampler.samples_taken,
        samples_delivered: sampler.samples_delivered,
        samples_stored: stats.samples_stored,
        samples_lost: by_name(&mut LostReason::ALL.iter().map(|reason| reason.name()), &sampler.samples_lost),
        samples_incomplete: incomplete,
        samples_dropped: by_name(
            &mut LabelDrop::ALL.iter().map(|reason| reason.name()),
            &stats.samples_dropped,
        ),
        profiles: stats.profiles,
        rejected_profiles: stats.rejected_profiles,
    }
}
