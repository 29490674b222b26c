//! Asks a node over HTTP.

use crate::api::{Failure, FailureKind};
use crate::server::SPEAKS_TLS;
use diorite_base::basic::Credentials;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Longer than a node needs to find that no node has the answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Lists of tablets are sent in pages, so that no answer is longer.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum AdminError {
    /// None of the nodes can be reached.
    #[error("no node answers: {0}")]
    Unreachable(String),
    /// The node requires a login, and no role was named.
    #[error("this node asks for a role and its password: name the role with --user")]
    NoRole,
    /// There is no password for the role.
    #[error("no password for the role {0}: {1}")]
    NoPassword(String, String),
    /// The port speaks TLS, and the command does not.
    #[error("{0} speaks TLS: name a directory with certificates with --certs")]
    SpeaksTls(String),
    /// A file of the directory with certificates cannot be used.
    #[error("{}: {why}", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The cluster refuses the command.
    #[error("{0}")]
    Refused(#[from] Failure),
    /// The answer is not that of a node.
    #[error("{0} does not answer as a node of this version does: {1}")]
    Strange(String, String),
    /// The answer cannot be printed.
    #[error("cannot print the answer: {0}")]
    Output(#[from] std::io::Error),
}

impl AdminError {
    /// Whether there is no answer at the moment: asked again, there may be one.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(failure) => matches!(failure.kind, FailureKind::Unavailable | FailureKind::NotBegun),
            _ => false,
        }
    }
}

/// TLS with the files of a directory as `diorite certs client` makes it: the authorities that are trusted, and, if it is there, the client's
/// certificate.
pub(crate) fn tls(directory: &Path) -> Result<TlsConfig, AdminError> {
    let wrong = |path: &Path, why: String| AdminError::Certificate { path: path.to_owned(), why };
    let certificates = |path: &Path| -> Result<Vec<Certificate<'static>>, AdminError> {
        let text = std::fs::read(path).map_err(|error| wrong(path, error.to_string()))?;
        let items: Result<Vec<PemItem<'static>>, _> = parse_pem(&text).collect();
        let items = items.map_err(|error| wrong(path, error.to_string()))?;
        let found: Vec<_> = items
            .into_iter()
            .filter_map(|item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None })
            .collect();
        if found.is_empty() { Err(wrong(path, "there is no certificate in it".to_owned())) } else { Ok(found) }
    };
    let (own, key) = (directory.join("client.pem"), directory.join("client.key"));
    let client = match own.exists() {
        false => None,
        true => {
            let text = std::fs::read(&key).map_err(|error| wrong(&key, error.to_string()))?;
            let private = PrivateKey::from_pem(&text).map_err(|error| wrong(&key, error.to_string()))?;
            Some(ClientCert::new_with_certs(&certificates(&own)?, private))
        }
    };
    let roots = RootCerts::new_with_certs(&certificates(&directory.join("ca.pem"))?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = TlsConfig::builder().root_certs(roots).client_cert(client);
    Ok(config.unversioned_rustls_crypto_provider(provider).build())
}

/// Asks the first of `hosts` (`HOST[:PORT]`) that can be reached.
pub(crate) struct Client {
    agent: ureq::Agent,
    /// `http` or `https`.
    scheme: &'static str,
    hosts: Vec<String>,
    /// The value of the `Authorization` header, if there is a login.
    authorization: Option<String>,
}

impl Client {
    /// Asks by TLS if that is given.
    pub(crate) fn new(
        hosts: &[String],
        default_port: u16,
        login: Option<&Credentials>,
        tls: Option<TlsConfig>,
    ) -> Self {
        let config =
            ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).proxy(None);
        let (config, scheme) = match tls {
            Some(tls) => (config.tls_config(tls).https_only(true), "https"),
            None => (config, "http"),
        };
        let with_port = |host: &String| {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            if has_port { host.clone() } else { format!("{host}:{default_port}") }
        };
        let hosts = hosts.iter().map(with_port).collect();
        Self { agent: config.build().new_agent(), scheme, hosts, authorization: login.map(Credentials::header) }
    }

    fn address(&self, host: &str, path: &str) -> String {
        format!("{}://{host}{path}", self.scheme)
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        self.ask(|host| self.with_login(self.agent.get(self.address(host, path))).call())
    }

    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &serde_json::Value) -> Result<T, AdminError> {
        self.ask(|host| {
            let request = self.with_login(self.agent.post(self.address(host, path)));
            request.content_type("application/json").send(body.to_string())
        })
    }

    fn with_login<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    fn ask<T: DeserializeOwned>(
        &self,
        call: impl Fn(&str) -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, AdminError> {
        let mut failures = Vec::new();
        for host in &self.hosts {
            let mut response = match call(host) {
                Ok(response) => response,
                Err(error) => {
                    failures.push(format!("{host}: {error}"));
                    continue;
                }
            };
            let strange = |why: String| AdminError::Strange(host.clone(), why);
            let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
            let body = body.map_err(|error| strange(error.to_string()))?;
            if !response.status().is_success() {
                if body.starts_with(SPEAKS_TLS) {
                    return Err(AdminError::SpeaksTls(host.clone()));
                }
                let failure: Failure =
                    serde_json::from_str(&body).map_err(|_| strange(format!("status {}", response.status())))?;
                return Err(match (failure.kind, &self.authorization) {
                    (FailureKind::Unauthenticated, None) => AdminError::NoRole,
                    _ => failure.into(),
                });
            }
            return serde_json::from_str(&body).map_err(|error| strange(error.to_string()));
        }
        Err(AdminError::Unreachable(failures.join("; ")))
    }
}
