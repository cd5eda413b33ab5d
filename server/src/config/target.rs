//! Roles that a process runs.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use athanor_cluster::members::RoleName;
use serde::{Deserialize, Serialize};

/// Set of roles: `all`, or a comma-separated list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TargetRoles(BTreeSet<RoleName>);

impl TargetRoles {
    /// Returns the roles of the process.
    pub fn roles(&self) -> &BTreeSet<RoleName> {
        &self.0
    }

    /// Returns whether the process has a role.
    pub fn has(&self, role: RoleName) -> bool {
        self.0.contains(&role)
    }

    /// Returns whether the process has all roles.
    pub fn is_all(&self) -> bool {
        self.0.len() == RoleName::ALL_VARIANTS.len()
    }

    /// Returns whether a role of the process keeps a log.
    pub fn has_log(&self) -> bool {
        self.has(RoleName::Ingester) || self.has(RoleName::Metastore)
    }
}

impl Default for TargetRoles {
    fn default() -> Self {
        Self(RoleName::ALL_VARIANTS.into())
    }
}

impl FromStr for TargetRoles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::default());
        }
        let known = |name: &str| RoleName::ALL_VARIANTS.into_iter().find(|role| role.name() == name);
        let role = |name: &str| {
            let names: Vec<&str> = RoleName::ALL_VARIANTS.iter().map(|role| role.name()).collect();
            let refused = || format!("{name:?} is not a role; write all, or some of {}", names.join(","));
            known(name.trim()).ok_or_else(refused)
        };
        text.split(',').map(role).collect::<Result<_, _>>().map(Self)
    }
}

impl TryFrom<String> for TargetRoles {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TargetRoles> for String {
    fn from(target: TargetRoles) -> Self {
        target.to_string()
    }
}

impl fmt::Display for TargetRoles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        let names: Vec<&str> = self.0.iter().map(|role| role.name()).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_and_written() {
        for (text, written) in
            [("all", "all"), ("querier", "querier"), ("querier, distributor", "distributor,querier")]
        {
            assert_eq!(text.parse::<TargetRoles>().unwrap().to_string(), written);
        }
        let refused = "ingestor".parse::<TargetRoles>().unwrap_err();
        assert_eq!(
            refused,
            "\"ingestor\" is not a role; write all, or some of compactor,distributor,ingester,metastore,querier,store-gateway"
        );
        assert!("".parse::<TargetRoles>().is_err() && "all,querier".parse::<TargetRoles>().is_err());
    }
}
