//! Bytes of a spool file.
//!
//! ```text
//!  magic and version ── 8 bytes
//!  length of the header, checksum of length and header ── 4 + 4 bytes
//!  header: sequence, tenant, and of each request: route, profiles, length, checksum
//!  bodies of the requests, one after another
//! ```
//!
//! Numbers are little-endian, checksums are CRC-32. Each byte of a file is covered: by the comparison with the
//! magic, by the checksum of the header, or by that of a body. The header has all lengths, so no damaged
//! length is used.

use athanor_chassis::TenantId;
use bytes::Bytes;

use crate::upload::UploadRoute;

/// First bytes of a file. The last one is the version of the format.
const FILE_MAGIC: [u8; 8] = *b"athspl\n\x01";
const PREFIX_BYTES: usize = 16;
const PUSH_ROUTE: u8 = 1;
const INGEST_ROUTE: u8 = 2;
const OTLP_ROUTE: u8 = 3;

/// Contents of a spool file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolFile {
    /// Position in the order of creation, equal to that in the name.
    pub sequence: u64,
    /// Tenant of all requests. None sends no tenant header.
    pub tenant: Option<TenantId>,
    /// Requests in the order of delivery.
    pub requests: Vec<SpooledRequest>,
}

/// Request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpooledRequest {
    /// Method of the server.
    pub route: UploadRoute,
    /// Number of profiles in the body.
    pub profiles: u32,
    /// Body as [`Upload`](crate::upload::Upload) defines it.
    pub body: Bytes,
}

/// Request before it is written. Its body is the concatenation of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestParts {
    /// Method of the server.
    pub route: UploadRoute,
    /// Number of profiles in the body.
    pub profiles: u32,
    /// Parts of the body.
    pub parts: Vec<Bytes>,
}

/// Failure to decode a spool file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpoolFileError {
    /// The file does not begin like a spool file of this version.
    #[error("the file does not begin like a spool file of version 1")]
    Magic,
    /// The file ends before its header does.
    #[error("the file has {0} bytes, fewer than its header")]
    Truncated(usize),
    /// The header does not match its checksum.
    #[error("the header does not match its checksum")]
    HeaderChecksum,
    /// The header has a valid checksum and invalid contents.
    #[error("the header is invalid: {0}")]
    Header(&'static str),
    /// The lengths in the header do not sum up to the length of the file.
    #[error("the file has {seen} bytes, its header describes {expected}")]
    Length {
        /// Bytes of the file.
        seen: usize,
        /// Bytes that the header describes.
        expected: usize,
    },
    /// A body does not match its checksum.
    #[error("the body of request {0} does not match its checksum")]
    BodyChecksum(usize),
    /// The number in the header is not that of the name.
    #[error("the header has number {0}, which is not that of the file name")]
    Sequence(u64),
    /// The contents exceed the sizes that a file can describe.
    #[error("a request has {0} bytes, the limit is 4 GiB")]
    TooLarge(usize),
}

// === impl RequestParts ===

impl RequestParts {
    /// Returns the bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        self.parts.iter().for_each(|part| hasher.update(part));
        hasher.finalize()
    }
}

// === impl SpoolFile ===

impl SpoolFile {
    /// Encodes a file.
    ///
    /// # Errors
    ///
    /// [`SpoolFileError::TooLarge`] if a length does not fit into 32 bits.
    pub fn encode(
        sequence: u64,
        tenant: Option<&TenantId>,
        requests: &[RequestParts],
    ) -> Result<Vec<u8>, SpoolFileError> {
        let mut header = Vec::new();
        header.extend_from_slice(&sequence.to_le_bytes());
        put_text(&mut header, tenant.map_or("", TenantId::as_str))?;
        put_length(&mut header, requests.len())?;
        let mut bodies = 0;
        for request in requests {
            put_route(&mut header, &request.route)?;
            header.extend_from_slice(&request.profiles.to_le_bytes());
            put_length(&mut header, request.body_bytes())?;
            header.extend_from_slice(&request.checksum().to_le_bytes());
            bodies += request.body_bytes();
        }
        let mut length = Vec::new();
        put_length(&mut length, header.len())?;
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + header.len() + bodies);
        bytes.extend_from_slice(&FILE_MAGIC);
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&header_checksum(&length, &header).to_le_bytes());
        bytes.extend_from_slice(&header);
        for part in requests.iter().flat_map(|request| &request.parts) {
            bytes.extend_from_slice(part);
        }
        Ok(bytes)
    }

    /// Decodes a file and checks all checksums. The bodies share the memory of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, SpoolFileError> {
        let truncated = SpoolFileError::Truncated(bytes.len());
        let prefix = bytes.get(..PREFIX_BYTES).ok_or_else(|| truncated.clone())?;
        if prefix[..8] != FILE_MAGIC {
            return Err(SpoolFileError::Magic);
        }
        let mut reader = HeaderReader { rest: &prefix[8..] };
        let header_length = reader.length()?;
        let checksum = reader.u32()?;
        let end = PREFIX_BYTES.saturating_add(header_length);
        let header = bytes.get(PREFIX_BYTES..end).ok_or(truncated)?;
        if header_checksum(&prefix[8..12], header) != checksum {
            return Err(SpoolFileError::HeaderChecksum);
        }
        HeaderReader { rest: header }.read_file(bytes, end)
    }
}

fn header_checksum(length: &[u8], header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(length);
    hasher.update(header);
    hasher.finalize()
}

fn put_length(into: &mut Vec<u8>, length: usize) -> Result<(), SpoolFileError> {
    let length = u32::try_from(length).map_err(|_| SpoolFileError::TooLarge(length))?;
    into.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

fn put_text(into: &mut Vec<u8>, text: &str) -> Result<(), SpoolFileError> {
    put_length(into, text.len())?;
    into.extend_from_slice(text.as_bytes());
    Ok(())
}

fn put_route(into: &mut Vec<u8>, route: &UploadRoute) -> Result<(), SpoolFileError> {
    match route {
        UploadRoute::Push => into.push(PUSH_ROUTE),
        UploadRoute::Otlp => into.push(OTLP_ROUTE),
        UploadRoute::Ingest { query, content_type, content_encoding } => {
            into.push(INGEST_ROUTE);
            put_text(into, query)?;
            put_text(into, content_type)?;
            put_text(into, content_encoding)?;
        }
    }
    Ok(())
}

/// Reader of the fields of a header.
struct HeaderReader<'a> {
    rest: &'a [u8],
}

impl<'a> HeaderReader<'a> {
    fn read_file(mut self, bytes: &Bytes, bodies: usize) -> Result<SpoolFile, SpoolFileError> {
        let sequence = self.u64()?;
        let tenant = match self.text()?.as_str() {
            "" => None,
            name => Some(name.parse().map_err(|_| SpoolFileError::Header("invalid tenant name"))?),
        };
        let count = self.length()?;
        let mut requests = Vec::new();
        let mut offset = bodies;
        for number in 0..count {
            let route = self.route()?;
            let profiles = self.u32()?;
            let length = self.length()?;
            let checksum = self.u32()?;
            let end = offset.saturating_add(length);
            if end > bytes.len() {
                return Err(SpoolFileError::Length { seen: bytes.len(), expected: end });
            }
            let body = bytes.slice(offset..end);
            if crc32fast::hash(&body) != checksum {
                return Err(SpoolFileError::BodyChecksum(number));
            }
            requests.push(SpooledRequest { route, profiles, body });
            offset = end;
        }
        if !self.rest.is_empty() {
            return Err(SpoolFileError::Header("bytes follow the last request"));
        }
        if offset != bytes.len() {
            return Err(SpoolFileError::Length { seen: bytes.len(), expected: offset });
        }
        Ok(SpoolFile { sequence, tenant, requests })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], SpoolFileError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(SpoolFileError::Header("a field exceeds the header"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SpoolFileError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| SpoolFileError::Header("a field exceeds the header"))
    }

    fn u32(&mut self) -> Result<u32, SpoolFileError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, SpoolFileError> {
        self.array().map(u64::from_le_bytes)
    }

    fn length(&mut self) -> Result<usize, SpoolFileError> {
        self.u32().map(|length| length as usize)
    }

    fn text(&mut self) -> Result<String, SpoolFileError> {
        let length = self.length()?;
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_owned).map_err(|_| SpoolFileError::Header("a text is not UTF-8"))
    }

    fn route(&mut self) -> Result<UploadRoute, SpoolFileError> {
        match self.array::<1>()? {
            [PUSH_ROUTE] => Ok(UploadRoute::Push),
            [OTLP_ROUTE] => Ok(UploadRoute::Otlp),
            [INGEST_ROUTE] => {
                let query = self.text()?;
                let content_type = self.text()?;
                let content_encoding = self.text()?;
                Ok(UploadRoute::Ingest { query, content_type, content_encoding })
            }
            _ => Err(SpoolFileError::Header("unknown route")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_requests() -> Vec<RequestParts> {
        let ingest = UploadRoute::Ingest {
            query: "name=app".to_owned(),
            content_type: "application/octet-stream".to_owned(),
            content_encoding: "gzip".to_owned(),
        };
        vec![
            RequestParts {
                route: UploadRoute::Push,
                profiles: 2,
                parts: vec![Bytes::from_static(b"first "), Bytes::from_static(b"second")],
            },
            RequestParts { route: ingest, profiles: 1, parts: vec![Bytes::from_static(b"\0\xff")] },
            RequestParts { route: UploadRoute::Otlp, profiles: 9, parts: Vec::new() },
        ]
    }

    fn sample_file() -> Vec<u8> {
        let tenant = "team-a".parse().unwrap();
        SpoolFile::encode(17, Some(&tenant), &sample_requests()).unwrap()
    }

    #[test]
    fn decode_returns_encoded_requests_with_joined_parts() {
        let file = SpoolFile::decode(&sample_file().into()).unwrap();
        assert_eq!((file.sequence, file.tenant), (17, Some("team-a".parse().unwrap())));
        let bodies: Vec<&[u8]> = file.requests.iter().map(|request| &request.body[..]).collect();
        assert_eq!(bodies, [&b"first second"[..], b"\0\xff", b""]);
        let routes: Vec<_> = file.requests.iter().map(|request| request.route.clone()).collect();
        assert_eq!(routes, sample_requests().into_iter().map(|request| request.route).collect::<Vec<_>>());
        let without_tenant = SpoolFile::encode(0, None, &[]).unwrap();
        let empty = SpoolFile { sequence: 0, tenant: None, requests: Vec::new() };
        assert_eq!(SpoolFile::decode(&without_tenant.into()), Ok(empty));
    }

    #[test]
    fn decode_rejects_every_flipped_bit() {
        let bytes = sample_file();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SpoolFile::decode(&damaged.into()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn decode_rejects_every_other_length() {
        let bytes = sample_file();
        for length in 0..bytes.len() {
            assert!(SpoolFile::decode(&bytes[..length].to_vec().into()).is_err(), "{length} bytes");
        }
        let longer = [&bytes[..], b"x"].concat();
        let seen = longer.len();
        let expected = bytes.len();
        assert_eq!(SpoolFile::decode(&longer.into()), Err(SpoolFileError::Length { seen, expected }));
    }

    #[test]
    fn decode_rejects_invalid_fields_under_valid_checksums() {
        let with_header = |header: &[u8]| {
            let length = (header.len() as u32).to_le_bytes();
            let checksum = header_checksum(&length, header).to_le_bytes();
            SpoolFile::decode(&[&FILE_MAGIC, &length[..], &checksum, header].concat().into())
        };
        let sequence = [0_u8; 8];
        let count = u32::MAX.to_le_bytes();
        assert_eq!(
            with_header(&[&sequence[..], &[0; 4], &count].concat()),
            Err(SpoolFileError::Header("a field exceeds the header"))
        );
        assert_eq!(
            with_header(&[&sequence[..], &[1, 0, 0, 0], b"/", &[0; 4]].concat()),
            Err(SpoolFileError::Header("invalid tenant name"))
        );
        assert_eq!(
            with_header(&[&sequence[..], &[0; 4], &[0; 4], b"more"].concat()),
            Err(SpoolFileError::Header("bytes follow the last request"))
        );
    }
}
