//! Parts of a block by the bytes that they need.

use std::collections::BTreeSet;
use std::ops::Range;

use athanor_block::{Block, FileRanges};
use athanor_catalog::{BlockEntry, PartId};

/// Returns the part that stands for a whole block: the first one that the job takes. If the block is damaged as
/// a whole, the later jobs find the others.
pub(crate) fn part_of_block(entry: &BlockEntry) -> PartId {
    let tenant = entry.tenants.first().map(|span| span.tenant.clone()).unwrap_or_default();
    PartId { block: entry.id, tenant }
}

/// Returns the first part of which a range of a file holds bytes. Footers and other bytes of the whole block belong
/// to the part that stands for it.
pub(crate) fn part_of_page(
    entry: &BlockEntry,
    block: &Block,
    file: &str,
    range: &Range<u64>,
) -> Option<PartId> {
    let meets = |ranges: &FileRanges| {
        let is_hit = |(of_file, other): &(&str, Range<u64>)| {
            *of_file == file && other.start < range.end && range.start < other.end
        };
        ranges.iter().any(is_hit)
    };
    for span in &entry.tenants {
        match block.byte_ranges_of(Some(&BTreeSet::from([span.tenant.to_string()]))) {
            Ok(ranges) if meets(&ranges) => {
                return Some(PartId { block: entry.id, tenant: span.tenant.clone() });
            }
            Ok(_) => {}
            // Without the footers no part can be read.
            Err(_) => return Some(part_of_block(entry)),
        }
    }
    None
}
