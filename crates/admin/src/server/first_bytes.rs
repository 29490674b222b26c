//! A connection whose first bytes are checked for the beginning of a request.
//!
//! Always true: from the first byte on that cannot belong to the name of a method, the reader receives bytes that no
//! parser accepts, and answers with an error. Without this, letters without an end would look to a parser like the
//! beginning of a long name. Left out: everything after the first method, which the parser checks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const METHODS: [&[u8]; 9] =
    [b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b"PUT ", b"DELETE ", b"PATCH ", b"TRACE ", b"CONNECT "];
/// A byte that no request contains.
const NONSENSE: u8 = 0;

/// The bytes seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The first bytes of at least one method.
    Begin { length: usize, bytes: [u8; 8] },
    /// A complete method.
    Method,
    /// Any other bytes.
    Nonsense,
}

impl Seen {
    fn take(self, byte: u8) -> Self {
        let Self::Begin { length, mut bytes } = self else { return self };
        // Empty lines before a request are ignored.
        if length == 0 && matches!(byte, b'\r' | b'\n') {
            return self;
        }
        bytes[length] = byte;
        let begun = &bytes[..=length];
        match METHODS.iter().find(|method| method.starts_with(begun)) {
            Some(method) if method.len() == begun.len() => Self::Method,
            Some(_) => Self::Begin { length: length + 1, bytes },
            None => Self::Nonsense,
        }
    }
}

/// Passes on the bytes of a connection, and checks the first ones.
pub(super) struct FirstBytes<S> {
    inner: S,
    seen: Seen,
}

impl<S> FirstBytes<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, seen: Seen::Begin { length: 0, bytes: [0; 8] } }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if let Seen::Begin { .. } = self.seen {
            self.seen = buffer.filled()[before..].iter().fold(self.seen, |seen, byte| seen.take(*byte));
        }
        if self.seen == Seen::Nonsense && buffer.filled().len() > before {
            buffer.filled_mut()[before] = NONSENSE;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_known_and_the_first_byte_of_anything_else() {
        let seen = |text: &[u8]| {
            let none = Seen::Begin { length: 0, bytes: [0; 8] };
            text.iter().fold(none, |seen, byte| seen.take(*byte))
        };
        for method in METHODS {
            assert_eq!(seen(method), Seen::Method);
            assert!(matches!(seen(&method[..method.len() - 1]), Seen::Begin { .. }));
            assert_eq!(seen(&[method, b"/ and so on"].concat()), Seen::Method);
        }
        assert_eq!(seen(b"\r\nGET "), Seen::Method);
        for nonsense in [&b"G "[..], b"get ", b"AAAAAAAAAAAA", b"\x16\x03\x01", b"OPTIONSX", b" ", b"GET\r\n"] {
            assert_eq!(seen(nonsense), Seen::Nonsense, "{nonsense:?}");
        }
    }
}
