//! Profiles that people upload by hand, to look at them: kept in the bucket, of no series and in no query.
//!
//! ```text
//!  Upload ─► open (is it a profile?) ─► Shelf, in the bucket: number, name, bytes ─► the oldest ones go
//!  Get    ─► Shelf ─► open ─► tree ─► cut ─► flame graph
//!  List   ─► one listing of the shelf: a number says the moment
//! ```
//! A number is the moment in milliseconds and 80 bits of chance, so that they are listed by age. Whoever shows one waits for
//! a turn as queries do.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::query_queue::QueryPermit;
use athanor_chassis::{ByteSize, ErrorCode, Random, Status, TenantId};
use athanor_profile::Profile;
use athanor_profile::diff::DiffTree;
use athanor_profile::tree::Tree;
use bytes::Bytes;

use crate::merge::TREE_NODE_BYTES;
use crate::render::{diff_to_json, tree_to_json};
use crate::validate::{self, NodeLimit, invalid_argument};
use crate::{Querier, QueryContext};

mod decode;
mod wire;

use decode::ProfileTypeColumns;

/// The longest name, in bytes.
const MAX_PROFILE_NAME_BYTES: usize = AdhocProfile::MAX_NAME_BYTES;
/// How many are listed at once.
const LIST_PAGE_SIZE: usize = 1_000;
/// Bits of a number that are chance.
const RANDOM_ID_BITS: u32 = 80;
/// Characters of an unknown id that an error shows.
const MAX_SHOWN_ID_CHARS: usize = 64;
/// What a profile takes in memory for each of its bytes, about; what it really takes is known once it is read.
pub(crate) const DECODED_SIZE_FACTOR: usize = 8;
/// What a bar takes in JSON that is a text in a message.
const EMBEDDED_BAR_BYTES: usize = 2 * TREE_NODE_BYTES;

/// Keeps profiles that people upload. Cheap to clone.
#[derive(Clone)]
pub struct AdhocProfileService {
    querier: Querier,
    shelf: Arc<dyn AdhocProfileStore>,
    random: Random,
}

/// One that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdhocProfile {
    /// Later ones have greater numbers.
    pub number: u128,
    /// What people call it: 1 to 150 bytes.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
}

impl AdhocProfile {
    /// The longest name, in bytes.
    pub const MAX_NAME_BYTES: usize = 150;
}

/// Where they are kept, of each tenant apart.
#[async_trait]
pub trait AdhocProfileStore: Send + Sync {
    /// Keeps one whose number is new.
    async fn put(&self, tenant: &TenantId, upload: &AdhocProfile, bytes: Bytes) -> Result<(), Status>;

    /// Those from a number on, in the order of their numbers. Fewer than `limit` are the last.
    async fn list(&self, tenant: &TenantId, from: u128, limit: usize) -> Result<Vec<AdhocProfile>, Status>;

    /// The bytes of one; none if it is gone.
    async fn read(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<Option<Bytes>, Status>;

    /// Removes one, if it is there.
    async fn remove(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<(), Status>;
}

/// A graph to show: what is measured, and the graph as JSON.
struct RenderedGraph {
    profile_type: String,
    profile_types: Vec<String>,
    json: String,
}

impl Querier {
    /// What keeps profiles that people upload on this shelf, and shows them.
    #[must_use]
    pub fn adhoc_profiles(&self, shelf: Arc<dyn AdhocProfileStore>, random: &Random) -> AdhocProfileService {
        // Nothing is drawn as long as nobody uploads.
        AdhocProfileService { querier: self.clone(), shelf, random: random.clone() }
    }
}

impl AdhocProfileService {
    /// The largest body of an upload: a profile in base64, and its name.
    pub fn body_limit(&self) -> ByteSize {
        let largest = self.querier.config.adhoc_profile.get();
        ByteSize::bytes(largest.div_ceil(3).saturating_mul(4).saturating_add(64 * 1024))
    }

    /// Keeps a profile, if it is one, and shows it.
    async fn store_profile(
        &self,
        reader: &QueryContext,
        name: String,
        bytes: Vec<u8>,
        nodes: NodeLimit,
    ) -> Result<(AdhocProfile, RenderedGraph), Status> {
        let seen = name.len();
        if !(1..=MAX_PROFILE_NAME_BYTES).contains(&seen) {
            return Err(invalid_argument(format!(
                "name of a profile has {seen} bytes; write one of 1 to {MAX_PROFILE_NAME_BYTES}"
            )));
        }
        let size = bytes.len() as u64;
        let limit = self.max_bytes(first_tenant(reader));
        if size > limit.get() {
            let message = format!(
                "profile has {size} bytes, and the tenant may keep {limit} of uploaded profiles (limits.max_adhoc_bytes)"
            );
            return Err(Status::new(ErrorCode::TooLarge, message));
        }
        let kept = Bytes::from(bytes);
        self.with_permit(reader, |turn| async move {
            // What cannot be shown is not kept.
            let profile = self.open(reader, kept.clone(), &turn).await?;
            let shown = self.show(reader, profile, None, nodes).await?;
            let now = self.querier.deps.clock.wall().millis();
            let moment = u128::try_from(now).unwrap_or_default() << RANDOM_ID_BITS;
            let number = moment | (self.random.next_id() >> (u128::BITS - RANDOM_ID_BITS));
            let upload = AdhocProfile { number, name, size };
            // What an earlier one could not remove: where that fails still, nothing is added.
            self.remove_older(first_tenant(reader)).await?;
            self.shelf.put(first_tenant(reader), &upload, kept).await?;
            // The new one is safe by now. Where an older one stays, the next one tries again.
            let _ = self.remove_older(first_tenant(reader)).await;
            Ok((upload, shown))
        })
        .await
    }

    /// Does something when it is the reader's turn, as long as the reader waits.
    async fn with_permit<R, F: Future<Output = Result<R, Status>>>(
        &self,
        reader: &QueryContext,
        work: impl FnOnce(QueryPermit) -> F,
    ) -> Result<R, Status> {
        let limits = self.querier.limits(reader);
        self.querier.with_permit(reader, &limits, work).await
    }

    /// Shows one that is kept.
    async fn render_stored(
        &self,
        reader: &QueryContext,
        id: &str,
        profile_type: Option<&str>,
        nodes: NodeLimit,
    ) -> Result<(AdhocProfile, RenderedGraph), Status> {
        self.with_permit(reader, |turn| async move {
            let (upload, profile) = self.fetch(reader, id, &turn).await?;
            let shown = self.show(reader, profile, profile_type.map(str::to_owned), nodes).await?;
            Ok((upload, shown))
        })
        .await
    }

    /// Shows two.
    async fn render_diff(
        &self,
        reader: &QueryContext,
        ids: [&str; 2],
        profile_type: Option<&str>,
        nodes: NodeLimit,
    ) -> Result<RenderedGraph, Status> {
        self.with_permit(reader, |turn| async move {
            let (_, left) = self.fetch(reader, ids[0], &turn).await?;
            let (_, right) = self.fetch(reader, ids[1], &turn).await?;
            let of = ProfileTypeColumns::common_types(
                &ProfileTypeColumns::from_profile(&left),
                &ProfileTypeColumns::from_profile(&right),
            );
            let (columns, profile_type) = of.select_type(profile_type)?;
            let value = left.header.types[columns[0]].clone();
            let trees =
                move || (Tree::from_profile(&left, columns[0]), Tree::from_profile(&right, columns[1]));
            let (before, after) = self.querier.compute_on_pool(reader, trees).await?;
            self.querier
                .reserve_memory(reader, (before.nodes().len() + after.nodes().len()) * EMBEDDED_BAR_BYTES)?;
            let json = self.querier.compute_on_pool(reader, move || {
                let mut diff = DiffTree::from_trees(&before, &after);
                diff.truncate(nodes.asked, nodes.most);
                diff_to_json(&diff, &value)
            });
            let json = text(json.await?);
            Ok(RenderedGraph { profile_type, profile_types: of.names(), json })
        })
        .await
    }

    /// All that a tenant has, the oldest first.
    async fn list(&self, tenant: &TenantId) -> Result<VecDeque<AdhocProfile>, Status> {
        let most = self.max_profiles()?;
        Ok(self.newest(tenant, most).await?.0)
    }

    /// The newest ones of a tenant, so many and within its bytes, and those that are older; either the oldest first.
    async fn newest(
        &self,
        tenant: &TenantId,
        most: usize,
    ) -> Result<(VecDeque<AdhocProfile>, Vec<AdhocProfile>), Status> {
        let max_bytes = self.max_bytes(tenant).get();
        let mut newest = VecDeque::<AdhocProfile>::new();
        let mut older = Vec::new();
        let mut from = 0;
        let mut bytes = 0u64;
        loop {
            let page = self.shelf.list(tenant, from, LIST_PAGE_SIZE).await?;
            let next = page
                .last()
                .and_then(|last| last.number.checked_add(1))
                .filter(|_| page.len() >= LIST_PAGE_SIZE);
            for upload in page {
                bytes += upload.size;
                newest.push_back(upload);
                while newest.len() > most || bytes > max_bytes {
                    let Some(oldest) = newest.pop_front() else { break };
                    bytes -= oldest.size;
                    older.push(oldest);
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok((newest, older)),
            }
        }
    }

    /// Removes the oldest ones, so that there are not too many, nor too many bytes.
    async fn remove_older(&self, tenant: &TenantId) -> Result<(), Status> {
        let most = self.max_profiles()?;
        let (_, too_many) = self.newest(tenant, most).await?;
        for upload in too_many {
            self.shelf.remove(tenant, &upload).await?;
        }
        Ok(())
    }

    /// One that is kept, read.
    async fn fetch(
        &self,
        reader: &QueryContext,
        id: &str,
        turn: &QueryPermit,
    ) -> Result<(AdhocProfile, Profile), Status> {
        let upload = self.find_profile(first_tenant(reader), id).await?;
        let limit = self.querier.config.adhoc_profile;
        if upload.size > limit.get() {
            let size = upload.size;
            let name = &upload.name;
            let message =
                format!("profile {name:?} has {size} bytes, the limit is {limit} (querier.adhoc_profile)");
            return Err(invalid_argument(message));
        }
        let bytes =
            self.shelf.read(first_tenant(reader), &upload).await?.ok_or_else(|| self.not_found_error(id))?;
        let profile = self.open(reader, bytes, turn).await?;
        Ok((upload, profile))
    }

    /// One that is kept, by its id.
    async fn find_profile(&self, tenant: &TenantId, id: &str) -> Result<AdhocProfile, Status> {
        self.max_profiles()?;
        let numbers = validate::parse_hex_ids("ids of uploaded profiles", &[id.to_owned()], 32);
        // An id of another form, as other servers have, is unknown and no mistake.
        let number =
            numbers.map_err(|refused| if id.is_empty() { refused } else { self.not_found_error(id) })?[0];
        let found = self.shelf.list(tenant, number, 1).await?.pop();
        found.filter(|upload| upload.number == number).ok_or_else(|| self.not_found_error(id))
    }

    fn max_bytes(&self, tenant: &TenantId) -> ByteSize {
        self.querier.deps.overrides.for_tenant(tenant).max_adhoc_bytes
    }

    fn not_found_error(&self, id: &str) -> Status {
        let most = self.querier.config.adhoc_profiles;
        let shown: String = id.chars().take(MAX_SHOWN_ID_CHARS).collect();
        let message = format!(
            "there is no profile {shown:?}, or it made room for newer ones: {most} are kept (querier.adhoc_profiles)"
        );
        Status::new(ErrorCode::NotFound, message)
    }

    /// How many are kept.
    fn max_profiles(&self) -> Result<usize, Status> {
        match self.querier.config.adhoc_profiles {
            0 => {
                let message = "no profiles are kept that are uploaded by hand; set querier.adhoc_profiles";
                Err(Status::new(ErrorCode::Unimplemented, message))
            }
            most => Ok(most),
        }
    }

    /// Reads a profile in whichever format it is.
    async fn open(&self, reader: &QueryContext, bytes: Bytes, turn: &QueryPermit) -> Result<Profile, Status> {
        self.max_profiles()?;
        turn.charge(first_tenant(reader), bytes.len() as u64);
        let limit = self.querier.config.adhoc_profile;
        // Room for what it may be once it is decompressed, then for what it is.
        let mut taken = self.querier.response_budget_for(reader).reserve(limit.as_usize())?;
        let raw = self.querier.compute_on_pool(reader, move || decode::inflate(&bytes, limit)).await??;
        taken.shrink(0);
        let room = taken.merge(
            self.querier
                .response_budget_for(reader)
                .reserve(raw.len().saturating_mul(DECODED_SIZE_FACTOR))?,
        );
        let profile =
            self.querier.compute_on_pool(reader, move || decode::read_profile(&raw, limit)).await??;
        let memory = profile.dictionary.memory() + profile.samples.memory();
        let more = self.querier.response_budget_for(reader).reserve(memory.saturating_sub(room.bytes()))?;
        reader.hold_memory(room.merge(more));
        Ok(profile)
    }

    /// Shows one of the types of a profile.
    async fn show(
        &self,
        reader: &QueryContext,
        profile: Profile,
        profile_type: Option<String>,
        nodes: NodeLimit,
    ) -> Result<RenderedGraph, Status> {
        let of = ProfileTypeColumns::from_profile(&profile);
        let ([column, _], profile_type) = of.select_type(profile_type.as_deref())?;
        let value = profile.header.types[column].clone();
        let tree = self.querier.compute_on_pool(reader, move || {
            let mut tree = Tree::from_profile(&profile, column);
            tree.truncate_with_ties(nodes.asked, nodes.most);
            tree
        });
        let tree = tree.await?;
        self.querier.reserve_memory(reader, tree.nodes().len() * EMBEDDED_BAR_BYTES)?;
        let json = text(self.querier.compute_on_pool(reader, move || tree_to_json(&tree, &value)).await?);
        Ok(RenderedGraph { profile_type, profile_types: of.names(), json })
    }

    fn parse_node_limit(&self, reader: &QueryContext, asked: Option<i64>) -> Result<NodeLimit, Status> {
        validate::parse_max_nodes(asked, &self.querier.limits(reader))
    }
}

fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).expect("JSON is text")
}

fn first_tenant(reader: &QueryContext) -> &TenantId {
    &reader.tenants()[0]
}

impl AdhocProfile {
    fn id(&self) -> String {
        format!("{:032x}", self.number)
    }

    /// Milliseconds since 1970.
    fn uploaded_at(&self) -> i64 {
        i64::try_from(self.number >> RANDOM_ID_BITS).unwrap_or(i64::MAX)
    }
}
