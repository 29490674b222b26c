//! One hot row: clients that add to it and to a row of their own, in one transaction block over two tablets.
//!
//! Always true: what the rows say is checked against what was acknowledged; a block that was refused did nothing, one
//! whose outcome is unknown may have added to both rows or to none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use crate::WorkloadError;
use crate::error::{Failure, Problem, Violation};
use crate::session::{execute_schema, is_refused, prepare, tablet_of};

const SHARED: &str = "shared";

/// The shared row and the clients that add to it.
pub struct HotRow {
    session: Arc<Session>,
    add: PreparedStatement,
    select: PreparedStatement,
    clients: Vec<Client>,
}

struct Client {
    /// Of its own row.
    key: String,
    acknowledged: AtomicU64,
    unknown: AtomicU64,
}

/// The outcomes of a client's transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    pub acknowledged: u64,
    pub unknown: u64,
}

impl HotRow {
    /// Makes the table `name` anew, with the shared row and a row for each client, all of them 0.
    pub async fn create(
        session: &Arc<Session>,
        name: &str,
        tablets: u32,
        clients: usize,
    ) -> Result<Self, WorkloadError> {
        let clients: Vec<Client> = (0..clients).map(|client| Client::new(own_key(client, tablets))).collect();
        execute_schema(session, &format!("DROP TABLE IF EXISTS {name};")).await?;
        let options = format!("tablets = {tablets} AND transactions = {{'enabled': true}}");
        let table = format!("CREATE TABLE {name} (k varchar, n bigint, primary key (k)) WITH {options};");
        execute_schema(session, &table).await?;
        for key in std::iter::once(SHARED).chain(clients.iter().map(|client| client.key.as_str())) {
            execute_schema(session, &format!("INSERT INTO {name} (k, n) VALUES ('{key}', 0);")).await?;
        }
        let block = format!(
            "BEGIN TRANSACTION UPDATE {name} SET n = n + 1 WHERE k = :shared; \
             UPDATE {name} SET n = n + 1 WHERE k = :own; END TRANSACTION;"
        );
        let mut add = prepare(session, &block, Consistency::Quorum).await?;
        // Sent twice it would add twice.
        add.set_is_idempotent(false);
        let select = prepare(session, &format!("SELECT k, n FROM {name};"), Consistency::Quorum).await?;
        Ok(Self { session: Arc::clone(session), add, select, clients })
    }

    /// One transaction of a client.
    pub(crate) async fn add(&self, client: usize) -> Result<u64, Failure> {
        let client = &self.clients[client % self.clients.len()];
        match self.session.execute_unpaged(&self.add, (SHARED, client.key.as_str())).await {
            Ok(_) => {
                client.acknowledged.fetch_add(1, Ordering::Relaxed);
                Ok(2)
            }
            Err(error) => {
                client.unknown.fetch_add(u64::from(!is_refused(&error)), Ordering::Relaxed);
                Err(Failure::request(error))
            }
        }
    }

    /// The outcomes so far, by client.
    pub fn outcomes(&self) -> Vec<Outcomes> {
        self.clients.iter().map(Client::outcomes).collect()
    }

    /// Reads all rows at one moment and checks their sums. No transaction may be under way.
    pub async fn verify(&self) -> Result<(), WorkloadError> {
        let failed = |error: &dyn std::fmt::Display| WorkloadError::Server(format!("the rows of {SHARED}: {error}"));
        let answer = self.session.execute_unpaged(&self.select, ()).await.map_err(|error| failed(&error))?;
        let answer = answer.into_rows_result().map_err(|error| failed(&error))?;
        let rows = answer.rows::<(String, i64)>().map_err(|error| failed(&error))?;
        let rows: Result<BTreeMap<String, i64>, _> = rows.collect();
        let rows = rows.map_err(|error| failed(&error))?;
        let of_clients: Vec<_> = self.clients.iter().map(|client| (client.key.as_str(), client.outcomes())).collect();
        check_sums(&rows, &of_clients).map_err(|violation| WorkloadError::Violation(Box::new(violation)))
    }
}

impl Client {
    fn new(key: String) -> Self {
        Self { key, acknowledged: AtomicU64::new(0), unknown: AtomicU64::new(0) }
    }

    fn outcomes(&self) -> Outcomes {
        Outcomes {
            acknowledged: self.acknowledged.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
        }
    }
}

/// The key of a client's own row, in another tablet than the shared row.
fn own_key(client: usize, tablets: u32) -> String {
    assert!(tablets > 1, "the rows are in two tablets");
    let keys = (0_u64..).map(|number| format!("client-{client}-{number}"));
    let mut apart = keys.filter(|key| tablet_of(key, tablets) != tablet_of(SHARED, tablets));
    apart.next().expect("there are infinitely many keys")
}

/// Checks that each client's row says what was acknowledged to it, within the unknown outcomes, and the shared row
/// exactly the sum of the others.
fn check_sums(rows: &BTreeMap<String, i64>, clients: &[(&str, Outcomes)]) -> Result<(), Violation> {
    let violation = |key: &str, problem| Violation { key: key.to_owned(), problem };
    let found = |key: &str| rows.get(key).copied().ok_or_else(|| violation(key, Problem::Missing));
    let mut sum = 0;
    for (key, outcomes) in clients {
        let Outcomes { acknowledged, unknown } = *outcomes;
        let said = found(key)?;
        sum += said;
        if !u64::try_from(said).is_ok_and(|said| (acknowledged..=acknowledged + unknown).contains(&said)) {
            let message = format!(
                "{said} after {acknowledged} transactions that were acknowledged and {unknown} of unknown outcome"
            );
            return Err(violation(key, Problem::Shape(message)));
        }
    }
    let said = found(SHARED)?;
    if said != sum {
        let message = format!("{said}, but the rows that each transaction adds to as well say {sum}");
        return Err(violation(SHARED, Problem::Shape(message)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_clients_are_in_other_tablets_than_the_shared_row() {
        for tablets in [2, 8] {
            assert!((0..8).all(|client| tablet_of(&own_key(client, tablets), tablets) != tablet_of(SHARED, tablets)));
        }
    }

    #[test]
    fn sums_are_those_of_acknowledged_transactions_within_unknown_outcomes() {
        let rows = |shared, a, b| -> BTreeMap<String, i64> {
            [(SHARED, shared), ("a", a), ("b", b)].map(|(key, n)| (key.to_owned(), n)).into()
        };
        let outcomes = |acknowledged, unknown| Outcomes { acknowledged, unknown };
        let clients = [("a", outcomes(3, 0)), ("b", outcomes(5, 2))];
        assert_eq!(check_sums(&rows(8, 3, 5), &clients), Ok(()));
        assert_eq!(check_sums(&rows(10, 3, 7), &clients), Ok(()));
        assert!(check_sums(&rows(9, 3, 5), &clients).is_err(), "the shared row has one more than the others");
        assert!(check_sums(&rows(7, 2, 5), &clients).is_err(), "an acknowledged transaction is lost");
        assert!(check_sums(&rows(11, 3, 8), &clients).is_err(), "one is there twice");
        assert!(check_sums(&BTreeMap::new(), &clients).is_err());
    }
}
