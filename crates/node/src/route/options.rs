//! Options of routing, and the interface to the catalog.

use diorite_base::account::Account;
use diorite_cluster::catalog::Catalog;
use diorite_control::routing::{Limits, Timeouts};
use std::sync::Arc;
use std::time::Duration;

/// Limits of the requests that wait for one other node, or that are carried out for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteLimits {
    /// The number of requests.
    pub(crate) requests: usize,
    /// The bytes of the requests.
    pub(crate) bytes: usize,
    /// A frame is sent once it holds this many bytes, without waiting for
    /// [`Router::send_gathered`](super::Router::send_gathered).
    pub(crate) frame_bytes: usize,
}

impl RouteLimits {
    /// The limits that [`diorite_control::routing`] enforces.
    pub(super) fn of_requests(self) -> Limits {
        Limits { requests: self.requests, bytes: self.bytes }
    }
}

/// Options of routing.
#[derive(Debug, Clone)]
pub(crate) struct RouteOptions {
    /// How long requests wait.
    pub(crate) timeouts: Timeouts,
    /// The timeout of a client's request, where that is shorter than the timeout of a write.
    pub(crate) short_timeout: Option<Duration>,
    /// How often waiting requests are checked: whether their time is over, or a leader is known.
    pub(crate) tick: Duration,
    /// The limits for each other node.
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

/// The source of the newest catalog that this node serves.
pub(crate) trait CatalogSource: Send + Sync + 'static {
    /// The catalog.
    fn catalog(&self) -> Arc<Catalog>;
}
