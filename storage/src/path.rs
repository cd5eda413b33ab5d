//! How keys are spelt. No other place writes or reads one.
//!
//! ```text
//! blocks/<tenant>/<block>/<file>      blocks/_shared/<block>/<file>
//! adhoc/<tenant>/<upload>.<name>
//! catalogue/founding.json
//! catalogue/snapshots/<index>         catalogue/snapshots/<index>.<part>
//! debuginfo/<tenant>/<build id>/<kind>/<upload>.<file>
//! ```
//!
//! Numbers have a fixed width, so that keys sort as numbers do. A tenant's name keeps letters, digits and `-_.`;
//! anything else, and an underscore at its beginning, is written `=` and two hexadecimal digits. So no tenant can
//! meet `_shared`, and every key is the same in every bucket; a build id is written likewise. The name of an upload by
//! hand, which may be any text, is base64.

use std::fmt;

use athanor_chassis::{ErrorCode, ErrorCodeExt, TenantId};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Whose rows a block holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockOwner {
    /// One tenant's.
    Tenant(TenantId),
    /// Several tenants', as a shard cut them.
    Shared,
}

/// The name of one file of a block or of debug information: letters, digits, `-_.`, no dot first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// The build id of a binary: 1 to 85 letters, digits and signs, as linkers and agents make them. One of hexadecimal digits
/// alone is the same in either case, and kept in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(String);

/// What people call a profile that they upload: any text of 1 to 150 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadName(String);

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKey {
    /// A file of a block.
    Block {
        /// Whose rows it holds.
        owner: BlockOwner,
        /// The block.
        block: u128,
        /// Which of its files.
        file: FileName,
    },
    /// A profile that somebody uploaded by hand.
    Upload {
        /// Whose it is.
        tenant: TenantId,
        /// Which one: later ones have greater numbers.
        upload: u128,
        /// What they call it.
        name: UploadName,
    },
    /// Who founded the catalogue.
    Founding,
    /// A snapshot of the catalogue.
    Snapshot {
        /// The index in the catalogue's log up to which it goes.
        index: u64,
    },
    /// A part of one that is too large for one object.
    SnapshotPart {
        /// The snapshot's index.
        index: u64,
        /// Which part.
        part: u16,
    },
    /// A part of debug information, or a note about it.
    Debuginfo {
        /// Whose it is.
        tenant: TenantId,
        /// Of which binary.
        build: BuildId,
        /// What of it.
        kind: FileName,
        /// Which upload: later ones have greater numbers.
        upload: u128,
        /// Which of its files.
        file: FileName,
    },
}

/// The beginning that some keys share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPrefix {
    /// All blocks.
    Blocks,
    /// The blocks of one owner.
    BlocksOf(BlockOwner),
    /// The files of one block.
    Block(BlockOwner, u128),
    /// What people of all tenants uploaded by hand.
    AllUploads,
    /// What a tenant's people uploaded by hand.
    Uploads(TenantId),
    /// All snapshots.
    Snapshots,
    /// All debug information.
    AllDebuginfo,
    /// All debug information of a tenant.
    Debuginfo(TenantId),
    /// That of one binary.
    DebuginfoOf(TenantId, BuildId),
}

/// Text that is not a key of ours, or not part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct PathError {
    text: String,
    expected: &'static str,
}

const SHARED_OWNER: &str = "_shared";

// === parts ===

impl FileName {
    /// Takes a name.
    pub fn new(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > 100 || text.starts_with('.') || !text.chars().all(allowed) {
            return Err(PathError { text, expected: "the name of a file" });
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl UploadName {
    /// The longest, in bytes: in base64, behind the number, it is still the name of a file.
    pub const MAX_LENGTH_BYTES: usize = 150;

    /// Takes a name.
    pub fn new(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        if text.is_empty() || text.len() > Self::MAX_LENGTH_BYTES {
            return Err(PathError { text, expected: "a name of 1 to 150 bytes" });
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        Self::new(String::from_utf8(bytes).ok()?).ok()
    }
}

impl BuildId {
    /// The longest, in bytes: that of a program of Go has 83. Written with escapes it is still the name of a folder.
    pub const MAX_LENGTH_BYTES: usize = 85;

    /// Takes an id.
    pub fn new(text: &str) -> Result<Self, PathError> {
        if !(1..=Self::MAX_LENGTH_BYTES).contains(&text.len()) || !text.chars().all(|c| c.is_ascii_graphic())
        {
            return Err(PathError { text: text.to_owned(), expected: "a build id" });
        }
        let is_number = text.chars().all(|c| c.is_ascii_hexdigit());
        Ok(Self(if is_number { text.to_ascii_lowercase() } else { text.to_owned() }))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As part of a key.
    fn to_key_part(&self) -> String {
        escape_key_part(&self.0)
    }
}

/// Text as every bucket takes it in a key.
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

/// What was written so.
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
        // One spelling for each tenant: whatever is spelt otherwise is not ours.
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

// === impl Key ===

impl ObjectKey {
    /// Reads a key.
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
            ["catalogue", "founding.json"] => Self::Founding,
            ["catalogue", "snapshots", name] => match name.split_once('.') {
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
        // Other spellings of a number or a build id are not ours.
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
            Self::Founding => f.write_str("catalogue/founding.json"),
            Self::Snapshot { index } => write!(f, "catalogue/snapshots/{index:020}"),
            Self::SnapshotPart { index, part } => write!(f, "catalogue/snapshots/{index:020}.{part:05}"),
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
            Self::Snapshots => f.write_str("catalogue/snapshots"),
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
            Just(ObjectKey::Founding),
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
        assert_eq!(ObjectKey::Snapshot { index: 7 }.to_string(), "catalogue/snapshots/00000000000000000007");
        assert_eq!(
            ObjectKey::SnapshotPart { index: 7, part: 3 }.to_string(),
            "catalogue/snapshots/00000000000000000007.00003"
        );
        for bad in [
            "",
            "blocks/a/zz/f",
            "catalogue/snapshots/7",
            "catalogue/snapshots/00000000000000000007.3",
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
            ("catalogue/snapshots".to_owned(), "debuginfo/a=3Ab".to_owned())
        );
    }
}
