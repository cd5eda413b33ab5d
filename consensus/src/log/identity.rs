//! Identity of a log folder: one node of one cluster.

use athanor_chassis::{Disk, Random};
use xxhash_rust::xxh3::xxh3_64;

use super::LogOpenError;

const IDENTITY_FILE_NAME: &str = "identity";
const IDENTITY_MAGIC: [u8; 8] = *b"athnode\x01";

/// Node of a cluster. A wiped disk is a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// Cluster id, drawn once when the cluster is created.
    pub cluster: u128,
    /// Node id, never reused for another disk.
    pub node: u64,
}

/// Content of the identity file, written when the folder is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogManifest {
    pub(crate) identity: LogIdentity,
    pub(crate) segment: u64,
    /// Random number in each frame, so that bytes from a tenant cannot imitate a frame.
    pub(crate) salt: u64,
    /// True once the first segment exists. From then on there is always one.
    pub(crate) begun: bool,
}

impl LogManifest {
    /// Reads the identity file, or creates it if the folder is empty.
    pub(crate) fn open(
        disk: &dyn Disk,
        identity: LogIdentity,
        segment: u64,
        random: &Random,
    ) -> Result<Self, LogOpenError> {
        let names = disk.list()?;
        if !names.iter().any(|name| name == IDENTITY_FILE_NAME) {
            if names.iter().any(|name| name.ends_with(".log")) {
                return Err(LogOpenError::NoIdentity);
            }
            let made = Self { identity, segment, salt: random.next_u64(), begun: false };
            made.write(disk)?;
            return Ok(made);
        }
        let made = Self::decode(&disk.read(IDENTITY_FILE_NAME)?).ok_or(LogOpenError::BadIdentity)?;
        if made.identity != identity {
            return Err(LogOpenError::Foreign { found: made.identity, expected: identity });
        }
        Ok(made)
    }

    pub(crate) fn mark_begun(&mut self, disk: &dyn Disk) -> Result<(), LogOpenError> {
        if !self.begun {
            self.begun = true;
            self.write(disk)?;
        }
        Ok(())
    }

    fn write(&self, disk: &dyn Disk) -> Result<(), LogOpenError> {
        let mut bytes = IDENTITY_MAGIC.to_vec();
        bytes.extend_from_slice(&self.identity.cluster.to_le_bytes());
        for word in [self.identity.node, self.segment, self.salt, u64::from(self.begun)] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        Ok(disk.write(IDENTITY_FILE_NAME, &bytes)?)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(56)?;
        if body[..8] != IDENTITY_MAGIC || xxh3_64(body).to_le_bytes() != *sum {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            identity: LogIdentity {
                cluster: u128::from_le_bytes(body.get(8..24)?.try_into().ok()?),
                node: word(24)?,
            },
            segment: word(32)?,
            salt: word(40)?,
            begun: word(48)? != 0,
        })
    }
}
