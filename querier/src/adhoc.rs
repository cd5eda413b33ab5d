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
use athanor_chassis::turns::Turn;
use athanor_chassis::{ByteSize, Code, Random, Status, TenantId};
use athanor_profile::Profile;
use athanor_profile::diff::DiffTree;
use athanor_profile::tree::Tree;
use bytes::Bytes;

use crate::check::{self, Nodes, invalid};
use crate::merge::BAR;
use crate::render::{show, show_diff};
use crate::{Querier, Reader};

mod open;
mod wire;

use open::Types;

/// The longest name, in bytes.
const MAX_NAME: usize = Upload::LONGEST_NAME;
/// How many are listed at once.
const PAGE: usize = 1_000;
/// Bits of a number that are chance.
const CHANCE: u32 = 80;
/// Characters of an unknown id that an error shows.
const MAX_SHOWN_ID: usize = 64;
/// What a profile takes in memory for each of its bytes, about; what it really takes is known once it is read.
pub(crate) const GROWTH: usize = 8;
/// What a bar takes in JSON that is a text in a message.
const SHOWN: usize = 2 * BAR;

/// Keeps profiles that people upload. Cheap to clone.
#[derive(Clone)]
pub struct AdHoc {
    querier: Querier,
    shelf: Arc<dyn Shelf>,
    random: Random,
}

/// One that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Later ones have greater numbers.
    pub number: u128,
    /// What people call it: 1 to 150 bytes.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
}

impl Upload {
    /// The longest name, in bytes.
    pub const LONGEST_NAME: usize = 150;
}

/// Where they are kept, of each tenant apart.
#[async_trait]
pub trait Shelf: Send + Sync {
    /// Keeps one whose number is new.
    async fn keep(&self, tenant: &TenantId, upload: &Upload, bytes: Bytes) -> Result<(), Status>;

    /// Those from a number on, in the order of their numbers. Fewer than `limit` are the last.
    async fn list(&self, tenant: &TenantId, from: u128, limit: usize) -> Result<Vec<Upload>, Status>;

    /// The bytes of one; none if it is gone.
    async fn read(&self, tenant: &TenantId, upload: &Upload) -> Result<Option<Bytes>, Status>;

    /// Removes one, if it is there.
    async fn remove(&self, tenant: &TenantId, upload: &Upload) -> Result<(), Status>;
}

/// A graph to show: what is measured, and the graph as JSON.
struct Shown {
    profile_type: String,
    profile_types: Vec<String>,
    json: String,
}

impl Querier {
    /// What keeps profiles that people upload on this shelf, and shows them.
    #[must_use]
    pub fn ad_hoc(&self, shelf: Arc<dyn Shelf>, random: &Random) -> AdHoc {
        // Nothing is drawn as long as nobody uploads.
        AdHoc { querier: self.clone(), shelf, random: random.clone() }
    }
}

impl AdHoc {
    /// The largest body of an upload: a profile in base64, and its name.
    pub fn body_limit(&self) -> ByteSize {
        let largest = self.querier.config.adhoc_profile.get();
        ByteSize::bytes(largest.div_ceil(3).saturating_mul(4).saturating_add(64 * 1024))
    }

    /// Keeps a profile, if it is one, and shows it.
    async fn keep(
        &self,
        reader: &Reader,
        name: String,
        bytes: Vec<u8>,
        nodes: Nodes,
    ) -> Result<(Upload, Shown), Status> {
        let seen = name.len();
        if !(1..=MAX_NAME).contains(&seen) {
            return Err(invalid(format!("name of a profile has {seen} bytes; write one of 1 to {MAX_NAME}")));
        }
        let size = bytes.len() as u64;
        let limit = self.max_bytes(tenant(reader));
        if size > limit.get() {
            let message = format!(
                "profile has {size} bytes, and the tenant may keep {limit} of uploaded profiles (limits.max_adhoc_bytes)"
            );
            return Err(Status::new(Code::TooLarge, message));
        }
        let kept = Bytes::from(bytes);
        self.in_turn(reader, |turn| async move {
            // What cannot be shown is not kept.
            let profile = self.open(reader, kept.clone(), &turn).await?;
            let shown = self.show(reader, profile, None, nodes).await?;
            let now = self.querier.deps.clock.wall().millis();
            let moment = u128::try_from(now).unwrap_or_default() << CHANCE;
            let number = moment | (self.random.id128() >> (u128::BITS - CHANCE));
            let upload = Upload { number, name, size };
            // What an earlier one could not remove: where that fails still, nothing is added.
            self.remove_older(tenant(reader)).await?;
            self.shelf.keep(tenant(reader), &upload, kept).await?;
            // The new one is safe by now. Where an older one stays, the next one tries again.
            let _ = self.remove_older(tenant(reader)).await;
            Ok((upload, shown))
        })
        .await
    }

    /// Does something when it is the reader's turn, as long as the reader waits.
    async fn in_turn<R, F: Future<Output = Result<R, Status>>>(
        &self,
        reader: &Reader,
        work: impl FnOnce(Turn) -> F,
    ) -> Result<R, Status> {
        let limits = self.querier.limits(reader);
        self.querier.in_turn(reader, &limits, work).await
    }

    /// Shows one that is kept.
    async fn get(
        &self,
        reader: &Reader,
        id: &str,
        profile_type: Option<&str>,
        nodes: Nodes,
    ) -> Result<(Upload, Shown), Status> {
        self.in_turn(reader, |turn| async move {
            let (upload, profile) = self.fetch(reader, id, &turn).await?;
            let shown = self.show(reader, profile, profile_type.map(str::to_owned), nodes).await?;
            Ok((upload, shown))
        })
        .await
    }

    /// Shows two.
    async fn diff(
        &self,
        reader: &Reader,
        ids: [&str; 2],
        profile_type: Option<&str>,
        nodes: Nodes,
    ) -> Result<Shown, Status> {
        self.in_turn(reader, |turn| async move {
            let (_, left) = self.fetch(reader, ids[0], &turn).await?;
            let (_, right) = self.fetch(reader, ids[1], &turn).await?;
            let of = Types::both(&Types::of(&left), &Types::of(&right));
            let (columns, profile_type) = of.pick(profile_type)?;
            let value = left.header.types[columns[0]].clone();
            let trees = move || (Tree::of(&left, columns[0]), Tree::of(&right, columns[1]));
            let (before, after) = self.querier.compute(reader, trees).await?;
            self.querier.make_room(reader, (before.nodes().len() + after.nodes().len()) * SHOWN)?;
            let json = self.querier.compute(reader, move || {
                let mut diff = DiffTree::of(&before, &after);
                diff.truncate(nodes.asked, nodes.most);
                show_diff(&diff, &value)
            });
            let json = text(json.await?);
            Ok(Shown { profile_type, profile_types: of.names(), json })
        })
        .await
    }

    /// All that a tenant has, the oldest first.
    async fn list(&self, tenant: &TenantId) -> Result<VecDeque<Upload>, Status> {
        let most = self.most()?;
        Ok(self.newest(tenant, most).await?.0)
    }

    /// The newest ones of a tenant, so many and within its bytes, and those that are older; either the oldest first.
    async fn newest(
        &self,
        tenant: &TenantId,
        most: usize,
    ) -> Result<(VecDeque<Upload>, Vec<Upload>), Status> {
        let max_bytes = self.max_bytes(tenant).get();
        let (mut newest, mut older) = (VecDeque::<Upload>::new(), Vec::new());
        let (mut from, mut bytes) = (0, 0u64);
        loop {
            let page = self.shelf.list(tenant, from, PAGE).await?;
            let next = page.last().and_then(|last| last.number.checked_add(1)).filter(|_| page.len() >= PAGE);
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
        let most = self.most()?;
        let (_, too_many) = self.newest(tenant, most).await?;
        for upload in too_many {
            self.shelf.remove(tenant, &upload).await?;
        }
        Ok(())
    }

    /// One that is kept, read.
    async fn fetch(&self, reader: &Reader, id: &str, turn: &Turn) -> Result<(Upload, Profile), Status> {
        let upload = self.find(tenant(reader), id).await?;
        let limit = self.querier.config.adhoc_profile;
        if upload.size > limit.get() {
            let (size, name) = (upload.size, &upload.name);
            let message =
                format!("profile {name:?} has {size} bytes, the limit is {limit} (querier.adhoc_profile)");
            return Err(invalid(message));
        }
        let bytes = self.shelf.read(tenant(reader), &upload).await?.ok_or_else(|| self.gone(id))?;
        let profile = self.open(reader, bytes, turn).await?;
        Ok((upload, profile))
    }

    /// One that is kept, by its id.
    async fn find(&self, tenant: &TenantId, id: &str) -> Result<Upload, Status> {
        self.most()?;
        let numbers = check::hex_ids("ids of uploaded profiles", &[id.to_owned()], 32);
        // An id of another form, as other servers have, is unknown and no mistake.
        let number = numbers.map_err(|refused| if id.is_empty() { refused } else { self.gone(id) })?[0];
        let found = self.shelf.list(tenant, number, 1).await?.pop();
        found.filter(|upload| upload.number == number).ok_or_else(|| self.gone(id))
    }

    fn max_bytes(&self, tenant: &TenantId) -> ByteSize {
        self.querier.deps.overrides.of(tenant).max_adhoc_bytes
    }

    fn gone(&self, id: &str) -> Status {
        let most = self.querier.config.adhoc_profiles;
        let shown: String = id.chars().take(MAX_SHOWN_ID).collect();
        let message = format!(
            "there is no profile {shown:?}, or it made room for newer ones: {most} are kept (querier.adhoc_profiles)"
        );
        Status::new(Code::NotFound, message)
    }

    /// How many are kept.
    fn most(&self) -> Result<usize, Status> {
        match self.querier.config.adhoc_profiles {
            0 => {
                let message = "no profiles are kept that are uploaded by hand; set querier.adhoc_profiles";
                Err(Status::new(Code::Unimplemented, message))
            }
            most => Ok(most),
        }
    }

    /// Reads a profile in whichever format it is.
    async fn open(&self, reader: &Reader, bytes: Bytes, turn: &Turn) -> Result<Profile, Status> {
        self.most()?;
        turn.pay(tenant(reader), bytes.len() as u64);
        let limit = self.querier.config.adhoc_profile;
        // Room for what it may be once it is decompressed, then for what it is.
        let mut taken = self.querier.room_for(reader).take(limit.as_usize())?;
        let raw = self.querier.compute(reader, move || open::inflate(&bytes, limit)).await??;
        taken.shrink(0);
        let room = taken.and(self.querier.room_for(reader).take(raw.len().saturating_mul(GROWTH))?);
        let profile = self.querier.compute(reader, move || open::read(&raw, limit)).await??;
        let memory = profile.dictionary.memory() + profile.samples.memory();
        let more = self.querier.room_for(reader).take(memory.saturating_sub(room.bytes()))?;
        reader.hold(room.and(more));
        Ok(profile)
    }

    /// Shows one of the types of a profile.
    async fn show(
        &self,
        reader: &Reader,
        profile: Profile,
        profile_type: Option<String>,
        nodes: Nodes,
    ) -> Result<Shown, Status> {
        let of = Types::of(&profile);
        let ([column, _], profile_type) = of.pick(profile_type.as_deref())?;
        let value = profile.header.types[column].clone();
        let tree = self.querier.compute(reader, move || {
            let mut tree = Tree::of(&profile, column);
            tree.truncate_with_ties(nodes.asked, nodes.most);
            tree
        });
        let tree = tree.await?;
        self.querier.make_room(reader, tree.nodes().len() * SHOWN)?;
        let json = text(self.querier.compute(reader, move || show(&tree, &value)).await?);
        Ok(Shown { profile_type, profile_types: of.names(), json })
    }

    fn nodes(&self, reader: &Reader, asked: Option<i64>) -> Result<Nodes, Status> {
        check::max_nodes(asked, &self.querier.limits(reader))
    }
}

fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).expect("JSON is text")
}

fn tenant(reader: &Reader) -> &TenantId {
    &reader.tenants()[0]
}

impl Upload {
    fn id(&self) -> String {
        format!("{:032x}", self.number)
    }

    /// Milliseconds since 1970.
    fn uploaded_at(&self) -> i64 {
        i64::try_from(self.number >> CHANCE).unwrap_or(i64::MAX)
    }
}
