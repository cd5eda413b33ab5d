//! Single profiles on the wire.

use athanor_chassis::Status;
use athanor_proto::athanor::v1::{ProfileOrder as WireOrder, ProfileRow, ProfilesRequest, ProfilesResponse};
use athanor_query::{Ask, ListedProfile, Partial, ProfileOrder, Profiles, What};

use super::super::wire::{asked, labels, rows};
use super::MAX_LISTED;
use crate::check::{self, invalid};
use crate::{Querier, Reader, mixed_up};

/// What a row takes beside its labels.
const ROW: usize = 320;

impl Querier {
    /// A page of the profiles that a query merges.
    pub async fn profiles(
        &self,
        reader: &Reader,
        request: ProfilesRequest,
    ) -> Result<ProfilesResponse, Status> {
        self.again(reader, "Profiles", request, |request| self.listed(reader, request)).await
    }

    async fn listed(&self, reader: &Reader, request: ProfilesRequest) -> Result<ProfilesResponse, Status> {
        let (asked, page) = (asked(self, request.query, "query").await?, rows(request.page)?);
        let order = match WireOrder::try_from(request.order).unwrap_or_default() {
            WireOrder::Newest => ProfileOrder::Newest,
            WireOrder::Heaviest => ProfileOrder::Heaviest,
        };
        let keep = (page.offset + page.limit) as u64;
        if keep > MAX_LISTED {
            return Err(invalid(format!(
                "page ends at row {keep}, the limit is {MAX_LISTED}; ask for a shorter time, up to that of the last row"
            )));
        }
        let unit = asked.unit();
        let what = What::Profiles(Profiles { order, keep, stacks: asked.stacks.filter });
        let ask = Ask { selection: asked.selection, what, bounds: check::bounds() };
        let Partial::Profiles(list) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        let (querier, held) = (self.clone(), reader.clone());
        self.shape(reader, move || {
            let shown = || page.of(list.rows());
            let bytes = |row: &ListedProfile| ROW + 2 * row.labels.text_bytes() + 64 * row.labels.len();
            querier.make_room(&held, shown().map(bytes).sum())?;
            let rows = shown().map(|one| ProfileRow {
                id: check::uuid(one.id),
                labels: labels(&one.labels, &held),
                time_nanos: one.time,
                duration_nanos: one.duration,
                period: one.period,
                total: one.total,
            });
            let rows = rows.collect();
            Ok(ProfilesResponse { unit, count: list.profiles, rows, missing: held.lacks() })
        })
        .await?
    }
}
