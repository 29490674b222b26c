//! Accepts CQL connections, up to a limit.
//!
//! Always true: the node owns its address from the start, so that a second node with the same address fails early. Where
//! clients have to log in, the node listens only on loopback as long as the first superuser has the initial password; the
//! catalog says so, so that no node listens elsewhere before it serves. Left out: the protocol on a connection, and which
//! connections may stay ([`crate::entrance`]).

use crate::connection::Connection;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::turns::Caller;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Counts a connection for as long as it lives.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long until a port that another process has is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// The CQL port of the node's address.
pub(crate) enum Door {
    /// Connections wait until the node serves.
    Open(TcpListener),
    /// The address is bound, and connections are refused.
    Reserved(TcpSocket, SocketAddr),
}

impl Door {
    /// Binds the address. The node listens at once if the address is reachable only from this machine.
    pub(crate) async fn take(address: SocketAddr) -> io::Result<Self> {
        if is_loopback(address.ip()) {
            return Ok(Self::Open(TcpListener::bind(address).await?));
        }
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self::Reserved(socket, address))
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The loopback address of a node that does not listen on its own address yet.
fn on_this_machine(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, address.port())
}

/// Whether clients of other machines have to wait: everybody knows a password.
fn is_for_this_machine(shared: &Shared) -> bool {
    shared.access.entrance.requires_login() && shared.kv.catalog.served().has_initial_password()
}

/// Waits until the first superuser has a password of its own, in the catalog that this node serves, or none is asked for.
async fn password_changed(shared: &Shared) {
    let mut served = shared.kv.catalog.versions();
    while is_for_this_machine(shared) {
        if served.changed().await.is_err() {
            // The node is about to end.
            return std::future::pending().await;
        }
    }
}

/// Listens as soon as no other process uses the port.
async fn listen(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => {
                tracing::warn!(%address, %error, "cannot listen for clients; trying again");
                #[allow(
                    clippy::disallowed_methods,
                    reason = "a shell's timer: there is no event when a port is free again"
                )]
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Accepts connections until `stop`, then waits a moment for the remaining ones to finish.
pub(crate) async fn run(door: Door, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let accepting = async {
        let listener = match door {
            Door::Open(listener) => listener,
            Door::Reserved(reserved, address) => {
                if is_for_this_machine(&shared) {
                    tokio::select! {
                        () = accept_here_only(address, &shared, &mut connections) => {}
                        () = password_changed(&shared) => {}
                    }
                }
                // The listener on loopback has to be closed before: the address may be the wildcard, which includes
                // loopback.
                let listener = match reserved.listen(BACKLOG) {
                    Ok(listener) => listener,
                    Err(_) => listen(address).await,
                };
                tracing::info!(%address, "clients are accepted from everywhere");
                listener
            }
        };
        accept(&listener, &shared, &mut connections).await;
    };
    tokio::select! {
        () = accepting => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connections.abort_all();
    while connections.join_next().await.is_some() {}
}

/// Accepts clients on this machine only.
async fn accept_here_only(address: SocketAddr, shared: &Arc<Shared>, connections: &mut JoinSet<()>) {
    let here = on_this_machine(address);
    let listener = listen(here).await;
    tracing::warn!(address = %here, "only clients on this machine are accepted until the first superuser's password is changed");
    accept(&listener, shared, connections).await;
}

/// Accepts connections for as long as it is polled.
async fn accept(listener: &TcpListener, shared: &Arc<Shared>, connections: &mut JoinSet<()>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Probably no file descriptors are left: other connections must close first.
                tracing::warn!(%error, "cannot accept a connection");
                #[allow(clippy::disallowed_methods, reason = "a shell's timer: another attempt at once would spin")]
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if shared.connections.load(Ordering::Relaxed) >= shared.limits.connections {
            shared.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let socket = match &shared.access.tls {
            None => Socket::Plain(stream),
            Some(tls) => match Socket::tls(stream, tls.config()) {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(%error, "cannot begin TLS with a client");
                    continue;
                }
            },
        };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(shared));
        let place = shared.access.entrance.admit(client);
        let (id, session) = (place.id(), Arc::clone(place.session()));
        let task = connections.spawn(Caller::from(client).scope(async move {
            let _place = place;
            if let Err(error) = Connection::new(Arc::clone(&counted.0), session, socket, Some(client)).serve().await {
                tracing::debug!(%error, "a connection ended");
            }
        }));
        shared.access.entrance.attach(id, task);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    /// Whether a process accepts connections there.
    async fn answers(address: SocketAddr) -> bool {
        tokio::net::TcpStream::connect(address).await.is_ok()
    }

    #[test]
    fn addresses_of_this_machine_only_are_told_from_others() {
        for address in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(address.parse().unwrap()), "{address} is here");
        }
        for address in ["10.0.0.1", "192.168.1.7", "2001:db8::1", "::ffff:10.0.0.1", "0.0.0.0", "::"] {
            assert!(!is_loopback(address.parse().unwrap()), "{address} is not only here");
        }
        for (address, here) in
            [("10.0.0.1:9042", "127.0.0.1:9042"), ("0.0.0.0:1", "127.0.0.1:1"), ("[::]:9042", "[::1]:9042")]
        {
            assert_eq!(on_this_machine(address.parse().unwrap()), here.parse().unwrap());
        }
    }

    #[tokio::test]
    async fn an_address_that_is_reserved_is_taken_but_nobody_listens_there_until_it_is_opened() {
        // Every address: the one that is hardest to share with a listener on loopback.
        let probe = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = probe.local_addr().unwrap();
        drop(probe);
        let here = on_this_machine(address);
        let Door::Reserved(reserved, _) = Door::take(address).await.unwrap() else { panic!("listens at once") };
        assert!(!answers(here).await);
        let local = listen(here).await;
        assert!(answers(here).await);
        let refused = TcpListener::bind(address).await;
        assert!(refused.is_err(), "another node may not have the address meanwhile");
        drop(local);
        let _everywhere = reserved.listen(BACKLOG).unwrap();
        assert!(answers(here).await);
    }

    #[tokio::test]
    async fn on_loopback_it_is_open_at_once() {
        for (address, is_open) in [("0.0.0.0:0", false), ("127.0.0.1:0", true), ("[::1]:0", true)] {
            let door = Door::take(address.parse().unwrap()).await.unwrap();
            assert_eq!(matches!(door, Door::Open(_)), is_open, "{address}");
        }
    }
}
