//! Whether clients have to log in, which roles may connect, and which connections may stay when either changes.
//!
//! Always true: the catalog that this node serves decides ([`diorite_control::access`]), not the node's own option. A connection is entered into the
//! list, and gets its role, under the same lock under which the list is looked through after a change, so that none that was let in by an older
//! catalog is missed. A request neither takes the lock nor looks at anything here: a connection that may not stay is ended from outside. As in
//! Cassandra, a new password does not end the connections that were made with the old one. Left out: passwords ([`crate::passwords`]), permissions, which each
//! statement is checked for (`diorite_query::auth`).

use crate::route::CatalogSource;
use ahash::AHashMap;
use diorite_cluster::catalog::{Catalog, Role};
use diorite_control::access::{self, Setting};
use diorite_query::Session;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Where this node is.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// The address that it listens to.
    pub(crate) address: IpAddr,
    /// Its data centre.
    pub(crate) data_center: String,
}

impl Here {
    /// Whether a client is on the node's machine.
    fn has(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        client.is_loopback() || client == self.address.to_canonical()
    }
}

/// Why a role may not connect.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum NoEntry {
    /// It was dropped, or has another password, since its password was checked.
    #[error("the role has changed")]
    Changed,
    /// A certificate names it.
    #[error("there is no role {0}, which the client's certificate names")]
    NoRole(String),
    /// `LOGIN = false`
    #[error("{0} is not permitted to log in")]
    NoLogin(String),
    /// `ACCESS TO DATACENTERS`
    #[error("You do not have access to this datacenter ({0})")]
    DataCenter(String),
    /// `ACCESS FROM CIDRS`
    #[error("You do not have access from this IP {0}")]
    Address(IpAddr),
    /// Everybody knows its password.
    #[error(
        "{0} has the password that every new cluster has, and is accepted on the node's own machine only until it is changed"
    )]
    InitialPassword(String),
}

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
    here: Here,
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
    /// For a node that was started with this setting.
    pub(crate) fn open(catalog: Arc<dyn CatalogSource>, setting: Setting, here: Here) -> Arc<Self> {
        log_decision(catalog.catalog().requires_login(), setting, here.address);
        Arc::new(Self { catalog, setting, here, list: Mutex::default(), ended: AtomicU64::new(0) })
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

    /// Whether a role of a catalog may connect from there. Superusers are no exception: what was set for them was set
    /// on purpose.
    pub(crate) fn may_enter(
        &self,
        catalog: &Catalog,
        role: &Role,
        client: IpAddr,
        is_here: bool,
    ) -> Result<(), NoEntry> {
        let client = client.to_canonical();
        if !role.can_login {
            return Err(NoEntry::NoLogin(role.name.clone()));
        }
        if role.has_initial_password && !is_here {
            return Err(NoEntry::InitialPassword(role.name.clone()));
        }
        if !role.datacenters.has(&self.here.data_center) {
            return Err(NoEntry::DataCenter(self.here.data_center.clone()));
        }
        if !catalog.may_connect_from(role, client) {
            return Err(NoEntry::Address(client));
        }
        Ok(())
    }

    /// Gives the session of a connection its role, whose password was right. Checking that took a while: the role counts as it is now.
    pub(crate) fn enter(&self, session: &Session, checked: &Role, client: IpAddr) -> Result<(), NoEntry> {
        let _list = self.list.lock();
        let catalog = self.catalog.catalog();
        let role = catalog.role(&checked.name).filter(|role| role.password_hash == checked.password_hash);
        self.let_in(session, &catalog, role.ok_or(NoEntry::Changed)?, client)
    }

    /// Gives the session of a connection the role that its client's certificate names.
    pub(crate) fn enter_certified(&self, session: &Session, name: &str, client: IpAddr) -> Result<(), NoEntry> {
        let _list = self.list.lock();
        let catalog = self.catalog.catalog();
        let role = catalog.role(name).ok_or_else(|| NoEntry::NoRole(name.to_owned()))?;
        self.let_in(session, &catalog, role, client)
    }

    /// With the list locked.
    fn let_in(&self, session: &Session, catalog: &Catalog, role: &Role, client: IpAddr) -> Result<(), NoEntry> {
        self.may_enter(catalog, role, client, self.here.has(client))?;
        session.log_in(&role.name);
        Ok(())
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
        let mut looked_at: Option<Arc<Catalog>> = None;
        loop {
            let catalog = self.catalog.catalog();
            let is_same = looked_at.is_some_and(|before| {
                catalog.shares_roles_with(&before) && catalog.requires_login() == before.requires_login()
            });
            let ended = if is_same { 0 } else { self.look_through(&catalog) };
            looked_at = Some(catalog);
            if ended > 0 {
                self.ended.fetch_add(ended, Ordering::Relaxed);
                tracing::info!(event = "login", ended, "connections that may not stay were ended");
            }
            if versions.changed().await.is_err() {
                return;
            }
        }
    }

    fn may_stay(&self, catalog: &Catalog, is_required: bool, entered: &Entered) -> bool {
        match entered.session.role() {
            _ if entered.session.is_open() == is_required => false,
            // It has time to log in, or need not.
            None => true,
            Some(name) => catalog.role(&name).is_some_and(|role| {
                let client = entered.client.ip();
                self.may_enter(catalog, role, client, self.here.has(client)).is_ok()
            }),
        }
    }

    /// Ends the connections that may not stay; returns how many.
    fn look_through(&self, catalog: &Catalog) -> u64 {
        let is_required = self.is_required_by(catalog);
        let mut ended = 0;
        for entered in self.list.lock().entered.values_mut().filter(|entered| !entered.has_ended) {
            if !self.may_stay(catalog, is_required, entered) {
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
    use diorite_cluster::catalog::{Command, Permitted, RoleCommand};
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
            let command = Command::Bootstrap {
                cluster_id,
                name,
                replication_factor: 1,
                requires_login,
                level: diorite_base::Level::FIRST,
            };
            Arc::new(Self(Mutex::new(Arc::new(Catalog::default().apply(&command).0))))
        }

        fn apply(&self, command: &Command) {
            let mut catalog = self.0.lock();
            *catalog = Arc::new(catalog.apply(command).0);
        }

        /// As the leader of the catalog does in a catalog of an earlier version (`true`), and as an operator does later (`false`).
        fn decide(&self, required: bool) {
            self.apply(&Command::RequireLogin { required, if_undecided: required });
        }

        fn change(&self, change: RoleCommand) {
            self.apply(&Command::Roles { change });
        }
    }

    fn entrance(catalog: &Arc<Changing>, setting: Setting) -> Arc<Entrance> {
        let here = Here { address: [10, 0, 0, 1].into(), data_center: "east".to_owned() };
        Entrance::open(Arc::clone(catalog) as Arc<dyn CatalogSource>, setting, here)
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
        assert!(timeout(Duration::from_secs(60), task).await.unwrap().unwrap_err().is_cancelled());
        assert_eq!(entrance.ended(), 1);
        let (session, task) = connect(&entrance);
        assert!(!session.is_open(), "it has to log in");
        catalog.decide(false);
        wake.send_replace(3);
        assert!(timeout(Duration::from_secs(60), task).await.unwrap().unwrap_err().is_cancelled());
        assert!(connect(&entrance).0.is_open());
    }

    #[tokio::test]
    async fn a_connection_that_is_to_end_before_its_task_runs_ends() {
        let catalog = Changing::new(None);
        let entrance = entrance(&catalog, OPEN);
        let place = entrance.admit(client());
        catalog.decide(true);
        assert_eq!(entrance.look_through(&catalog.catalog()), 1);
        assert_eq!(entrance.look_through(&catalog.catalog()), 0, "once");
        let task = tokio::spawn(std::future::pending::<()>());
        entrance.attach(place.id(), task.abort_handle());
        assert!(task.await.unwrap_err().is_cancelled());
        drop(place);
        assert!(entrance.list.lock().entered.is_empty());
    }

    fn ann() -> Role {
        let password_hash = Some("hash".to_owned());
        Role { name: "ann".to_owned(), can_login: true, password_hash, ..Role::default() }
    }

    fn alter(name: &str) -> RoleCommand {
        RoleCommand::Alter {
            name: name.to_owned(),
            is_superuser: None,
            can_login: None,
            password_hash: None,
            datacenters: None,
            cidrs: None,
            if_exists: false,
        }
    }

    /// What ends the connections of a role, and what does not.
    fn changes() -> [(RoleCommand, bool); 9] {
        type Change<'a> = dyn Fn(&mut Option<bool>, &mut Option<String>, &mut [Option<Permitted>; 2]) + 'a;
        let altered = |change: &Change<'_>| {
            let (mut login, mut hash, mut reach) = (None, None, [None, None]);
            change(&mut login, &mut hash, &mut reach);
            let [datacenters, cidrs] = reach;
            let RoleCommand::Alter { name, if_exists, .. } = alter("ann") else { unreachable!("it is one") };
            RoleCommand::Alter {
                name,
                is_superuser: None,
                can_login: login,
                password_hash: hash,
                datacenters,
                cidrs,
                if_exists,
            }
        };
        let only = |name: &str| Some(Permitted::Only([name.to_owned()].into()));
        [
            (RoleCommand::Drop { name: "ann".to_owned(), if_exists: false }, true),
            (altered(&|login, _, _| *login = Some(false)), true),
            (altered(&|_, _, reach| reach[0] = only("west")), true),
            (altered(&|_, _, reach| reach[1] = only("10.1.0.0/16")), true),
            (altered(&|_, _, reach| reach[0] = only("east")), false),
            (altered(&|_, _, reach| reach[1] = only("10.0.0.0/24")), false),
            (altered(&|_, hash, _| *hash = Some("another".to_owned())), false),
            (altered(&|login, _, _| *login = Some(true)), false),
            (RoleCommand::Drop { name: "bob".to_owned(), if_exists: true }, false),
        ]
    }

    #[tokio::test]
    async fn connections_of_a_role_end_when_it_may_not_connect_any_more() {
        for (change, ends) in changes() {
            let catalog = Changing::new(Some(true));
            catalog.change(RoleCommand::Create { role: ann(), if_not_exists: false });
            let entrance = entrance(&catalog, OPEN);
            let (session, task) = connect(&entrance);
            assert_eq!(entrance.enter(&session, &ann(), client().ip()), Ok(()));
            catalog.change(change.clone());
            assert_eq!(entrance.look_through(&catalog.catalog()), u64::from(ends), "{change:?}");
            task.abort();
        }
    }

    #[tokio::test]
    async fn connections_end_when_a_group_of_their_role_loses_their_address() {
        let catalog = Changing::new(Some(true));
        let set = |name: &str, cidr: &str| {
            let cidrs = [cidr.parse().unwrap()].into();
            catalog.apply(&Command::SetCidrGroup { name: name.to_owned(), cidrs });
        };
        set("east", "10.0.0.0/8");
        let cidrs = Permitted::Only(["east".to_owned()].into());
        catalog.change(RoleCommand::Create { role: Role { cidrs, ..ann() }, if_not_exists: false });
        let entrance = entrance(&catalog, OPEN);
        let (wake, versions) = watch::channel(1);
        tokio::spawn(Arc::clone(&entrance).follow(versions));
        let (session, task) = connect(&entrance);
        assert_eq!(entrance.enter(&session, &ann(), client().ip()), Ok(()));
        set("west", "11.0.0.0/8");
        wake.send_replace(2);
        tokio::task::yield_now().await;
        assert_eq!(entrance.look_through(&catalog.catalog()), 0);
        // Another group takes a part of its network.
        set("office", "10.0.0.0/24");
        wake.send_replace(3);
        assert!(timeout(Duration::from_secs(60), task).await.unwrap().unwrap_err().is_cancelled());
        let (session, task) = connect(&entrance);
        assert_eq!(entrance.enter(&session, &ann(), client().ip()), Err(NoEntry::Address(client().ip())));
        task.abort();
    }

    /// A password takes tens of milliseconds to check. What was decided about the role meanwhile counts, though the connection had no role
    /// yet when the others were looked through.
    #[tokio::test]
    async fn a_role_that_changes_while_its_password_is_checked_does_not_enter() {
        let catalog = Changing::new(Some(true));
        let entrance = entrance(&catalog, OPEN);
        let client = client().ip();
        let entered = |catalog: &Changing, change: RoleCommand| {
            catalog.change(RoleCommand::Drop { name: "ann".to_owned(), if_exists: true });
            catalog.change(RoleCommand::Create { role: ann(), if_not_exists: false });
            let session = Session::guarded();
            catalog.change(change);
            let entered = entrance.enter(&session, &ann(), client);
            assert_eq!(session.role().is_some(), entered.is_ok());
            entered
        };
        for (change, ends) in changes() {
            let is_password = matches!(&change, RoleCommand::Alter { password_hash: Some(_), .. });
            assert_eq!(entered(&catalog, change.clone()).is_err(), ends || is_password, "{change:?}");
        }
        let dropped = RoleCommand::Drop { name: "ann".to_owned(), if_exists: false };
        assert_eq!(entered(&catalog, dropped), Err(NoEntry::Changed));
    }

    #[test]
    fn the_password_that_everybody_knows_is_for_the_nodes_machine() {
        let entrance = entrance(&Changing::new(Some(true)), OPEN);
        let first = Role { has_initial_password: true, ..ann() };
        for (client, is_here) in
            [("127.0.0.1", true), ("::1", true), ("10.0.0.1", true), ("::ffff:10.0.0.1", true), ("10.0.0.9", false)]
        {
            let client = client.parse().unwrap();
            let catalog = entrance.catalog.catalog();
            assert_eq!(
                entrance.may_enter(&catalog, &first, client, entrance.here.has(client)).is_ok(),
                is_here,
                "{client}"
            );
        }
    }
}
