//! The protocol's notation: big-endian integers, `[string]`, `[bytes]`, `[inet]` and the maps and lists of them.
//!
//! Always true: every read is bounds-checked and borrows from the input; nothing is allocated from a claimed count. What cannot be
//! written (a string longer than 65,535 bytes) is cut at a character boundary rather than corrupting the message. Left out: messages
//! themselves.

use diorite_base::bytes::Reader as Bytes;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// A message that does not follow the notation. `what` names the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The message ends inside the field.
    #[error("{0} is truncated")]
    Truncated(&'static str),
    /// The field has a value that it may not have.
    #[error("{0} is not valid")]
    Invalid(&'static str),
    /// A string is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// Bytes follow the last field.
    #[error("{0} bytes follow the last field")]
    Trailing(usize),
}

/// Reads fields of a message in order.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: Bytes<'a>,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: Bytes::new(bytes) }
    }

    /// The bytes that have not been read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.rest()
    }

    /// Fails when something is left.
    #[inline]
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Malformed::Trailing(self.rest().len())) }
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        self.bytes.take(count).map_err(|_| Malformed::Truncated(what))
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        self.bytes.array().map_err(|_| Malformed::Truncated(what))
    }

    /// `[byte]`
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }

    /// `[short]`
    #[inline]
    pub fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// `[int]`
    #[inline]
    pub fn i32(&mut self, what: &'static str) -> Result<i32, Malformed> {
        self.array(what).map(i32::from_be_bytes)
    }

    /// An unsigned `[int]`, for flags.
    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// `[long]`
    #[inline]
    pub fn i64(&mut self, what: &'static str) -> Result<i64, Malformed> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// `[string]`
    #[inline]
    pub fn string(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let bytes = self.short_bytes(what)?;
        std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8(what))
    }

    /// `[long string]`
    #[inline]
    pub fn long_string(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let length = usize::try_from(self.i32(what)?).map_err(|_| Malformed::Invalid(what))?;
        std::str::from_utf8(self.take(length, what)?).map_err(|_| Malformed::NotUtf8(what))
    }

    /// `[short bytes]`
    #[inline]
    pub fn short_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.u16(what)?;
        self.take(usize::from(length), what)
    }

    /// `[bytes]`: `None` for any negative length.
    #[inline]
    pub fn bytes(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
        match usize::try_from(self.i32(what)?) {
            Ok(length) => self.take(length, what).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// `[inetaddr]`
    pub fn inet_address(&mut self, what: &'static str) -> Result<IpAddr, Malformed> {
        match self.u8(what)? {
            4 => Ok(IpAddr::V4(Ipv4Addr::from(self.array::<4>(what)?))),
            16 => Ok(IpAddr::V6(Ipv6Addr::from(self.array::<16>(what)?))),
            _ => Err(Malformed::Invalid(what)),
        }
    }

    /// `[inet]`
    pub fn inet(&mut self, what: &'static str) -> Result<SocketAddr, Malformed> {
        let address = self.inet_address(what)?;
        let port = u16::try_from(self.i32(what)?).map_err(|_| Malformed::Invalid(what))?;
        Ok(SocketAddr::new(address, port))
    }
}

/// Appends a `[short]`.
#[inline]
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends an `[int]`.
#[inline]
pub fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a `[long]`.
#[inline]
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a `[string]`, cut to the 65,535 bytes it can have.
#[inline]
pub fn put_string(out: &mut Vec<u8>, value: &str) {
    let cut = &value[..value.floor_char_boundary(usize::from(u16::MAX))];
    put_u16(out, cut.len() as u16);
    out.extend_from_slice(cut.as_bytes());
}

/// Appends a `[long string]`.
pub fn put_long_string(out: &mut Vec<u8>, value: &str) {
    put_bytes(out, value.as_bytes());
}

/// Appends `[short bytes]`. The protocol uses them for ids and partition key parts, which are shorter than 64 KiB by construction.
pub fn put_short_bytes(out: &mut Vec<u8>, value: &[u8]) {
    assert!(value.len() <= usize::from(u16::MAX), "short bytes hold at most 65,535 bytes");
    put_u16(out, value.len() as u16);
    out.extend_from_slice(value);
}

/// Appends `[bytes]`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    assert!(value.len() <= i32::MAX as usize, "bytes hold at most 2,147,483,647 bytes");
    out.reserve(4 + value.len());
    put_i32(out, value.len() as i32);
    out.extend_from_slice(value);
}

/// Appends `[bytes]`, null when there are none.
pub fn put_optional_bytes(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(bytes) => put_bytes(out, bytes),
        None => put_i32(out, -1),
    }
}

/// Appends a count as `[short]`; the lists of the protocol are short by construction.
pub fn put_count(out: &mut Vec<u8>, count: usize) {
    assert!(count <= usize::from(u16::MAX), "lists hold at most 65,535 entries");
    put_u16(out, count as u16);
}

/// Appends a `[string list]`.
pub fn put_string_list<S: AsRef<str>>(out: &mut Vec<u8>, values: &[S]) {
    put_count(out, values.len());
    for value in values {
        put_string(out, value.as_ref());
    }
}

/// Appends an `[inetaddr]`.
pub fn put_inet_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(16);
            out.extend_from_slice(&address.octets());
        }
    }
}

/// Appends an `[inet]`.
pub fn put_inet(out: &mut Vec<u8>, address: SocketAddr) {
    put_inet_address(out, address.ip());
    put_i32(out, i32::from(address.port()));
}
