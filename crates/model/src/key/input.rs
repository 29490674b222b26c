//! Encoded bytes of a key as they are read.

use diorite_base::bytes::Malformed;

/// Encoded bytes being read, all of them inverted if the column is in descending order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub rest: &'a [u8],
    pub mask: u8,
}

impl Input<'_> {
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(first ^ self.mask)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(head.map(|byte| byte ^ self.mask))
    }

    #[inline]
    pub fn take(&mut self, length: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        push_masked(head, self.mask, out);
        Ok(())
    }
}

#[inline]
pub(crate) fn push_masked(bytes: &[u8], mask: u8, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(bytes);
    if mask != 0 {
        out[start..].iter_mut().for_each(|byte| *byte ^= mask);
    }
}
