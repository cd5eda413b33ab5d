//! Streaming requests: reads the messages one after the other, so that only one is in memory.

use athanor_chassis::{ByteSize, ErrorCode, Status};
use athanor_profile::formats::pprof::{DecodeError, inflate};
use axum::http::HeaderMap;
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{Stream, unfold};
use prost::Message;
use serde::de::DeserializeOwned;

use super::{CallEncoding, GRPC_ENCODING, GRPC_PREFIX_BYTES, compression, decode};
use crate::pace::PacedBody;

/// Function that reserves memory for more bytes, or rejects them.
pub type MemoryChargeFn = Box<dyn FnMut(usize) -> Result<(), Status> + Send>;

/// Messages of a streaming request, in the order of arrival.
pub struct RequestMessages {
    body: PacedBody,
    /// Reserves memory for received bytes.
    charge: MemoryChargeFn,
    came: BytesMut,
    limit: ByteSize,
    gzip: bool,
}

impl CallEncoding {
    /// Decodes messages up to the size limit, which applies to plain and compressed bytes. An error is the
    /// last item.
    pub fn decode_messages<M>(
        self,
        headers: &HeaderMap,
        body: PacedBody,
        limit: ByteSize,
        charge: MemoryChargeFn,
    ) -> Result<impl Stream<Item = Result<M, Status>> + Send, Status>
    where
        M: Message + Default + DeserializeOwned + 'static,
    {
        let gzip = compression(headers, GRPC_ENCODING)?;
        let incoming = RequestMessages { body, charge, came: BytesMut::new(), limit, gzip };
        let json = self.json;
        Ok(unfold(Some(incoming), move |incoming| async move {
            let mut incoming = incoming?;
            match incoming.next().await {
                Ok(None) => None,
                Ok(Some(bytes)) => match decode(&bytes, json) {
                    Ok(message) => Some((Ok(message), Some(incoming))),
                    Err(status) => Some((Err(status), None)),
                },
                Err(status) => Some((Err(status), None)),
            }
        }))
    }
}

impl RequestMessages {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let is_begun = self.fill(GRPC_PREFIX_BYTES).await?;
        if !is_begun {
            if self.came.is_empty() {
                return Ok(None);
            }
            return Err(self.cut(GRPC_PREFIX_BYTES));
        }
        let flag = self.came[0];
        let length = u32::from_be_bytes([self.came[1], self.came[2], self.came[3], self.came[4]]) as usize;
        if flag > 1 {
            let message = format!("message prefix has flag {flag}, must be 0 or 1");
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        if flag == 1 && !self.gzip {
            return Err(Status::new(
                ErrorCode::Internal,
                "message is compressed, but header grpc-encoding is missing",
            ));
        }
        if length as u64 > self.limit.get() {
            return Err(self.too_large(length));
        }
        if !self.fill(GRPC_PREFIX_BYTES + length).await? {
            return Err(self.cut(GRPC_PREFIX_BYTES + length));
        }
        self.came.advance(GRPC_PREFIX_BYTES);
        let message = self.came.split_to(length).freeze();
        if flag == 0 {
            return Ok(Some(message));
        }
        if !message.starts_with(&[0x1f, 0x8b]) {
            return Err(Status::new(
                ErrorCode::Invalid,
                "message is declared as gzip but has another format",
            ));
        }
        match inflate(&message, self.limit.as_usize()) {
            Ok(plain) => Ok(Some(plain.into())),
            Err(DecodeError::OverLimit { seen, .. }) => Err(self.too_large(seen)),
            Err(error) => {
                Err(Status::new(ErrorCode::Invalid, format!("failed to decompress the message: {error}")))
            }
        }
    }

    /// Waits until the buffer holds at least `bytes` bytes. Returns `false` if the body ends before.
    async fn fill(&mut self, bytes: usize) -> Result<bool, Status> {
        while self.came.len() < bytes {
            let Some(piece) = self.body.next_piece().await else { return Ok(false) };
            let piece = piece?;
            (self.charge)(piece.len())?;
            self.came.extend_from_slice(&piece);
        }
        Ok(true)
    }

    fn cut(&self, wanted: usize) -> Status {
        let message =
            format!("the body ends within a message: received {} bytes of {wanted}", self.came.len());
        Status::new(ErrorCode::Invalid, message)
    }

    fn too_large(&self, seen: usize) -> Status {
        let message = format!("a message has {seen} bytes, the limit is {}: send smaller chunks", self.limit);
        Status::new(ErrorCode::TooLarge, message).with_reason("body_size_limit_exceeded")
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use athanor_chassis::Clock;
    use athanor_profile::formats::pprof::gzip;
    use athanor_proto::parca::debuginfo::v1alpha1::UploadInfo;
    use axum::body::Body;
    use axum::http::HeaderValue;
    use axum::http::header::CONTENT_TYPE;
    use futures::StreamExt;
    use proptest::prelude::*;

    use super::*;
    use crate::encoding::framed;

    const LIMIT: ByteSize = ByteSize::bytes(1000);

    /// What is read of a body that comes in these pieces.
    async fn read(pieces: Vec<Vec<u8>>, encoding: &'static str) -> Vec<Result<UploadInfo, ErrorCode>> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_ENCODING, HeaderValue::from_static(encoding));
        let pieces = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
        let body = Body::from_stream(futures::stream::iter(pieces));
        let (body, charge) = (PacedBody::new(body, Clock::system()), Box::new(|_| Ok(())));
        let encoding = CallEncoding::from_headers(&headers).unwrap();
        let messages = encoding.decode_messages::<UploadInfo>(&headers, body, LIMIT, charge).unwrap();
        messages.map(|message| message.map_err(|status| status.code)).collect().await
    }

    fn info(name: &str) -> UploadInfo {
        UploadInfo { build_id: name.to_owned(), ..UploadInfo::default() }
    }

    fn written(flag: u8, bytes: &[u8]) -> Vec<u8> {
        framed(flag, bytes, BytesMut::new()).to_vec()
    }

    #[tokio::test]
    async fn messages_are_read_however_they_are_cut() {
        let all: Vec<UploadInfo> = ["", "a", &"b".repeat(900)].map(info).into();
        let bytes: Vec<u8> = all.iter().flat_map(|one| written(0, &one.encode_to_vec())).collect();
        for size in [1, 3, 5, 6, 100, 10_000] {
            let pieces = bytes.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(read(pieces, "identity").await, all.iter().cloned().map(Ok).collect::<Vec<_>>());
        }
        let compressed = written(1, &gzip(&all[2].encode_to_vec()));
        assert_eq!(read(vec![compressed], "gzip").await, [Ok(all[2].clone())]);
    }

    #[tokio::test]
    async fn what_is_wrong_with_one_ends_all() {
        let good = written(0, &info("a").encode_to_vec());
        for (bad, encoding, code) in [
            (vec![0, 0, 0], "identity", ErrorCode::Invalid),
            (good[..good.len() - 1].to_vec(), "identity", ErrorCode::Invalid),
            (written(2, b""), "identity", ErrorCode::Invalid),
            (written(1, b"x"), "identity", ErrorCode::Internal),
            (written(1, b"x"), "gzip", ErrorCode::Invalid),
            (written(0, &[0xff]), "identity", ErrorCode::Invalid),
            (vec![0, 0xff, 0xff, 0xff, 0xff, 1], "identity", ErrorCode::TooLarge),
            (written(1, &gzip(&[0; 1001])), "gzip", ErrorCode::TooLarge),
        ] {
            let bytes = [good.clone(), bad.clone(), good.clone()].concat();
            let bytes = if bad.len() < 5 || bad == good[..good.len() - 1] {
                [good.clone(), bad].concat()
            } else {
                bytes
            };
            assert_eq!(read(vec![bytes], encoding).await, [Ok(info("a")), Err(code)]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            gzip in any::<bool>(),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let came = runtime.block_on(read(pieces, if gzip { "gzip" } else { "identity" }));
            let refused = came.iter().position(Result::is_err);
            prop_assert!(refused.is_none_or(|place| place + 1 == came.len()));
        }
    }
}
