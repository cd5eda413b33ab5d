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
        of: &ShardEntry,
        ask: HandoffWindowRequest,
    ) -> Result<WindowPage, Status>;

    /// Requests a shard to take over ids, at most [`MAX_IDS_PER_PAGE`]: [`Ingester::reconcile_ids`](crate::Ingester::reconcile_ids) of its
    /// leader.
    async fn reconcile_ids(
        &self,
        with: &ShardEntry,
        by: ShardId,
        ids: Vec<ContentHash>,
    ) -> Result<Vec<bool>, Status>;
}

/// Request for a page of a shard's dedup window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoffWindowRequest {
    /// ID after which the page begins.
    pub after: Option<ContentHash>,
    /// Age from which on ids are returned: the [`WindowPage::age`] of the first page of an earlier copy.
    pub since: u32,
    /// Entry that the member must have applied.
    pub upto: u64,
    /// True if the successor has a whole copy already, and requests later ids.
    pub again: bool,
    /// Entry after which values of cumulative series are requested, instead of ids.
    pub counted: Option<u64>,
}

/// Page of a shard's dedup window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowPage {
    /// IDs, ascending; at most [`MAX_IDS_PER_PAGE`].
    pub ids: Vec<ContentHash>,
    /// Positions of ids that were inherited from reconciling shards, and those shards.
    pub taken: Vec<(u32, ShardId)>,
    /// Shards that gave ids and may have rows in no block.
    pub holds: Vec<ShardId>,
    /// True if more ids may follow the last one.
    pub more: bool,
    /// Log time of the shard, in about seconds.
    pub age: u32,
    /// Time for which ids are kept, nanoseconds.
    pub span: u64,
    /// Values of cumulative series and their entry; none if no entry follows.
    pub counted: Option<(u64, Bytes)>,
}

impl WindowPage {
    /// Returns whether the page continues after an id, so that paging comes to an end.
    pub(crate) fn advances_from(&self, after: Option<ContentHash>) -> bool {
        let ascend = self.ids.is_sorted_by(|one, next| one < next);
        let behind = self.ids.first().is_none_or(|&first| after.is_none_or(|after| after < first));
        ascend && behind && self.ids.len() <= MAX_IDS_PER_PAGE && !(self.more && self.ids.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that says the same again and again must not keep its successor asking for ever.
    #[test]
    fn pages_go_on_or_are_refused() {
        let goes_on = |ids: &[ContentHash], more, after| {
            WindowPage { ids: ids.to_vec(), more, ..WindowPage::default() }.advances_from(after)
        };
        assert!(
            goes_on(&[1, 5], true, None) && goes_on(&[1, 5], true, Some(0)) && goes_on(&[], false, Some(9))
        );
        for (ids, more, after) in [
            (&[1, 5][..], true, Some(1)),
            (&[1, 5], false, Some(7)),
            (&[5, 1], true, None),
            (&[5, 5], false, None),
        ] {
            assert!(!goes_on(ids, more, after), "{ids:?} behind {after:?}");
        }
        assert!(!goes_on(&[], true, Some(9)), "there is more of nothing");
        assert!(
            !goes_on(&(0..=MAX_IDS_PER_PAGE as ContentHash).collect::<Vec<_>>(), true, None),
            "too many at once"
        );
    }
}
