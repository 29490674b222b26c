//! TLS with other nodes: whether there is any, the certificate in force, and its replacement while the node runs.
//!
//! Always true: without certificates a node serves other nodes on loopback only, unless `--insecure` was given, and says
//! so; a new certificate is taken only if the node could have been started with it, until then the former one stays in
//! force. Files that change while the node starts, and files that are refused now and would not be later, are taken, too.
//! Connections that are open stay as they are. Left out: TLS for clients (`tls`), and what a certificate must be
//! (`diorite_certs`).

use crate::address::resolve;
use crate::config::StartOptions;
use crate::error::StartError;
use crate::signals::Hangups;
use arc_swap::ArcSwap;
use diorite_base::{Clock, SystemClock};
use diorite_certs::CertsError;
use diorite_certs::node::{NodeCredentials, files_of};
use diorite_rpc::tcp::Credentials;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A certificate that expires within so many days is reported.
pub(crate) const EXPIRY_WARNING_DAYS: i64 = 30;
const DAY_S: i64 = 24 * 60 * 60;

/// How a node's traffic with other nodes is protected, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protection {
    /// By TLS with certificates.
    Encrypted,
    /// By nothing, and all addresses are loopback.
    OpenOnLoopback,
    /// By nothing, as `--insecure` says.
    Insecure,
}

impl Protection {
    /// For the status of a cluster.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::OpenOnLoopback => "open, on loopback",
            Self::Insecure => "open, --insecure",
        }
    }
}

/// A node's traffic with other nodes.
#[derive(Clone, Debug)]
pub(crate) enum Traffic {
    /// Encrypted, both sides show certificates.
    Encrypted(Arc<Certificates>),
    /// Neither.
    Open {
        /// As `--insecure` says; if not, all addresses are loopback.
        is_insecure: bool,
    },
}

/// The directory of `--certs`, and what was read of it last.
#[derive(Debug)]
pub(crate) struct Certificates {
    directory: PathBuf,
    /// Where other nodes reach this one.
    address: IpAddr,
    credentials: Credentials,
    looked: Mutex<Looked>,
}

/// The modification time and length of each file.
type Seen = Vec<(Option<SystemTime>, u64)>;

/// How the files were found when they were looked at last, before they were read.
#[derive(Debug)]
struct Looked {
    seen: Seen,
    /// Whether they were refused then.
    is_refused: bool,
}

impl Traffic {
    /// As the options say; refuses open traffic beyond loopback that was not asked for.
    pub(crate) async fn decide(options: &StartOptions) -> Result<Self, StartError> {
        let advertised = match &options.advertise_node_address {
            None => options.listen,
            Some(address) => resolve(address).await.map_or(options.listen, |address| address.ip()),
        };
        let Some(directory) = &options.certs else {
            let addresses = [options.listen, advertised].map(|address| address.to_canonical());
            if let Some(address) = addresses.into_iter().find(|address| !address.is_loopback() && !options.insecure) {
                let node = if advertised.is_unspecified() { "ADDRESS".to_owned() } else { advertised.to_string() };
                return Err(StartError::Open { address, node });
            }
            let traffic = Self::Open { is_insecure: options.insecure };
            if !options.insecure {
                tracing::info!(event = "security", "traffic between nodes is open: all addresses are loopback");
                return Ok(traffic);
            }
            tracing::warn!(
                event = "security",
                "--insecure: traffic between nodes is open, whoever reaches the port for nodes can read and change everything"
            );
            return Ok(traffic);
        };
        if options.insecure {
            return Err(StartError::SecureAndInsecure);
        }
        let unreadable = |error| StartError::Certificates(CertsError::File { path: directory.clone(), source: error });
        let directory = std::path::absolute(directory).map_err(unreadable)?;
        let looked = Mutex::new(Looked { seen: seen(&directory), is_refused: false });
        let credentials = read(&directory, advertised, now_s()).map_err(StartError::Certificates)?;
        let credentials = Arc::new(ArcSwap::from_pointee(credentials));
        let certificates = Certificates { directory, address: advertised, credentials, looked };
        certificates.report("traffic between nodes is encrypted");
        Ok(Self::Encrypted(Arc::new(certificates)))
    }

    /// What nodes show each other and whom they trust; `None` if traffic is open.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        self.certificates().map(|certificates| Arc::clone(&certificates.credentials))
    }

    /// Where the certificates are.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.certificates().map(|certificates| certificates.directory.as_path())
    }

    /// For the status of a cluster.
    pub(crate) fn protection(&self) -> Protection {
        match self {
            Self::Encrypted(_) => Protection::Encrypted,
            Self::Open { is_insecure: false } => Protection::OpenOnLoopback,
            Self::Open { is_insecure: true } => Protection::Insecure,
        }
    }

    /// Until the node's certificate expires.
    pub(crate) fn days_left(&self) -> Option<i64> {
        self.certificates().map(|certificates| certificates.days_left())
    }

    /// Takes new certificates, as soon as they are there or SIGHUP arrives, until `stop`; `taken` is called after each.
    pub(crate) async fn follow(self, hangups: Hangups, taken: impl Fn(), stop: watch::Receiver<bool>) {
        if let Self::Encrypted(certificates) = self {
            certificates.follow(hangups, taken, stop).await;
        }
    }

    fn certificates(&self) -> Option<&Arc<Certificates>> {
        match self {
            Self::Encrypted(certificates) => Some(certificates),
            Self::Open { .. } => None,
        }
    }
}

impl Certificates {
    async fn follow(&self, mut hangups: Hangups, taken: impl Fn(), mut stop: watch::Receiver<bool>) {
        loop {
            #[allow(clippy::disallowed_methods, reason = "a shell's timer: files say nothing by themselves")]
            let pause = tokio::time::sleep(LOOK_EVERY);
            let is_asked = tokio::select! {
                () = pause => false,
                Some(()) = hangups.arrived() => true,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            if self.look(is_asked, now_s()) {
                taken();
            }
        }
    }

    /// Looks at the files, and reads them if they have changed or `is_asked`. Those that were refused are read each time:
    /// perhaps one could not be read, or a certificate was not valid yet. Returns whether what was read is in force now.
    fn look(&self, is_asked: bool, now_s: i64) -> bool {
        let mut looked = self.looked.lock();
        let found = seen(&self.directory);
        let is_new = is_asked || found != looked.seen;
        if !is_new && !looked.is_refused {
            return false;
        }
        looked.seen = found;
        let read = read(&self.directory, self.address, now_s);
        let was_refused = std::mem::replace(&mut looked.is_refused, read.is_err());
        match read {
            Ok(credentials) => {
                self.credentials.store(Arc::new(credentials));
                self.report("the certificates for other nodes were read again; new connections use them");
                true
            }
            Err(error) => {
                // Once for the same files.
                if is_new || !was_refused {
                    tracing::error!(event = "security", %error, "the certificates for other nodes are refused: the former ones stay in force");
                }
                false
            }
        }
    }

    fn report(&self, what: &str) {
        let days_left = self.days_left();
        if days_left < EXPIRY_WARNING_DAYS {
            tracing::warn!(event = "security", days_left, "{what}; the certificate expires soon");
        } else {
            tracing::info!(event = "security", days_left, "{what}");
        }
    }

    fn days_left(&self) -> i64 {
        self.credentials.load().description().expires_s.saturating_sub(now_s()).div_euclid(DAY_S)
    }
}

fn seen(directory: &Path) -> Seen {
    let look = |path: PathBuf| {
        let metadata = std::fs::metadata(path).ok();
        (metadata.as_ref().and_then(|found| found.modified().ok()), metadata.map_or(0, |found| found.len()))
    };
    files_of(directory).into_iter().map(look).collect()
}

/// What a node at `address` can be started with.
fn read(directory: &Path, address: IpAddr, now_s: i64) -> Result<NodeCredentials, CertsError> {
    let credentials = NodeCredentials::read(directory, now_s)?;
    // A node that listens on all addresses and names none is dialled by nobody.
    if !address.is_unspecified() {
        credentials.check_address(address)?;
    }
    Ok(credentials)
}

fn now_s() -> i64 {
    SystemClock::new().wall_us() / 1_000_000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use clap::{Args, Command, FromArgMatches};
    use diorite_certs::{Directory, Lifetime, Subject};

    fn options(arguments: &[&str]) -> StartOptions {
        let command = StartOptions::augment_args(Command::new("start"));
        let arguments = ["start", "--data-dir", "/a"].into_iter().chain(arguments.iter().copied());
        StartOptions::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    async fn decided(arguments: &[&str]) -> Result<Protection, String> {
        let traffic = Traffic::decide(&options(arguments)).await;
        traffic.map(|traffic| traffic.protection()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn open_traffic_is_for_loopback_or_has_to_be_asked_for() {
        assert_eq!(decided(&[]).await, Ok(Protection::OpenOnLoopback));
        assert_eq!(decided(&["--listen", "127.0.0.7"]).await, Ok(Protection::OpenOnLoopback));
        assert_eq!(decided(&["--listen", "::1"]).await, Ok(Protection::OpenOnLoopback));
        for beyond in
            [&["--listen", "10.0.0.5"][..], &["--listen", "0.0.0.0"], &["--advertise-node-address", "10.0.0.5:7100"]]
        {
            let said = decided(beyond).await.unwrap_err();
            assert!(
                said.contains("diorite certs node") && said.contains("--insecure") && !said.contains('\n'),
                "{said}"
            );
            let insecure = [beyond, &["--insecure"]].concat();
            assert_eq!(decided(&insecure).await, Ok(Protection::Insecure));
        }
    }

    #[tokio::test]
    async fn certificates_are_taken_if_the_node_could_start_with_them() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::new(&home.path().join("certs"));
        let lifetime = Lifetime { now_s: now_s(), days: 365 };
        directory.init(lifetime, false).unwrap();
        let subject = |address: &str| Subject::node(vec![address.parse().unwrap()]).unwrap();
        let node = directory.issue(&subject("10.0.0.5"), lifetime, false).unwrap();
        let path = node.to_str().unwrap();
        assert_eq!(decided(&["--listen", "10.0.0.5", "--certs", path]).await, Ok(Protection::Encrypted));
        let said = decided(&["--listen", "10.0.0.6", "--certs", path]).await.unwrap_err();
        assert!(said.contains("node.pem: it does not cover 10.0.0.6"), "{said}");
        assert!(decided(&["--listen", "10.0.0.5", "--certs", path, "--insecure"]).await.is_err());
        assert!(decided(&["--certs", "/nowhere"]).await.unwrap_err().contains("/nowhere/node.pem"));
        let Traffic::Encrypted(certificates) =
            Traffic::decide(&options(&["--listen", "10.0.0.5", "--certs", path])).await.unwrap()
        else {
            panic!("it has certificates")
        };
        let serial = || certificates.credentials.load().description().serial.clone();
        let first = serial();
        let look = |is_asked| certificates.look(is_asked, now_s());
        assert!(!look(false) && look(true), "nothing is new");
        // As by whoever replaces files while the node starts.
        let pem = node.join("node.pem");
        let longer = std::fs::read_to_string(&pem).unwrap() + "\n";
        std::fs::write(&pem, longer).unwrap();
        assert!(look(false) && !look(false), "what has changed since it was read is read, once");
        std::fs::write(&pem, "half of it").unwrap();
        assert!(!look(false));
        assert_eq!(serial(), first);
        directory.issue(&subject("10.0.0.5"), lifetime, true).unwrap();
        assert!(look(false));
        let second = serial();
        assert_ne!(second, first);
        // Not valid for ten days.
        let later = Lifetime { now_s: now_s() + 10 * DAY_S, days: 90 };
        directory.issue(&subject("10.0.0.5"), later, true).unwrap();
        assert!(!look(true) && !look(false));
        assert_eq!(serial(), second);
        assert!(certificates.look(false, later.now_s + 1), "the same files are valid now");
        assert_ne!(serial(), second);
    }
}
