//! From where and to where a role may connect.
//!
//! Always true: what cannot be read permits nothing. Left out: groups of networks with names of their own
//! ([`super::CidrGroup`]).

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use thiserror::Error;

/// What is permitted of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permitted {
    /// All.
    #[default]
    All,
    /// These.
    Only(BTreeSet<String>),
}

impl Permitted {
    /// Whether all are permitted.
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }

    /// Whether one with this name is permitted.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }

    /// Whether an address is permitted by the networks among these.
    pub fn covers(&self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Only(networks) => {
                networks.iter().any(|network| network.parse::<Network>().is_ok_and(|network| network.contains(address)))
            }
        }
    }
}

/// A network: `ADDRESS/BITS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoNetwork {
    /// It has another form.
    #[error("it is not ADDRESS/BITS")]
    Form,
    /// The address is not the first one of the network.
    #[error("the address has bits behind the first {0}")]
    Behind(u8),
}

fn number_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

/// The address with a number, of the same kind as another one.
fn address_of(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from((number >> 96) as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from(number).into(),
    }
}

/// The first `bits` of a number.
fn first(number: u128, bits: u8) -> u128 {
    if bits == 0 { 0 } else { number >> (128 - u32::from(bits)) << (128 - u32::from(bits)) }
}

impl Network {
    /// Its first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits its addresses have in common.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// All networks with an address, the longest first. An IPv4 address may be written as IPv6.
    pub(super) fn around(address: IpAddr) -> impl Iterator<Item = Self> {
        let address = address.to_canonical();
        let (number, length) = number_of(address);
        (0..=length).rev().map(move |bits| Self { address: address_of(first(number, bits), address), bits })
    }

    /// Whether an address is in it. An IPv4 address may be written as IPv6.
    pub fn contains(self, address: IpAddr) -> bool {
        let ((own, length), (other, other_length)) = (number_of(self.address), number_of(address.to_canonical()));
        length == other_length && first(other, self.bits) == own
    }
}

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, bits) = text.split_once('/').ok_or(NoNetwork::Form)?;
        let address: IpAddr = address.parse().map_err(|_| NoNetwork::Form)?;
        let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u8 = bits.parse().ok().filter(|_| is_number).ok_or(NoNetwork::Form)?;
        let (number, length) = number_of(address);
        if bits > length {
            return Err(NoNetwork::Form);
        }
        if first(number, bits) != number {
            return Err(NoNetwork::Behind(bits));
        }
        Ok(Self { address, bits })
    }
}

impl TryFrom<String> for Network {
    type Error = NoNetwork;

    fn try_from(text: String) -> Result<Self, NoNetwork> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    fn has(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn networks_contain_their_addresses_and_no_others() {
        for (network, address) in [
            ("10.0.0.0/8", "10.255.1.2"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("0.0.0.0/0", "192.168.0.1"),
            ("10.0.0.0/8", "::ffff:10.1.2.3"),
            ("2001:db8::/32", "2001:db8:1::7"),
            ("::/0", "::1"),
            ("::1/128", "::1"),
        ] {
            assert!(has(network, address), "{address} is in {network}");
        }
        for (network, address) in [
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.1.2.3/32", "10.1.2.4"),
            ("0.0.0.0/0", "::1"),
            ("::/0", "10.0.0.1"),
            ("::/0", "::ffff:10.0.0.1"),
            ("2001:db8::/32", "2001:db9::1"),
        ] {
            assert!(!has(network, address), "{address} is not in {network}");
        }
    }

    #[test]
    fn what_is_no_network_permits_nothing() {
        for text in ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/+8", "10.0.0/8", "europe", "/8"] {
            assert_eq!(text.parse::<Network>(), Err(NoNetwork::Form), "{text}");
            assert!(!Permitted::Only([text.to_owned()].into()).covers("10.0.0.1".parse().unwrap()));
        }
        assert_eq!("10.0.0.1/8".parse::<Network>(), Err(NoNetwork::Behind(8)));
        assert_eq!("10.0.0.1/0".parse::<Network>(), Err(NoNetwork::Behind(0)));
        assert!(!Permitted::Only(BTreeSet::new()).covers("10.0.0.1".parse().unwrap()));
        assert!(!Permitted::Only(BTreeSet::new()).has("dc1") && Permitted::All.has("dc1"));
        let both = Permitted::Only(["10.0.0.0/8".to_owned(), "::1/128".to_owned()].into());
        assert!(both.covers("::1".parse().unwrap()) && both.covers("10.0.0.1".parse().unwrap()));
        assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
    }
}
