//! Asks a node over HTTP.

use crate::api::{Failure, FailureKind};
use diorite_base::basic::Credentials;
use serde::de::DeserializeOwned;
use std::time::Duration;
use thiserror::Error;

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

/// Asks the first of `hosts` (`HOST[:PORT]`) that can be reached.
pub(crate) struct Client {
    agent: ureq::Agent,
    hosts: Vec<String>,
    /// The value of the `Authorization` header, if there is a login.
    authorization: Option<String>,
}

impl Client {
    pub(crate) fn new(hosts: &[String], default_port: u16, login: Option<&Credentials>) -> Self {
        let config =
            ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).proxy(None);
        let with_port = |host: &String| {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            if has_port { host.clone() } else { format!("{host}:{default_port}") }
        };
        let hosts = hosts.iter().map(with_port).collect();
        Self { agent: config.build().new_agent(), hosts, authorization: login.map(Credentials::header) }
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        self.ask(|host| self.with_login(self.agent.get(format!("http://{host}{path}"))).call())
    }

    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &serde_json::Value) -> Result<T, AdminError> {
        self.ask(|host| {
            let request = self.with_login(self.agent.post(format!("http://{host}{path}")));
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
