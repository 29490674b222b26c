//! Certificates of a cluster: an authority of its own, certificates for nodes, and certificates for clients that name a role.
//!
//! [`Directory`] keeps them in files, `issue` makes them, `describe` reads them, and [`node`] is what a node does with
//! them: mutual TLS 1.3 with other nodes. [`command`] is `diorite certs`.
//!
//! Always true: a certificate is one of three kinds, and its kind is written in it ([`Usage`]), so that a client's
//! certificate is no node's; private keys are in files that only their owner reads and changes; nothing is overwritten
//! unless that was asked for; a key never leaves the function that makes it except into its file.
//!
//! Left out: revocation lists. A certificate is valid until it expires, or until its authority is removed.

pub mod command;
mod describe;
mod directory;
mod error;
mod files;
mod issue;
mod names;
pub mod node;

pub use describe::Description;
pub use directory::{Directory, Shown};
pub use error::CertsError;
pub use issue::Lifetime;
pub use names::{Name, Subject, Usage};
