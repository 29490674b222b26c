//! A role, and the changes of roles.
//!
//! Always true: a role holds permissions by Cassandra's names of resources: `data`, `data/<keyspace>`,
//! `data/<keyspace>/<table>`, `roles`, `roles/<role>`, and so on.

use super::cidr_group::is_group_name;
use super::reach::Permitted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The first role, which creates the others.
pub const FIRST_SUPERUSER: &str = "cassandra";

/// A role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Whether it has all permissions.
    pub is_superuser: bool,
    /// Whether it may log in.
    pub can_login: bool,
    /// The hash of its password, in the PHC string format; without it no client can log in as this role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// Whether its password is the one that every new cluster has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_initial_password: bool,
    /// The data centres to whose nodes it may connect.
    #[serde(default, skip_serializing_if = "Permitted::is_all")]
    pub datacenters: Permitted,
    /// The networks ([`super::Network`]), and the names of groups of networks ([`super::CidrGroup`]), from which it may
    /// connect.
    #[serde(default, skip_serializing_if = "Permitted::is_all")]
    pub cidrs: Permitted,
    /// The roles that it is a direct member of.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub member_of: BTreeSet<String>,
    /// Resource → permissions that were granted to the role itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permissions: BTreeMap<String, BTreeSet<String>>,
}

impl Role {
    /// Whether it may not connect from everywhere to everywhere, which versions before format 2 do not know.
    pub(super) fn is_restricted(&self) -> bool {
        !self.datacenters.is_all() || !self.cidrs.is_all()
    }
}

/// A change of roles that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum RoleCommand {
    /// `CREATE ROLE`
    Create {
        /// The definition.
        role: Role,
        /// A role of that name is no error.
        if_not_exists: bool,
    },
    /// `ALTER ROLE`: absent values stay unchanged.
    Alter {
        /// The role.
        name: String,
        /// The new value.
        is_superuser: Option<bool>,
        /// The new value.
        can_login: Option<bool>,
        /// The hash of the new password.
        password_hash: Option<String>,
        /// The new value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        datacenters: Option<Permitted>,
        /// The new value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cidrs: Option<Permitted>,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `DROP ROLE`
    Drop {
        /// The role.
        name: String,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `GRANT role TO member`
    AddMember {
        /// The role.
        role: String,
        /// The role that becomes a member.
        member: String,
    },
    /// `REVOKE role FROM member`
    RemoveMember {
        /// The role.
        role: String,
        /// The role that is no longer a member.
        member: String,
    },
    /// `GRANT permissions ON resource TO role`
    Grant {
        /// The role.
        role: String,
        /// The resource.
        resource: String,
        /// The permissions.
        permissions: BTreeSet<String>,
    },
    /// `REVOKE permissions ON resource FROM role`
    Revoke {
        /// The role.
        role: String,
        /// The resource.
        resource: String,
        /// The permissions.
        permissions: BTreeSet<String>,
    },
}

impl RoleCommand {
    /// Whether versions before format 2 do not know a part of it.
    pub(super) fn is_about_reach(&self) -> bool {
        match self {
            Self::Create { role, .. } => role.is_restricted(),
            Self::Alter { datacenters, cidrs, .. } => datacenters.is_some() || cidrs.is_some(),
            _ => false,
        }
    }

    /// Whether it names groups of networks, which versions before format 5 do not know.
    pub(super) fn names_groups(&self) -> bool {
        let cidrs = match self {
            Self::Create { role, .. } => &role.cidrs,
            Self::Alter { cidrs: Some(cidrs), .. } => cidrs,
            _ => return false,
        };
        matches!(cidrs, Permitted::Only(names) if names.iter().any(|name| is_group_name(name)))
    }
}
