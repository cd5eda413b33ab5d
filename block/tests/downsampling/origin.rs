//! Origin of blocks with a downsampled tier.

use athanor_block::{BlockOrigin, JobOrigin};
use athanor_chassis::Tier;

/// Returns the origin of a block that a job merged into a tier.
pub fn origin_of_tier(id: &str, tier: Tier) -> BlockOrigin {
    BlockOrigin {
        cluster: "c".to_owned(),
        shard: 1,
        epoch: 1,
        from: 0,
        to: 9,
        lost: 0,
        level: 2,
        additional_ranges: Vec::new(),
        job: Some(JobOrigin {
            outputs: vec![id.to_owned()],
            blocks: vec!["input".to_owned()],
            ..JobOrigin::default()
        }),
        tier,
        is_covered: false,
    }
}
