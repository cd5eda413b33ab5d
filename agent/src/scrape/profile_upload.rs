//! Upload of a scraped profile. Its bytes, id and time are final when it is made.

use std::io::Write;

use athanor_chassis::Timestamp;
use athanor_chassis::memory_budget::MemoryReservation;
use athanor_profile::encoding::varint::put_varint;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::scrape_target::{ProfileKind, ScrapeTarget};
use crate::upload::push_series::{
    FIRST_FIELD_TAG, MAX_TAG_BYTES, METRIC_NAME_LABEL, SECOND_FIELD_TAG, encode_labels, format_uuid, put_tag,
};
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};

use super::body_buffer::BufferedBody;
use super::pprof_walker::PprofSummary;

/// Name of the label that declares the values of a profile as differences, if it is `false`.
const DELTA_LABEL: &str = "__delta__";
/// Tag of `Profile.time_nanos`.
const TIME_NANOS_TAG: u8 = 0x48;
/// Upload with the memory that it holds.
#[derive(Debug)]
pub(super) struct ScrapedUpload {
    pub(super) upload: Upload,
    pub(super) reservation: Option<MemoryReservation>,
}

/// Identity of a scraped profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrapeIdentity {
    /// Random number. It tells the profile apart from equal ones of other scrapes.
    pub(super) id: u128,
    /// Start of the scrape: wall time at its end, minus its length.
    pub(super) started_at: Timestamp,
}

/// Encoded labels of a series.
#[derive(Clone, Debug)]
pub(super) struct SeriesPrefix {
    labels: Vec<u8>,
    hash: u64,
}

impl SeriesPrefix {
    /// Encodes the labels of a kind of a target.
    pub(super) fn new(target: &ScrapeTarget, kind: &ProfileKind) -> Self {
        let mut labels = target.labels.clone();
        labels.set(METRIC_NAME_LABEL, &kind.metric_name);
        // Differences that have the name of a cumulative kind and no duration, as godeltaprof computes them. A
        // server would subtract them from each other.
        if kind.metric_name != kind.name {
            labels.set(DELTA_LABEL, "false");
        }
        Self { labels: encode_labels(&labels), hash: labels.hash() as u64 }
    }

    /// Bytes to leave free in front of the body.
    pub(super) fn max_bytes(&self) -> usize {
        self.labels.len() + 3 * MAX_TAG_BYTES
    }
}

/// Makes the upload of a profile. The profile is not copied: the rest of the request is written around it.
pub(super) fn build_upload(
    target: &ScrapeTarget,
    kind: &ProfileKind,
    body: BufferedBody,
    summary: &PprofSummary,
    identity: ScrapeIdentity,
) -> ScrapedUpload {
    let BufferedBody { mut bytes, prefix, reservation } = body;
    let series = SeriesPrefix::new(target, kind);
    if summary.time_nanos == 0 {
        append_time(&mut bytes, identity.started_at, summary.is_gzip);
    }
    let profile_bytes = bytes.len() - prefix;
    let mut profile_tag = Vec::with_capacity(MAX_TAG_BYTES);
    put_tag(&mut profile_tag, FIRST_FIELD_TAG, profile_bytes);
    let id = format_uuid(identity.id);
    put_tag(&mut bytes, SECOND_FIELD_TAG, id.len());
    bytes.extend_from_slice(id.as_bytes());
    let sample_bytes = profile_tag.len() + bytes.len() - prefix;
    let mut sample_tag = Vec::with_capacity(MAX_TAG_BYTES);
    put_tag(&mut sample_tag, SECOND_FIELD_TAG, sample_bytes);
    let series_bytes = series.labels.len() + sample_tag.len() + sample_bytes;
    let mut start = Vec::with_capacity(series.max_bytes());
    put_tag(&mut start, FIRST_FIELD_TAG, series_bytes);
    start.extend_from_slice(&series.labels);
    start.extend_from_slice(&sample_tag);
    start.extend_from_slice(&profile_tag);
    // The buffer was made for the same labels, so the start fits in front of the profile.
    let begin = prefix - start.len();
    bytes[begin..prefix].copy_from_slice(&start);
    let order = match kind.is_cumulative {
        true => UploadOrder::Cumulative(series.hash),
        false => UploadOrder::Independent,
    };
    let upload = Upload {
        tenant: target.job.tenant.clone(),
        route: UploadRoute::Push,
        body: Bytes::from(bytes).slice(begin..),
        profiles: 1,
        order,
        origin: UploadOrigin::Scraped,
        time: identity.started_at,
    };
    ScrapedUpload { upload, reservation }
}

/// Appends the time. In protobuf, the last value of a field wins, and members of gzip are one stream.
pub(crate) fn append_time(profile: &mut Vec<u8>, time: Timestamp, is_gzip: bool) {
    let mut field = vec![TIME_NANOS_TAG];
    put_varint(&mut field, time.nanos() as u64);
    if !is_gzip {
        profile.extend_from_slice(&field);
        return;
    }
    let mut encoder = GzEncoder::new(profile, Compression::none());
    // Writes to memory do not fail.
    let _ = encoder.write_all(&field);
    let _ = encoder.finish();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use athanor_profile::formats::pprof::inflate;
    use athanor_proto::google::v1::Profile;
    use athanor_proto::push::v1::PushRequest;
    use prost::Message;

    use super::super::body_buffer::{BodyBudgets, BodyBuffer};
    use super::super::body_check::BodyCheck;
    use super::super::test_profiles::{gzip, job, kind, pprof, pprof_without_time, target};
    use super::*;
    use crate::http_client::BodySink;

    const TIME: Timestamp = Timestamp::from_nanos(1_800_000_000_123_456_789);

    fn upload_of(body: &[u8], name: &str) -> Upload {
        upload_of_kind(body, kind(name, None))
    }

    fn upload_of_kind(body: &[u8], kind: ProfileKind) -> Upload {
        let job = job(Duration::from_secs(15), Duration::from_secs(10));
        let target = target(&job, "a:1", vec![kind]);
        let prefix = SeriesPrefix::new(&target, &target.kinds[0]).max_bytes();
        let mut buffer = BodyBuffer::new(prefix, BodyBudgets::default());
        buffer.receive(body).unwrap();
        let mut check = BodyCheck::new(1 << 20);
        check.push(body).unwrap();
        let summary = check.finish().unwrap();
        let identity = ScrapeIdentity { id: u128::MAX, started_at: TIME };
        build_upload(&target, &target.kinds[0], buffer.into_parts(), &summary, identity).upload
    }

    #[test]
    fn request_has_labels_id_and_the_bytes_as_scraped() {
        for body in [pprof(7), gzip(&pprof(7))] {
            let upload = upload_of(&body, "memory");
            let request = PushRequest::decode(upload.body.clone()).unwrap();
            assert_eq!(upload.body, request.encode_to_vec(), "the encoding is the usual one");
            let series = &request.series[0];
            let labels: Vec<_> =
                series.labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect();
            assert_eq!(labels, [("__name__", "memory"), ("instance", "a:1"), ("service_name", "shop")]);
            assert_eq!(series.samples[0].raw_profile, body);
            assert_eq!(series.samples[0].id, "ffffffff-ffff-4fff-bfff-ffffffffffff");
            assert!(matches!(upload.order, UploadOrder::Cumulative(_)));
            assert_eq!((upload.time, upload.origin), (TIME, UploadOrigin::Scraped));
        }
        assert_eq!(upload_of(&pprof(7), "goroutine").order, UploadOrder::Independent);
    }

    #[test]
    fn differences_under_a_cumulative_name_are_declared() {
        let delta_labels = |kind: ProfileKind| -> Vec<String> {
            let request = PushRequest::decode(upload_of_kind(&pprof(7), kind).body).unwrap();
            let labels = request.series[0].labels.iter().filter(|label| label.name == "__delta__");
            labels.map(|label| label.value.clone()).collect()
        };
        let godeltaprof =
            ProfileKind { metric_name: "memory".to_owned(), ..kind("godeltaprof_memory", None) };
        assert_eq!(delta_labels(godeltaprof), ["false"]);
        assert_eq!(delta_labels(kind("memory", None)), [""; 0]);
    }

    #[test]
    fn profile_without_time_gets_the_start_of_its_scrape() {
        let plain = pprof_without_time();
        for body in [plain.clone(), gzip(&plain)] {
            let upload = upload_of(&body, "memory");
            let request = PushRequest::decode(upload.body).unwrap();
            let sent = &request.series[0].samples[0].raw_profile;
            assert!(sent.starts_with(&body));
            let decoded = Profile::decode(&*inflate(sent, 1 << 20).unwrap()).unwrap();
            let expected = Profile { time_nanos: TIME.nanos(), ..Profile::decode(&*plain).unwrap() };
            assert_eq!(decoded, expected);
        }
    }
}
