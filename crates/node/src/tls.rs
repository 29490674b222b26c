//! TLS for clients: the certificate, and its replacement while the node runs.
//!
//! Always true: a new certificate or key is used as soon as both files can be read and fit together; until then,
//! connections get the old one. Open connections keep theirs. A client's certificate is required on the CQL port, if authorities are given,
//! and optional on the HTTP port. Left out: encryption between nodes.

use crate::config::StartOptions;
use crate::error::{StartError, TlsError};
use arc_swap::ArcSwap;
use diorite_admin::server::TlsConfigs;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// How often the files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The paths of certificate and key.
#[derive(Debug, Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The authorities that sign clients' certificates; without it clients need no certificate.
    clients: Option<PathBuf>,
}

/// The modification time and length of each file.
type Seen = Vec<(Option<SystemTime>, u64)>;

/// The certificate in force.
#[derive(Debug)]
pub(crate) struct Tls {
    files: Files,
    /// How the files were found before they were read.
    seen: Seen,
    configs: ArcSwap<Configs>,
}

/// What TLS speaks.
#[derive(Debug)]
struct Configs {
    /// With clients of the CQL port.
    cql: Arc<ServerConfig>,
    /// With clients of the HTTP port, who need no certificate.
    http: Arc<ServerConfig>,
}

impl Files {
    fn all(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.certificate), Some(&self.key), self.clients.as_ref()].into_iter().flatten().map(PathBuf::as_path)
    }

    fn seen(&self) -> Seen {
        let look = |path: &Path| {
            let metadata = std::fs::metadata(path).ok();
            (metadata.as_ref().and_then(|found| found.modified().ok()), metadata.map_or(0, |found| found.len()))
        };
        self.all().map(look).collect()
    }

    fn read(&self) -> Result<Configs, TlsError> {
        let chain = certificates(&self.certificate)?;
        let unreadable = |error| TlsError::Unreadable { path: self.key.clone(), source: error };
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(unreadable)?;
        let config = |is_required: bool| -> Result<Arc<ServerConfig>, TlsError> {
            let provider = Arc::new(ring::default_provider());
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
            let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Versions)?;
            let builder = match &self.clients {
                None => builder.with_no_client_auth(),
                Some(path) => builder.with_client_cert_verifier(verifier(path, provider, is_required)?),
            };
            let config = builder.with_single_cert(chain.clone(), key.clone_key());
            let mut config = config.map_err(|error| unusable(&self.certificate, error))?;
            if self.clients.is_some() {
                // A session that is resumed would not look at the client's certificate again, which may have expired.
                config.send_tls13_tickets = 0;
                config.session_storage = Arc::new(NoServerSessionStorage {});
            }
            Ok(Arc::new(config))
        };
        Ok(Configs { cql: config(true)?, http: config(false)? })
    }
}

fn unusable(path: &Path, source: rustls::Error) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), source }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|error| TlsError::Unreadable { path: path.to_owned(), source: error })?;
    if found.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(found) }
}

/// What checks the certificates of clients: an authority in the file has to have signed them.
fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
    is_required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|source| TlsError::Authorities { path: path.to_owned(), source })
}

impl Tls {
    /// Loads the certificate that the options name; `None` if they name none.
    pub(crate) fn open(options: &StartOptions) -> Result<Option<Arc<Tls>>, StartError> {
        if options.tls_client_roles && options.tls_client_authorities.is_none() {
            return Err(TlsError::Incomplete("--tls-client-roles", "--tls-client-authorities").into());
        }
        let (Some(certificate), Some(key)) = (&options.tls_certificate, &options.tls_key) else {
            let needs = TlsError::Incomplete("--http-tls", "--tls-certificate and --tls-key");
            return if options.http_tls { Err(needs.into()) } else { Ok(None) };
        };
        let clients = options.tls_client_authorities.clone();
        let files = Files { certificate: certificate.clone(), key: key.clone(), clients };
        let seen = files.seen();
        let configs = files.read()?;
        Ok(Some(Arc::new(Tls { files, seen, configs: ArcSwap::from_pointee(configs) })))
    }

    /// What to speak with the next client of the CQL port.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.configs.load().cql)
    }

    /// What to speak with clients of the HTTP port.
    pub(crate) fn for_http(self: &Arc<Self>) -> TlsConfigs {
        let tls = Arc::clone(self);
        Arc::new(move || Arc::clone(&tls.configs.load().http))
    }

    /// Checks the files from time to time, until `stop`.
    pub(crate) async fn follow(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        // Since the files were read: they may have changed during the start.
        let mut seen = self.seen.clone();
        loop {
            #[allow(clippy::disallowed_methods, reason = "a shell's timer: files send no notice of changes")]
            let pause = tokio::time::sleep(LOOK_EVERY);
            tokio::select! {
                () = pause => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let now = self.files.seen();
            if now == seen {
                continue;
            }
            match self.files.read() {
                Ok(configs) => {
                    self.configs.store(Arc::new(configs));
                    seen = now;
                    tracing::info!("the new TLS certificate is in use");
                }
                // It may be that only one of the files has been replaced so far.
                Err(error) => tracing::warn!(%error, "the TLS certificate was not replaced"),
            }
        }
    }
}
