//! The bytes that name the snapshot of a read.

use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_query::kv::{CommittedIn, PinnedRead};
use diorite_transact::wire::PinId;

/// The most transactions that a read in a snapshot names.
const MAX_COMMITTED: usize = 100_000;

/// A snapshot to read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PinnedRef<'a> {
    pub(super) pin: PinId,
    pub(super) committed: Committed<'a>,
}

impl<'a> From<&'a PinnedRead> for PinnedRef<'a> {
    fn from(pinned: &'a PinnedRead) -> Self {
        Self { pin: pinned.pin, committed: Committed::Given(&pinned.committed) }
    }
}

/// The transactions that are read as committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Committed<'a> {
    Given(&'a [CommittedIn]),
    /// So many, encoded.
    Encoded(usize, &'a [u8]),
}

impl Committed<'_> {
    pub(super) fn to_vec(self) -> Result<Vec<CommittedIn>, Malformed> {
        match self {
            Self::Given(committed) => Ok(committed.to_vec()),
            Self::Encoded(count, bytes) => {
                let mut reader = Reader::new(bytes);
                (0..count).map(|_| CommittedIn::decode(&mut reader)).collect()
            }
        }
    }
}

pub(super) fn put_pinned(out: &mut Vec<u8>, pinned: &PinnedRead) {
    out.extend_from_slice(&pinned.pin.0.to_le_bytes());
    let mut committed = Vec::new();
    pinned.committed.iter().for_each(|it| it.encode(&mut committed));
    put_varint(out, pinned.committed.len() as u64);
    put_slice(out, &committed);
}

pub(super) fn read_pinned<'a>(reader: &mut Reader<'a>) -> Result<PinnedRef<'a>, Malformed> {
    let pin = PinId(reader.u64()?);
    let count = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let committed = Committed::Encoded(count, reader.slice()?);
    if count > MAX_COMMITTED || committed.to_vec().is_err() {
        return Err(Malformed);
    }
    Ok(PinnedRef { pin, committed })
}
