//! `diorite certs`: makes, renews and shows certificates.
//!
//! Left out: copying files to machines, and telling nodes to read them.

use crate::directory::{Directory, Shown};
use crate::error::CertsError;
use crate::issue::Lifetime;
use crate::names::{Name, Subject};
use clap::{Args, Subcommand};
use diorite_base::text::{or_dash, table};
use diorite_base::{Clock, SystemClock};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// `diorite certs`
#[derive(Args, Clone, Debug)]
pub struct CertsArguments {
    #[command(subcommand)]
    command: CertsCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum CertsCommand {
    /// Make the authority of a cluster.
    Init {
        #[command(flatten)]
        place: Place,
        /// Days until it expires.
        #[arg(long, value_name = "N", default_value_t = 3_650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
        /// Replace an authority that is there: nodes and clients then need new certificates.
        #[arg(long)]
        overwrite: bool,
    },
    /// Make the certificate of a node; the directory that it prints is for `diorite start --certs`.
    Node {
        /// The addresses at which other nodes reach it, and host names of it; the first one names its directory.
        #[arg(required = true, value_name = "ADDRESS")]
        names: Vec<Name>,
        #[command(flatten)]
        new: New,
    },
    /// Make the certificate of a client.
    Client {
        /// Its CQL role.
        #[arg(value_name = "ROLE")]
        role: String,
        #[command(flatten)]
        new: New,
    },
    /// Make new certificates, with new keys, for the same names and roles; of all nodes and clients if none is named.
    Renew {
        /// Nodes and clients, by the names of their directories: 10.0.0.5 or nodes/10.0.0.5.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        place: Place,
        /// Only those that expire within so many days.
        #[arg(long, value_name = "N")]
        within: Option<u32>,
        /// Days until the new ones expire.
        #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Replace the authority in steps, while all nodes run.
    Authority {
        #[command(subcommand)]
        command: AuthorityCommand,
    },
    /// Show all certificates: subject, names, role, and when they expire.
    Show {
        #[command(flatten)]
        place: Place,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand, Clone, Debug)]
enum AuthorityCommand {
    /// Add a new authority, which signs from now on; the former one stays trusted.
    Add {
        #[command(flatten)]
        place: Place,
        /// Days until it expires.
        #[arg(long, value_name = "N", default_value_t = 3_650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Trust only the authority that signs; refused while a certificate in the directory needs a former one.
    Remove {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args, Clone, Debug)]
struct Place {
    /// The directory of the cluster's certificates; for `show`, also the directory of one node or client.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Args, Clone, Debug)]
struct New {
    #[command(flatten)]
    place: Place,
    /// Days until it expires.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Replace a certificate that is there.
    #[arg(long)]
    overwrite: bool,
}

/// Carries the command out.
///
/// # Errors
/// In one line, which names the file.
pub fn run(arguments: CertsArguments) -> Result<(), CertsError> {
    let now_s = now_s();
    let lifetime = |days| Lifetime { now_s, days };
    match arguments.command {
        CertsCommand::Init { place, days, overwrite } => {
            print_path(&Directory::new(&place.dir).init(lifetime(days), overwrite)?)
        }
        CertsCommand::Node { names, new } => issue(&Subject::node(names)?, &new, now_s),
        CertsCommand::Client { role, new } => issue(&Subject::client(&role)?, &new, now_s),
        CertsCommand::Renew { names, place, within, days } => {
            let renewed = Directory::new(&place.dir).renew(&names, within, lifetime(days))?;
            if renewed.is_empty() {
                print("no certificate has to be renewed\n")?;
            }
            renewed.iter().try_for_each(|path| print_path(path))
        }
        CertsCommand::Authority { command: AuthorityCommand::Add { place, days } } => {
            print_path(&Directory::new(&place.dir).add_authority(lifetime(days))?)
        }
        CertsCommand::Authority { command: AuthorityCommand::Remove { place } } => {
            let removed = Directory::new(&place.dir).remove_authorities()?;
            print(&format!("{removed} former authorities removed\n"))
        }
        CertsCommand::Show { place, json } => {
            let shown = Directory::new(&place.dir).show(now_s)?;
            print(&if json { shown_json(&shown) } else { shown_table(&place.dir, &shown) })
        }
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> i64 {
    SystemClock::new().wall_us() / 1_000_000
}

fn issue(subject: &Subject, new: &New, now_s: i64) -> Result<(), CertsError> {
    let directory = Directory::new(&new.place.dir);
    print_path(&directory.issue(subject, Lifetime { now_s, days: new.days }, new.overwrite)?)
}

fn shown_json(shown: &[Shown]) -> String {
    format!("{:#}\n", serde_json::json!(shown))
}

fn shown_table(directory: &Path, shown: &[Shown]) -> String {
    let names = ["file", "kind", "subject", "names", "role", "expires", "days left"];
    let rows = shown.iter().map(|Shown { file, certificate, days_left }| {
        [
            file.strip_prefix(directory).unwrap_or(file).display().to_string(),
            certificate.usage.name().to_owned(),
            certificate.subject.clone(),
            or_dash(Some(certificate.names.join(", ")).filter(|names| !names.is_empty()), |names| names),
            or_dash(certificate.usage.role(), str::to_owned),
            date(certificate.expires_s),
            days_left.to_string(),
        ]
    });
    table(names, rows)
}

/// The day in UTC.
fn date(seconds: i64) -> String {
    time::OffsetDateTime::from_unix_timestamp(seconds).map_or_else(|_| seconds.to_string(), |at| at.date().to_string())
}

fn print_path(path: &Path) -> Result<(), CertsError> {
    print(&format!("{}\n", path.display()))
}

fn print(text: &str) -> Result<(), CertsError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CertsError::file(Path::new("standard output"), error))
        }
        _ => Ok(()),
    }
}
