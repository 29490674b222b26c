//! A running node: configuration, wiring, the CQL listener and its connections, the catalog's follower, metrics.
//!
//! Always true: every queue is bounded (connections, requests per connection, bytes buffered per connection, queued
//! writes); a connection is one task that answers all complete requests it has read with one write. Left out: the
//! meaning of statements (`query`), and how writes become durable (`replica`).

mod address;
mod answer;
mod aside;
mod audit;
mod awaited;
mod background;
mod buffers;
mod catalog;
mod config;
mod connection;
mod directories;
mod disk_reads;
mod entrance;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod guard;
mod http;
mod http_login;
mod http_sessions;
mod inbox;
mod join_token;
mod kept;
mod kv;
mod life_key;
mod listener;
mod logging;
mod login;
mod machine;
mod malformed;
mod membership;
mod metrics;
mod node_tls;
mod observe;
mod operate;
mod passwords;
mod pause;
mod peers;
mod program;
mod reload;
mod requests;
mod route;
mod semantics;
mod server;
mod shared;
mod signals;
mod socket;
mod table_options;
mod timing;
mod tls;
mod turns;

pub use config::{DurabilityOption, NodeAddress, SamePort, Size, SlowQueryOption, StartOptions};
pub use error::{StartError, TlsError, TokenError};
pub use guard::{GuardError, guard};
pub use http::configuration;
pub use observe::Allocator;
pub use program::{ConfigurationFile, Program};
pub use server::run;
