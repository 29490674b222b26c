//! Whether clients have to log in, and which connections may stay when that changes.
//!
//! Always true: the catalog that this node serves decides ([`diorite_control::access`]), not the node's own option. A connection is entered into the
//! list under the same lock under which the list is looked through after a change, so that none that was let in by the old decision is missed. A
//! request neither takes the lock nor looks at anything here. Left out: passwords ([`crate::login`]), permissions (`diorite_query::auth`).

use crate::route::CatalogSource;
use ahash::AHashMap;
use diorite_cluster::catalog::Catalog;
use diorite_control::access::{self, Setting};
use diorite_query::Session;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A connection of a client.
struct Entered {
    session: Arc<Session>,
    client: SocketAddr,
    /// Its task, once that runs.
    task: Option<AbortHandle>,
    /// It was to end before its task ran.
    has_ended: bool,
}

impl Entered {
    fn end(&mut self) {
        self.has_ended = true;
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[derive(Default)]
struct List {
    next_id: u64,
    entered: AHashMap<u64, Entered>,
}

/// See the top of this module.
pub(crate) struct Entrance {
    catalog: Arc<dyn CatalogSource>,
    setting: Setting,
    list: Mutex<List>,
    /// Connections that were ended because they might not stay.
    ended: AtomicU64,
}

/// The place of a connection in the list, until it is dropped.
pub(crate) struct Place {
    entrance: Arc<Entrance>,
    id: u64,
    session: Arc<Session>,
}

impl Place {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.entrance.list.lock().entered.remove(&self.id);
    }
}

impl Entrance {
    /// For a node that was started with this setting and listens to this address.
    pub(crate) fn open(catalog: Arc<dyn CatalogSource>, setting: Setting, listen: IpAddr) -> Arc<Self> {
        log_decision(catalog.catalog().requires_login(), setting, listen);
        Arc::new(Self { catalog, setting, list: Mutex::default(), ended: AtomicU64::new(0) })
    }

    /// Whether clients have to log in.
    pub(crate) fn requires_login(&self) -> bool {
        self.is_required_by(&self.catalog.catalog())
    }

    fn is_required_by(&self, catalog: &Catalog) -> bool {
        access::requires_login(catalog, self.setting)
    }

    /// Whether this node makes the first role, if there is none. It does not if it asks for logins only because it does not know better.
    pub(crate) fn may_need_first_role(&self) -> bool {
        self.catalog.catalog().requires_login().unwrap_or(self.setting.requires_login)
    }

    /// How many connections were ended because they might not stay.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Enters a new connection.
    pub(crate) fn admit(self: &Arc<Self>, client: SocketAddr) -> Place {
        let mut list = self.list.lock();
        let session = if self.requires_login() { Session::guarded() } else { Session::new() };
        let id = list.next_id;
        list.next_id += 1;
        let entered = Entered { session: Arc::clone(&session), client, task: None, has_ended: false };
        list.entered.insert(id, entered);
        Place { entrance: Arc::clone(self), id, session }
    }

    /// The task of a connection runs.
    pub(crate) fn attach(&self, id: u64, task: AbortHandle) {
        match self.list.lock().entered.get_mut(&id) {
            Some(entered) if !entered.has_ended => entered.task = Some(task),
            Some(_) => task.abort(),
            // It has ended by itself.
            None => {}
        }
    }

    /// Ends the connections that may not stay, as often as the catalog changes; as long as the node runs.
    pub(crate) async fn follow(self: Arc<Self>, mut versions: watch::Receiver<u64>) {
        loop {
            let ended = self.look_through();
            if ended > 0 {
                self.ended.fetch_add(ended, Ordering::Relaxed);
                tracing::info!(event = "login", ended, "connections that may not stay were ended");
            }
            if versions.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends the connections that may not stay; returns how many.
    fn look_through(&self) -> u64 {
        let catalog = self.catalog.catalog();
        let is_required = self.is_required_by(&catalog);
        let mut ended = 0;
        for entered in self.list.lock().entered.values_mut().filter(|entered| !entered.has_ended) {
            if entered.session.is_open() == is_required {
                tracing::debug!(client = %entered.client, "a connection may not stay");
                entered.end();
                ended += 1;
            }
        }
        ended
    }
}

/// Says in one line where the decision of the cluster and the option of this node differ, and where nobody has to log in.
fn log_decision(decided: Option<bool>, setting: Setting, listen: IpAddr) {
    match (decided, setting.requires_login) {
        (Some(true), true) => {}
        (Some(true), false) => {
            tracing::info!(event = "login", "clients have to log in: the cluster requires it, with or without --auth");
        }
        (Some(false), true) => tracing::warn!(
            event = "login",
            "--auth has no effect: the cluster does not require logins; diorite admin auth on changes that"
        ),
        (None, _) => tracing::warn!(
            event = "login",
            "the catalog does not say yet whether clients have to log in: it will once all members have reported their --auth"
        ),
        (Some(false), false) if !listen.to_canonical().is_loopback() => tracing::warn!(
            event = "login",
            %listen,
            "nobody has to log in: whoever reaches the port may read and change everything"
        ),
        (Some(false), false) => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use diorite_cluster::catalog::Command;
    use std::time::Duration;
    use tokio::time::timeout;
    use uuid::Uuid;

    const OPEN: Setting = Setting { requires_login: false, was_current: true };

    /// A catalog that changes.
    struct Changing(Mutex<Arc<Catalog>>);

    impl CatalogSource for Changing {
        fn catalog(&self) -> Arc<Catalog> {
            Arc::clone(&self.0.lock())
        }
    }

    impl Changing {
        fn new(requires_login: Option<bool>) -> Arc<Self> {
            let (cluster_id, name) = (Uuid::from_u128(1), "c".to_owned());
            let command = Command::Bootstrap { cluster_id, name, replication_factor: 1, requires_login };
            Arc::new(Self(Mutex::new(Arc::new(Catalog::default().apply(&command).0))))
        }

        /// As the leader of the catalog does in a catalog of an earlier version (`true`), and as an operator does later (`false`).
        fn decide(&self, required: bool) {
            let mut catalog = self.0.lock();
            *catalog = Arc::new(catalog.apply(&Command::RequireLogin { required, if_undecided: required }).0);
        }
    }

    fn entrance(catalog: &Arc<Changing>, setting: Setting) -> Arc<Entrance> {
        Entrance::open(Arc::clone(catalog) as Arc<dyn CatalogSource>, setting, [127, 0, 0, 1].into())
    }

    fn client() -> SocketAddr {
        "10.0.0.9:5".parse().unwrap()
    }

    /// A connection that waits for its client, as a task.
    fn connect(entrance: &Arc<Entrance>) -> (Arc<Session>, tokio::task::JoinHandle<()>) {
        let place = entrance.admit(client());
        let (id, session) = (place.id(), Arc::clone(place.session()));
        let task = tokio::spawn(async move {
            let _place = place;
            std::future::pending::<()>().await;
        });
        entrance.attach(id, task.abort_handle());
        (session, task)
    }

    #[tokio::test]
    async fn the_cluster_decides_and_not_the_node() {
        for (decided, setting, is_open) in
            [(Some(false), true, true), (Some(true), false, false), (None, false, true), (None, true, false)]
        {
            let entrance = entrance(&Changing::new(decided), Setting { requires_login: setting, ..OPEN });
            assert_eq!(entrance.requires_login(), !is_open, "{decided:?} {setting}");
            assert_eq!(connect(&entrance).0.is_open(), is_open, "{decided:?} {setting}");
        }
        let unsure = entrance(&Changing::new(None), Setting { was_current: false, ..OPEN });
        assert!(unsure.requires_login() && !unsure.may_need_first_role());
    }

    #[tokio::test]
    async fn connections_end_that_were_opened_before_logins_were_required() {
        let catalog = Changing::new(None);
        let entrance = entrance(&catalog, OPEN);
        let (wake, versions) = watch::channel(1);
        tokio::spawn(Arc::clone(&entrance).follow(versions));
        let (session, task) = connect(&entrance);
        assert!(session.is_open());
        catalog.decide(true);
        wake.send_replace(2);
        assert!(timeout(Duration::from_secs(1), task).await.unwrap().unwrap_err().is_cancelled());
        assert_eq!(entrance.ended(), 1);
        let (session, task) = connect(&entrance);
        assert!(!session.is_open(), "it has to log in");
        catalog.decide(false);
        wake.send_replace(3);
        assert!(timeout(Duration::from_secs(1), task).await.unwrap().unwrap_err().is_cancelled());
        assert!(connect(&entrance).0.is_open());
    }

    #[tokio::test]
    async fn a_connection_that_is_to_end_before_its_task_runs_ends() {
        let catalog = Changing::new(None);
        let entrance = entrance(&catalog, OPEN);
        let place = entrance.admit(client());
        catalog.decide(true);
        assert_eq!(entrance.look_through(), 1);
        assert_eq!(entrance.look_through(), 0, "once");
        let task = tokio::spawn(std::future::pending::<()>());
        entrance.attach(place.id(), task.abort_handle());
        assert!(task.await.unwrap_err().is_cancelled());
        drop(place);
        assert!(entrance.list.lock().entered.is_empty());
    }
}
