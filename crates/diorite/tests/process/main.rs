//! A real `diorite start` process, as an operator and as a hostile client meet it: killed under load, started where it must not start,
//! out of disk, and fed with what is not CQL.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a test drives another process and waits for it")]

mod audit;
mod certs;
mod cidr_groups;
#[path = "../common/client.rs"]
#[allow(dead_code, reason = "shared; each test binary uses a part")]
mod client;
mod config;
mod damage;
mod disk;
mod disk_moves;
#[path = "../common/disks.rs"]
#[allow(dead_code, reason = "shared; each test binary uses a part")]
mod disks;
mod failing_disk;
mod files;
mod filled_disk;
mod guard;
mod hostile;
mod http;
mod join_tokens;
mod joining;
mod kill;
mod logins;
mod meddler;
mod memory;
mod metrics;
mod one_moment;
mod refusals;
#[path = "../common/server.rs"]
#[allow(dead_code, reason = "shared; each test binary uses a part")]
mod server;
mod signals;
mod status;
mod tls;
