//! Options of routing, and the interface to the catalog.

use diorite_base::account::Account;
use diorite_cluster::catalog::Catalog;
use diorite_control::routing::{Limits, Timeouts};
use std::sync::Arc;
use std::time::Duration;

/// Bounds on the requests that wait for, or are served for, one other node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteLimits {
    /// Requests.
    pub(crate) requests: usize,
    /// Bytes of requests.
    pub(crate) bytes: usize,
    /// A frame leaves once it holds this many bytes, without waiting for [`Router::send_gathered`](super::Router::send_gathered).
    pub(crate) frame_bytes: usize,
}

impl RouteLimits {
    /// The bounds that [`diorite_control::routing`] enforces.
    pub(super) fn of_requests(self) -> Limits {
        Limits { requests: self.requests, bytes: self.bytes }
    }
}

/// Options of routing.
#[derive(Debug, Clone)]
pub(crate) struct RouteOptions {
    /// How long requests wait.
    pub(crate) timeouts: Timeouts,
    /// How long a request of a client may take, where that is less than a write waits.
    pub(crate) short_timeout: Option<Duration>,
    /// How often requests that wait are looked at: whether their time is over, or a leader is known.
    pub(crate) tick: Duration,
    /// For each other node.
    pub(crate) limits: RouteLimits,
    /// The account for requests of other nodes and of clients together.
    pub(crate) account: Arc<Account>,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self {
            timeouts: Timeouts {
                // As Cassandra's read_request_timeout and write_request_timeout.
                read: Duration::from_secs(5),
                write: Duration::from_secs(2),
                missing: Duration::from_secs(1),
            },
            short_timeout: None,
            tick: Duration::from_millis(25),
            limits: RouteLimits { requests: 32 << 10, bytes: 64 << 20, frame_bytes: 128 << 10 },
            account: Account::root("all requests", 256 << 20),
        }
    }
}

/// Where the newest catalog that this node serves is found.
pub(crate) trait CatalogSource: Send + Sync + 'static {
    /// The catalog.
    fn catalog(&self) -> Arc<Catalog>;
}
