//! Report of ids that a shard lost to damage of the disk.

use athanor_catalog::{Catalog, CatalogError, DataLoss, ShardId};
use athanor_consensus::RaftGroup;

use crate::log::state_machine::ShardStateMachine;

/// Reports lost ids of a shard to the catalog, if there are any, so that results mention them.
pub(crate) async fn report_lost_ids(
    catalog: &dyn Catalog,
    shard: ShardId,
    log: &RaftGroup<ShardStateMachine>,
) -> Result<(), CatalogError> {
    let Some(to) = log.with_state_machine(ShardStateMachine::lost_ids_index) else { return Ok(()) };
    tracing::error!(
        shard,
        to,
        "lost dedup ids of records up to this entry to disk damage, their duplicates are stored"
    );
    catalog.record_data_loss(DataLoss::ForgottenIds { shard, to }).await?;
    log.with_state_machine(ShardStateMachine::clear_lost_ids);
    Ok(())
}
