//! Who may do what: the permissions that statements need, and the statements that manage roles.
//!
//! Resources have the names that Cassandra gives them (`data/ks/t`, `roles/r`); the catalog holds roles and permissions and answers whether a
//! role has one ([`diorite_cluster::catalog::Catalog::may`]).
//!
//! Always true: on a node with authentication nothing is planned into effect before its permissions were checked against the newest catalog the node has;
//! what a connection was allowed is remembered for that version of the catalog only, so that a revoked permission ends with the next statement. Without
//! authentication every session may do everything. Left out: logging in (the node's connections do, with [`password`]), permissions on functions and MBeans,
//! of which there are none.

pub mod password;
mod permissions;
mod reach;
mod roles;

pub use permissions::{
    ALL_KEYSPACES, ALL_ROLES, Needed, applicable, check, check_definition, check_parsed, keyspace_resource, made_by,
    may, needed_by, require, role_resource, shown, table_resource,
};
pub use roles::{execute, grant_to_maker, handles, propose};
