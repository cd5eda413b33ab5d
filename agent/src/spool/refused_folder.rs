//! Bounded folder of profiles that a server rejected, with the server's error text.

use std::collections::VecDeque;
use std::sync::Arc;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{Disk, TenantId, Timestamp};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;

use super::stats::ServerStats;
use crate::upload::UploadRoute;

const REFUSED_SUFFIX: &str = ".refused";
/// Maximum number of files in the folder.
const MAX_REFUSED_FILES: usize = 10_000;
/// Maximum bytes of an error text.
const MAX_ERROR_BYTES: usize = 4096;

/// Rejected request with one profile, or with several equal ones.
#[derive(Clone, Debug)]
pub struct RefusedUpload {
    /// Sequence number of the spool file that contained it.
    pub sequence: u64,
    /// Tenant of the request.
    pub tenant: Option<TenantId>,
    /// Method of the server.
    pub route: UploadRoute,
    /// Body of the request.
    pub body: Bytes,
    /// HTTP status of the response.
    pub status: u16,
    /// Error text of the server.
    pub message: String,
    /// Time of the rejection.
    pub time: Timestamp,
}

/// Folder of rejected profiles. The first line of a file is a JSON object with the error, the rest is the body.
/// If the folder is full, the oldest files are removed.
#[derive(Debug)]
pub(super) struct RefusedFolder {
    disk: Arc<dyn Disk>,
    max_bytes: u64,
    files: Mutex<RefusedFiles>,
}

#[derive(Debug, Default)]
struct RefusedFiles {
    /// Names and sizes in the order of the names, which is that of the spool files.
    files: VecDeque<(String, u64)>,
    bytes: u64,
}

impl RefusedFolder {
    /// Opens a folder with the files of earlier processes. Blocks.
    pub(super) fn open(disk: Arc<dyn Disk>, max_bytes: u64) -> Result<Self, DiskError> {
        let mut files = RefusedFiles::default();
        for name in disk.list()?.into_iter().filter(|name| name.ends_with(REFUSED_SUFFIX)) {
            let bytes = disk.len(&name)?;
            files.bytes += bytes;
            files.files.push_back((name, bytes));
        }
        Ok(Self { disk, max_bytes, files: Mutex::new(files) })
    }

    /// Returns the highest sequence number of a spool file that contained a refused upload.
    pub(super) fn last_sequence(&self) -> Option<u64> {
        let files = self.files.lock();
        files.files.iter().filter_map(|(name, _)| name.split('-').next()?.parse().ok()).max()
    }

    /// Stores a rejected upload. Returns false if it is there already, because an earlier delivery of the same
    /// file was interrupted. Blocks.
    pub(super) fn store(&self, refused: &RefusedUpload, stats: &ServerStats) -> Result<bool, DiskError> {
        let name = format!("{:020}-{:08x}{REFUSED_SUFFIX}", refused.sequence, crc32fast::hash(&refused.body));
        let mut bytes = describe_refusal(refused);
        bytes.push(b'\n');
        bytes.extend_from_slice(&refused.body);
        let mut files = self.files.lock();
        if files.files.iter().any(|(stored, _)| *stored == name) {
            return Ok(false);
        }
        let size = bytes.len() as u64;
        while files.bytes.saturating_add(size) > self.max_bytes || files.files.len() >= MAX_REFUSED_FILES {
            let Some((oldest, freed)) = files.files.pop_front() else { break };
            files.bytes -= freed;
            self.disk.remove(&oldest)?;
            stats.record_discarded_refusals(1);
        }
        self.disk.write(&name, &bytes)?;
        files.bytes += size;
        files.files.push_back((name, size));
        Ok(true)
    }
}

fn describe_refusal(refused: &RefusedUpload) -> Vec<u8> {
    let end = refused.message.floor_char_boundary(MAX_ERROR_BYTES);
    let route = match &refused.route {
        UploadRoute::Push => json!({ "method": "push" }),
        UploadRoute::Otlp => json!({ "method": "otlp" }),
        UploadRoute::Ingest { query, content_type, content_encoding } => json!({
            "method": "ingest", "query": query, "content_type": content_type, "content_encoding": content_encoding,
        }),
    };
    let described = json!({
        "time": refused.time.to_string(),
        "tenant": refused.tenant.as_ref().map(TenantId::as_str),
        "status": refused.status,
        "error": &refused.message[..end],
        "route": route,
    });
    described.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use athanor_chassis::disk::MemoryDisk;

    use super::*;

    fn refused(sequence: u64, body: &'static [u8]) -> RefusedUpload {
        RefusedUpload {
            sequence,
            tenant: Some(TenantId::anonymous()),
            route: UploadRoute::Push,
            body: Bytes::from_static(body),
            status: 400,
            message: format!("no sample type\n{}", "ü".repeat(MAX_ERROR_BYTES)),
            time: Timestamp::from_seconds(1),
        }
    }

    #[test]
    fn full_folder_removes_the_oldest_files() {
        let disk = Arc::new(MemoryDisk::new());
        let stats = ServerStats::default();
        let folder = RefusedFolder::open(disk.clone(), 10_000).unwrap();
        assert!(folder.store(&refused(1, b"a"), &stats).unwrap());
        assert!(!folder.store(&refused(1, b"a"), &stats).unwrap());
        assert!(folder.store(&refused(1, b"b"), &stats).unwrap());
        let folder = RefusedFolder::open(disk.clone(), 10_000).unwrap();
        assert!(folder.store(&refused(2, b"c"), &stats).unwrap());
        let names = disk.list().unwrap();
        assert_eq!((names.len(), stats.snapshot().discarded_refusals), (2, 1));
        let bytes = disk.read(&names[1]).unwrap();
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
        let described: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert_eq!((described["status"].as_u64(), &bytes[line.len() + 1..]), (Some(400), &b"c"[..]));
        assert!(described["error"].as_str().unwrap().starts_with("no sample type\nü"));
    }
}
