//! What a certificate says of its owner: names, and the kind of the certificate.
//!
//! Always true: the kind is a URI among the names, which the authority signs: `diorite:node`, or `diorite:role:` and the
//! role. A role is written with `%` and two hexadecimal digits for each byte that is not a letter, a digit, `-`, `_` or
//! `.`, so that no role can look like another one or like a node.

use crate::error::CertsError;
use rustls::pki_types::ServerName;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The mark of a node's certificate.
pub(crate) const NODE_URI: &str = "diorite:node";
const ROLE_URI: &str = "diorite:role:";

/// An encoded role is part of a file's name.
const MAX_ENCODED_ROLE_BYTES: usize = 200;
/// A name of a subject that is longer is not allowed by the standard.
const MAX_COMMON_NAME_CHARACTERS: usize = 64;

/// An address or a host name that a certificate covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// An IP address: what nodes check.
    Address(IpAddr),
    /// A host name: what clients check that connect to a name.
    Host(String),
}

impl FromStr for Name {
    type Err = CertsError;

    fn from_str(text: &str) -> Result<Self, CertsError> {
        let wrong = |why: &str| CertsError::Arguments(format!("'{text}' {why}"));
        if let Ok(address) = text.parse::<IpAddr>() {
            return match address.is_unspecified() || address.is_multicast() {
                true => Err(wrong("is not the address of one machine")),
                false => Ok(Self::Address(address)),
            };
        }
        if text.parse::<std::net::SocketAddr>().is_ok() {
            return Err(wrong("has a port: give the address alone"));
        }
        match ServerName::try_from(text) {
            Ok(ServerName::DnsName(_)) if !text.ends_with('.') => Ok(Self::Host(text.to_ascii_lowercase())),
            _ => Err(wrong("is neither an IP address nor a host name")),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Host(name) => name.fmt(f),
        }
    }
}

/// The kind of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Usage {
    /// It signs others.
    Authority,
    /// Of a node, as server and as client.
    Node,
    /// Of a client.
    Client {
        /// The CQL role.
        role: String,
    },
    /// None of Diorite's.
    Other,
}

impl Usage {
    /// The word in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Node => "node",
            Self::Client { .. } => "client",
            Self::Other => "other",
        }
    }

    /// The role of a client's certificate.
    pub fn role(&self) -> Option<&str> {
        match self {
            Self::Client { role } => Some(role),
            _ => None,
        }
    }

    /// What the URIs of a certificate that signs no others say.
    pub(crate) fn of_uris<'u>(uris: impl IntoIterator<Item = &'u str>) -> Self {
        let mut found = Self::Other;
        for uri in uris {
            let next = match uri.strip_prefix(ROLE_URI) {
                _ if uri == NODE_URI => Self::Node,
                Some(role) => decode_role(role).map_or(Self::Other, |role| Self::Client { role }),
                None => continue,
            };
            // One that claims two kinds has none.
            if found != Self::Other && found != next {
                return Self::Other;
            }
            found = next;
        }
        found
    }
}

/// Whose certificate is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A node that is reached by these names; at least one.
    Node(Vec<Name>),
    /// A client.
    Client {
        /// Its CQL role.
        role: String,
    },
}

impl Subject {
    /// A client, if the role can be written in a certificate.
    ///
    /// # Errors
    /// If the role is empty or too long.
    pub fn client(role: &str) -> Result<Self, CertsError> {
        if role.is_empty() {
            return Err(CertsError::Arguments("the name of a role is not empty".to_owned()));
        }
        let encoded = encode_role(role).len();
        if encoded > MAX_ENCODED_ROLE_BYTES {
            let why =
                format!("a role has {encoded} bytes in a certificate, at most {MAX_ENCODED_ROLE_BYTES} are possible");
            return Err(CertsError::Arguments(why));
        }
        Ok(Self::Client { role: role.to_owned() })
    }

    /// A node, reached by at least one name.
    ///
    /// # Errors
    /// If there is no name.
    pub fn node(names: Vec<Name>) -> Result<Self, CertsError> {
        match names.is_empty() {
            true => Err(CertsError::Arguments("a node has at least one address".to_owned())),
            false => Ok(Self::Node(names)),
        }
    }

    /// The URI that marks the kind.
    pub(crate) fn uri(&self) -> String {
        match self {
            Self::Node(_) => NODE_URI.to_owned(),
            Self::Client { role } => format!("{ROLE_URI}{}", encode_role(role)),
        }
    }

    /// The name of its directory.
    pub(crate) fn directory_name(&self) -> String {
        match self {
            Self::Node(names) => names.first().map_or_else(String::new, Name::to_string),
            Self::Client { role } => encode_role(role),
        }
    }

    /// The name for people, shortened to what is allowed.
    pub(crate) fn common_name(&self) -> String {
        let whole = match self {
            Self::Node(names) => names.first().map_or_else(String::new, Name::to_string),
            Self::Client { role } => role.clone(),
        };
        whole.chars().take(MAX_COMMON_NAME_CHARACTERS).collect()
    }
}

/// A file's name begins with no dot.
fn encode_role(role: &str) -> String {
    let mut encoded = String::with_capacity(role.len());
    for (place, byte) in role.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && place > 0);
        if is_plain {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// `None` unless the text is what [`encode_role`] makes of the role.
pub(crate) fn decode_role(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    let role = String::from_utf8(bytes).ok().filter(|role| !role.is_empty())?;
    (encode_role(&role) == encoded).then_some(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_written_and_in_one_way_only() {
        for role in ["app", "a/b", "..", ".hidden", "naïve role", "100%", "diorite:node", "x"] {
            let encoded = encode_role(role);
            assert!(!encoded.contains(['/', ':', ' ']) && !encoded.starts_with('.'), "{encoded}");
            assert_eq!(decode_role(&encoded).as_deref(), Some(role));
        }
        for wrong in ["", "a/b", "%41", "%2f", "%2", "%zz", "%+1", "%FF", "a b"] {
            assert_eq!(decode_role(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_certificate_has_one_kind() {
        assert_eq!(Usage::of_uris(["https://example.com", "diorite:node"]), Usage::Node);
        assert_eq!(Usage::of_uris(["diorite:role:app"]), Usage::Client { role: "app".to_owned() });
        for other in [&[][..], &["diorite:node", "diorite:role:app"], &["diorite:nodes"], &["diorite:role:"]] {
            assert_eq!(Usage::of_uris(other.iter().copied()), Usage::Other, "{other:?}");
        }
    }

    #[test]
    fn names_are_addresses_or_hosts() {
        assert_eq!("10.0.0.5".parse::<Name>().unwrap(), Name::Address("10.0.0.5".parse().unwrap()));
        assert_eq!("::1".parse::<Name>().unwrap(), Name::Address("::1".parse().unwrap()));
        assert_eq!("DB-1.example".parse::<Name>().unwrap(), Name::Host("db-1.example".to_owned()));
        for wrong in
            ["", "10.0.0.5:7100", "[::1]:7100", "0.0.0.0", "::", "a b", "../x", "a/b", "db-1.", "1.2.3.4.5.", "*"]
        {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
        assert!(Subject::client("").is_err() && Subject::client(&"/".repeat(100)).is_err());
        assert!(Subject::node(Vec::new()).is_err());
    }
}
