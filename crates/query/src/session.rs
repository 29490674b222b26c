//! What the server remembers about one connection: its current keyspace and the catalog it last saw.
//!
//! Always true: requests of one connection run concurrently, so everything here may be read and set from any thread. Left out: the
//! protocol version (it comes with every request), authentication (the node's).

use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// One connection's state.
#[derive(Debug, Default)]
pub struct Session {
    keyspace: ArcSwapOption<String>,
}

impl Session {
    /// A new connection: no keyspace chosen.
    pub fn new() -> Arc<Session> {
        Arc::new(Session::default())
    }

    /// The keyspace that unqualified names belong to.
    pub fn keyspace(&self) -> Option<Arc<String>> {
        self.keyspace.load_full()
    }

    /// `USE keyspace`; the caller has checked that it exists.
    pub fn set_keyspace(&self, name: &str) {
        self.keyspace.store(Some(Arc::new(name.to_owned())));
    }
}
