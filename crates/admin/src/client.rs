//! Asks a node over HTTP.

use crate::api::{Failure, FailureKind};
use crate::server::SPEAKS_TLS;
use diorite_base::basic::Credentials;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Longer than a node needs to find that no node has the answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// For a connection to a host, and TLS on it, while others can be asked instead.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// For the first bytes of an answer to a question that changes nothing, while others can be asked instead.
/// Longer than the 5 s that some answers take while a node is down.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(8);
/// Lists of tablets are sent in pages, so that no answer is longer.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum AdminError {
    /// None of the nodes can be reached.
    #[error("no node answers: {0}")]
    Unreachable(String),
    /// A node may have received a change, and its answer is not known.
    #[error("{0} did not answer ({1}); the change may have been made: look before you repeat it")]
    Unanswered(String, String),
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

/// TLS with the files of a directory as `diorite certs client` makes it: the authorities that are trusted, and, if it
/// is there, the client's certificate.
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

/// How long one host is waited for, beside [`TIMEOUT`].
#[derive(Clone, Copy)]
struct Timeouts {
    /// For a connection.
    connect: Option<Duration>,
    /// For the first bytes of an answer to a question that changes nothing.
    first_bytes: Option<Duration>,
}

/// With the only host, and with one that is asked again.
const UNLIMITED: Timeouts = Timeouts { connect: None, first_bytes: None };

/// What a host says of itself, in the order in which such hosts are asked to change something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Ready,
    /// It was not asked.
    Unknown,
    /// Its process runs, but a change may wait until it is ready.
    NotReady,
    Silent,
}

/// Asks the first of `hosts` (`HOST[:PORT]`) that answers.
pub(crate) struct Client {
    agent: ureq::Agent,
    /// `http` or `https`.
    scheme: &'static str,
    /// In the order in which they are asked: one that did not answer is the last.
    hosts: RefCell<Vec<String>>,
    /// With a host while others can be asked instead.
    short: Timeouts,
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
        let hosts = RefCell::new(hosts.iter().map(with_port).collect());
        let short = Timeouts { connect: Some(CONNECT_TIMEOUT), first_bytes: Some(FIRST_BYTES_TIMEOUT) };
        Self { agent: config.build().new_agent(), scheme, hosts, short, authorization: login.map(Credentials::header) }
    }

    fn address(&self, host: &str, path: &str) -> String {
        format!("{}://{host}{path}", self.scheme)
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        self.ask(true, |host, timeouts| {
            let request = self.with_login(self.agent.get(self.address(host, path))).config();
            let request = request.timeout_connect(timeouts.connect).timeout_recv_response(timeouts.first_bytes);
            request.build().call()
        })
    }

    /// A host that took the request may be carrying it out, so its answer is waited for as long as it may take, and no
    /// other host is sent it. That one hangs is found out before.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &serde_json::Value) -> Result<T, AdminError> {
        self.prefer_ready();
        self.ask(false, |host, timeouts| {
            let request = self.with_login(self.agent.post(self.address(host, path))).config();
            let request = request.timeout_connect(timeouts.connect).build();
            request.content_type("application/json").send(body.to_string())
        })
    }

    fn with_login<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// Asks one host after another. One that is only slow is asked again with all the time, after the others. Unless
    /// the request may be repeated, it is sent to another host only if none before can have received it.
    fn ask<T: DeserializeOwned>(
        &self,
        may_repeat: bool,
        call: impl Fn(&str, Timeouts) -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, AdminError> {
        let (mut failures, mut slow) = (Vec::new(), Vec::new());
        let hosts = self.hosts.borrow().clone();
        let is_only = hosts.len() == 1;
        let unanswered = |host: &str, error: &ureq::Error| AdminError::Unanswered(host.to_owned(), error.to_string());
        for host in &hosts {
            match call(host, if is_only { UNLIMITED } else { self.short }) {
                Ok(response) => return self.read(host, response),
                Err(error) if !may_repeat && !is_before_sending(&error) => return Err(unanswered(host, &error)),
                Err(ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::RecvResponse)) if !is_only => {
                    slow.push(host);
                }
                Err(error) => failures.push(format!("{host}: {error}")),
            }
            self.ask_last(host);
        }
        for host in slow {
            match call(host, UNLIMITED) {
                Ok(response) => return self.read(host, response),
                Err(error) if !may_repeat && !is_before_sending(&error) => return Err(unanswered(host, &error)),
                Err(error) => failures.push(format!("{host}: {error}")),
            }
        }
        Err(AdminError::Unreachable(failures.join("; ")))
    }

    /// Puts hosts that are not ready now behind the first one that is; if none is, those that do not answer behind
    /// those that do.
    fn prefer_ready(&self) {
        let hosts = self.hosts.borrow().clone();
        if hosts.len() < 2 {
            return;
        }
        let mut ranked = Vec::with_capacity(hosts.len());
        let mut is_found = false;
        for host in hosts {
            let health = if is_found { Health::Unknown } else { self.health(&host) };
            is_found |= health == Health::Ready;
            ranked.push((health, host));
        }
        // Stable: hosts that are alike stay in their order.
        ranked.sort_by_key(|(health, _)| *health);
        *self.hosts.borrow_mut() = ranked.into_iter().map(|(_, host)| host).collect();
    }

    fn health(&self, host: &str) -> Health {
        let succeeds = |path: &str| {
            let request = self.agent.get(self.address(host, path)).config();
            let request = request.timeout_connect(self.short.connect).timeout_recv_response(self.short.first_bytes);
            request.build().call().map(|response| response.status().is_success())
        };
        match succeeds("/health/ready") {
            Ok(true) => Health::Ready,
            Ok(false) if succeeds("/health/live").is_ok_and(|is_live| is_live) => Health::NotReady,
            Ok(false) | Err(_) => Health::Silent,
        }
    }

    /// Later questions go to the other hosts first.
    fn ask_last(&self, host: &str) {
        let mut hosts = self.hosts.borrow_mut();
        if let Some(place) = hosts.iter().position(|known| known == host) {
            let silent = hosts.remove(place);
            hosts.push(silent);
        }
    }

    fn read<T: DeserializeOwned>(
        &self,
        host: &str,
        mut response: ureq::http::Response<ureq::Body>,
    ) -> Result<T, AdminError> {
        let strange = |why: String| AdminError::Strange(host.to_owned(), why);
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let body = body.map_err(|error| strange(error.to_string()))?;
        if !response.status().is_success() {
            if body.starts_with(SPEAKS_TLS) {
                return Err(AdminError::SpeaksTls(host.to_owned()));
            }
            let failure: Failure =
                serde_json::from_str(&body).map_err(|_| strange(format!("status {}", response.status())))?;
            return Err(match (failure.kind, &self.authorization) {
                (FailureKind::Unauthenticated, None) => AdminError::NoRole,
                _ => failure.into(),
            });
        }
        serde_json::from_str(&body).map_err(|error| strange(error.to_string()))
    }
}

/// Whether an error shows that the host has not received the request: it was not found, or there was no connection or
/// no TLS on it. Errors that can also come later do not show that.
fn is_before_sending(error: &ureq::Error) -> bool {
    use std::io::ErrorKind;
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Tls(_)
        | ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
        ureq::Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::AddrNotAvailable => true,
            _ => error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some_and(is_of_handshake),
        },
        ureq::Error::Rustls(error) => is_of_handshake(error),
        _ => false,
    }
}

/// A refusal of the client's certificate is none: with TLS 1.3, it arrives after the request is sent.
fn is_of_handshake(error: &rustls::Error) -> bool {
    use rustls::{Error, InvalidMessage};
    matches!(
        error,
        Error::InvalidCertificate(_)
            | Error::NoCertificatesPresented
            | Error::PeerIncompatible(_)
            | Error::InvalidMessage(InvalidMessage::InvalidContentType)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Takes connections, and never answers.
    fn silent() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        (listener, address)
    }

    /// Answers the request of a connection after `delay`.
    #[allow(clippy::disallowed_methods, reason = "a server of a test, which is slow")]
    fn answer(mut stream: TcpStream, delay: Duration) {
        let read = stream.read(&mut [0; 4_096]);
        std::thread::sleep(delay);
        let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\n7";
        let _ = read.and_then(|_| stream.write_all(answer));
        // A connection that is closed with unread bytes takes the answer with it.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }

    /// Has `serve` use a listener's connections, until the thread is joined.
    #[allow(clippy::disallowed_methods, reason = "a server of a test, which is joined")]
    fn serving(serve: impl FnOnce(TcpListener) + Send + 'static) -> (std::thread::JoinHandle<()>, String) {
        let (listener, address) = silent();
        let serve = move || serve(listener);
        (std::thread::Builder::new().name("answering".to_owned()).spawn(serve).expect("a thread"), address)
    }

    /// A client that waits for the first bytes of an answer for so long.
    fn client(hosts: &[String], first_bytes: Duration) -> Client {
        let mut client = Client::new(hosts, 7000, None, None);
        client.short.first_bytes = Some(first_bytes);
        client
    }

    #[test]
    fn a_host_that_hangs_is_left_for_the_next_one_and_asked_last() {
        let (_listener, hung) = silent();
        // Two questions, one whether it is ready, and the change.
        let (server, live) = serving(|listener| {
            (0..4).for_each(|_| answer(listener.accept().expect("a connection").0, Duration::ZERO));
        });
        let (hosts, then) = ([hung.clone(), live.clone()], [live, hung]);
        // So long that the other host, which answers at once, does so within that time on a busy machine as well.
        let first_bytes = Duration::from_secs(3);
        let (looking, changing) = (client(&hosts, first_bytes), client(&hosts, first_bytes));
        assert_eq!(looking.get::<u8>("/").expect("an answer"), 7);
        assert_eq!(looking.get::<u8>("/").expect("an answer"), 7);
        // The host that hangs would not answer a change for a minute.
        assert_eq!(changing.post::<u8>("/", &serde_json::Value::Null).expect("an answer"), 7);
        assert_eq!(*looking.hosts.borrow(), then);
        assert_eq!(*changing.hosts.borrow(), then);
        server.join().expect("it ends");
    }

    #[test]
    fn a_host_that_is_slow_is_asked_again_with_all_the_time() {
        let first_bytes = Duration::from_millis(100);
        let (closed, nobody) = silent();
        drop(closed);
        // Each of two questions is left unanswered until the client gives up, and then takes longer than it waited.
        let (server, slow) = serving(move |listener| {
            for _ in 0..2 {
                let (mut hurried, _) = listener.accept().expect("a question");
                let _ = std::io::copy(&mut hurried, &mut std::io::sink());
                answer(listener.accept().expect("the same question").0, 3 * first_bytes);
            }
        });
        assert_eq!(client(&[slow.clone(), nobody.clone()], first_bytes).get::<u8>("/").expect("an answer"), 7);
        assert_eq!(client(&[nobody, slow], first_bytes).get::<u8>("/").expect("an answer"), 7);
        server.join().expect("it ends");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a server of a test, which is joined")]
    fn a_change_is_not_sent_to_a_second_host_after_the_first_may_have_received_it() {
        let (listener, first) = silent();
        let serve = move || {
            let (mut stream, _) = listener.accept().expect("the question whether it is ready");
            assert!(stream.read(&mut [0; 4_096]).expect("a request") > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").expect("an answer");
            drop(stream);
            let (mut stream, _) = listener.accept().expect("the change");
            assert!(stream.read(&mut [0; 4_096]).expect("a request") > 0);
        };
        let server = std::thread::Builder::new().name("first".to_owned()).spawn(serve).expect("a thread");
        let (other, second) = silent();
        let changed =
            client(&[first.clone(), second], Duration::from_secs(3)).post::<u8>("/", &serde_json::Value::Null);
        assert!(matches!(&changed, Err(AdminError::Unanswered(host, _)) if *host == first), "{changed:?}");
        server.join().expect("it ends");
        other.set_nonblocking(true).expect("it can be asked");
        assert!(other.accept().is_err(), "the second host was asked");
    }

    #[test]
    fn a_change_goes_to_the_next_host_if_there_is_no_connection_to_the_first() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(is_before_sending(&ureq::Error::Io(refused)));
        assert!(is_before_sending(&ureq::Error::Timeout(ureq::Timeout::Connect)));
        let handshake = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(is_before_sending(&ureq::Error::Io(std::io::Error::other(handshake))));
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(!is_before_sending(&ureq::Error::Io(reset)));
        assert!(!is_before_sending(&ureq::Error::Timeout(ureq::Timeout::Global)));
    }
}
