//! Ad hoc profiles: uploaded by hand for viewing. The bucket stores them, but no series or query contains
//! them.
//!
//! ```text
//!  Upload ─► decode (validates the profile) ─► AdhocProfileStore: number, name, bytes ─► evict the oldest
//!  Get    ─► AdhocProfileStore ─► decode ─► tree ─► truncate ─► flame graph
//!  List   ─► one listing of the store: a number contains the upload time
//! ```
//! A number consists of the time in milliseconds and 80 random bits, so that listings are sorted by age.
//! Rendering a profile needs a permit, as queries do.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::requests::query_queue::QueryPermit;
use athanor_chassis::{ByteSize, ErrorCode, Random, Status, TenantId};
use athanor_profile::Profile;
use athanor_profile::analysis::diff::DiffTree;
use athanor_profile::call_tree::tree::Tree;
use bytes::Bytes;

use crate::QueryContext;
use crate::api::merge::{TREE_NODE_BYTES, check_magnitude, check_sums_of_both};
use crate::api::render::{diff_to_json, tree_to_json};
use crate::config::DECODED_SIZE_FACTOR;
use crate::execute::executor::QueryExecutor;
use crate::validate::{self, NodeLimit, invalid_argument};

mod decode;
mod wire;

use decode::ProfileTypeColumns;

/// Maximum length of a name, in bytes.
const MAX_PROFILE_NAME_BYTES: usize = AdhocProfile::MAX_NAME_BYTES;
/// Number of profiles in one listing request.
const LIST_PAGE_SIZE: usize = 1_000;
/// Number of random bits in a profile number.
const RANDOM_ID_BITS: u32 = 80;
/// Maximum number of characters of an unknown id that an error quotes.
const MAX_SHOWN_ID_CHARS: usize = 64;
/// Size of a flame graph bar in JSON that a message embeds as text.
const EMBEDDED_BAR_BYTES: usize = 2 * TREE_NODE_BYTES;

/// Service for ad hoc profiles. Cheap to clone.
#[derive(Clone)]
pub struct AdhocProfileService {
    executor: QueryExecutor,
    shelf: Arc<dyn AdhocProfileStore>,
    random: Random,
}

/// Metadata of a stored ad hoc profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdhocProfile {
    /// Number of the profile. Later profiles have greater numbers.
    pub number: u128,
    /// Name that the user chose: 1 to 150 bytes.
    pub name: String,
    /// Size of the stored profile in bytes.
    pub size: u64,
}

impl AdhocProfile {
    /// Maximum length of a name, in bytes.
    pub const MAX_NAME_BYTES: usize = 150;
}

/// Store of ad hoc profiles, separate by tenant.
#[async_trait]
pub trait AdhocProfileStore: Send + Sync {
    /// Stores a profile with a new number.
    async fn put(&self, tenant: &TenantId, upload: &AdhocProfile, bytes: Bytes) -> Result<(), Status>;

    /// Returns profiles from a number on, sorted by number. Fewer than `limit` mean the end of the list.
    async fn list(&self, tenant: &TenantId, from: u128, limit: usize) -> Result<Vec<AdhocProfile>, Status>;

    /// Returns the bytes of a profile. None if it was removed.
    async fn read(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<Option<Bytes>, Status>;

    /// Removes a profile if it exists.
    async fn remove(&self, tenant: &TenantId, upload: &AdhocProfile) -> Result<(), Status>;
}

/// Rendered graph as JSON, with its profile type.
struct RenderedGraph {
    profile_type: String,
    profile_types: Vec<String>,
    json: String,
}

impl AdhocProfileService {
    /// Creates a service that stores ad hoc profiles in `shelf` and renders them.
    pub(crate) fn new(executor: QueryExecutor, shelf: Arc<dyn AdhocProfileStore>, random: &Random) -> Self {
        // No random number is drawn before the first upload.
        AdhocProfileService { executor, shelf, random: random.clone() }
    }

    /// Returns the maximum size of an upload's body: a profile in base64, and its name.
    pub fn body_limit(&self) -> ByteSize {
        let largest = self.executor.config.adhoc.max_profile_bytes.get();
        ByteSize::bytes(largest.div_ceil(3).saturating_mul(4).saturating_add(64 * 1024))
    }

    /// Validates, renders and stores a profile.
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
                "profile name has {seen} bytes; use 1 to {MAX_PROFILE_NAME_BYTES} bytes"
            )));
        }
        let size = bytes.len() as u64;
        let limit = self.max_bytes(first_tenant(reader));
        if size > limit.get() {
            let message = format!(
                "profile has {size} bytes, the limit for all uploaded profiles of the tenant is {limit} (limits.max_adhoc_bytes)"
            );
            return Err(Status::new(ErrorCode::TooLarge, message));
        }
        let kept = Bytes::from(bytes);
        self.with_permit(reader, |turn| async move {
            // A profile that cannot be rendered is not stored.
            let profile = self.open(reader, kept.clone(), &turn).await?;
            let shown = self.show(reader, profile, None, nodes).await?;
            let now = self.executor.deps.clock.wall().millis();
            let moment = u128::try_from(now).unwrap_or_default() << RANDOM_ID_BITS;
            let number = moment | (self.random.next_id() >> (u128::BITS - RANDOM_ID_BITS));
            let upload = AdhocProfile { number, name, size };
            // Removes profiles that an earlier upload failed to remove. If this fails too, nothing is stored.
            self.remove_older(first_tenant(reader)).await?;
            self.shelf.put(first_tenant(reader), &upload, kept).await?;
            // The new profile is stored by now. If removing an older one fails, the next upload retries.
            let _ = self.remove_older(first_tenant(reader)).await;
            Ok((upload, shown))
        })
        .await
    }

    /// Runs `work` with a query permit, within the deadline of the request.
    async fn with_permit<R, F: Future<Output = Result<R, Status>>>(
        &self,
        reader: &QueryContext,
        work: impl FnOnce(QueryPermit) -> F,
    ) -> Result<R, Status> {
        let limits = self.executor.limits(reader);
        self.executor.with_permit(reader, &limits, work).await
    }

    /// Renders a stored profile.
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

    /// Renders the difference of two stored profiles.
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
            let (before, after) = self.executor.compute_on_pool(reader, trees).await?;
            self.executor
                .reserve_memory(reader, (before.nodes().len() + after.nodes().len()) * EMBEDDED_BAR_BYTES)?;
            check_sums_of_both(&before, &after)?;
            let json = self.executor.compute_on_pool(reader, move || {
                let mut diff = DiffTree::from_trees(&before, &after);
                diff.truncate(nodes.asked, nodes.most);
                diff_to_json(&diff, &value)
            });
            let json = text(json.await?);
            Ok(RenderedGraph { profile_type, profile_types: of.names(), json })
        })
        .await
    }

    /// Returns all profiles of a tenant, oldest first.
    async fn list(&self, tenant: &TenantId) -> Result<VecDeque<AdhocProfile>, Status> {
        let most = self.max_profiles()?;
        Ok(self.newest(tenant, most).await?.0)
    }

    /// Returns the newest profiles of a tenant within both limits, and the older rest. Both are sorted oldest
    /// first.
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

    /// Removes the oldest profiles until the limits of count and bytes hold.
    async fn remove_older(&self, tenant: &TenantId) -> Result<(), Status> {
        let most = self.max_profiles()?;
        let (_, too_many) = self.newest(tenant, most).await?;
        for upload in too_many {
            self.shelf.remove(tenant, &upload).await?;
        }
        Ok(())
    }

    /// Reads and decodes a stored profile.
    async fn fetch(
        &self,
        reader: &QueryContext,
        id: &str,
        turn: &QueryPermit,
    ) -> Result<(AdhocProfile, Profile), Status> {
        let upload = self.find_profile(first_tenant(reader), id).await?;
        let limit = self.executor.config.adhoc.max_profile_bytes;
        if upload.size > limit.get() {
            let size = upload.size;
            let name = &upload.name;
            let message = format!(
                "profile {name:?} has {size} bytes, the limit is {limit} (querier.adhoc.max_profile_bytes)"
            );
            return Err(invalid_argument(message));
        }
        let bytes =
            self.shelf.read(first_tenant(reader), &upload).await?.ok_or_else(|| self.not_found_error(id))?;
        let profile = self.open(reader, bytes, turn).await?;
        Ok((upload, profile))
    }

    /// Returns a stored profile by its id.
    async fn find_profile(&self, tenant: &TenantId, id: &str) -> Result<AdhocProfile, Status> {
        self.max_profiles()?;
        let numbers = validate::parse_hex_ids("ids of uploaded profiles", &[id.to_owned()], 32);
        // An id of another form, as other servers have, is reported as not found.
        let number =
            numbers.map_err(|refused| if id.is_empty() { refused } else { self.not_found_error(id) })?[0];
        let found = self.shelf.list(tenant, number, 1).await?.pop();
        found.filter(|upload| upload.number == number).ok_or_else(|| self.not_found_error(id))
    }

    fn max_bytes(&self, tenant: &TenantId) -> ByteSize {
        self.executor.deps.overrides.for_tenant(tenant).max_adhoc_bytes
    }

    fn not_found_error(&self, id: &str) -> Status {
        let most = self.executor.config.adhoc.max_profiles_per_tenant;
        let shown: String = id.chars().take(MAX_SHOWN_ID_CHARS).collect();
        let message = format!(
            "no uploaded profile {shown:?}; it may have been evicted, the limit is {most} profiles per tenant (querier.adhoc.max_profiles_per_tenant)"
        );
        Status::new(ErrorCode::NotFound, message)
    }

    /// Returns the maximum number of profiles. Fails if ad hoc profiles are disabled.
    fn max_profiles(&self) -> Result<usize, Status> {
        match self.executor.config.adhoc.max_profiles_per_tenant {
            0 => {
                let message = "ad hoc profiles are disabled; set querier.adhoc.max_profiles_per_tenant";
                Err(Status::new(ErrorCode::Unimplemented, message))
            }
            most => Ok(most),
        }
    }

    /// Decodes a profile of any supported format.
    async fn open(&self, reader: &QueryContext, bytes: Bytes, turn: &QueryPermit) -> Result<Profile, Status> {
        self.max_profiles()?;
        turn.charge(first_tenant(reader), bytes.len() as u64);
        let limit = self.executor.config.adhoc.max_profile_bytes;
        // Reserves memory for the maximum decompressed size, then for the actual size.
        let mut taken = self.executor.response_budget_for(reader).reserve(limit.as_usize())?;
        let raw = self.executor.compute_on_pool(reader, move || decode::inflate(&bytes, limit)).await??;
        taken.shrink(0);
        let room = taken.merge(
            self.executor
                .response_budget_for(reader)
                .reserve(raw.len().saturating_mul(DECODED_SIZE_FACTOR))?,
        );
        let profile =
            self.executor.compute_on_pool(reader, move || decode::read_profile(&raw, limit)).await??;
        let memory = profile.dictionary.memory() + profile.samples.memory();
        let more = self.executor.response_budget_for(reader).reserve(memory.saturating_sub(room.bytes()))?;
        reader.hold_memory(room.merge(more));
        Ok(profile)
    }

    /// Renders one type of a profile.
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
        let tree = self.executor.compute_on_pool(reader, move || {
            let mut tree = Tree::from_profile(&profile, column);
            tree.truncate_with_ties(nodes.asked, nodes.most);
            tree
        });
        let tree = tree.await?;
        check_magnitude(tree.magnitude(), "the values of the profile")?;
        self.executor.reserve_memory(reader, tree.nodes().len() * EMBEDDED_BAR_BYTES)?;
        let json = text(self.executor.compute_on_pool(reader, move || tree_to_json(&tree, &value)).await?);
        Ok(RenderedGraph { profile_type, profile_types: of.names(), json })
    }

    fn parse_node_limit(&self, reader: &QueryContext, asked: Option<i64>) -> Result<NodeLimit, Status> {
        validate::parse_max_nodes(asked, &self.executor.limits(reader))
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

    /// Returns the upload time, milliseconds since 1970.
    fn uploaded_at(&self) -> i64 {
        i64::try_from(self.number >> RANDOM_ID_BITS).unwrap_or(i64::MAX)
    }
}
