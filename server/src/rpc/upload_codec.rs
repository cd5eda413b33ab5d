//! Codec of uploads and of their results between nodes.

use athanor_chassis::{ErrorCode, Status};
use athanor_cluster::status_codec;
use athanor_ingester::StoredUpload;
use athanor_profile::Labels;
use athanor_profile::data_model::dropped_counts::{DropReason, DroppedCounts};
use athanor_profile::data_model::kind_counts::CountedKind;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_proto::athanor::internal::v1 as wire;

/// Encodes an upload for the leader of its shard.
pub fn encode_upload(upload: &ProfileUpload) -> wire::Upload {
    wire::Upload {
        labels_as_sent: encode_labels(&upload.sent),
        stored_labels: encode_labels(&upload.labels),
        client_id: upload.client_id.clone().unwrap_or_default(),
        time_nanos: upload.time_nanos,
        received_nanos: upload.received_nanos,
        nonce: upload.drawn.to_be_bytes().to_vec().into(),
        pprof: upload.pprof.clone(),
        has_elf_addresses: upload.has_elf_addresses,
    }
}

/// Decodes an upload. Fails if its nonce has another length than 16 bytes.
pub fn decode_upload(upload: wire::Upload) -> Result<ProfileUpload, Status> {
    let nonce: [u8; 16] = upload.nonce[..].try_into().map_err(|_| {
        let message = format!("nonce of an upload has {} bytes, must be 16", upload.nonce.len());
        Status::new(ErrorCode::Invalid, message)
    })?;
    Ok(ProfileUpload {
        sent: decode_labels(upload.labels_as_sent),
        labels: decode_labels(upload.stored_labels),
        client_id: Some(upload.client_id).filter(|id| !id.is_empty()),
        time_nanos: upload.time_nanos,
        received_nanos: upload.received_nanos,
        drawn: u128::from_be_bytes(nonce),
        pprof: upload.pprof,
        has_elf_addresses: upload.has_elf_addresses,
    })
}

/// Encodes the result of an upload.
pub fn encode_upload_result(result: Result<StoredUpload, Status>) -> wire::UploadResult {
    match result {
        Ok(StoredUpload { new, repeats, dropped, raw_bytes, samples }) => wire::UploadResult {
            stored: new.into(),
            duplicates: repeats.into(),
            dropped: encode_dropped(&dropped),
            error: None,
            uncompressed_bytes: raw_bytes,
            samples,
        },
        Err(status) => wire::UploadResult {
            error: Some(status_codec::encode_status(&status, None)),
            ..wire::UploadResult::default()
        },
    }
}

/// Decodes the result of an upload.
pub fn decode_upload_result(result: wire::UploadResult) -> Result<StoredUpload, Status> {
    if let Some(error) = &result.error {
        return Err(status_codec::decode_status(error));
    }
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(StoredUpload {
        new: count(result.stored),
        repeats: count(result.duplicates),
        dropped: decode_dropped(&result.dropped),
        raw_bytes: result.uncompressed_bytes,
        samples: result.samples,
    })
}

fn encode_labels(labels: &Labels) -> Vec<wire::Label> {
    let encode = |(name, value): (&str, &str)| wire::Label { name: name.to_owned(), value: value.to_owned() };
    labels.iter().map(encode).collect()
}

fn decode_labels(labels: Vec<wire::Label>) -> Labels {
    Labels::new(labels.into_iter().map(|label| (label.name, label.value)))
}

/// Encodes the counts other than zero.
fn encode_dropped(dropped: &DroppedCounts) -> Vec<wire::DroppedItems> {
    let counted = dropped.counts().into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(reason, count)| wire::DroppedItems { reason: reason.to_owned(), count }).collect()
}

/// Decodes counts. Skips reasons that this release does not know.
fn decode_dropped(items: &[wire::DroppedItems]) -> DroppedCounts {
    let mut dropped = DroppedCounts::default();
    for wire::DroppedItems { reason, count } in items {
        if let Some(reason) = DropReason::from_name(reason) {
            dropped.add(reason, *count);
        }
    }
    dropped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels() -> impl Strategy<Value = Labels> {
        prop::collection::btree_map("[a-z]{1,3}", "\\PC{1,3}", 0..4).prop_map(Labels::new)
    }

    fn upload() -> impl Strategy<Value = ProfileUpload> {
        let times = (any::<i64>(), any::<i64>());
        let content = (prop::collection::vec(any::<u8>(), 0..9), any::<bool>());
        (labels(), labels(), prop::option::of("[a-z]{1,3}"), times, any::<u128>(), content).prop_map(
            |(sent, labels, client_id, (time_nanos, received_nanos), drawn, (pprof, has_elf_addresses))| {
                let pprof = pprof.into();
                ProfileUpload {
                    sent,
                    labels,
                    client_id,
                    time_nanos,
                    drawn,
                    received_nanos,
                    has_elf_addresses,
                    pprof,
                }
            },
        )
    }

    fn dropped() -> impl Strategy<Value = DroppedCounts> {
        let reason = prop::sample::select(&DropReason::NAMES[..]).prop_map(|(reason, _)| reason);
        prop::collection::vec((reason, any::<u64>()), 0..4).prop_map(|counts| {
            let mut dropped = DroppedCounts::default();
            counts.into_iter().for_each(|(reason, count)| dropped.add(reason, count));
            dropped
        })
    }

    proptest! {
        #[test]
        fn decoded_upload_equals_encoded_upload(upload in upload()) {
            prop_assert_eq!(decode_upload(encode_upload(&upload)).unwrap(), upload);
        }

        #[test]
        fn decoded_result_equals_encoded_result(
            (new, repeats) in any::<(u32, u32)>(), dropped in dropped(), (raw_bytes, samples) in any::<(u64, u64)>(),
        ) {
            let stored = StoredUpload { new, repeats, dropped, raw_bytes, samples };
            prop_assert_eq!(decode_upload_result(encode_upload_result(Ok(stored))).unwrap(), stored);
        }
    }

    #[test]
    fn upload_with_short_nonce_is_rejected() {
        let upload = wire::Upload { nonce: vec![7; 3].into(), ..wire::Upload::default() };
        let status = decode_upload(upload).unwrap_err();
        assert_eq!(status.code, ErrorCode::Invalid);
        assert_eq!(status.message, "nonce of an upload has 3 bytes, must be 16");
    }

    #[test]
    fn error_of_upload_survives_encoding() {
        let status = Status::new(ErrorCode::Invalid, "no sample type");
        assert_eq!(decode_upload_result(encode_upload_result(Err(status.clone()))), Err(status));
    }

    #[test]
    fn unknown_drop_reason_is_skipped() {
        let items = [("deep_stacks", 3), ("unknown", 4)]
            .map(|(reason, count)| wire::DroppedItems { reason: reason.to_owned(), count });
        assert_eq!(decode_dropped(&items), DroppedCounts::from([(DropReason::DeepStack, 3)]));
    }
}
