//! Making certificates: pure functions from names, a lifetime and an authority to texts in PEM.
//!
//! Always true: each certificate has a key of its own (ECDSA on P-256), made here from the system's randomness; it is
//! valid no longer than the certificate of its authority, because whoever trusts an authority does not look at the end
//! of that; an authority signs end certificates only. Left out: files.

use crate::describe::{Description, is_signed_by};
use crate::error::CertsError;
use crate::names::{Name, Subject};
use diorite_base::random;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

/// Certificates are valid from some time before they are made: the clocks of other machines may be behind.
const BACKDATED_S: i64 = 60 * 60;
const DAY_S: i64 = 24 * 60 * 60;

/// How long a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Now, in seconds since 1970.
    pub now_s: i64,
    /// For so many days.
    pub days: u32,
}

/// A new certificate and its private key, both in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority with its private key.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    expires_s: i64,
}

/// Makes an authority.
pub(crate) fn authority(lifetime: Lifetime) -> Result<Issued, CertsError> {
    let mut params = parameters(lifetime, i64::MAX)?;
    // Several authorities of one cluster are told apart by it.
    let number = u32::from_le_bytes(random::secret());
    authoritative(&mut params, &format!("diorite authority {number:08x}"));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn authoritative(params: &mut CertificateParams, name: &str) {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
}

/// A private key in PEM, as one that signs.
pub(crate) fn signing_key(pem: &str) -> Result<KeyPair, CertsError> {
    Ok(KeyPair::from_pem(pem)?)
}

/// Whether the key is that of the certificate.
pub(crate) fn fits(key: &KeyPair, description: &Description) -> bool {
    description.public_key == key.subject_public_key_info()
}

impl Authority {
    /// The authority whose key and certificate these are.
    pub(crate) fn new(certificate: CertificateDer<'static>, description: &Description, key: KeyPair) -> Self {
        let mut params = CertificateParams::default();
        authoritative(&mut params, description.subject.trim_start_matches("CN="));
        Self { issuer: Issuer::new(params, key), certificate, expires_s: description.expires_s }
    }

    /// Makes a certificate with a new key.
    pub(crate) fn issue(&self, subject: &Subject, lifetime: Lifetime) -> Result<Issued, CertsError> {
        let mut params = parameters(lifetime, self.expires_s)?;
        params.distinguished_name.push(DnType::CommonName, subject.common_name());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        if let Subject::Node(names) = subject {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            params.subject_alt_names = names.iter().map(alternative).collect::<Result<_, _>>()?;
        }
        params.subject_alt_names.push(SanType::URI(Ia5String::try_from(subject.uri())?));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        // The name of the authority was rebuilt, which is possible only for those that are made here.
        if !is_signed_by(certificate.der(), &self.certificate) {
            let why = "the authority cannot sign: its certificate was not made by `diorite certs`";
            return Err(CertsError::Arguments(why.to_owned()));
        }
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn alternative(name: &Name) -> Result<SanType, CertsError> {
    Ok(match name {
        Name::Address(address) => SanType::IpAddress(*address),
        Name::Host(host) => SanType::DnsName(Ia5String::try_from(host.as_str())?),
    })
}

fn parameters(lifetime: Lifetime, latest_s: i64) -> Result<CertificateParams, CertsError> {
    let Lifetime { now_s, days } = lifetime;
    let until_s = now_s.saturating_add(i64::from(days) * DAY_S).min(latest_s);
    if until_s <= now_s {
        return Err(CertsError::Arguments("the authority has expired: add a new one".to_owned()));
    }
    let moment = |seconds: i64| {
        OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|_| CertsError::Arguments(format!("a certificate cannot be valid for {days} days")))
    };
    let mut params = CertificateParams::default();
    params.not_before = moment(now_s.saturating_sub(BACKDATED_S))?;
    params.not_after = moment(until_s)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}
