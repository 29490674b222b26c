//! What a node does with certificates: mutual TLS 1.3 with other nodes.
//!
//! Always true: both sides show a certificate that a trusted authority has signed, that is valid now and that is a
//! node's. The side that connects also requires that the certificate covers the address it has dialled. Sessions are not
//! resumed, so that each connection is checked as a whole by the files that are in force. A side that shows no such
//! certificate is refused in the handshake, before a byte of either side's content was sent.
//!
//! Left out: what the accepting side makes of a node's addresses, which the transport checks against the hello; the end
//! of a trusted authority's own certificate, unless it has come when files are read.

use crate::describe::Description;
use crate::directory::{AUTHORITIES, NODE, first};
use crate::error::CertsError;
use crate::files;
use crate::names::{NODE_URI, Usage};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The files that a node reads from its directory.
pub fn files_of(directory: &Path) -> [PathBuf; 3] {
    [AUTHORITIES, NODE.certificate, NODE.key].map(|name| directory.join(name))
}

/// What a node shows, and whom it trusts: the files of one moment.
#[derive(Clone, Debug)]
pub struct NodeCredentials {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    certificate: CertificateDer<'static>,
    description: Description,
    file: PathBuf,
}

impl NodeCredentials {
    /// Reads the files of a node's directory. Other nodes that trust the same authorities accept what was read.
    ///
    /// # Errors
    /// If a file cannot be read, or if the certificate is not a node's, has expired, does not fit its key or is not
    /// signed by a trusted authority.
    pub fn read(directory: &Path, now_s: i64) -> Result<Self, CertsError> {
        let [authorities, file, key_file] = files_of(directory);
        let (certificate, description) = first(&file)?;
        if description.usage != Usage::Node {
            let why = format!("it is the certificate of {}, not of a node", with_article(&description.usage));
            return Err(CertsError::unusable(&file, why));
        }
        let chain = files::certificates(&file)?;
        let key = files::key(&key_file)?;
        let provider = Arc::new(provider());
        let roots = Arc::new(roots(&authorities, now_s)?);
        let wrong = |error: &dyn std::fmt::Display| CertsError::unusable(&authorities, error);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let servers = Arc::new(NodeServers(verifier.map_err(|error| wrong(&error))?));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        // The names of the authorities are nobody's business.
        let verifier = verifier.clear_root_hint_subjects().build().map_err(|error| wrong(&error))?;
        let clients = Arc::new(NodeClients(verifier));
        let unusable = |error: Error| CertsError::unusable(&file, error);
        let (others, now) = (chain.get(1..).unwrap_or_default(), unix(now_s));
        clients.verify_client_cert(&certificate, others, now).map_err(unusable)?;
        let name = description.names.first().and_then(|name| ServerName::try_from(name.as_str()).ok());
        let name = name.ok_or_else(|| CertsError::unusable(&file, "it covers no address"))?;
        servers.verify_server_cert(&certificate, others, &name, &[], now).map_err(unusable)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(unusable)?.with_client_cert_verifier(clients);
        let mut server = builder.with_single_cert(chain.clone(), key.clone_key()).map_err(unusable)?;
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(unusable)?.dangerous();
        let builder = builder.with_custom_certificate_verifier(servers);
        let mut client = builder.with_client_auth_cert(chain, key).map_err(unusable)?;
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Self { server: Arc::new(server), client: Arc::new(client), certificate, description, file })
    }

    /// Checks that other nodes may reach this one at the address.
    ///
    /// # Errors
    /// If the certificate does not cover it.
    pub fn check_address(&self, address: IpAddr) -> Result<(), CertsError> {
        if covers(&self.certificate, address) {
            return Ok(());
        }
        let names = self.description.names.join(", ");
        let why = format!("it does not cover {address}, only {names}; make one with `diorite certs node {address}`");
        Err(CertsError::unusable(&self.file, why))
    }

    /// For connections that other nodes open.
    pub fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }

    /// For connections to other nodes.
    pub fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    /// What the node's own certificate says.
    pub fn description(&self) -> &Description {
        &self.description
    }
}

fn with_article(usage: &Usage) -> &'static str {
    match usage {
        Usage::Authority => "an authority",
        Usage::Node => "a node",
        Usage::Client { .. } => "a client",
        Usage::Other => "somebody else",
    }
}

/// Nodes agree on the cipher that costs least on processors with AES.
fn provider() -> CryptoProvider {
    use ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    let cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

/// The trusted authorities: those of the file that have not expired.
fn roots(path: &Path, now_s: i64) -> Result<RootCertStore, CertsError> {
    let mut roots = RootCertStore::empty();
    for certificate in files::certificates(path)? {
        let description = Description::of(&certificate).map_err(|error| CertsError::unusable(path, error))?;
        if description.usage != Usage::Authority {
            return Err(CertsError::unusable(path, format!("{} is not an authority", description.subject)));
        }
        if description.expires_s > now_s {
            roots.add(certificate).map_err(|error| CertsError::unusable(path, error))?;
        }
    }
    match roots.is_empty() {
        true => Err(CertsError::unusable(path, "all authorities in it have expired")),
        false => Ok(roots),
    }
}

fn unix(now_s: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now_s.max(0).unsigned_abs()))
}

/// Whether a certificate, which an authority has signed, is a node's.
pub fn is_node(certificate: &CertificateDer<'_>) -> bool {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    parsed.is_ok_and(|certificate| Usage::of_uris(certificate.valid_uri_names()) == Usage::Node)
}

/// The role that a client's certificate, which an authority has signed, names.
pub fn role_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    Usage::of_uris(parsed.valid_uri_names()).role().map(str::to_owned)
}

/// Whether a certificate, which an authority has signed, covers an address.
pub fn covers(certificate: &CertificateDer<'_>, address: IpAddr) -> bool {
    let name = ServerName::from(address.to_canonical());
    let parsed = webpki::EndEntityCert::try_from(certificate);
    parsed.is_ok_and(|certificate| certificate.verify_is_valid_for_subject_name(&name).is_ok())
}

/// The certificate is valid, and not a node's.
#[derive(Debug, thiserror::Error)]
#[error("it is not the certificate of a node (it lacks the name {NODE_URI})")]
struct NotANode;

fn check_node(certificate: &CertificateDer<'_>) -> Result<(), Error> {
    match is_node(certificate) {
        true => Ok(()),
        false => Err(CertificateError::Other(OtherError(Arc::new(NotANode))).into()),
    }
}

/// Accepts the certificates of nodes that connect.
#[derive(Debug)]
struct NodeClients(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for NodeClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        check_node(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Accepts the certificates of nodes that are dialled.
#[derive(Debug)]
struct NodeServers(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for NodeServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        check_node(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
