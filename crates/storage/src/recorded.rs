//! An entry as the log stores it: Raft's own encoding (protobuf), followed, in a field that Raft does not use, by the
//! commit index known when it was written. So a commit index costs a few bytes of an entry that is written anyway, and
//! no record of its own.

use diorite_raft::Entry;
use protobuf::reflect::MessageDescriptor;
use protobuf::wire_format::WireType;
use protobuf::{Clear, CodedInputStream, CodedOutputStream, Message, ProtobufResult, UnknownFields, rt};
use std::any::Any;

/// A field number that entries do not use.
const COMMIT_FIELD: u32 = 1_000;

/// An entry, and a commit index known with it, or 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RecordedEntry {
    pub(crate) entry: Entry,
    pub(crate) commit: u64,
}

impl RecordedEntry {
    /// Encodes the entries of one write into `recorded`, the last one with the commit index.
    pub(crate) fn all(entries: &[Entry], commit: u64, recorded: &mut Vec<Self>) {
        recorded.extend(entries.iter().map(|entry| Self { entry: entry.clone(), commit: 0 }));
        if let Some(last) = recorded.last_mut() {
            last.commit = commit;
        }
    }

    fn commit_size(&self) -> u32 {
        if self.commit == 0 { 0 } else { rt::value_size(COMMIT_FIELD, self.commit, WireType::WireTypeVarint) }
    }
}

impl Clear for RecordedEntry {
    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Message for RecordedEntry {
    fn descriptor(&self) -> &'static MessageDescriptor {
        self.entry.descriptor()
    }

    fn is_initialized(&self) -> bool {
        self.entry.is_initialized()
    }

    fn merge_from(&mut self, input: &mut CodedInputStream<'_>) -> ProtobufResult<()> {
        self.entry.merge_from(input)?;
        // Entries from the log are sent to other members too, which must receive only fields that Raft defines.
        let unknown = std::mem::take(self.entry.mut_unknown_fields());
        if let Some(commit) = unknown.get(COMMIT_FIELD).and_then(|values| values.varint.last()) {
            self.commit = *commit;
        }
        Ok(())
    }

    fn write_to_with_cached_sizes(&self, output: &mut CodedOutputStream<'_>) -> ProtobufResult<()> {
        self.entry.write_to_with_cached_sizes(output)?;
        if self.commit != 0 {
            output.write_uint64(COMMIT_FIELD, self.commit)?;
        }
        Ok(())
    }

    fn compute_size(&self) -> u32 {
        self.entry.compute_size() + self.commit_size()
    }

    fn get_cached_size(&self) -> u32 {
        self.entry.get_cached_size() + self.commit_size()
    }

    fn get_unknown_fields(&self) -> &UnknownFields {
        self.entry.get_unknown_fields()
    }

    fn mut_unknown_fields(&mut self) -> &mut UnknownFields {
        self.entry.mut_unknown_fields()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn new() -> Self {
        Self::default()
    }

    fn default_instance() -> &'static Self {
        static DEFAULT: std::sync::OnceLock<RecordedEntry> = std::sync::OnceLock::new();
        DEFAULT.get_or_init(Self::default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_with_its_commit_index_and_is_read_without_one() {
        let entry = Entry { index: 7, term: 3, data: vec![1; 300].into(), ..Entry::default() };
        for commit in [0, 1, 6, u64::MAX] {
            let recorded = RecordedEntry { entry: entry.clone(), commit };
            let bytes = recorded.write_to_bytes().expect("memory");
            assert_eq!(RecordedEntry::parse_from_bytes(&bytes).expect("own encoding"), recorded);
        }
        let plain =
            RecordedEntry::parse_from_bytes(&entry.write_to_bytes().expect("memory")).expect("an earlier log's");
        assert_eq!((plain.entry, plain.commit), (entry, 0));
    }
}
