//! From bytes to envelopes and back, for one connection.
//!
//! [`Inbound`] owns what was received: the connection reads into [`Inbound::input`] and takes envelopes with [`Inbound::next`] until there are
//! none. [`Outbound`] owns what is to be sent: messages are appended to [`Outbound::buffer`], [`Outbound::commit`]ted, and taken as wire bytes.
//! Both begin plain; [`Inbound::start`] and [`Outbound::start`] are called once STARTUP has been answered (the answer itself is plain), and from
//! then on v5 travels in segments and older versions may compress bodies.
//!
//! Always true: a message is judged by its header, and one that is refused is skipped without being buffered; at most one message up to the limit
//! is held, plus one segment. An uncompressed message is decoded where it was received and sent from where it was encoded. Left out: sockets and
//! timeouts; a connection must bound the time an incomplete message may take ([`Inbound::is_idle`]) and what a client that does not read may
//! pile up ([`Outbound::pending_bytes`]).

mod inbound;
mod outbound;

pub use inbound::Inbound;
pub use outbound::Outbound;
