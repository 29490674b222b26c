//! Authorization: the permissions that statements need, and the statements that manage roles.
//!
//! Resources have Cassandra's names (`data/ks/t`, `roles/r`). The catalog stores roles and permissions, and answers
//! whether a role has a permission ([`diorite_cluster::catalog::Catalog::may`]).
//!
//! Always true: on a node with authentication no statement takes effect before its permissions were checked against the
//! newest catalog of the node; a session remembers permitted access for that version of the catalog only, so that a
//! revoked permission ends with the next statement. Without authentication every session has all permissions. Left out:
//! logging in (the node's connections do that, with [`password`]), permissions on functions and MBeans, which do not
//! exist.

pub mod password;
mod permissions;
mod reach;
mod roles;

pub use permissions::{
    ALL_KEYSPACES, ALL_ROLES, Needed, applicable, check, check_definition, check_parsed, keyspace_resource, made_by,
    may, needed_by, require, role_resource, shown, table_resource,
};
pub use roles::{execute, grant_to_maker, handles, propose};
