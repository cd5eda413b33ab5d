//! Lists on the wire.

use athanor_chassis::{Status, TenantId};
use athanor_profile::Labels;
use athanor_proto::querier::v1::{ProfileTypesRequest, ProfileTypesResponse, SeriesRequest, SeriesResponse};
use athanor_proto::types::v1::{
    GetProfileStatsRequest, GetProfileStatsResponse, LabelNamesRequest, LabelNamesResponse, LabelPair,
    LabelValuesRequest, LabelValuesResponse, Labels as WireLabels, ProfileType,
};
use athanor_query::{Ask, Bounds, Partial, Selection, Values, What};

use crate::check::{self, MILLI};
use crate::replan::{Asked, Attempt};
use crate::{Querier, Reader, Times, mixed_up};

/// What a request for types or an estimate without a range means: the last hour, in milliseconds.
const LAST_HOUR: i64 = 60 * 60 * 1_000;
/// Values of one label in an answer. What they take is bounded by the room for answers: mostly that is less.
const VALUES: usize = 8_000_000;

impl Querier {
    /// What is measured, sorted.
    pub async fn profile_types(
        &self,
        reader: &Reader,
        mut request: ProfileTypesRequest,
    ) -> Result<ProfileTypesResponse, Status> {
        (request.start, request.end) = self.range_or_last_hour(request.start, request.end);
        self.again(reader, "ProfileTypes", request, |request| self.types_of(reader, request)).await
    }

    async fn types_of(
        &self,
        reader: &Reader,
        ProfileTypesRequest { start, end }: ProfileTypesRequest,
    ) -> Result<ProfileTypesResponse, Status> {
        let selection = Selection { time: check::range(start, end)?, ..Selection::default() };
        let ask = Ask { selection, what: What::ProfileTypes, bounds: check::bounds() };
        let Partial::ProfileTypes(types) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        let mut profile_types: Vec<ProfileType> = types
            .into_iter()
            .map(|one| ProfileType {
                id: one.to_string(),
                name: one.name,
                sample_type: one.value.kind,
                sample_unit: one.value.unit,
                period_type: one.period.kind,
                period_unit: one.period.unit,
            })
            .collect();
        profile_types.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        Ok(ProfileTypesResponse { profile_types, missing: reader.lacks() })
    }

    /// A range in milliseconds; the last hour if none is given.
    pub(crate) fn range_or_last_hour(&self, start: i64, end: i64) -> (i64, i64) {
        match (start, end) {
            (0, 0) => {
                let now = self.deps.clock.wall().millis();
                (now - LAST_HOUR, now)
            }
            range => range,
        }
    }

    /// The names of labels, sorted.
    pub async fn label_names(
        &self,
        reader: &Reader,
        request: LabelNamesRequest,
    ) -> Result<LabelNamesResponse, Status> {
        self.again(reader, "LabelNames", request, |request| self.names_of(reader, request)).await
    }

    async fn names_of(
        &self,
        reader: &Reader,
        request: LabelNamesRequest,
    ) -> Result<LabelNamesResponse, Status> {
        let selection = self.matching(&request.matchers, request.start, request.end).await?;
        let ask = Ask { selection, what: What::LabelNames, bounds: check::bounds() };
        let Partial::Texts(names) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        let shown = reader.clone();
        let names = move || names.into_iter().filter(|name| shown.shows(name)).collect();
        let names = self.shape(reader, names).await?;
        Ok(LabelNamesResponse { names, missing: reader.lacks() })
    }

    /// The values of a label, sorted.
    pub async fn label_values(
        &self,
        reader: &Reader,
        request: LabelValuesRequest,
    ) -> Result<LabelValuesResponse, Status> {
        self.again(reader, "LabelValues", request, |request| self.values_of(reader, request)).await
    }

    async fn values_of(
        &self,
        reader: &Reader,
        request: LabelValuesRequest,
    ) -> Result<LabelValuesResponse, Status> {
        if request.name.is_empty() {
            return Err(check::invalid("request names no label; set name"));
        }
        let selection = self.matching(&request.matchers, request.start, request.end).await?;
        let limit = check::most(Some(request.limit)).unwrap_or(usize::MAX);
        // One more tells whether there are more.
        let most = limit.checked_add(1).map_or(0, |most| most as u64);
        let what = What::LabelValues(Values { name: request.name, prefix: request.prefix, most });
        let bounds = Bounds { entries: VALUES, ..check::bounds() };
        let ask = Ask { selection, what, bounds };
        let Partial::Values(values) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        let missing = reader.lacks();
        self.shape(reader, move || {
            let values = values.into_counts();
            let more = values.len() > limit;
            let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            let shown = values.into_iter().take(limit).map(|(value, profiles)| (value, count(profiles)));
            let (names, counts) = shown.unzip();
            LabelValuesResponse { names, counts, more, missing }
        })
        .await
    }

    /// Sets of labels. Those that have none of the labels asked for are left out.
    pub async fn series(&self, reader: &Reader, request: SeriesRequest) -> Result<SeriesResponse, Status> {
        self.again(reader, "Series", request, |request| self.sets_of(reader, request)).await
    }

    async fn sets_of(&self, reader: &Reader, request: SeriesRequest) -> Result<SeriesResponse, Status> {
        check::labels(&request.label_names)?;
        let selection = self.matching(&request.matchers, request.start, request.end).await?;
        let ask = Ask { selection, what: What::Series(request.label_names), bounds: check::bounds() };
        let Partial::Series(series) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        let whose = reader.clone();
        self.shape(reader, move || {
            let shown = |labels: &Labels| WireLabels {
                labels: labels
                    .iter()
                    .filter(|(name, _)| whose.shows(name))
                    .map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() })
                    .collect(),
            };
            let mut labels_set: Vec<WireLabels> = series.iter().map(shown).collect();
            labels_set.retain(|labels| !labels.labels.is_empty());
            // What is hidden may have told some of them apart.
            labels_set.dedup();
            SeriesResponse { labels_set, missing: whose.lacks() }
        })
        .await
    }

    async fn matching(&self, matchers: &[String], start: i64, end: i64) -> Result<Selection, Status> {
        let time = check::range(start, end)?;
        let (owned, texts) = (matchers.to_vec(), matchers.iter().map(String::as_str).collect::<Vec<_>>());
        let selector = self.checked(&texts, move || check::selectors(&owned)).await?;
        Ok(Selection { selector, time, ..Selection::default() })
    }

    /// Whether there is anything, and of which time. It is not kept: to learn whether it still holds is to learn it anew.
    pub async fn get_profile_stats(
        &self,
        reader: &Reader,
        request: GetProfileStatsRequest,
    ) -> Result<GetProfileStatsResponse, Status> {
        self.again(reader, "GetProfileStats", request, |_| self.stats_of(reader)).await
    }

    async fn stats_of(&self, reader: &Reader) -> Result<GetProfileStatsResponse, Status> {
        reader.plans();
        let mut span: Option<(i64, i64)> = None;
        for tenant in reader.tenants() {
            let of_tenant = self.times(reader, tenant).await?;
            span = match (span, of_tenant) {
                (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
                (one, other) => one.or(other),
            };
        }
        let (oldest, newest) = span.unwrap_or_default();
        Ok(GetProfileStatsResponse {
            data_ingested: span.is_some(),
            oldest_profile_time: oldest.div_euclid(MILLI),
            newest_profile_time: newest.div_euclid(MILLI),
            missing: reader.lacks(),
        })
    }

    /// Of which time a tenant has profiles, by new plans as long as those are overtaken.
    async fn times(&self, reader: &Reader, tenant: &TenantId) -> Result<Option<(i64, i64)>, Status> {
        let mut attempt = Attempt::default();
        loop {
            let Times { span, missing, moved } = self.deps.sources.times(tenant).await?;
            let without: Result<Vec<String>, Asked> =
                moved.into_iter().map(|why| attempt.without(Asked::Replan(why))).collect();
            match without {
                Ok(without) => {
                    reader.miss(missing.into_iter().chain(without).collect());
                    return Ok(span);
                }
                Err(asked) => attempt = attempt.next(asked)?,
            }
        }
    }
}
