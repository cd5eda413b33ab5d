//! Transfer of files that a snapshot names. They are sent in chunks before the snapshot, and have other names
//! until the snapshot is installed.
//!
//! A file never changes, so an interrupted transfer continues at the last received byte, also for a later
//! snapshot.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{ComputePool, Disk};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::codec::{RaftRequest, RaftResponse, SnapshotFileChunk};
use super::peer_link::{PeerLink, RaftCallError};
use crate::log::error_chain;

/// Bytes of a file in one message.
const FILE_CHUNK_BYTES: usize = 1 << 20;
/// Limit for the size of a received file.
const MAX_FILE_BYTES: u64 = 16 << 30;
/// Limit for the length of a file name. The state machine chooses its names.
const MAX_FILE_NAME_BYTES: usize = 100;

/// Receiver of snapshot files, which stores them on this member's disk.
pub(crate) struct SnapshotFileReceiver {
    disk: Arc<dyn Disk>,
    prefix: String,
    /// Lock so that one chunk is written at a time.
    writing: Mutex<()>,
}

impl SnapshotFileReceiver {
    /// Creates the receiver of a group. Removes files that an earlier process received in part.
    pub(crate) fn open(disk: Arc<dyn Disk>, group: u32) -> Result<Self, DiskError> {
        let arrivals = Self { disk, prefix: format!("group-{group}.part-"), writing: Mutex::default() };
        arrivals.remove_partial_files()?;
        Ok(arrivals)
    }

    /// Writes a chunk if it continues the file, and returns the number of bytes of the file on disk.
    pub(crate) fn write_chunk(&self, part: &SnapshotFileChunk) -> Result<u64, String> {
        let SnapshotFileChunk { name, total, offset, sum, data } = part;
        if name.len() > MAX_FILE_NAME_BYTES || *total > MAX_FILE_BYTES {
            return Err(format!(
                "the snapshot file has {total} bytes and a name of {}, the limits are {MAX_FILE_BYTES} and {MAX_FILE_NAME_BYTES}",
                name.len()
            ));
        }
        if xxh3_64(data) != *sum {
            return Err(format!("a chunk of {name} is damaged"));
        }
        let _writing = self.writing.lock();
        let file = format!("{}{name}", self.prefix);
        let take = || -> Result<u64, DiskError> {
            let here = match self.disk.list()?.contains(&file) {
                true => self.disk.len(&file)?,
                false => {
                    self.disk.create_new(&file)?;
                    0
                }
            };
            if *offset != here || offset + data.len() as u64 > *total {
                return Ok(here);
            }
            self.disk.write_at(&file, *offset, &[data])?;
            let here = offset + data.len() as u64;
            if here == *total {
                self.disk.sync(&file)?;
            }
            Ok(here)
        };
        take().map_err(|error| error_chain(&error))
    }

    /// Renames received files to their final names, durably.
    pub(crate) fn install_files(&self, names: &[String]) -> Result<(), String> {
        let here = self.disk.list().map_err(|error| error_chain(&error))?;
        for name in names {
            let part = format!("{}{name}", self.prefix);
            match (here.contains(&part), here.contains(name)) {
                (true, _) => self.disk.rename(&part, name).map_err(|error| error_chain(&error))?,
                // An earlier snapshot has installed this file already.
                (false, true) => {}
                (false, false) => return Err(format!("{name} is missing from the received snapshot")),
            }
        }
        self.disk.sync_dir().map_err(|error| error_chain(&error))
    }

    /// Removes partially received files of the group.
    pub(crate) fn remove_partial_files(&self) -> Result<(), DiskError> {
        let parts = self.disk.list()?.into_iter().filter(|name| name.starts_with(&self.prefix));
        parts.into_iter().try_for_each(|name| self.disk.remove(&name))
    }
}

/// Sends files to another member one after the other, starting at the bytes that it already has.
pub(crate) async fn send_files(
    link: &PeerLink,
    disk: &Arc<dyn Disk>,
    compute: &ComputePool,
    names: Vec<String>,
    limit: Duration,
) -> Result<(), RaftCallError> {
    let fail = |reason: String| RaftCallError { to: link.to(), reason };
    for name in names {
        let mut offset = 0;
        loop {
            let part = {
                let disk = Arc::clone(disk);
                let name = name.clone();
                let read = compute.run(move || read_chunk(&*disk, name, offset)).await;
                read.map_err(|error| fail(error.to_string()))?.map_err(|error| fail(error_chain(&error)))?
            };
            let total = part.total;
            let end = part.offset + part.data.len() as u64;
            let RaftResponse::Index(here) = link.call(RaftRequest::File(part), limit).await? else {
                return Err(fail("protocol error: unexpected response to a file chunk".to_owned()));
            };
            if here >= total {
                break;
            }
            if here != end && here <= offset && offset > 0 {
                return Err(fail(format!("the peer has {here} bytes of {name}, and had {offset}")));
            }
            offset = here;
        }
    }
    Ok(())
}

fn read_chunk(disk: &dyn Disk, name: String, offset: u64) -> Result<SnapshotFileChunk, DiskError> {
    let total = disk.len(&name)?;
    let mut data =
        vec![
            0;
            usize::try_from(total.saturating_sub(offset)).unwrap_or(FILE_CHUNK_BYTES).min(FILE_CHUNK_BYTES)
        ];
    let read = disk.read_at(&name, offset, &mut data)?;
    data.truncate(read);
    Ok(SnapshotFileChunk { name, total, offset, sum: xxh3_64(&data), data: data.into() })
}

#[cfg(test)]
mod tests {
    use athanor_chassis::disk::MemoryDisk;

    use super::*;

    fn part(offset: u64, data: &'static [u8]) -> SnapshotFileChunk {
        SnapshotFileChunk { name: "ids-1-7".into(), total: 10, offset, sum: xxh3_64(data), data: data.into() }
    }

    #[test]
    fn a_file_comes_in_parts_and_goes_on_where_it_was() {
        let disk = MemoryDisk::new();
        let arrivals = SnapshotFileReceiver::open(Arc::new(disk.clone()), 3).unwrap();
        assert_eq!(arrivals.write_chunk(&part(0, b"0123")), Ok(4));
        // Who begins again, or goes too far, is told what is here.
        assert_eq!(
            (arrivals.write_chunk(&part(0, b"0123")), arrivals.write_chunk(&part(8, b"89"))),
            (Ok(4), Ok(4))
        );
        assert_eq!(arrivals.write_chunk(&part(4, b"456789x")), Ok(4), "longer than it is");
        let damaged = SnapshotFileChunk { sum: 1, ..part(4, b"456789") };
        assert_eq!(arrivals.write_chunk(&damaged), Err("a chunk of ids-1-7 is damaged".to_owned()));
        assert!(arrivals.install_files(&["ids-1-8".to_owned()]).is_err());
        assert_eq!(arrivals.write_chunk(&part(4, b"456789")), Ok(10));
        arrivals.install_files(&["ids-1-7".to_owned()]).unwrap();
        assert_eq!(disk.read("ids-1-7").unwrap(), b"0123456789");
        // The next snapshot names it, too.
        arrivals.install_files(&["ids-1-7".to_owned()]).unwrap();
        assert_eq!(arrivals.write_chunk(&part(0, b"0123")), Ok(4));
        SnapshotFileReceiver::open(Arc::new(disk.clone()), 3).unwrap();
        assert_eq!(disk.list().unwrap(), ["ids-1-7"]);
    }

    #[test]
    fn what_is_no_file_of_a_snapshot_is_refused() {
        let arrivals = SnapshotFileReceiver::open(Arc::new(MemoryDisk::new()), 3).unwrap();
        for name in ["n".repeat(MAX_FILE_NAME_BYTES + 1).as_str(), "../node.json", "a/b"] {
            assert!(
                arrivals.write_chunk(&SnapshotFileChunk { name: name.into(), ..part(0, b"0123") }).is_err(),
                "{name}"
            );
        }
        assert!(
            arrivals
                .write_chunk(&SnapshotFileChunk { total: MAX_FILE_BYTES + 1, ..part(0, b"0123") })
                .is_err()
        );
    }
}
