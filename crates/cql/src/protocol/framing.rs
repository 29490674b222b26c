//! From bytes to envelopes and back, for one connection.
//!
//! [`Inbound`] owns the received bytes: the connection reads into [`Inbound::input`] and takes envelopes with
//! [`Inbound::next`] until there are none. [`Outbound`] owns the bytes to send: messages are appended to
//! [`Outbound::buffer`], [`Outbound::commit`]ted, and taken as wire bytes. Both begin plain; [`Inbound::start`] and
//! [`Outbound::start`] are called once STARTUP has been answered (the answer itself is plain), and from then on v5 uses
//! segments, and older versions may compress bodies.
//!
//! Always true: a message is judged by its header, and a refused one is skipped without being buffered; at most one
//! message up to the limit is held, plus one segment. An uncompressed message is decoded where it was received and sent
//! from where it was encoded. Left out: sockets and timeouts; a connection must bound the time of an incomplete message
//! ([`Inbound::is_idle`]) and the bytes that wait for a client which does not read ([`Outbound::pending_bytes`]).

mod inbound;
mod outbound;

pub use inbound::Inbound;
pub use outbound::Outbound;
