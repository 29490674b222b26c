//! Probes, one for each tablet: each writes its own key until a write succeeds, which measures how long the tablet accepted no writes.
//!
//! Always true: every tablet of a table that was split evenly has one; their keys are none that a load writes.

use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};
use futures::future::join_all;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use crate::WorkloadError;
use crate::arguments::{ConnectionArguments, IndexShape, WorkloadKind};
use crate::session::{connect, prepare, tablet_of, use_keyspace};
use crate::statements::Statements;
use crate::timer::pause;

/// A probe that is not answered by then is sent again.
const PROBE_TIMEOUT_MS: u64 = 300;
const PROBE_STEP: Duration = Duration::from_millis(5);
/// A tablet that takes no write for this long has failed over in vain.
const TIMEOUT_NS: u64 = 30_000_000_000;

/// A key in each tablet, and the means to write it.
pub struct Probes {
    session: Session,
    insert: PreparedStatement,
    keys: Vec<String>,
}

impl Probes {
    /// Connects; the key-value `table` has so many tablets of equal size.
    pub async fn connect(connection: &ConnectionArguments, table: &str, tablets: u32) -> Result<Self, WorkloadError> {
        let connection = ConnectionArguments { cql_read_timeout_ms: PROBE_TIMEOUT_MS, ..connection.clone() };
        let session = connect(&connection, 1).await?;
        use_keyspace(&session, &connection).await?;
        let statements = Statements::new(WorkloadKind::KeyValue, table, None, None, IndexShape::default());
        let insert = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        Ok(Self { session, insert, keys: key_per_tablet(tablets) })
    }

    /// Writes to every tablet until it takes the write; milliseconds since `since_ns`, by tablet.
    pub async fn all_writable_ms(&self, clock: &SystemClock, since_ns: u64) -> Result<Vec<f64>, WorkloadError> {
        let probes = join_all(self.keys.iter().map(|key| self.writable_ms(key, clock, since_ns))).await;
        probes.into_iter().collect()
    }

    async fn writable_ms(&self, key: &str, clock: &SystemClock, since_ns: u64) -> Result<f64, WorkloadError> {
        loop {
            let answer = self.session.execute_unpaged(&self.insert, (key, &b"probe"[..])).await;
            let waited_ns = clock.monotonic_ns() - since_ns;
            match answer {
                Ok(_) => return Ok(waited_ns as f64 / 1e6),
                Err(error) if waited_ns > TIMEOUT_NS => {
                    let message =
                        format!("the tablet of {key} took no write for {} s: {error}", waited_ns / 1_000_000_000);
                    return Err(WorkloadError::Server(message));
                }
                Err(_) => pause(PROBE_STEP).await,
            }
        }
    }
}

/// A key in each of a table's tablets, which split the ring evenly.
fn key_per_tablet(tablets: u32) -> Vec<String> {
    let mut keys = vec![None; tablets as usize];
    let mut missing = tablets;
    for number in 0_u64.. {
        if missing == 0 {
            break;
        }
        let key = format!("probe:{number}");
        let slot = &mut keys[tablet_of(&key, tablets)];
        if slot.is_none() {
            *slot = Some(key);
            missing -= 1;
        }
    }
    keys.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::routing::partitioner::{Murmur3Partitioner, Partitioner};

    #[test]
    fn every_tablet_has_a_probe() {
        let keys = key_per_tablet(24);
        assert_eq!(keys.len(), 24);
        let tokens: Vec<i64> = keys.iter().map(|key| Murmur3Partitioner.hash_one(key.as_bytes()).value()).collect();
        assert!(tokens.is_sorted(), "one in each part, in their order");
        assert!(tokens[0] < i64::MIN + (u64::MAX / 24) as i64);
    }
}
