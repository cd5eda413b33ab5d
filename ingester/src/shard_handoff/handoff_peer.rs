//! Requests among the shards of a slot: the ids of the previous shard, and the records that the serving shard
//! holds already.

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, ShardId};
use athanor_chassis::Status;
use athanor_profile::encoding::hash::ContentHash;
use bytes::Bytes;

/// Maximum ids in one message.
pub const MAX_IDS_PER_PAGE: usize = 100_000;

/// Client to other shards of a slot, wherever they are.
#[async_trait]
pub trait HandoffPeer: Send + Sync + 'static {
    /// Fetches a page of a shard's dedup window: [`Ingester::window_page`](crate::Ingester::window_page) of one of its members. If that
    /// member is unavailable or does not lead, the client calls another one.
    async fn fetch_window_page(
        &self,
        shard: &ShardEntry,
        request: HandoffWindowRequest,
    ) -> Result<WindowPage, Status>;

    /// Requests a shard to take over ids, at most [`MAX_IDS_PER_PAGE`]: [`Ingester::reconcile_ids`](crate::Ingester::reconcile_ids) of its
    /// leader.
    async fn reconcile_ids(
        &self,
        shard: &ShardEntry,
        from_shard: ShardId,
        ids: Vec<ContentHash>,
    ) -> Result<Vec<bool>, Status>;
}

/// Request for a page of a shard's dedup window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoffWindowRequest {
    /// ID after which the page begins.
    pub after: Option<ContentHash>,
    /// Minimum log age of returned ids: the [`WindowPage::log_age`] of the first page of an earlier copy.
    pub min_age: u32,
    /// Index of the log entry that the member must have applied.
    pub min_applied: u64,
    /// True if the successor has a complete copy and requests only later ids.
    pub incremental: bool,
    /// Index of the log entry after which the delta state is requested, instead of ids.
    pub delta_state_after: Option<u64>,
}

/// Page of a shard's dedup window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowPage {
    /// IDs, ascending; at most [`MAX_IDS_PER_PAGE`].
    pub ids: Vec<ContentHash>,
    /// Positions of ids that were inherited from reconciled shards, with those shards.
    pub inherited: Vec<(u32, ShardId)>,
    /// Shards that gave ids and may have rows that no block contains.
    pub held_for: Vec<ShardId>,
    /// True if more ids may follow the last one.
    pub has_more: bool,
    /// Approximate log time of the shard in seconds.
    pub log_age: u32,
    /// Retention of ids in nanoseconds.
    pub retention_nanos: u64,
    /// Encoded delta state with the index of its log entry; none if no such entry follows.
    pub delta_state: Option<(u64, Bytes)>,
}

impl WindowPage {
    /// Returns whether the page continues after an id, so that paging comes to an end.
    pub(crate) fn advances_from(&self, after: Option<ContentHash>) -> bool {
        let ascend = self.ids.is_sorted_by(|one, next| one < next);
        let behind = self.ids.first().is_none_or(|&first| after.is_none_or(|after| after < first));
        ascend && behind && self.ids.len() <= MAX_IDS_PER_PAGE && !(self.has_more && self.ids.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeated pages must not keep a successor in an endless loop.
    #[test]
    fn page_that_does_not_advance_is_rejected() {
        let advances = |ids: &[ContentHash], has_more, after| {
            WindowPage { ids: ids.to_vec(), has_more, ..WindowPage::default() }.advances_from(after)
        };
        assert!(
            advances(&[1, 5], true, None)
                && advances(&[1, 5], true, Some(0))
                && advances(&[], false, Some(9))
        );
        for (ids, has_more, after) in [
            (&[1, 5][..], true, Some(1)),
            (&[1, 5], false, Some(7)),
            (&[5, 1], true, None),
            (&[5, 5], false, None),
        ] {
            assert!(!advances(ids, has_more, after), "{ids:?} after {after:?}");
        }
        assert!(!advances(&[], true, Some(9)), "there is more of nothing");
        assert!(
            !advances(&(0..=MAX_IDS_PER_PAGE as ContentHash).collect::<Vec<_>>(), true, None),
            "too many at once"
        );
    }
}
