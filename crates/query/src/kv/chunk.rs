//! The entries of a scan, as a chunk.

/// Entries of a scan, in scan order, in one buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanChunk {
    /// Keys and values, back to back.
    pub buffer: Vec<u8>,
    /// For each entry the end of its key and of its value in `buffer`.
    pub ends: Vec<(u32, u32)>,
    /// Whether the range was exhausted. If not, go on after (or, in reverse, before) the last key.
    pub exhausted: bool,
}

impl ScanChunk {
    /// The entries as `(key, value)`.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0usize;
        self.ends.iter().map(move |&(key_end, value_end)| {
            let entry = (&self.buffer[start..key_end as usize], &self.buffer[key_end as usize..value_end as usize]);
            start = value_end as usize;
            entry
        })
    }

    /// Memory that it takes.
    pub fn size_bytes(&self) -> usize {
        self.buffer.capacity() + self.ends.capacity() * size_of::<(u32, u32)>()
    }

    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.buffer.extend_from_slice(key);
        let key_end = self.buffer.len() as u32;
        self.buffer.extend_from_slice(value);
        self.ends.push((key_end, self.buffer.len() as u32));
    }
}
