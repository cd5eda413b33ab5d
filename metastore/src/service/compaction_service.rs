//! Requests of compactors to a voter.

use std::time::Duration;

use athanor_catalog::{BlockId, Catalog, CatalogError, JobRequest, RetentionPolicy};
use athanor_chassis::{ErrorCode, Status};
use athanor_proto::athanor::internal::v1 as wire;
use bytes::Bytes;
use serde::Serialize;

use super::MetastoreServer;
use crate::compression::encode_compressed;
use crate::voter::{check_command_size, to_status};

/// Upper bound of tombstones in one response. An hour has a few thousand.
pub(crate) const MAX_TOMBSTONES_PER_PAGE: usize = 50_000;
/// Bytes of a block id in a request.
const BLOCK_ID_BYTES: usize = 16;

impl MetastoreServer {
    /// Waits for a value up to `limit`, and packs it for another node.
    async fn pack_response<T: Serialize + Send + 'static>(
        &self,
        limit: Duration,
        read: impl Future<Output = Result<T, CatalogError>>,
    ) -> wire::PackedResponse {
        use wire::packed_response::Outcome;
        let packing = async {
            let _permit = self.listings.acquire().await;
            let value = read.await.map_err(to_status)?;
            let packed = self.deps.compute.run(move || encode_compressed(&value)).await;
            packed.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
        };
        let outcome = match self.with_timeout(limit, packing).await {
            Ok(packed) => Outcome::Packed(packed),
            Err(status) => Outcome::Error(self.encode_error(&status)),
        };
        wire::PackedResponse { outcome: Some(outcome) }
    }

    pub(super) async fn pack_jobs(&self, limit: Duration, request: JobRequest) -> wire::PackedResponse {
        self.pack_response(limit, self.deps.metastore.compaction_jobs(&request)).await
    }

    pub(super) async fn pack_status(&self, limit: Duration) -> wire::PackedResponse {
        self.pack_response(limit, self.deps.metastore.compaction_status()).await
    }

    pub(super) async fn pack_tombstones(&self, limit: Duration, after: &[u8]) -> wire::PackedResponse {
        let read = async {
            let after = decode_block_ids(after)?.pop();
            self.deps.metastore.tombstones_after(after, MAX_TOMBSTONES_PER_PAGE).await
        };
        self.pack_response(limit, read).await
    }

    pub(super) async fn pack_removal_report(&self, limit: Duration) -> wire::PackedResponse {
        self.pack_response(limit, self.deps.metastore.removal_report()).await
    }

    pub(super) async fn pack_block_ages(&self, limit: Duration, policy: &[u8]) -> wire::PackedResponse {
        let read = async {
            let policy = decode_retention_policy(policy)?;
            self.deps.metastore.block_ages(&policy).await
        };
        self.pack_response(limit, read).await
    }

    pub(super) async fn pack_unknown_blocks(&self, limit: Duration, ids: &[u8]) -> wire::PackedResponse {
        let read = async {
            let blocks = decode_block_ids(ids)?;
            self.deps.metastore.unknown_blocks(&blocks).await
        };
        self.pack_response(limit, read).await
    }
}

/// Encodes block ids as big-endian numbers, one after the other.
pub(crate) fn encode_block_ids(blocks: &[BlockId]) -> Bytes {
    blocks.iter().flat_map(|block| block.number().to_be_bytes()).collect()
}

/// Encodes the retention of all tenants. Returns an error if a command with it would be too large.
pub(crate) fn encode_retention_policy(policy: &RetentionPolicy) -> Result<Bytes, CatalogError> {
    let encoded = serde_json::to_vec(policy)
        .map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))
        .and_then(|encoded| check_command_size(encoded.len()).map(|()| encoded));
    encoded.map(Bytes::from).map_err(CatalogError::Unavailable)
}

fn decode_retention_policy(bytes: &[u8]) -> Result<RetentionPolicy, CatalogError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("retention policy of {} bytes is not valid: {error}", bytes.len());
        CatalogError::Unavailable(Status::new(ErrorCode::Invalid, message))
    })
}

fn decode_block_ids(bytes: &[u8]) -> Result<Vec<BlockId>, CatalogError> {
    let (ids, rest) = bytes.as_chunks::<BLOCK_ID_BYTES>();
    match rest {
        [] => Ok(ids.iter().map(|id| BlockId::from_number(u128::from_be_bytes(*id))).collect()),
        _ => {
            let message = format!("block ids have {} bytes, not a multiple of {BLOCK_ID_BYTES}", bytes.len());
            Err(CatalogError::Unavailable(Status::new(ErrorCode::Invalid, message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_catalog::TierRetention;

    use super::*;

    #[test]
    fn retention_policy_is_encoded_and_decoded() {
        let hour = Duration::from_secs(3600);
        let mut policy = RetentionPolicy::uniform(hour);
        policy.tenants.insert("a".parse().unwrap(), TierRetention::uniform(hour * 2));
        let encoded = encode_retention_policy(&policy).unwrap();
        assert_eq!(decode_retention_policy(&encoded).unwrap(), policy);
        let error = decode_retention_policy(&encoded[1..]).unwrap_err();
        assert!(error.to_string().contains("retention policy of"), "{error}");
    }

    #[test]
    fn block_ids_are_encoded_and_decoded() {
        let blocks = [0, 7, u128::MAX].map(BlockId::from_number);
        let encoded = encode_block_ids(&blocks);
        assert_eq!(decode_block_ids(&encoded).unwrap(), blocks);
        assert!(decode_block_ids(&encoded[1..]).is_err());
    }
}
