//! Identity of a tenant, which owns profiles.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::code::{ErrorCode, ErrorCodeExt};

/// Tenant name: 1 to 150 of `A-Z a-z 0-9 ! - _ . * ' ( ) :`, and neither `.` nor `..`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// Rejection of a tenant name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// The name is empty.
    #[error("tenant name is empty")]
    Empty,
    /// The name has too many characters.
    #[error("tenant name has {0} characters, the limit is {limit}", limit = TenantId::MAX_LENGTH)]
    TooLong(usize),
    /// The name has a character that is not allowed.
    #[error("tenant name has {0:?}; allowed are letters and digits of ASCII and !-_.*'():")]
    Character(char),
    /// The name is one that file systems and object stores treat as a path.
    #[error("tenant name {0:?} is reserved")]
    Reserved(String),
}

impl TenantId {
    /// Upper bound of the length of a name in characters.
    pub const MAX_LENGTH: usize = 150;

    /// Tenant of requests that name none.
    pub fn anonymous() -> Self {
        Self(Arc::from("anonymous"))
    }

    /// Tenant name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantId {
    type Err = TenantError;

    fn from_str(text: &str) -> Result<Self, TenantError> {
        if text.is_empty() {
            return Err(TenantError::Empty);
        }
        if let Some(bad) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !"!-_.*'():".contains(*c)) {
            return Err(TenantError::Character(bad));
        }
        if text.len() > Self::MAX_LENGTH {
            return Err(TenantError::TooLong(text.len()));
        }
        if text == "." || text == ".." {
            return Err(TenantError::Reserved(text.to_owned()));
        }
        Ok(Self(Arc::from(text)))
    }
}

impl Default for TenantId {
    fn default() -> Self {
        Self::anonymous()
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for TenantId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TenantId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl ErrorCodeExt for TenantError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_or_refused_with_the_reason() {
        for good in ["a", "team-a:prod", "A!-_.*'()9", "...", &"x".repeat(150)] {
            let tenant: TenantId = good.parse().unwrap();
            assert_eq!((tenant.as_str(), tenant.to_string().as_str()), (good, good));
        }
        let refused = |text: &str| text.parse::<TenantId>().unwrap_err();
        assert_eq!(refused(""), TenantError::Empty);
        assert_eq!(refused(&"x".repeat(151)), TenantError::TooLong(151));
        assert_eq!(refused("a/b"), TenantError::Character('/'));
        assert_eq!(refused("café"), TenantError::Character('é'));
        assert_eq!(refused(".."), TenantError::Reserved("..".to_owned()));
        assert_eq!(refused("a b").code(), ErrorCode::Invalid);
        assert_eq!(refused(&"x".repeat(151)).to_string(), "tenant name has 151 characters, the limit is 150");
    }

    #[test]
    fn serde_checks_as_parsing_does() {
        let tenant: TenantId = serde_json::from_str("\"team-a\"").unwrap();
        assert_eq!(serde_json::to_string(&tenant).unwrap(), "\"team-a\"");
        assert!(serde_json::from_str::<TenantId>("\"a/b\"").is_err());
        assert_eq!(TenantId::default().as_str(), "anonymous");
    }
}
