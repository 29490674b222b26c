//! A blocking CQL client on the protocol crate's own encoder and decoder: one connection, many requests in flight.
//!
//! Not a driver: a driver retries, reconnects and hides which node has answered. `scylla_driver.rs` and `tests/clients` run drivers.

use diorite_cql::protocol::client::{
    BoundValues, ClientPrepared, ClientRequest, ClientResponse, ClientRows, Parameters, RequestHead, decode_response,
    encode_request,
};
use diorite_cql::protocol::envelope::Role;
use diorite_cql::protocol::{Consistency, CqlError, Inbound, Value, Version};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub struct Client {
    stream: TcpStream,
    inbound: Inbound,
    out: Vec<u8>,
}

const VERSION: Version = Version::V4;

impl Client {
    pub fn connect(address: &str) -> io::Result<Self> {
        Self::connect_within(address, Duration::from_secs(180))
    }

    /// Connects; neither this nor any later read or write waits longer than `timeout`.
    pub fn connect_within(address: &str, timeout: Duration) -> io::Result<Self> {
        let (client, answer) = Self::begin(address, timeout)?;
        match answer {
            ClientResponse::Ready => Ok(client),
            other => Err(io::Error::other(format!("STARTUP was answered {other:?}"))),
        }
    }

    /// Connects to a node that asks for a password, and does not give it yet.
    pub fn guest(address: &str) -> io::Result<Self> {
        let (client, answer) = Self::begin(address, Duration::from_secs(60))?;
        match answer {
            ClientResponse::Authenticate(_) => Ok(client),
            other => Err(io::Error::other(format!("STARTUP was answered {other:?}"))),
        }
    }

    /// Connects and logs in.
    pub fn log_in(address: &str, user: &str, password: &str) -> io::Result<Self> {
        let mut client = Self::guest(address)?;
        match client.call(&ClientRequest::AuthResponse(Some(format!("\0{user}\0{password}").as_bytes())))? {
            ClientResponse::AuthSuccess(_) => Ok(client),
            other => Err(io::Error::other(format!("the password was answered {other:?}"))),
        }
    }

    /// The answer to STARTUP.
    fn begin(address: &str, timeout: Duration) -> io::Result<(Self, ClientResponse)> {
        let address: SocketAddr = format!("{address}:9042").parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut client = Self { stream, inbound: Inbound::new(Role::Client), out: Vec::new() };
        let answer = client.call(&ClientRequest::Startup(&[("CQL_VERSION", "3.0.0")]))?;
        client.inbound.start(VERSION, None);
        Ok((client, answer))
    }

    /// Queues a request; [`Self::flush`] sends it.
    pub fn send(&mut self, stream: i16, request: &ClientRequest<'_>) {
        encode_request(&mut self.out, &RequestHead::new(VERSION, stream), request);
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next response, of whatever stream.
    pub fn receive(&mut self) -> io::Result<(i16, ClientResponse)> {
        loop {
            let next = self.inbound.next().map_err(|error| io::Error::other(format!("{error:?}")))?;
            if let Some(envelope) = next {
                let decoded = decode_response(&envelope).map_err(|error| io::Error::other(error.to_string()))?;
                return Ok((decoded.stream, decoded.response));
            }
            let mut buffer = [0; 64 << 10];
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.inbound.input().extend_from_slice(&buffer[..count]);
        }
    }

    /// Asks and waits for the answer.
    pub fn call(&mut self, request: &ClientRequest<'_>) -> io::Result<ClientResponse> {
        self.send(0, request);
        self.flush()?;
        Ok(self.receive()?.1)
    }

    /// Runs a statement, unless the connection breaks.
    pub fn try_query(&mut self, statement: &str) -> io::Result<ClientResponse> {
        let parameters = Parameters { consistency: Consistency::Quorum, ..Parameters::default() };
        self.call(&ClientRequest::Query { statement, parameters })
    }

    /// Runs a statement.
    pub fn query(&mut self, statement: &str) -> Result<ClientResponse, CqlError> {
        match self.try_query(statement).unwrap() {
            ClientResponse::Error(error) => Err(error),
            other => Ok(other),
        }
    }

    /// Runs a statement that must succeed.
    pub fn run(&mut self, statement: &str) -> ClientRows {
        match self.query(statement) {
            Ok(ClientResponse::Rows(rows)) => rows,
            Ok(_) => ClientRows::default(),
            Err(error) => panic!("{statement}: {error:?}"),
        }
    }

    /// Prepares a statement, unless the connection breaks.
    pub fn try_prepare(&mut self, statement: &str) -> io::Result<ClientPrepared> {
        match self.call(&ClientRequest::Prepare { statement, keyspace: None })? {
            ClientResponse::Prepared(prepared) => Ok(prepared),
            other => panic!("{statement} was answered {other:?}"),
        }
    }

    /// Prepares a statement.
    pub fn prepare(&mut self, statement: &str) -> ClientPrepared {
        self.try_prepare(statement).unwrap()
    }

    /// Queues an EXECUTE.
    pub fn execute(&mut self, stream: i16, id: &[u8], values: &[Value<'_>]) {
        let parameters = Parameters {
            consistency: Consistency::Quorum,
            values: BoundValues::Positional(values),
            ..Parameters::default()
        };
        self.send(stream, &ClientRequest::Execute { id, result_metadata_id: &[], parameters });
    }
}

/// Makes `ks.t (k text PRIMARY KEY, v blob)` if need be.
pub fn make_table(client: &mut Client) {
    client.run("CREATE KEYSPACE IF NOT EXISTS ks");
    client.run("CREATE TABLE IF NOT EXISTS ks.t (k text PRIMARY KEY, v blob)");
}

/// `SELECT COUNT(*)`, if it is answered.
pub fn try_count(client: &mut Client, table: &str) -> Option<i64> {
    let answer = client.query(&format!("SELECT COUNT(*) FROM {table}"));
    let Ok(ClientResponse::Rows(rows)) = answer else { return None };
    Some(i64::from_be_bytes(rows.rows[0][0].as_deref().unwrap().try_into().unwrap()))
}

/// `SELECT COUNT(*)`
pub fn count(client: &mut Client, table: &str) -> i64 {
    let rows = client.run(&format!("SELECT COUNT(*) FROM {table}"));
    i64::from_be_bytes(rows.rows[0][0].as_deref().unwrap().try_into().unwrap())
}
