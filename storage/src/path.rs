//! Keys of objects. No other module formats or parses one.
//!
//! ```text
//! blocks/<tenant>/<block>/<file>      blocks/_shared/<block>/<file>
//! adhoc/<tenant>/<upload>.<name>
//! catalog/bootstrap.json
//! catalog/snapshots/<index>         catalog/snapshots/<index>.<part>
//! debuginfo/<tenant>/<build id>/<kind>/<upload>.<file>
//! ```
//!
//! Numbers have a fixed width, so that keys sort as numbers do. A tenant's name keeps letters, digits and
//! `-_.`. Any other character, and a leading underscore, becomes `=` and two hexadecimal digits. No tenant
//! can therefore collide with `_shared`, and every bucket accepts the key unchanged. Build ids use the same
//! escapes. The name of a manual upload may be any text and is encoded as base64.

use std::fmt;

use athanor_chassis::{ErrorCode, ErrorCodeExt, TenantId};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Owner of a block's rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockOwner {
    /// Rows of one tenant.
    Tenant(TenantId),
    /// Rows of several tenants, as flushed by a shard.
    Shared,
}

/// Name of a file of a block or of debug information: letters, digits, `-_.`, without a leading dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// Build id of a binary: 1 to 85 letters, digits and signs, as linkers and agents produce them. An id of
/// hexadecimal digits only is case-insensitive and stored in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(String);

/// Name that a user gave to an uploaded profile: any text of 1 to 150 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadName(String);

/// Key of an object in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKey {
    /// File of a block.
    Block {
        /// Owner of the block's rows.
        owner: BlockOwner,
        /// Id of the block.
        block: u128,
        /// Name of the file in the block.
        file: FileName,
    },
    /// Profile that a user uploaded manually.
    Upload {
        /// Tenant that owns the upload.
        tenant: TenantId,
        /// Id of the upload; later uploads have greater ids.
        upload: u128,
        /// Name that the user gave to the profile.
        name: UploadName,
    },
    /// Bootstrap record of the catalog.
    CatalogBootstrap,
    /// Snapshot of the catalog.
    Snapshot {
        /// Index of the last entry of the catalog's log in the snapshot.
        index: u64,
    },
    /// Part of a snapshot that is too large for one object.
    SnapshotPart {
        /// Log index of the snapshot.
        index: u64,
        /// Number of the part, from 0.
        part: u16,
    },
    /// File of debug information, or metadata about it.
    Debuginfo {
        /// Tenant that owns the debug information.
        tenant: TenantId,
        /// Build id of the binary.
        build: BuildId,
        /// Kind of debug information.
        kind: FileName,
        /// Id of the upload; later uploads have greater ids.
        upload: u128,
        /// Name of the file in the upload.
        file: FileName,
    },
}

/// Prefix that several keys share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPrefix {
    /// All blocks of all owners.
    Blocks,
    /// All blocks of one owner.
    BlocksOf(BlockOwner),
    /// All files of one block.
    Block(BlockOwner, u128),
    /// Manual uploads of all tenants.
    AllUploads,
    /// Manual uploads of one tenant.
    Uploads(TenantId),
    /// All snapshots of the catalog.
    Snapshots,
    /// Debug information of all tenants.
    AllDebuginfo,
    /// Debug information of one tenant.
    Debuginfo(TenantId),
    /// Debug information of one binary.
    DebuginfoOf(TenantId, BuildId),
}

/// Error for text that is no valid key, or no valid part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct PathError {
    text: String,
    expected: &'static str,
}

const SHARED_OWNER: &str = "_shared";

// === parts ===

impl FileName {
    /// Validates and wraps a name.
    pub fn new(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > 100 || text.starts_with('.') || !text.chars().all(allowed) {
            return Err(PathError { text, expected: "the name of a file" });
        }
        Ok(Self(text))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl UploadName {
    /// Longest name in bytes. Encoded as base64 behind the upload's id, it still fits into a file name.
    pub const MAX_LENGTH_BYTES: usize = 150;

    /// Validates and wraps a name.
    pub fn new(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        if text.is_empty() || text.len() > Self::MAX_LENGTH_BYTES {
            return Err(PathError { text, expected: "a name of 1 to 150 bytes" });
        }
        Ok(Self(text))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        Self::new(String::from_utf8(bytes).ok()?).ok()
    }
}

impl BuildId {
    /// Longest build id in bytes. Ids of Go programs have 83. With escapes it still fits into a folder name.
    pub const MAX_LENGTH_BYTES: usize = 85;

    /// Validates and normalizes a build id.
    pub fn new(text: &str) -> Result<Self, PathError> {
        if !(1..=Self::MAX_LENGTH_BYTES).contains(&text.len()) || !text.chars().all(|c| c.is_ascii_graphic())
        {
            return Err(PathError { text: text.to_owned(), expected: "a build id" });
        }
        let is_number = text.chars().all(|c| c.is_ascii_hexdigit());
        Ok(Self(if is_number { text.to_ascii_lowercase() } else { text.to_owned() }))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id as an escaped part of a key.
    fn to_key_part(&self) -> String {
        escape_key_part(&self.0)
    }
}

/// Escapes all characters that some bucket might not accept in a key.
fn escape_key_part(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for (position, c) in text.chars().enumerate() {
        let plain = c.is_ascii_alphanumeric() || c == '-' || (matches!(c, '_' | '.') && position > 0);
        if plain {
            written.push(c);
        } else {
            written.push_str(&format!("={:02X}", u32::from(c)));
        }
    }
    written
}

/// Reverts [`escape_key_part`].
fn unescape_key_part(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '=' {
            let digits = [rest.next()?, rest.next()?];
            let number = u8::from_str_radix(&String::from_iter(digits), 16).ok()?;
            plain.push(char::from(number));
        } else {
            plain.push(c);
        }
    }
    Some(plain)
}

impl BlockOwner {
    fn parse(text: &str) -> Option<Self> {
        if text == SHARED_OWNER {
            return Some(Self::Shared);
        }
        let owner = Self::Tenant(unescape_key_part(text)?.parse().ok()?);
        // Each tenant has exactly one spelling; other spellings are foreign keys.
        (owner.to_string() == text).then_some(owner)
    }
}

impl fmt::Display for BlockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Tenant(tenant) = self else { return f.write_str(SHARED_OWNER) };
        for (position, c) in tenant.as_str().chars().enumerate() {
            let plain = c.is_ascii_alphanumeric() || matches!(c, '-' | '.') || (c == '_' && position > 0);
            if plain {
                write!(f, "{c}")?;
            } else {
                write!(f, "={:02X}", u32::from(c))?;
            }
        }
        Ok(())
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Parses a key. Rejects all spellings that this module does not write.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Self::parse_parts(text).ok_or_else(|| PathError { text: text.to_owned(), expected: "a key" })
    }

    fn parse_parts(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let key = match parts[..] {
            ["blocks", owner, block, file] => Self::Block {
                owner: BlockOwner::parse(owner)?,
                block: u128::from_str_radix(block, 16).ok()?,
                file: FileName::new(file).ok()?,
            },
            ["adhoc", owner, file] => {
                let BlockOwner::Tenant(tenant) = BlockOwner::parse(owner)? else { return None };
                let (upload, name) = file.split_once('.')?;
                let upload = u128::from_str_radix(upload, 16).ok()?;
                Self::Upload { tenant, upload, name: UploadName::parse(name)? }
            }
            ["catalog", "bootstrap.json"] => Self::CatalogBootstrap,
            ["catalog", "snapshots", name] => match name.split_once('.') {
                None => Self::Snapshot { index: name.parse().ok()? },
                Some((index, part)) => {
                    Self::SnapshotPart { index: index.parse().ok()?, part: part.parse().ok()? }
                }
            },
            ["debuginfo", owner, build, kind, file] => {
                let BlockOwner::Tenant(tenant) = BlockOwner::parse(owner)? else { return None };
                let (upload, file) = file.split_once('.')?;
                Self::Debuginfo {
                    tenant,
                    build: BuildId::new(&unescape_key_part(build)?).ok()?,
                    kind: FileName::new(kind).ok()?,
                    upload: u128::from_str_radix(upload, 16).ok()?,
                    file: FileName::new(file).ok()?,
                }
            }
            _ => return None,
        };
        // Other spellings of a number or a build id are foreign keys.
        (key.to_string() == text).then_some(key)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { owner, block, file } => write!(f, "blocks/{owner}/{block:032x}/{}", file.0),
            Self::Upload { tenant, upload, name } => {
                let owner = BlockOwner::Tenant(tenant.clone());
                let name = BASE64_URL_SAFE_NO_PAD.encode(&name.0);
                write!(f, "adhoc/{owner}/{upload:032x}.{name}")
            }
            Self::CatalogBootstrap => f.write_str("catalog/bootstrap.json"),
            Self::Snapshot { index } => write!(f, "catalog/snapshots/{index:020}"),
            Self::SnapshotPart { index, part } => write!(f, "catalog/snapshots/{index:020}.{part:05}"),
            Self::Debuginfo { tenant, build, kind, upload, file } => {
                let below = KeyPrefix::DebuginfoOf(tenant.clone(), build.clone());
                write!(f, "{below}/{}/{upload:032x}.{}", kind.0, file.0)
            }
        }
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks => f.write_str("blocks"),
            Self::BlocksOf(owner) => write!(f, "blocks/{owner}"),
            Self::Block(owner, block) => write!(f, "blocks/{owner}/{block:032x}"),
            Self::AllUploads => f.write_str("adhoc"),
            Self::Uploads(tenant) => write!(f, "adhoc/{}", BlockOwner::Tenant(tenant.clone())),
            Self::Snapshots => f.write_str("catalog/snapshots"),
            Self::AllDebuginfo => f.write_str("debuginfo"),
            Self::Debuginfo(tenant) => write!(f, "debuginfo/{}", BlockOwner::Tenant(tenant.clone())),
            Self::DebuginfoOf(tenant, build) => {
                write!(f, "{}/{}", Self::Debuginfo(tenant.clone()), build.to_key_part())
            }
        }
    }
}

impl ErrorCodeExt for PathError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner() -> impl Strategy<Value = BlockOwner> {
        let tenant = "[A-Za-z0-9!_.*'():-]{1,20}".prop_filter_map("reserved", |name| name.parse().ok());
        prop_oneof![Just(BlockOwner::Shared), tenant.prop_map(BlockOwner::Tenant)]
    }

    fn key() -> impl Strategy<Value = ObjectKey> {
        let file = || "[a-z0-9_-][a-z0-9_.-]{0,9}".prop_map(|name| FileName::new(name).unwrap());
        let build = "([0-9a-fA-F]{1,40}|[!-~]{1,85})".prop_map(|id| BuildId::new(&id).unwrap());
        prop_oneof![
            (owner(), any::<u128>(), file()).prop_map(|(owner, block, file)| ObjectKey::Block {
                owner,
                block,
                file
            }),
            (owner(), any::<u128>(), "\\PC{1,30}").prop_filter_map("of a tenant", |(owner, upload, name)| {
                let BlockOwner::Tenant(tenant) = owner else { return None };
                Some(ObjectKey::Upload { tenant, upload, name: UploadName::new(name).ok()? })
            }),
            Just(ObjectKey::CatalogBootstrap),
            any::<u64>().prop_map(|index| ObjectKey::Snapshot { index }),
            any::<(u64, u16)>().prop_map(|(index, part)| ObjectKey::SnapshotPart { index, part }),
            (owner(), build, file(), any::<u128>(), file()).prop_filter_map(
                "of a tenant",
                |(owner, build, kind, upload, file)| {
                    let BlockOwner::Tenant(tenant) = owner else { return None };
                    Some(ObjectKey::Debuginfo { tenant, build, kind, upload, file })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn keys_round_trip_and_mean_the_same_to_every_bucket(key in key()) {
            let text = key.to_string();
            prop_assert_eq!(ObjectKey::parse(&text), Ok(key));
            let path = object_store::path::Path::from(text.as_str());
            prop_assert_eq!(path.as_ref(), text.as_str(), "the bucket must not spell it otherwise");
        }

        #[test]
        fn each_key_has_one_spelling(text in "(blocks|debuginfo|adhoc)/[_=A-F0-9a-f.]{1,6}/[0-9a-fA-F]{1,33}[/.][a.]{1,3}") {
            if let Ok(key) = ObjectKey::parse(&text) {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }

    #[test]
    fn keys_look_as_documented() {
        let file = FileName::new("samples.parquet").unwrap();
        let block = |owner| ObjectKey::Block { owner, block: 255, file: file.clone() }.to_string();
        assert_eq!(
            block(BlockOwner::Shared),
            "blocks/_shared/000000000000000000000000000000ff/samples.parquet"
        );
        let tenant = |name: &str| BlockOwner::Tenant(name.parse().unwrap()).to_string();
        assert_eq!((tenant("_shared"), tenant("a_b:c")), ("=5Fshared".to_owned(), "a_b=3Ac".to_owned()));
        assert_eq!(ObjectKey::Snapshot { index: 7 }.to_string(), "catalog/snapshots/00000000000000000007");
        assert_eq!(
            ObjectKey::SnapshotPart { index: 7, part: 3 }.to_string(),
            "catalog/snapshots/00000000000000000007.00003"
        );
        for bad in [
            "",
            "blocks/a/zz/f",
            "catalog/snapshots/7",
            "catalog/snapshots/00000000000000000007.3",
            "blocks/../00/f",
            "debuginfo/a/ABCD/f/000000000000000000000000000000ff.x",
            "debuginfo/a/abcd/f/ff.x",
            "debuginfo/a/abcd/000000000000000000000000000000ff.x",
            "debuginfo/_shared/abcd/f/000000000000000000000000000000ff.x",
            "adhoc/_shared/000000000000000000000000000000ff.YQ",
            "adhoc/a/000000000000000000000000000000ff.",
            "adhoc/a/000000000000000000000000000000ff.YQ==",
            "adhoc/a/000000000000000000000000000000ff._w",
            "adhoc/a/ff.YQ",
        ] {
            assert_eq!(ObjectKey::parse(bad).unwrap_err().code(), ErrorCode::Invalid, "{bad}");
        }
        let (tenant, name) = ("a_b:c".parse().unwrap(), UploadName::new("cpu profile/1").unwrap());
        let upload = ObjectKey::Upload { tenant, upload: 255, name };
        assert_eq!(upload.to_string(), "adhoc/a_b=3Ac/000000000000000000000000000000ff.Y3B1IHByb2ZpbGUvMQ");
        assert!(UploadName::new("").is_err() && UploadName::new("x".repeat(151)).is_err());
        let debuginfo = |build: &str| ObjectKey::Debuginfo {
            tenant: "a".parse().unwrap(),
            build: BuildId::new(build).unwrap(),
            kind: FileName::new("executable").unwrap(),
            upload: 255,
            file: FileName::new("begun").unwrap(),
        };
        let file = "executable/000000000000000000000000000000ff.begun";
        assert_eq!(debuginfo("ABcd12").to_string(), format!("debuginfo/a/abcd12/{file}"));
        assert_eq!(debuginfo("Go/_x=.Y").to_string(), format!("debuginfo/a/Go=2F_x=3D.Y/{file}"));
        assert_eq!(debuginfo("..").to_string(), format!("debuginfo/a/=2E./{file}"));
        for bad in ["", "a b", "ä", &"x".repeat(86)] {
            assert!(BuildId::new(bad).is_err(), "{bad}");
        }
        assert!(FileName::new("../x").is_err());
    }

    #[test]
    fn prefixes_begin_the_keys_they_name() {
        let owner = BlockOwner::Tenant("team-a".parse().unwrap());
        let file = FileName::new("meta.json").unwrap();
        let key = ObjectKey::Block { owner: owner.clone(), block: 9, file }.to_string();
        for prefix in [KeyPrefix::Blocks, KeyPrefix::BlocksOf(owner.clone()), KeyPrefix::Block(owner, 9)] {
            assert!(key.starts_with(&format!("{prefix}/")), "{prefix}");
        }
        assert_eq!(
            (KeyPrefix::Snapshots.to_string(), KeyPrefix::Debuginfo("a:b".parse().unwrap()).to_string()),
            ("catalog/snapshots".to_owned(), "debuginfo/a=3Ab".to_owned())
        );
    }
}
