//! One connection of the lean client: opening, preparing, sending and receiving.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::frames::{self, FrameError};
use crate::WorkloadError;
use crate::statements::Statements;

/// How long a lane waits for any answer before its requests have failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// Why a connection is of no use any more.
#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("{doing}: {error}")]
    Io { doing: &'static str, error: std::io::Error },
    #[error("the server closed the connection")]
    Closed,
    #[error("no answer within {} s", ANSWER_TIMEOUT.as_secs())]
    NoAnswer,
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The server's error message.
    #[error("{0}")]
    Refused(String),
    #[error("opcode {found:#04x} instead of {expected:#04x}")]
    Opcode { found: u8, expected: u8 },
    #[error("an answer to a request that was never sent")]
    UnknownStream,
    #[error("a second answer on stream {0}")]
    SecondAnswer(usize),
}

impl ConnectionError {
    fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}

/// An open connection with prepared statements.
pub struct Connection {
    stream: TcpStream,
    /// Received bytes that are not parsed yet.
    pub received: BytesMut,
    /// Bytes to send.
    pub outgoing: Vec<u8>,
    pub insert_id: Vec<u8>,
    pub select_id: Vec<u8>,
}

impl Connection {
    /// Connects to `node`, host:port, and prepares the statements.
    pub async fn open(
        node: &str,
        keyspace: &str,
        statements: &Statements,
        tablet_aware: bool,
    ) -> Result<Self, WorkloadError> {
        let opened = Self::set_up(node, keyspace, statements, tablet_aware).await;
        opened.map_err(|error| WorkloadError::Setup(format!("cannot set up a connection to {node}: {error}")))
    }

    async fn set_up(
        node: &str,
        keyspace: &str,
        statements: &Statements,
        tablet_aware: bool,
    ) -> Result<Self, ConnectionError> {
        let stream = TcpStream::connect(node).await.map_err(ConnectionError::io("connect"))?;
        stream.set_nodelay(true).map_err(ConnectionError::io("connect"))?;
        let received = BytesMut::with_capacity(256 << 10);
        let (outgoing, insert_id, select_id) = Default::default();
        let mut connection = Self { stream, received, outgoing, insert_id, select_id };
        connection.request(|frame| frames::startup(frame, tablet_aware), frames::OPCODE_READY).await?;
        let use_keyspace = format!("USE {keyspace}");
        connection.request(|frame| frames::query(frame, &use_keyspace), frames::OPCODE_RESULT).await?;
        connection.insert_id = connection.prepare(&statements.insert).await?;
        connection.select_id = connection.prepare(&statements.select).await?;
        Ok(connection)
    }

    async fn prepare(&mut self, statement: &str) -> Result<Vec<u8>, ConnectionError> {
        let body = self.request(|frame| frames::prepare(frame, statement), frames::OPCODE_RESULT).await?;
        Ok(frames::parse_prepared(&body)?)
    }

    /// Sends one request and returns the body of its answer, which must have the given opcode.
    async fn request(&mut self, write: impl FnOnce(&mut Vec<u8>), opcode: u8) -> Result<BytesMut, ConnectionError> {
        write(&mut self.outgoing);
        self.send().await?;
        loop {
            if let Some((header, length)) = frames::complete(&self.received)? {
                let mut body = self.received.split_to(length);
                body.advance(frames::HEADER_BYTES);
                let extras = body.len() - frames::split_extras(header.flags, &body)?.1.len();
                body.advance(extras);
                return match header.opcode {
                    found if found == opcode => Ok(body),
                    frames::OPCODE_ERROR => Err(ConnectionError::Refused(frames::parse_error(&body))),
                    found => Err(ConnectionError::Opcode { found, expected: opcode }),
                };
            }
            receive(std::slice::from_mut(self)).await?;
        }
    }

    /// Sends the pending bytes, in one write if the socket accepts them all.
    pub async fn send(&mut self) -> Result<(), ConnectionError> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.outgoing).await.map_err(ConnectionError::io("send"))?;
        self.outgoing.clear();
        Ok(())
    }

    /// Reads once. If that was all, the task waits until the system reports more: otherwise a connection with fast answers
    /// would keep its thread, and others would measure the delay as the server's latency.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.received.reserve(64 << 10);
        let read = pin!(self.stream.read_buf(&mut self.received));
        match ready!(read.poll(context)) {
            Ok(0) => Poll::Ready(Err(ConnectionError::Closed)),
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(ConnectionError::Io { doing: "receive", error })),
        }
    }
}

/// Waits until something has been received on any of the connections, and takes it from all of them.
pub async fn receive(connections: &mut [Connection]) -> Result<(), ConnectionError> {
    let received = poll_fn(|context| {
        let mut received = Poll::Pending;
        // Every one is polled, so that each of them wakes the task.
        for connection in connections.iter_mut() {
            match connection.poll_receive(context) {
                Poll::Ready(Ok(())) => received = Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        received
    });
    match tokio::time::timeout(ANSWER_TIMEOUT, received).await {
        Ok(received) => received,
        Err(_) => Err(ConnectionError::NoAnswer),
    }
}
