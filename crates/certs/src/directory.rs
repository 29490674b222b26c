//! The directory of a cluster's certificates, and the directories that are copied to nodes and clients.
//!
//! ```text
//! DIR/ca.pem, ca.key                  the authorities that are trusted, and the private key of the one that signs
//! DIR/nodes/NAME/                     ca.pem, node.pem, node.key: what `diorite start --certs` reads
//! DIR/clients/ROLE/                   ca.pem, client.pem, client.key
//! ```
//!
//! Always true: `ca.pem` is the same in all of them; the authority that signs is one of those that are trusted. An
//! authority is removed only when no certificate in the directory needs it. Left out: bringing files to machines.

use crate::describe::{Description, is_signed_by};
use crate::error::CertsError;
use crate::files::{self, Existing};
use crate::issue::{self, Authority, Issued, Lifetime};
use crate::names::{Subject, Usage};
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The certificates of the authorities that are trusted.
pub(crate) const AUTHORITIES: &str = "ca.pem";
const AUTHORITY_KEY: &str = "ca.key";
const NODES: &str = "nodes";
const CLIENTS: &str = "clients";
/// The certificate of a node, and its private key.
pub(crate) const NODE: Pair = Pair { certificate: "node.pem", key: "node.key" };
const CLIENT: Pair = Pair { certificate: "client.pem", key: "client.key" };
const DAY_S: i64 = 24 * 60 * 60;

/// The names of two files that belong together.
pub(crate) struct Pair {
    pub(crate) certificate: &'static str,
    pub(crate) key: &'static str,
}

/// A certificate, and where it is.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    #[serde(flatten)]
    pub certificate: Description,
    /// Whole days until it expires; negative once it has.
    pub days_left: i64,
}

/// See the top of this module.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

/// A trusted authority.
struct Trusted {
    certificate: CertificateDer<'static>,
    description: Description,
}

/// A directory of a node or of a client.
struct Holder {
    path: PathBuf,
    pair: &'static Pair,
}

impl Holder {
    fn certificate(&self) -> PathBuf {
        self.path.join(self.pair.certificate)
    }
}

impl Directory {
    /// The directory at `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Makes the first authority; with `overwrite` in place of one that is there, whose certificates are then worthless.
    ///
    /// # Errors
    /// If there is one and it may not be overwritten, or if files cannot be written.
    pub fn init(&self, lifetime: Lifetime, overwrite: bool) -> Result<PathBuf, CertsError> {
        files::make_directory(&self.path)?;
        let (authorities, key) = (self.path.join(AUTHORITIES), self.path.join(AUTHORITY_KEY));
        let existing = existing(overwrite);
        if existing == Existing::Keep
            && let Some(found) = [&authorities, &key].into_iter().find(|path| path.exists())
        {
            return Err(CertsError::Exists(found.clone()));
        }
        let made = issue::authority(lifetime)?;
        files::write(&key, &made.key, existing)?;
        files::write(&authorities, &made.certificate, existing)?;
        Ok(authorities)
    }

    /// Makes the certificate of a node or a client; returns the directory with all that it needs.
    ///
    /// # Errors
    /// If there is no authority, if the subject has a certificate that may not be overwritten, or if files cannot be
    /// written.
    pub fn issue(&self, subject: &Subject, lifetime: Lifetime, overwrite: bool) -> Result<PathBuf, CertsError> {
        let (kind, pair) = match subject {
            Subject::Node(_) => (NODES, &NODE),
            Subject::Client { .. } => (CLIENTS, &CLIENT),
        };
        let authority = self.signing()?;
        let path = self.path.join(kind).join(subject.directory_name());
        let holder = Holder { path, pair };
        let existing = existing(overwrite);
        if existing == Existing::Keep && holder.certificate().exists() {
            return Err(CertsError::Exists(holder.certificate()));
        }
        files::make_directory(&self.path.join(kind))?;
        files::make_directory(&holder.path)?;
        let made = authority.issue(subject, lifetime)?;
        self.write(&holder, &made, existing)?;
        Ok(holder.path)
    }

    /// Makes new certificates like those that are there, with new keys: of the named nodes and clients, or of all; of
    /// these only those that expire within so many days, if that is given. Returns their directories.
    ///
    /// # Errors
    /// If a name has no certificate, if a certificate is none that Diorite makes, or if files cannot be written.
    pub fn renew(
        &self,
        named: &[String],
        within_days: Option<u32>,
        lifetime: Lifetime,
    ) -> Result<Vec<PathBuf>, CertsError> {
        let mut holders = self.holders()?;
        for name in named {
            if !holders.iter().any(|holder| is_named(holder, name)) {
                let directory = self.path.display();
                return Err(CertsError::Arguments(format!("{directory}: there is no certificate of '{name}'")));
            }
        }
        holders.retain(|holder| named.is_empty() || named.iter().any(|name| is_named(holder, name)));
        let authority = self.signing()?;
        let mut renewed = Vec::new();
        for holder in holders {
            let path = holder.certificate();
            let description = first(&path)?.1;
            if within_days.is_some_and(|days| days_left(&description, lifetime.now_s) > i64::from(days)) {
                continue;
            }
            let subject = description.subject_again();
            let subject = subject.ok_or_else(|| CertsError::unusable(&path, "it is not a certificate of Diorite"))?;
            let made = authority.issue(&subject, lifetime)?;
            self.write(&holder, &made, Existing::Replace)?;
            renewed.push(holder.path);
        }
        Ok(renewed)
    }

    /// Adds a new authority, which signs from now on; the former ones stay trusted.
    ///
    /// # Errors
    /// If there is no authority, or if files cannot be written.
    pub fn add_authority(&self, lifetime: Lifetime) -> Result<PathBuf, CertsError> {
        let authorities = self.path.join(AUTHORITIES);
        self.signing()?;
        let former = files::read(&authorities)?;
        let made = issue::authority(lifetime)?;
        // First that it is trusted, then that it signs: a crash in between leaves the former one in office.
        self.distribute(&format!("{}{former}", made.certificate))?;
        files::write(&self.path.join(AUTHORITY_KEY), &made.key, Existing::Replace)?;
        Ok(authorities)
    }

    /// Removes all authorities but the one that signs; returns how many.
    ///
    /// # Errors
    /// If a certificate in the directory is signed by one of them, or if files cannot be written.
    pub fn remove_authorities(&self) -> Result<usize, CertsError> {
        let key = self.signing_key()?;
        let (kept, removed): (Vec<Trusted>, Vec<Trusted>) =
            self.trusted()?.into_iter().partition(|authority| issue::fits(&key, &authority.description));
        let Some(kept) = kept.into_iter().next() else { return Err(self.no_certificate_for_key()) };
        for holder in self.holders()? {
            let path = holder.certificate();
            if !is_signed_by(&first(&path)?.0, &kept.certificate) {
                let why = "a former authority has signed it: run `diorite certs renew` first";
                return Err(CertsError::unusable(&path, why));
            }
        }
        let texts = files::read(&self.path.join(AUTHORITIES))?;
        let kept_text = texts_of(&texts).into_iter().find(|text| is_text_of(text, &kept.certificate));
        self.distribute(&kept_text.ok_or_else(|| self.no_certificate_for_key())?)?;
        Ok(removed.len())
    }

    /// All certificates: of authorities, nodes and clients, here and in the directories of nodes and clients.
    ///
    /// # Errors
    /// If there is none, or if a file cannot be read.
    pub fn show(&self, now_s: i64) -> Result<Vec<Shown>, CertsError> {
        let mut files =
            vec![self.path.join(AUTHORITIES), self.path.join(NODE.certificate), self.path.join(CLIENT.certificate)];
        files.retain(|file| file.exists());
        files.extend(self.holders()?.iter().map(Holder::certificate));
        if files.is_empty() {
            return Err(CertsError::unusable(
                &self.path,
                "there are no certificates in it; `diorite certs init` makes an authority",
            ));
        }
        let mut shown = Vec::new();
        for file in files {
            for certificate in files::certificates(&file)? {
                let certificate = describe(&file, &certificate)?;
                // A chain may contain the authorities between: one line for each file is enough there.
                let days_left = days_left(&certificate, now_s);
                shown.push(Shown { file: file.clone(), certificate, days_left });
            }
        }
        Ok(shown)
    }

    fn write(&self, holder: &Holder, made: &Issued, existing: Existing) -> Result<(), CertsError> {
        files::write(&holder.path.join(AUTHORITIES), &files::read(&self.path.join(AUTHORITIES))?, Existing::Replace)?;
        // Without a certificate a key is of no use, so one that is left from an attempt that failed may go.
        files::write(&holder.path.join(holder.pair.key), &made.key, Existing::Replace)?;
        files::write(&holder.certificate(), &made.certificate, existing)
    }

    /// Writes the trusted authorities to all places.
    fn distribute(&self, authorities: &str) -> Result<(), CertsError> {
        for holder in self.holders()? {
            files::write(&holder.path.join(AUTHORITIES), authorities, Existing::Replace)?;
        }
        files::write(&self.path.join(AUTHORITIES), authorities, Existing::Replace)
    }

    fn holders(&self) -> Result<Vec<Holder>, CertsError> {
        let mut holders = Vec::new();
        for (kind, pair) in [(NODES, &NODE), (CLIENTS, &CLIENT)] {
            let directories = files::directories(&self.path.join(kind))?;
            let found = directories.into_iter().map(|path| Holder { path, pair });
            holders.extend(found.filter(|holder| holder.certificate().exists()));
        }
        Ok(holders)
    }

    fn trusted(&self) -> Result<Vec<Trusted>, CertsError> {
        let path = self.path.join(AUTHORITIES);
        let certificates = files::certificates(&path)?.into_iter();
        let trusted = certificates.map(|certificate| {
            let description = describe(&path, &certificate)?;
            Ok(Trusted { certificate, description })
        });
        trusted.collect()
    }

    fn signing_key(&self) -> Result<rcgen::KeyPair, CertsError> {
        let path = self.path.join(AUTHORITY_KEY);
        if !path.exists() {
            let why = "there is no authority's key; `diorite certs init` makes an authority";
            return Err(CertsError::unusable(&path, why));
        }
        issue::signing_key(&files::key_text(&path)?).map_err(|error| CertsError::unusable(&path, error))
    }

    /// The authority that signs.
    fn signing(&self) -> Result<Authority, CertsError> {
        let key = self.signing_key()?;
        let mut trusted = self.trusted()?.into_iter();
        let own = trusted.find(|authority| issue::fits(&key, &authority.description));
        let own = own.ok_or_else(|| self.no_certificate_for_key())?;
        if own.description.usage != Usage::Authority {
            return Err(CertsError::unusable(
                &self.path.join(AUTHORITIES),
                "it is not the certificate of an authority",
            ));
        }
        Ok(Authority::new(own.certificate, &own.description, key))
    }

    fn no_certificate_for_key(&self) -> CertsError {
        let why = format!("no certificate in it belongs to {AUTHORITY_KEY}");
        CertsError::unusable(&self.path.join(AUTHORITIES), why)
    }
}

fn existing(overwrite: bool) -> Existing {
    if overwrite { Existing::Replace } else { Existing::Keep }
}

/// As the end of a directory's path: `NAME`, or `nodes/NAME`.
fn is_named(holder: &Holder, name: &str) -> bool {
    let trimmed = name.trim_end_matches('/');
    !trimmed.is_empty() && holder.path.ends_with(trimmed)
}

fn describe(path: &Path, certificate: &CertificateDer<'_>) -> Result<Description, CertsError> {
    Description::of(certificate).map_err(|error| CertsError::unusable(path, error))
}

/// The first certificate of a file: that of its owner.
pub(crate) fn first(path: &Path) -> Result<(CertificateDer<'static>, Description), CertsError> {
    let certificate = files::certificates(path)?.into_iter().next();
    let certificate = certificate.ok_or_else(|| CertsError::unusable(path, "there is no certificate in it"))?;
    let description = describe(path, &certificate)?;
    Ok((certificate, description))
}

fn days_left(certificate: &Description, now_s: i64) -> i64 {
    certificate.expires_s.saturating_sub(now_s).div_euclid(DAY_S)
}

/// The certificates of a text in PEM, each as a text.
fn texts_of(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    text.split_inclusive(END)
        .filter(|part| part.ends_with(END))
        .map(|part| format!("{}\n", part.trim_start()))
        .collect()
}

fn is_text_of(text: &str, certificate: &CertificateDer<'_>) -> bool {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(text.as_bytes()).is_ok_and(|read| read == *certificate)
}

#[cfg(test)]
mod tests;
