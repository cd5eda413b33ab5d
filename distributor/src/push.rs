//! Profiles with the labels of their series: each is tried, and the answer says what became of which.

use std::fmt::Write;
use std::time::Duration;

use athanor_chassis::{Code, Status, TenantId};
use athanor_profile::normalise::{LabelsRefused, Series, series};
use athanor_profile::upload::Upload;
use bytes::Bytes;

use crate::distributor::{Distributor, Receipt, Stored, label_limits};

/// How many refusals an error tells in full, and how many stored profiles it names.
const TOLD: usize = 5;
const NAMED: usize = 50;

/// Profiles of one set of labels, as sent.
#[derive(Clone, Debug, Default)]
pub struct SentSeries {
    /// Name and value, in the order sent.
    pub labels: Vec<(String, String)>,
    /// The profiles.
    pub profiles: Vec<SentProfile>,
}

/// One profile, as sent.
#[derive(Clone, Debug, Default)]
pub struct SentProfile {
    /// Plain, gzip or zstd.
    pub pprof: Bytes,
    /// The client's own id, if it is not empty.
    pub id: Option<String>,
}

/// Where a profile stands in its request, from 1.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) series: usize,
    pub(crate) profile: usize,
    /// What it is called among others that came with it; empty if it has no name.
    pub(crate) name: String,
    /// Its bytes as sent.
    pub(crate) bytes: usize,
}

impl Distributor {
    /// Stores every profile that can be stored. An error says which ones are; to repeat the whole request is safe.
    pub async fn push_series(&self, tenant: &TenantId, sent: Vec<SentSeries>) -> Result<Receipt, Status> {
        self.push_series_with_addresses(tenant, sent, false).await
    }

    /// As [`push_series`](Self::push_series); `has_elf_addresses` is what the client states of all addresses.
    pub(crate) async fn push_series_with_addresses(
        &self,
        tenant: &TenantId,
        sent: Vec<SentSeries>,
        has_elf_addresses: bool,
    ) -> Result<Receipt, Status> {
        let limits = self.deps.overrides.of(tenant);
        let counted = self.counts.of(tenant);
        let profiles: usize = sent.iter().map(|series| series.profiles.len()).sum();
        if profiles == 0 {
            let status = Status::new(Code::Invalid, "no profiles received; send a series with a sample")
                .because("missing_profiles");
            self.counts.request_refused(tenant, &status);
            return Err(status);
        }
        let size = sent.iter().map(size).sum();
        counted.came(profiles, size);
        let refused = |status: &Status| counted.refused(status, profiles, size);
        self.few(profiles).inspect_err(refused)?;
        let _admitted = self.admit(tenant, size, &limits).inspect_err(refused)?;

        let label_limits = label_limits(&limits);
        let mut uploads = Vec::with_capacity(profiles);
        let mut places = Vec::with_capacity(profiles);
        let mut outcomes = Vec::with_capacity(profiles);
        for (number, sent) in (1..).zip(sent).filter(|(_, sent)| !sent.profiles.is_empty()) {
            let here = (1..).zip(&sent.profiles).map(|(profile, sent)| Place {
                series: number,
                profile,
                name: String::new(),
                bytes: sent.pprof.len(),
            });
            match series(sent.labels, &label_limits) {
                Ok(series) => {
                    places.extend(here);
                    let upload = |profile| upload(&series, profile, has_elf_addresses);
                    uploads.extend(sent.profiles.into_iter().map(upload));
                }
                Err(refused) => {
                    let status = labels_refused(&refused);
                    outcomes.extend(here.map(|place| (place, Err(status.clone()))));
                }
            }
        }
        outcomes.extend(places.into_iter().zip(self.append(tenant, uploads).await));
        outcomes.iter().for_each(|(place, outcome)| counted.settled(outcome, place.bytes));
        let stored = outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
        self.charge_decompressed(tenant, &limits, size, stored);
        report(outcomes)
    }

    /// Refuses more profiles than a request may have.
    pub(crate) fn few(&self, profiles: usize) -> Result<(), Status> {
        let most = self.config.max_profiles_per_request as usize;
        if profiles <= most {
            return Ok(());
        }
        let message = format!(
            "request has {profiles} profiles, the limit is {most} (distributor.max_profiles_per_request): send \
             smaller batches"
        );
        Err(Status::new(Code::TooLarge, message).because("too_many_profiles"))
    }
}

impl Place {
    /// Its name in brackets, behind its numbers.
    fn named(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!(" ({})", self.name) }
    }
}

/// Bytes of labels and profiles.
fn size(series: &SentSeries) -> usize {
    let labels: usize = series.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    labels + series.profiles.iter().map(|profile| profile.pprof.len()).sum::<usize>()
}

fn upload(series: &Series, profile: SentProfile, has_elf_addresses: bool) -> Upload {
    Upload {
        sent: series.sent.clone(),
        labels: series.labels.clone(),
        client_id: profile.id.filter(|id| !id.is_empty()),
        pprof: profile.pprof,
        has_elf_addresses,
        ..Upload::default()
    }
}

pub(crate) fn labels_refused(refused: &LabelsRefused) -> Status {
    Status::new(Code::Invalid, refused.to_string()).because(refused.reason())
}

/// What was too large for a shard can never be stored, just as what was malformed: a client must not retry either.
pub(crate) fn of_content(mut status: Status) -> Status {
    if status.code == Code::TooLarge {
        status.code = Code::Invalid;
    }
    status
}

/// One answer for all. If one profile may be stored later, so may the request: what is stored already is known
/// again, and what is malformed is told when only that is left.
pub(crate) fn report(mut outcomes: Vec<(Place, Result<Stored, Status>)>) -> Result<Receipt, Status> {
    let mut receipt = Receipt::default();
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    outcomes.sort_by_key(|(place, _)| (place.series, place.profile));
    let count = outcomes.len();
    for (place, outcome) in outcomes {
        match outcome {
            Ok(outcome) => {
                receipt.count(outcome);
                stored.push(place);
            }
            Err(status) => refused.push((place, of_content(status))),
        }
    }
    let severity = |status: &Status| (status.code.retryable(), status.code != Code::Invalid);
    let Some((_, worst)) = refused.iter().max_by_key(|(_, status)| severity(status)) else {
        return Ok(receipt);
    };
    let message = if count == 1 { worst.message.clone() } else { tell(count, &stored, &refused) };
    let wait: Option<Duration> = refused.iter().filter_map(|(_, status)| status.retry_after).max();
    Err(Status { retry_after: wait, ..Status::new(worst.code, message) })
}

fn tell(count: usize, stored: &[Place], refused: &[(Place, Status)]) -> String {
    let mut text = format!("{} of {count} profiles are not stored", refused.len());
    // Writing to a string cannot fail.
    for (place, status) in refused.iter().take(TOLD) {
        let (series, profile, name) = (place.series, place.profile, place.named());
        let _ = write!(text, "; series {series}, profile {profile}{name}: {}", status.message);
    }
    if refused.len() > TOLD {
        let _ = write!(text, "; and {} more", refused.len() - TOLD);
    }
    text.push_str(if stored.is_empty() { "; none is stored" } else { "; stored are" });
    for (at, place) in stored.iter().take(NAMED).enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let (series, profile, name) = (place.series, place.profile, place.named());
        let _ = write!(text, "{comma} series {series} profile {profile}{name}");
    }
    if stored.len() > NAMED {
        let _ = write!(text, " and {} more", stored.len() - NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributor::Outcome;
    use athanor_profile::upload::Dropped;

    fn stored(outcome: Outcome) -> Result<Stored, Status> {
        let dropped = Dropped { samples: 2, ..Dropped::default() };
        Ok(Stored { outcome, raw_bytes: 100, samples: 10, dropped })
    }

    fn outcomes(all: Vec<Result<Stored, Status>>) -> Vec<(Place, Result<Stored, Status>)> {
        (1..)
            .zip(all)
            .map(|(series, outcome)| (Place { series, profile: 1, name: String::new(), bytes: 7 }, outcome))
            .collect()
    }

    #[test]
    fn what_is_stored_is_counted() {
        let receipt =
            report(outcomes(vec![stored(Outcome::New), stored(Outcome::Repeat), stored(Outcome::Empty)]));
        let dropped = Dropped { samples: 6, ..Dropped::default() };
        assert_eq!(receipt, Ok(Receipt { new: 1, repeats: 1, empty: 1, dropped }));
    }

    #[test]
    fn an_error_names_what_is_stored_and_what_is_not() {
        let bad = || Err(Status::new(Code::Invalid, "profile has no sample type"));
        let status = report(outcomes(vec![stored(Outcome::New), bad(), stored(Outcome::New)])).unwrap_err();
        assert_eq!(status.code, Code::Invalid);
        assert_eq!(
            status.message,
            "1 of 3 profiles are not stored; series 2, profile 1: profile has no sample type; \
             stored are series 1 profile 1, series 3 profile 1"
        );
        let many = report(outcomes(
            (0..200).map(|at| if at % 2 == 0 { bad() } else { stored(Outcome::New) }).collect(),
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
        let busy = Err(Status::new(Code::Exhausted, "busy").after(wait));
        let large = || Err(Status::new(Code::TooLarge, "5 MiB"));
        let internal = || Err(Status::new(Code::Internal, "oops"));
        let status = report(outcomes(vec![large(), busy, internal()])).unwrap_err();
        assert_eq!((status.code, status.retry_after), (Code::Exhausted, Some(wait)));
        assert_eq!(report(outcomes(vec![large(), internal()])).unwrap_err().code, Code::Internal);
        let alone = report(outcomes(vec![large()])).unwrap_err();
        assert_eq!(alone, Status::new(Code::Invalid, "5 MiB"));
    }
}
