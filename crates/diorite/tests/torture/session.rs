//! A client's connection to one node, and what an answer to a request means for the history.
//!
//! Always true: an error means "certainly not done" only where the server promises it (see [`refusal`]); everything else, and every
//! broken connection, leaves the outcome unknown.

use crate::client::Client;
use diorite_cql::protocol::client::{
    BoundValues, ClientPrepared, ClientRequest, ClientResponse, ClientRows, Parameters,
};
use diorite_cql::protocol::{Consistency, CqlError, ErrorCode, Value};
use diorite_history::{Outcome, Request};
use std::io;
use std::time::Duration;

/// The table of registers, the table of rows that are only inserted.
pub const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS torture.registers (k bigint PRIMARY KEY, v bigint)",
    "CREATE TABLE IF NOT EXISTS torture.inserts (k bigint PRIMARY KEY, v bigint)",
];

/// What clients work in.
pub const KEYSPACE: &str = "CREATE KEYSPACE IF NOT EXISTS torture WITH replication = \
                            {'class': 'SimpleStrategy', 'replication_factor': 3}";

/// A connection with its prepared statements.
pub struct Session {
    client: Client,
    read: ClientPrepared,
    write: ClientPrepared,
    delete: ClientPrepared,
    insert_if_absent: ClientPrepared,
    update_if: ClientPrepared,
    delete_if: ClientPrepared,
    insert: ClientPrepared,
    /// The last error that was answered.
    error: Option<CqlError>,
}

/// Prepares a statement, unless the connection breaks.
pub fn prepare(client: &mut Client, statement: &str) -> io::Result<ClientPrepared> {
    match client.call(&ClientRequest::Prepare { statement, keyspace: None })? {
        ClientResponse::Prepared(prepared) => Ok(prepared),
        other => Err(io::Error::other(format!("{statement} was answered {other:?}"))),
    }
}

impl Session {
    /// Connects and prepares; no step, also of later requests, waits longer than `timeout`.
    pub fn connect(address: &str, timeout: Duration) -> io::Result<Self> {
        let mut client = Client::connect_within(address, timeout)?;
        let mut prepare = |statement| prepare(&mut client, statement);
        Ok(Self {
            read: prepare("SELECT v FROM torture.registers WHERE k = ?")?,
            write: prepare("INSERT INTO torture.registers (k, v) VALUES (?, ?)")?,
            delete: prepare("DELETE FROM torture.registers WHERE k = ?")?,
            insert_if_absent: prepare("INSERT INTO torture.registers (k, v) VALUES (?, ?) IF NOT EXISTS")?,
            update_if: prepare("UPDATE torture.registers SET v = ? WHERE k = ? IF v = ?")?,
            delete_if: prepare("DELETE FROM torture.registers WHERE k = ? IF v = ?")?,
            insert: prepare("INSERT INTO torture.inserts (k, v) VALUES (?, ?)")?,
            error: None,
            client,
        })
    }

    fn execute(&mut self, id: &[u8], values: &[u64]) -> io::Result<ClientResponse> {
        let bytes: Vec<[u8; 8]> = values.iter().map(|value| value.to_be_bytes()).collect();
        let values: Vec<Value<'_>> = bytes.iter().map(|bytes| Value::Set(bytes)).collect();
        let parameters = Parameters {
            consistency: Consistency::Quorum,
            serial_consistency: Some(Consistency::Serial),
            values: BoundValues::Positional(&values),
            ..Parameters::default()
        };
        self.client.call(&ClientRequest::Execute { id, result_metadata_id: &[], parameters })
    }

    /// Sends a request to a register; an error means that the connection is of no more use and the outcome not known.
    pub fn ask(&mut self, key: u64, request: Request) -> io::Result<Outcome> {
        let (statement, values) = match request {
            Request::Read => (&self.read, vec![key]),
            Request::Write(Some(value)) => (&self.write, vec![key, value]),
            Request::Write(None) => (&self.delete, vec![key]),
            Request::CompareAndSet { expected: None, new: Some(new) } => (&self.insert_if_absent, vec![key, new]),
            Request::CompareAndSet { expected: Some(expected), new: Some(new) } => {
                (&self.update_if, vec![new, key, expected])
            }
            Request::CompareAndSet { expected: Some(expected), new: None } => (&self.delete_if, vec![key, expected]),
            Request::CompareAndSet { expected: None, new: None } => panic!("no statement deletes what is absent"),
        };
        let id = statement.id.clone();
        let outcome = match (self.execute(&id, &values)?, request) {
            (ClientResponse::Error(error), _) => self.refused(error),
            (ClientResponse::Rows(rows), Request::Read) => Outcome::Found(rows.rows.first().map(|row| number(&row[0]))),
            (ClientResponse::Rows(rows), Request::CompareAndSet { expected, .. }) => applied(&rows, "v", expected),
            (ClientResponse::Void, Request::Write(_)) => Outcome::Done,
            (other, request) => panic!("{request:?} of key {key} was answered {other:?}"),
        };
        Ok(outcome)
    }

    /// Writes a row that is only inserted.
    pub fn insert(&mut self, key: u64, value: u64) -> io::Result<Outcome> {
        let id = self.insert.id.clone();
        match self.execute(&id, &[key, value])? {
            ClientResponse::Void => Ok(Outcome::Done),
            ClientResponse::Error(error) => Ok(self.refused(error)),
            other => panic!("an insert was answered {other:?}"),
        }
    }

    fn refused(&mut self, error: CqlError) -> Outcome {
        let outcome = refusal(&error);
        self.error = Some(error);
        outcome
    }

    /// The error that the last request was answered with, once.
    pub fn take_error(&mut self) -> Option<CqlError> {
        self.error.take()
    }
}

/// A bigint that is there.
pub fn number(cell: &Option<Vec<u8>>) -> u64 {
    let bytes = cell.as_deref().expect("a value that is never null");
    u64::from_be_bytes(bytes.try_into().expect("a bigint"))
}

/// What a refused request has done: nothing, where the server says that it did not get to the tablet's log
/// (`KvError::{Unavailable, NotLeader, NoSuchTablet, Overloaded}`) or could not even be understood; otherwise nobody knows.
pub fn refusal(error: &CqlError) -> Outcome {
    match error.code() {
        ErrorCode::Unavailable | ErrorCode::Overloaded | ErrorCode::IsBootstrapping | ErrorCode::Unprepared => {
            Outcome::NotDone
        }
        ErrorCode::WriteTimeout | ErrorCode::ReadTimeout | ErrorCode::ServerError => Outcome::Unknown,
        _ => panic!("no fault may lead to {error:?}"),
    }
}

/// The answer to a conditional statement on one column: whether it was applied, and if not, what there was.
pub fn applied(rows: &ClientRows, column: &str, expected: Option<u64>) -> Outcome {
    let row = rows.rows.first().expect("a conditional statement has one row of answer");
    if row[0].as_deref() == Some(&[1]) {
        return Outcome::Done;
    }
    let place = rows.metadata.columns.iter().position(|found| found.name == column);
    let found = place.and_then(|place| row[place].as_deref()).map(|bytes| number(&Some(bytes.to_vec())));
    assert_ne!(found, expected, "a statement was not applied although its condition holds");
    Outcome::Conflict(found)
}
