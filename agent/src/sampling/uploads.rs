//! Uploads of the profiles of a window.

use std::collections::VecDeque;
use std::sync::Arc;

use athanor_agent_ebpf::window::SampleWindow;
use athanor_chassis::Random;

use super::window_groups::ProfileGroup;
use crate::upload::push_series::append_series;
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};

/// Profiles of one upload: as many as the spool puts into one request.
const MAX_PROFILES_PER_UPLOAD: u32 = 64;
/// Bytes after which an upload takes no further profile.
const MAX_UPLOAD_BYTES: usize = 1 << 20;
/// Maximum stacks of a profile: half of what servers accept by default.
pub(super) const MAX_PROFILE_STACKS: usize = 8000;
/// Maximum bytes of an encoded profile: half of what servers accept by default. A single stack may be larger.
pub(super) const MAX_PROFILE_BYTES: usize = 2 << 20;

/// Function that encodes stacks of a window, by their indexes, as a pprof.
pub type EncodeProfile = dyn Fn(&SampleWindow, &[usize]) -> Vec<u8> + Send + Sync;

/// Profiles of a window that are not encoded yet. Only one upload is in memory at a time.
pub(super) struct PendingUploads {
    window: SampleWindow,
    groups: VecDeque<ProfileGroup>,
    encode: Arc<EncodeProfile>,
    random: Random,
}

/// Upload with the samples in its profiles.
pub(super) struct SampledUpload {
    pub(super) upload: Upload,
    pub(super) samples: u64,
}

impl PendingUploads {
    pub(super) fn new(
        window: SampleWindow,
        groups: Vec<ProfileGroup>,
        encode: Arc<EncodeProfile>,
        random: Random,
    ) -> Self {
        Self { window, groups: groups.into(), encode, random }
    }

    /// Encodes the next profiles of one tenant. It draws their ids, which no later step changes.
    pub(super) fn next_upload(&mut self) -> Option<SampledUpload> {
        let tenant = self.groups.front()?.key.tenant.clone();
        let mut body = Vec::new();
        let mut profiles = 0;
        let mut samples: u64 = 0;
        while profiles < MAX_PROFILES_PER_UPLOAD && body.len() < MAX_UPLOAD_BYTES {
            let Some(group) = self.groups.pop_front_if(|group| group.key.tenant == tenant) else { break };
            let (group, profile) = self.encode_first_part(group);
            append_series(&mut body, &group.key.labels, &profile, self.random.next_id());
            profiles += 1;
            samples = samples.saturating_add(group.samples);
        }
        let upload = Upload {
            tenant,
            route: UploadRoute::Push,
            body: body.into(),
            profiles,
            order: UploadOrder::Independent,
            origin: UploadOrigin::Scraped,
            time: self.window.started_at,
        };
        Some(SampledUpload { upload, samples })
    }

    /// Encodes as many stacks of a group as servers accept in one profile. The others become the next group.
    fn encode_first_part(&mut self, mut group: ProfileGroup) -> (ProfileGroup, Vec<u8>) {
        let mut limit = MAX_PROFILE_STACKS;
        loop {
            if let Some(rest) = group.split_off(limit, &self.window) {
                self.groups.push_front(rest);
            }
            let profile = (self.encode)(&self.window, &group.stacks);
            if profile.len() <= MAX_PROFILE_BYTES || group.stacks.len() <= 1 {
                return (group, profile);
            }
            limit = group.stacks.len() / 2;
        }
    }
}
