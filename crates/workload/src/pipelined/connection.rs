//! One connection of the lean client: opening, preparing, sending and receiving.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::frames;
use crate::WorkloadError;
use crate::session::Statements;

/// How long a lane waits for any answer before its requests have failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// An open connection with prepared statements.
pub struct Connection {
    stream: TcpStream,
    /// What has been received and not yet understood.
    pub received: BytesMut,
    /// What is due to be sent.
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
        let refuse = |detail: String| WorkloadError::Setup(format!("cannot set up a connection to {node}: {detail}"));
        let stream = TcpStream::connect(node).await.map_err(|error| refuse(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| refuse(error.to_string()))?;
        let received = BytesMut::with_capacity(256 << 10);
        let (outgoing, insert_id, select_id) = Default::default();
        let mut connection = Self { stream, received, outgoing, insert_id, select_id };
        connection.request(|frame| frames::startup(frame, tablet_aware), frames::OPCODE_READY).await.map_err(refuse)?;
        let use_keyspace = format!("USE {keyspace}");
        connection.request(|frame| frames::query(frame, &use_keyspace), frames::OPCODE_RESULT).await.map_err(refuse)?;
        connection.insert_id = connection.prepare(&statements.insert).await.map_err(refuse)?;
        connection.select_id = connection.prepare(&statements.select).await.map_err(refuse)?;
        Ok(connection)
    }

    async fn prepare(&mut self, statement: &str) -> Result<Vec<u8>, String> {
        let body = self.request(|frame| frames::prepare(frame, statement), frames::OPCODE_RESULT).await?;
        frames::parse_prepared(&body)
    }

    /// Sends one request and returns the body of its answer, which must have the given opcode.
    async fn request(&mut self, write: impl FnOnce(&mut Vec<u8>), opcode: u8) -> Result<BytesMut, String> {
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
                    frames::OPCODE_ERROR => Err(frames::parse_error(&body)),
                    found => Err(format!("opcode {found:#04x} instead of {opcode:#04x}")),
                };
            }
            receive(std::slice::from_mut(self)).await?;
        }
    }

    /// Sends what is due, in one write if the socket takes it.
    pub async fn send(&mut self) -> Result<(), String> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.outgoing).await.map_err(|error| format!("send: {error}"))?;
        self.outgoing.clear();
        Ok(())
    }

    /// Reads once. Whoever has read all that was there waits until the system reports more: a connection whose answers come quickly does not keep its thread to
    /// itself, which others would measure as the server's latency.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        self.received.reserve(64 << 10);
        let read = pin!(self.stream.read_buf(&mut self.received));
        match ready!(read.poll(context)) {
            Ok(0) => Poll::Ready(Err("the server closed the connection".into())),
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(format!("receive: {error}"))),
        }
    }
}

/// Waits until something has been received on any of the connections, and takes it from all of them.
pub async fn receive(connections: &mut [Connection]) -> Result<(), String> {
    let received = poll_fn(|context| {
        let mut received = Poll::Pending;
        // Every one is polled, so that each of them wakes the task.
        for connection in connections.iter_mut() {
            match connection.poll_receive(context) {
                Poll::Ready(Ok(())) => received = Poll::Ready(Ok(())),
                Poll::Ready(Err(message)) => return Poll::Ready(Err(message)),
                Poll::Pending => {}
            }
        }
        received
    });
    match tokio::time::timeout(ANSWER_TIMEOUT, received).await {
        Ok(received) => received,
        Err(_) => Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
    }
}
