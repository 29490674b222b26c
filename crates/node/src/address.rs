//! Addresses of other nodes.

use crate::config::NodeAddress;
use std::net::SocketAddr;

/// The first address that `address` stands for.
pub(crate) async fn resolve(address: &NodeAddress) -> Result<SocketAddr, std::io::Error> {
    let port = address.port.unwrap_or(NodeAddress::DEFAULT_PORT);
    let mut found = tokio::net::lookup_host((address.host.as_str(), port)).await?;
    found.next().ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"))
}
