//! Push of profiles with the labels of their series. Each profile is tried, and the response covers all of
//! them.

use std::fmt::Write;
use std::time::Duration;

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_profile::labeling::normalize::{NormalizedLabels, SeriesLabelsError, normalize_labels};
use athanor_profile::store_interface::upload::ProfileUpload;
use bytes::Bytes;

use crate::distributor::{Distributor, PushSummary, label_limits};
use crate::stored_profile::StoredProfile;

/// Maximum number of refusals that an error describes; the next constant bounds the stored profiles that it
/// names.
const MAX_REPORTED_REFUSALS: usize = 5;
const MAX_REPORTED_STORED: usize = 50;

/// Profiles of one set of labels, as sent.
#[derive(Clone, Debug, Default)]
pub struct PushedSeries {
    /// Name and value of each label, in the order sent.
    pub labels: Vec<(String, String)>,
    /// Profiles of this series.
    pub profiles: Vec<PushedProfile>,
}

/// Profile as sent, with its optional client id.
#[derive(Clone, Debug, Default)]
pub struct PushedProfile {
    /// pprof, plain or compressed with gzip or zstd.
    pub pprof: Bytes,
    /// Id that the client gave the profile. An empty id counts as none.
    pub id: Option<String>,
}

/// Position of a profile in its request. Numbers begin at 1.
#[derive(Clone)]
pub(crate) struct ProfilePosition {
    pub(crate) series: usize,
    pub(crate) profile: usize,
    /// Name of the profile within its body. Empty if the profile has none.
    pub(crate) name: String,
    /// Bytes of the profile as sent.
    pub(crate) bytes: usize,
}

impl Distributor {
    /// Stores every profile that can be stored. An error lists the stored ones. A retry of the whole request
    /// is safe.
    pub async fn push_series(
        &self,
        tenant: &TenantId,
        sent: Vec<PushedSeries>,
    ) -> Result<PushSummary, Status> {
        self.push_series_with_addresses(tenant, sent, false).await
    }

    /// Pushes like [`push_series`](Self::push_series). `has_elf_addresses` is the client's statement about
    /// all addresses.
    pub(crate) async fn push_series_with_addresses(
        &self,
        tenant: &TenantId,
        sent: Vec<PushedSeries>,
        has_elf_addresses: bool,
    ) -> Result<PushSummary, Status> {
        let limits = self.deps.overrides.for_tenant(tenant);
        let counted = self.counts.tenant_counters(tenant);
        let profiles: usize = sent.iter().map(|series| series.profiles.len()).sum();
        if profiles == 0 {
            let status = Status::new(ErrorCode::Invalid, "no profiles received; send a series with a sample")
                .with_reason("missing_profiles");
            self.counts.record_request_refusal(tenant, &status);
            return Err(status);
        }
        let size = sent.iter().map(series_bytes).sum();
        counted.record_received(profiles, size);
        let refused = |status: &Status| counted.record_refusal(status, profiles, size);
        self.check_profile_count(profiles).inspect_err(refused)?;
        let _admitted = self.admit(tenant, size, &limits).inspect_err(refused)?;

        let label_limits = label_limits(&limits);
        let mut uploads = Vec::with_capacity(profiles);
        let mut places = Vec::with_capacity(profiles);
        let mut outcomes = Vec::with_capacity(profiles);
        for (number, sent) in (1..).zip(sent).filter(|(_, sent)| !sent.profiles.is_empty()) {
            let here = (1..).zip(&sent.profiles).map(|(profile, sent)| ProfilePosition {
                series: number,
                profile,
                name: String::new(),
                bytes: sent.pprof.len(),
            });
            match normalize_labels(sent.labels, &label_limits) {
                Ok(series) => {
                    places.extend(here);
                    let upload = |profile| build_upload(&series, profile, has_elf_addresses);
                    uploads.extend(sent.profiles.into_iter().map(upload));
                }
                Err(refused) => {
                    let status = labels_refusal(&refused);
                    outcomes.extend(here.map(|place| (place, Err(status.clone()))));
                }
            }
        }
        outcomes.extend(places.into_iter().zip(self.append(tenant, uploads).await));
        outcomes.iter().for_each(|(place, outcome)| counted.record_outcome(outcome, place.bytes));
        let stored = outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
        self.charge_decompressed(tenant, &limits, size, stored);
        summarize_push(outcomes)
    }

    /// Refuses a request with more profiles than `distributor.max_profiles_per_request`.
    pub(crate) fn check_profile_count(&self, profiles: usize) -> Result<(), Status> {
        let most = self.config.max_profiles_per_request as usize;
        if profiles <= most {
            return Ok(());
        }
        let message = format!(
            "request has {profiles} profiles, the limit is {most} (distributor.max_profiles_per_request): send \
             smaller batches"
        );
        Err(Status::new(ErrorCode::TooLarge, message).with_reason("too_many_profiles"))
    }
}

impl ProfilePosition {
    /// Returns the name in brackets, to follow the position's numbers.
    fn bracketed_name(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!(" ({})", self.name) }
    }
}

/// Returns the bytes of a series' labels and profiles.
fn series_bytes(series: &PushedSeries) -> usize {
    let labels: usize = series.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    labels + series.profiles.iter().map(|profile| profile.pprof.len()).sum::<usize>()
}

fn build_upload(series: &NormalizedLabels, profile: PushedProfile, has_elf_addresses: bool) -> ProfileUpload {
    ProfileUpload {
        sent: series.sent.clone(),
        labels: series.labels.clone(),
        client_id: profile.id.filter(|id| !id.is_empty()),
        pprof: profile.pprof,
        has_elf_addresses,
        ..ProfileUpload::default()
    }
}

pub(crate) fn labels_refusal(refused: &SeriesLabelsError) -> Status {
    Status::new(ErrorCode::Invalid, refused.to_string()).with_reason(refused.reason())
}

/// Maps an error of a shard that means "too large" to "invalid": like malformed content, a client must not
/// retry it.
pub(crate) fn to_content_error(mut status: Status) -> Status {
    if status.code == ErrorCode::TooLarge {
        status.code = ErrorCode::Invalid;
    }
    status
}

/// Merges the outcomes of all profiles into one result. If any error is retryable, the whole request is. On
/// retry, the stored profiles are recognized as duplicates. Malformed profiles are then reported once only
/// they remain.
pub(crate) fn summarize_push(
    mut outcomes: Vec<(ProfilePosition, Result<StoredProfile, Status>)>,
) -> Result<PushSummary, Status> {
    let mut receipt = PushSummary::default();
    let mut stored = Vec::new();
    let mut refused = Vec::new();
    outcomes.sort_by_key(|(place, _)| (place.series, place.profile));
    let count = outcomes.len();
    for (place, outcome) in outcomes {
        match outcome {
            Ok(outcome) => {
                receipt.add_profile(outcome);
                stored.push(place);
            }
            Err(status) => refused.push((place, to_content_error(status))),
        }
    }
    let severity = |status: &Status| (status.code.is_retryable(), status.code != ErrorCode::Invalid);
    let Some((_, worst)) = refused.iter().max_by_key(|(_, status)| severity(status)) else {
        return Ok(receipt);
    };
    let message = if count == 1 { worst.message.clone() } else { refusal_message(count, &stored, &refused) };
    let wait: Option<Duration> = refused.iter().filter_map(|(_, status)| status.retry_after).max();
    Err(Status { retry_after: wait, ..Status::new(worst.code, message) })
}

fn refusal_message(
    count: usize,
    stored: &[ProfilePosition],
    refused: &[(ProfilePosition, Status)],
) -> String {
    let mut text = format!("{} of {count} profiles are not stored", refused.len());
    // Writing to a string cannot fail.
    for (place, status) in refused.iter().take(MAX_REPORTED_REFUSALS) {
        let series = place.series;
        let profile = place.profile;
        let name = place.bracketed_name();
        let _ = write!(text, "; series {series}, profile {profile}{name}: {}", status.message);
    }
    if refused.len() > MAX_REPORTED_REFUSALS {
        let _ = write!(text, "; and {} more", refused.len() - MAX_REPORTED_REFUSALS);
    }
    text.push_str(if stored.is_empty() { "; no profile is stored" } else { "; stored:" });
    for (at, place) in stored.iter().take(MAX_REPORTED_STORED).enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let series = place.series;
        let profile = place.profile;
        let name = place.bracketed_name();
        let _ = write!(text, "{comma} series {series} profile {profile}{name}");
    }
    if stored.len() > MAX_REPORTED_STORED {
        let _ = write!(text, " and {} more", stored.len() - MAX_REPORTED_STORED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_profile::ProfileOutcome;
    use athanor_profile::data_model::dropped_counts::{DropReason, DroppedCounts};

    fn stored(outcome: ProfileOutcome) -> Result<StoredProfile, Status> {
        let dropped = DroppedCounts::from([(DropReason::DanglingSample, 2)]);
        Ok(StoredProfile { outcome, raw_bytes: 100, samples: 10, dropped })
    }

    fn outcomes(
        all: Vec<Result<StoredProfile, Status>>,
    ) -> Vec<(ProfilePosition, Result<StoredProfile, Status>)> {
        (1..)
            .zip(all)
            .map(|(series, outcome)| {
                (ProfilePosition { series, profile: 1, name: String::new(), bytes: 7 }, outcome)
            })
            .collect()
    }

    #[test]
    fn what_is_stored_is_counted() {
        let receipt = summarize_push(outcomes(vec![
            stored(ProfileOutcome::New),
            stored(ProfileOutcome::Repeat),
            stored(ProfileOutcome::Empty),
        ]));
        let dropped = DroppedCounts::from([(DropReason::DanglingSample, 6)]);
        assert_eq!(receipt, Ok(PushSummary { new: 1, repeats: 1, empty: 1, dropped }));
    }

    #[test]
    fn an_error_names_what_is_stored_and_what_is_not() {
        let bad = || Err(Status::new(ErrorCode::Invalid, "profile has no sample type"));
        let status =
            summarize_push(outcomes(vec![stored(ProfileOutcome::New), bad(), stored(ProfileOutcome::New)]))
                .unwrap_err();
        assert_eq!(status.code, ErrorCode::Invalid);
        assert_eq!(
            status.message,
            "1 of 3 profiles are not stored; series 2, profile 1: profile has no sample type; \
             stored: series 1 profile 1, series 3 profile 1"
        );
        let many = summarize_push(outcomes(
            (0..200).map(|at| if at % 2 == 0 { bad() } else { stored(ProfileOutcome::New) }).collect(),
        ));
        let text = many.unwrap_err().message;
        assert!(
            text.contains("; and 95 more;") && text.ends_with(" and 50 more") && text.len() < 3000,
            "{text}"
        );
    }

    #[test]
    fn what_may_succeed_later_is_worth_repeating() {
        let wait = Duration::from_secs(3);
        let busy = Err(Status::new(ErrorCode::Exhausted, "busy").with_retry_after(wait));
        let large = || Err(Status::new(ErrorCode::TooLarge, "5 MiB"));
        let internal = || Err(Status::new(ErrorCode::Internal, "oops"));
        let status = summarize_push(outcomes(vec![large(), busy, internal()])).unwrap_err();
        assert_eq!((status.code, status.retry_after), (ErrorCode::Exhausted, Some(wait)));
        assert_eq!(
            summarize_push(outcomes(vec![large(), internal()])).unwrap_err().code,
            ErrorCode::Internal
        );
        let alone = summarize_push(outcomes(vec![large()])).unwrap_err();
        assert_eq!(alone, Status::new(ErrorCode::Invalid, "5 MiB"));
    }
}
