//! Accepts CQL connections, up to a limit.

use crate::connection::Connection;
use crate::login;
use crate::shared::Shared;
use crate::socket::Socket;
use diorite_query::kv::Kv;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Counts a connection for as long as it lives.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections until `stop`, then gives those that are left a moment to finish.
pub(crate) async fn run(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: others must close first.
                tracing::warn!(%error, "cannot accept a connection");
                #[allow(clippy::disallowed_methods, reason = "a shell's timer: accepting again at once would spin")]
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        if shared.connections.load(Ordering::Relaxed) >= shared.max_connections {
            shared.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if shared.asks_passwords && !login::lets_in(&shared.kv.catalog(), stream.peer_addr().ok().map(|peer| peer.ip()))
        {
            shared.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            tracing::debug!("refused a client from elsewhere: the first superuser has its initial password");
            continue;
        }
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let socket = match &shared.tls {
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
        let counted = Counted(Arc::clone(&shared));
        connections.spawn(async move {
            if let Err(error) = Connection::new(Arc::clone(&counted.0), socket, Some(client)).serve().await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    connections.abort_all();
    while connections.join_next().await.is_some() {}
}
