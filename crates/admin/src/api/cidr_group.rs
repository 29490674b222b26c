//! Groups of networks, as operators see them.

use serde::{Deserialize, Serialize};

/// The path of groups of networks. Whoever changes them decides who gets in.
pub const CIDR_GROUPS: &str = "/api/v1/cidr-groups";

/// A group of networks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CidrGroupStatus {
    /// Its name.
    pub name: String,
    /// Its networks (`ADDRESS/BITS`).
    pub cidrs: Vec<String>,
    /// The roles that may connect from it, as far as they name it.
    pub roles: Vec<String>,
}
