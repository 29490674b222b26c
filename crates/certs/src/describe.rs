//! Reading certificates: what one says, for people, and to make another one like it.
//!
//! Always true: this reads files of this machine only. What other machines send is checked by [`crate::node`].

use crate::names::{Name, Subject, Usage};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The distinguished name of its owner.
    pub subject: String,
    /// The distinguished name of the authority that has signed it.
    pub issuer: String,
    /// Its kind, and a client's role.
    #[serde(flatten)]
    pub usage: Usage,
    /// The addresses and host names that it covers.
    pub names: Vec<String>,
    /// It is valid from here, in seconds since 1970.
    #[serde(rename = "valid_from_s")]
    pub begins_s: i64,
    /// It is valid up to here, in seconds since 1970.
    pub expires_s: i64,
    /// The number that its authority has given it, hexadecimal.
    pub serial: String,
    /// Its public key, as it stands in it.
    #[serde(skip)]
    pub(crate) public_key: Vec<u8>,
}

/// Bytes that are no certificate.
#[derive(Debug, Error)]
#[error("a certificate in it cannot be read: {0}")]
pub(crate) struct Unreadable(#[from] x509_cert::der::Error);

impl Description {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, Unreadable> {
        let parsed = Certificate::from_der(certificate.as_ref())?;
        let content = parsed.tbs_certificate();
        let alternatives = content.get_extension::<SubjectAltName>()?.map_or_else(Vec::new, |(_, names)| names.0);
        let uris = alternatives.iter().filter_map(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str()),
            _ => None,
        });
        let is_authority = content.get_extension::<BasicConstraints>()?.is_some_and(|(_, constraints)| constraints.ca);
        let validity = content.validity();
        Ok(Self {
            subject: content.subject().to_string(),
            issuer: content.issuer().to_string(),
            usage: if is_authority { Usage::Authority } else { Usage::of_uris(uris) },
            names: alternatives.iter().filter_map(covered).collect(),
            begins_s: validity.not_before.to_unix_duration().as_secs().cast_signed(),
            expires_s: validity.not_after.to_unix_duration().as_secs().cast_signed(),
            serial: content.serial_number().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
            public_key: content.subject_public_key_info().to_der()?,
        })
    }

    /// Whose certificate would be like this one; `None` if Diorite did not make it.
    pub(crate) fn subject_again(&self) -> Option<Subject> {
        match &self.usage {
            Usage::Node => {
                let names: Result<Vec<Name>, _> = self.names.iter().map(|name| name.parse()).collect();
                Subject::node(names.ok()?).ok()
            }
            Usage::Client { role } => Subject::client(role).ok(),
            Usage::Authority | Usage::Other => None,
        }
    }
}

/// Whether the key of `authority` has signed the certificate, of a node or a client.
pub(crate) fn is_signed_by(certificate: &CertificateDer<'_>, authority: &CertificateDer<'_>) -> bool {
    let (Ok(parsed), Ok(anchor)) = (EndEntityCert::try_from(certificate), anchor_from_trusted_cert(authority)) else {
        return false;
    };
    let Ok(description) = Description::of(certificate) else { return false };
    // Whether it has expired is another question.
    let within = UnixTime::since_unix_epoch(Duration::from_secs(description.begins_s.max(0).unsigned_abs()));
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    parsed.verify_for_usage(algorithms, &[anchor], &[], within, KeyUsage::client_auth(), None, None).is_ok()
}

fn covered(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(host) => Some(host.as_str().to_owned()),
        GeneralName::IpAddress(bytes) => address(bytes.as_bytes()).map(|address| address.to_string()),
        _ => None,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))).ok()
}
