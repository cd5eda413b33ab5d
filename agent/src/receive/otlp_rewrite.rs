//! Rewriting of OpenTelemetry exports: attributes for resources, and identities for profiles without one.
//!
//! Only messages that change are written again. All other fields, samples and the dictionary among them, are
//! copied as bytes.

use athanor_chassis::TenantId;
use athanor_profile::Labels;
use athanor_profile::labeling::normalize::DELTA_LABEL;
use bytes::Bytes;

use super::failure::ReceiveError;
use super::otlp_names::{AttributeMap, AttributeTexts};
use super::received_identity::{IdentitySource, OwnTime, own_time};
use super::receiver_state::SenderContext;
use super::sender_labels::{SERVICE_LABEL, canonical_label_name};
use super::wire::{WireContent, WireFields, put_bytes, put_fixed64};
use crate::upload::UploadOrder;

/// Attribute that servers read the service from.
const SERVICE_ATTRIBUTE: &str = "service.name";
/// Maximum resources and scopes of an export.
const MAX_HOLDERS: usize = 200_000;
/// Maximum bytes of the exports of an export together. Each has the whole dictionary.
const MAX_REWRITTEN_BYTES: usize = 256 << 20;
/// Order of all resources whose profiles may be snapshots. They are few, and more groups would need more copies of the
/// dictionary.
const SNAPSHOT_ORDER: UploadOrder = UploadOrder::Cumulative(0);
/// Field of `ResourceProfiles` with the resource, and of `ScopeProfiles` with the scope.
const HOLDER_FIELD: u64 = 1;
/// Field of `ResourceProfiles` with scopes, and of `ScopeProfiles` with profiles.
const CHILDREN_FIELD: u64 = 2;
/// Field of `Resource` with attributes.
const RESOURCE_ATTRIBUTES_FIELD: u64 = 1;
/// Field of `InstrumentationScope` with attributes.
const SCOPE_ATTRIBUTES_FIELD: u64 = 3;
const TIME_FIELD: u64 = 3;
const PROFILE_ID_FIELD: usize = 7;
const PAYLOAD_FORMAT_FIELD: usize = 9;
const PAYLOAD_FIELD: usize = 10;
const PROFILE_ID_BYTES: usize = 16;
/// Number of fields of a profile whose content is looked at.
const PROFILE_FIELDS: usize = 12;

/// Export of one tenant, as it is sent to servers.
pub(super) struct RewrittenExport {
    pub(super) tenant: Option<TenantId>,
    pub(super) body: Bytes,
    pub(super) profiles: u32,
    pub(super) order: UploadOrder,
}

/// Top-level messages of an export.
#[derive(Default)]
struct ExportOutline<'a> {
    resources: Vec<&'a [u8]>,
    dictionaries: Vec<&'a [u8]>,
    /// Bytes of all fields other than resources.
    others: Vec<u8>,
    /// Resources and scopes with the field number of their attributes.
    holders: Vec<(&'a [u8], u64)>,
}

/// Resource with its profiles, rewritten.
struct RewrittenResource {
    content: Vec<u8>,
    is_changed: bool,
    attributes: AttributeMap,
    profiles: u32,
    may_have_snapshots: bool,
}

/// Resources of one tenant and order.
struct ResourceGroup {
    tenant: Option<TenantId>,
    order: UploadOrder,
    body: Vec<u8>,
    profiles: u32,
}

/// Returns the exports of an export: one per tenant for resources whose profiles may be snapshots, and one for its
/// others. A single export that needs no change keeps its bytes.
pub(super) fn rewrite_export(
    body: &Bytes,
    sender: &SenderContext,
    identities: &IdentitySource,
) -> Result<Vec<RewrittenExport>, ReceiveError> {
    let outline = ExportOutline::read(body)?;
    if outline.resources.is_empty() {
        return Err(ReceiveError::NoResources);
    }
    let texts = AttributeTexts::read(&outline.dictionaries, &outline.holders)?;
    let mut groups: Vec<ResourceGroup> = Vec::new();
    let mut is_changed = false;
    for resource in &outline.resources {
        let resource = rewrite_resource(resource, &texts, sender, identities)?;
        is_changed |= resource.is_changed;
        let tenant = sender.tenant.tenant(|label| resource.value(label))?;
        let order = resource.order();
        let place = groups.iter().position(|group| group.tenant == tenant && group.order == order);
        let place = match place {
            Some(place) => place,
            None => {
                outline.check_copies(groups.len() + 1)?;
                groups.push(ResourceGroup { tenant, order, body: outline.others.clone(), profiles: 0 });
                groups.len() - 1
            }
        };
        let group = &mut groups[place];
        put_bytes(&mut group.body, HOLDER_FIELD, &resource.content);
        group.profiles += resource.profiles;
    }
    let is_same = groups.len() == 1 && !is_changed;
    let exports = groups.into_iter().map(|group| RewrittenExport {
        tenant: group.tenant,
        body: if is_same { body.clone() } else { group.body.into() },
        profiles: group.profiles,
        order: group.order,
    });
    Ok(exports.collect())
}

impl<'a> ExportOutline<'a> {
    fn read(body: &'a [u8]) -> Result<Self, ReceiveError> {
        let mut outline = Self::default();
        for field in WireFields::new(body) {
            let field = field?;
            match (field.number, field.content) {
                (1, WireContent::Bytes(resource)) => {
                    outline.resources.push(resource);
                    outline.add_holders(resource)?;
                    continue;
                }
                (2, WireContent::Bytes(dictionary)) => outline.dictionaries.push(dictionary),
                _ => {}
            }
            outline.others.extend_from_slice(field.whole);
        }
        Ok(outline)
    }

    /// Checks whether so many exports may have the dictionary.
    fn check_copies(&self, copies: usize) -> Result<(), ReceiveError> {
        let bytes = self.others.len().saturating_mul(copies);
        if copies == 1 || bytes <= MAX_REWRITTEN_BYTES {
            return Ok(());
        }
        let message = format!(
            "its tenants need {copies} copies of the dictionary with {bytes} bytes, the fixed limit is \
             {MAX_REWRITTEN_BYTES}; send fewer tenants per export"
        );
        Err(ReceiveError::Export(message))
    }

    fn add_holders(&mut self, resource: &'a [u8]) -> Result<(), ReceiveError> {
        for field in WireFields::new(resource) {
            let field = field?;
            match (field.number, field.content) {
                (HOLDER_FIELD, WireContent::Bytes(holder)) => {
                    self.holders.push((holder, RESOURCE_ATTRIBUTES_FIELD));
                }
                (CHILDREN_FIELD, WireContent::Bytes(scope)) => {
                    for holder in scope_holders(scope) {
                        self.holders.push((holder?, SCOPE_ATTRIBUTES_FIELD));
                    }
                }
                _ => {}
            }
            if self.holders.len() > MAX_HOLDERS || self.resources.len() > MAX_HOLDERS {
                let message = format!(
                    "it has over {MAX_HOLDERS} resources and scopes, which is a fixed limit; send smaller batches"
                );
                return Err(ReceiveError::Export(message));
            }
        }
        Ok(())
    }
}

/// Returns the scopes in a `ScopeProfiles`. It has one, or several that protobuf merges.
fn scope_holders(scope: &[u8]) -> impl Iterator<Item = Result<&[u8], ReceiveError>> {
    WireFields::new(scope).filter_map(|field| match field {
        Err(error) => Some(Err(error.into())),
        Ok(field) => match field.content {
            WireContent::Bytes(holder) if field.number == HOLDER_FIELD => Some(Ok(holder)),
            _ => None,
        },
    })
}

fn rewrite_resource<'a>(
    resource: &'a [u8],
    texts: &AttributeTexts<'a>,
    sender: &SenderContext,
    identities: &IdentitySource,
) -> Result<RewrittenResource, ReceiveError> {
    let mut attributes = AttributeMap::new();
    let mut holders = 0;
    for field in WireFields::new(resource) {
        let field = field?;
        match (field.number, field.content) {
            (HOLDER_FIELD, WireContent::Bytes(holder)) => {
                holders += 1;
                texts.add_attributes(holder, RESOURCE_ATTRIBUTES_FIELD, &mut attributes)?;
            }
            (CHILDREN_FIELD, WireContent::Bytes(scope)) => {
                for holder in scope_holders(scope) {
                    texts.add_attributes(holder?, SCOPE_ATTRIBUTES_FIELD, &mut attributes)?;
                }
            }
            _ => {}
        }
    }
    let added = encode_added(&sender.added, texts, &mut attributes);
    let mut rewritten = RewrittenResource {
        content: Vec::with_capacity(resource.len() + added.len() + 16),
        is_changed: !added.is_empty(),
        may_have_snapshots: attributes
            .get(DELTA_LABEL)
            .is_some_and(|value| value.as_deref() != Some("false")),
        attributes,
        profiles: 0,
    };
    if holders == 0 && !added.is_empty() {
        put_bytes(&mut rewritten.content, HOLDER_FIELD, &added);
    }
    for field in WireFields::new(resource) {
        let field = field?;
        match (field.number, field.content) {
            (HOLDER_FIELD, WireContent::Bytes(holder)) => {
                holders -= 1;
                let more = if holders == 0 { &added[..] } else { &[] };
                put_bytes(&mut rewritten.content, HOLDER_FIELD, &[holder, more].concat());
            }
            (CHILDREN_FIELD, WireContent::Bytes(scope)) => {
                rewritten.add_scope(scope, field.whole, identities)?
            }
            _ => rewritten.content.extend_from_slice(field.whole),
        }
    }
    Ok(rewritten)
}

/// Encodes the added labels as attributes of a resource, without those that the client sent.
fn encode_added(added: &Labels, texts: &AttributeTexts<'_>, attributes: &mut AttributeMap) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (name, value) in added.iter() {
        let canonical = canonical_label_name(name);
        // For the service, servers prefer the attribute of a sample to that of the resource.
        let is_service = canonical == SERVICE_LABEL;
        if attributes.contains_key(&canonical) || (!is_service && texts.has_profile_name(&canonical)) {
            continue;
        }
        let mut text = Vec::new();
        put_bytes(&mut text, 1, value.as_bytes());
        let mut pair = Vec::new();
        put_bytes(&mut pair, 1, if is_service { SERVICE_ATTRIBUTE } else { name }.as_bytes());
        put_bytes(&mut pair, 2, &text);
        put_bytes(&mut encoded, RESOURCE_ATTRIBUTES_FIELD, &pair);
        attributes.insert(canonical, Some(value.to_owned()));
    }
    encoded
}

impl RewrittenResource {
    fn value(&self, label: &str) -> Option<String> {
        self.attributes.get(&canonical_label_name(label)).cloned().flatten()
    }

    fn order(&self) -> UploadOrder {
        if self.may_have_snapshots { SNAPSHOT_ORDER } else { UploadOrder::Independent }
    }

    /// Appends a scope with its profiles. `whole` is the field of the scope.
    fn add_scope(
        &mut self,
        scope: &[u8],
        whole: &[u8],
        identities: &IdentitySource,
    ) -> Result<(), ReceiveError> {
        let mut content = Vec::with_capacity(scope.len());
        let mut is_changed = false;
        for field in WireFields::new(scope) {
            let field = field?;
            if let (CHILDREN_FIELD, WireContent::Bytes(profile)) = (field.number, field.content) {
                self.profiles += 1;
                let outline = ProfileOutline::read(profile)?;
                self.may_have_snapshots |= outline.is_pprof_payload();
                if outline.needs_identity() {
                    is_changed = true;
                    put_bytes(&mut content, CHILDREN_FIELD, &outline.with_identity(profile, identities));
                    continue;
                }
            }
            content.extend_from_slice(field.whole);
        }
        if is_changed {
            self.is_changed = true;
            put_bytes(&mut self.content, CHILDREN_FIELD, &content);
        } else {
            self.content.extend_from_slice(whole);
        }
        Ok(())
    }
}

/// Fields of a profile that decide about its identity.
#[derive(Default)]
struct ProfileOutline<'a> {
    has_samples: bool,
    time: u64,
    /// Content of text fields by number.
    texts: [&'a [u8]; PROFILE_FIELDS],
    /// In version 1.8, comments are field 7, and the fields after them have numbers one higher.
    has_comments: bool,
    /// The profile has a layout that servers refuse.
    is_too_old: bool,
}

impl<'a> ProfileOutline<'a> {
    fn read(profile: &'a [u8]) -> Result<Self, ReceiveError> {
        let mut outline = Self::default();
        for field in WireFields::new(profile) {
            let field = field?;
            match (field.number, field.content) {
                (TIME_FIELD, WireContent::Fixed(bytes)) => {
                    outline.time = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                }
                (3 | 6, WireContent::Bytes(_)) | (5 | 7, WireContent::Varint(_)) => outline.is_too_old = true,
                (2, WireContent::Bytes(_)) => outline.has_samples = true,
                (9, WireContent::Varint(_)) | (12, _) => outline.has_comments = true,
                (number, WireContent::Bytes(content)) => {
                    outline.has_comments |= number == 8;
                    if let Some(place) = outline.texts.get_mut(number as usize) {
                        *place = content;
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    fn text(&self, field: usize) -> &'a [u8] {
        self.texts[field + usize::from(self.has_comments)]
    }

    /// Returns whether the profile is a pprof in its original format. Only without samples is it read.
    fn is_pprof_payload(&self) -> bool {
        !self.has_samples
            && self.text(PAYLOAD_FORMAT_FIELD) == b"pprof"
            && !self.text(PAYLOAD_FIELD).is_empty()
    }

    /// Returns whether the profile has neither an id nor a time. Payloads other than pprof have times of their
    /// own, or are refused.
    fn needs_identity(&self) -> bool {
        let id = self.text(PROFILE_ID_FIELD);
        let has_id = id.len() == PROFILE_ID_BYTES && id.iter().any(|&byte| byte != 0);
        if self.is_too_old || self.time != 0 || has_id {
            return false;
        }
        self.has_samples || (self.is_pprof_payload() && own_time(self.text(PAYLOAD_FIELD)) == OwnTime::Absent)
    }

    /// Appends a time and an id. In protobuf, the last value of a field wins.
    fn with_identity(&self, profile: &[u8], identities: &IdentitySource) -> Vec<u8> {
        let mut complete = profile.to_vec();
        put_fixed64(&mut complete, TIME_FIELD, identities.unique_time().nanos() as u64);
        let field = PROFILE_ID_FIELD as u64 + u64::from(self.has_comments);
        put_bytes(&mut complete, field, &identities.id_bytes());
        complete
    }
}
