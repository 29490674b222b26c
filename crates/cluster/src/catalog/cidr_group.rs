//! A named group of networks, from which roles may connect, and the search for the groups of an address.
//!
//! Always true: an address belongs to the groups that have the longest network with that address, and to no others, as
//! in Cassandra: whoever takes a part of a network into another group takes it out of the first one. Left out: which
//! roles name a group ([`super::cidr_groups`]).

use super::reach::Network;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Bytes of a group's name at most.
const MAX_NAME_BYTES: usize = 64;

/// A group of networks. Its name is the key under which the catalog has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CidrGroup {
    /// Its networks.
    pub cidrs: BTreeSet<Network>,
}

/// Whether a text that names from where a role may connect is the name of a group, and no network.
pub fn is_group_name(text: &str) -> bool {
    !text.contains('/')
}

/// Whether a group may have the name: it is part of addresses of HTTP, of command lines and of stored keys.
pub(super) fn is_valid_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let begins_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    begins_well && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain)
}

/// The groups of each network of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CidrIndex(BTreeMap<Network, Vec<String>>);

impl CidrIndex {
    pub(super) fn of<'g>(groups: impl IntoIterator<Item = (&'g String, &'g CidrGroup)>) -> Self {
        let mut networks: BTreeMap<Network, Vec<String>> = BTreeMap::new();
        for (name, group) in groups {
            for network in &group.cidrs {
                networks.entry(*network).or_default().push(name.clone());
            }
        }
        Self(networks)
    }

    /// The groups that an address belongs to.
    pub(super) fn groups_of(&self, address: IpAddr) -> &[String] {
        // Without groups there is nothing to search, and most clusters have none.
        if self.0.is_empty() {
            return &[];
        }
        Network::around(address).find_map(|network| self.0.get(&network)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn an_address_belongs_to_the_groups_with_the_longest_network() {
        let group = |cidrs: &[&str]| CidrGroup { cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect() };
        let groups = BTreeMap::from([
            ("all".to_owned(), group(&["0.0.0.0/0"])),
            ("east".to_owned(), group(&["10.0.0.0/8", "2001:db8::/32"])),
            ("office".to_owned(), group(&["10.1.0.0/16", "10.2.3.4/32"])),
            ("twin".to_owned(), group(&["10.1.0.0/16"])),
        ]);
        let index = CidrIndex::of(&groups);
        for (address, expected) in [
            ("192.168.0.1", &["all"][..]),
            ("10.3.0.1", &["east"]),
            ("::ffff:10.3.0.1", &["east"]),
            ("10.1.255.255", &["office", "twin"]),
            ("10.2.3.4", &["office"]),
            ("10.2.3.5", &["east"]),
            ("2001:db8::1", &["east"]),
            ("2001:db9::1", &[]),
            ("::1", &[]),
        ] {
            assert_eq!(index.groups_of(address.parse().unwrap()), expected, "{address}");
        }
        assert!(CidrIndex::default().groups_of("10.0.0.1".parse().unwrap()).is_empty());
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "region_1", "aws.us-east-1", "_x", "7", &"x".repeat(MAX_NAME_BYTES)] {
            assert!(is_valid_name(good) && is_group_name(good), "{good}");
        }
        for wrong in ["", ".", "..", "-x", "a b", "a/b", "10.0.0.0/8", "ä", "a\n", "'", &"x".repeat(MAX_NAME_BYTES + 1)]
        {
            assert!(!is_valid_name(wrong), "{wrong}");
        }
    }
}
