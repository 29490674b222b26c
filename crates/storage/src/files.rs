//! Sizes of a tablet's SSTables as a whole.

/// The SSTables of a tablet, as of its last flush or compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TabletFiles {
    /// Their number.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// Their contents by kind; `None` until they have been read, see [`crate::Tablet::measure_contents`].
    pub contents: Option<FileContents>,
}

/// The contents of SSTables by kind, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileContents {
    /// Keys and values, before encoding and compression.
    pub content_bytes: u64,
    /// Data blocks.
    pub data_bytes: u64,
    /// Index blocks.
    pub index_bytes: u64,
    /// Filters.
    pub filter_bytes: u64,
}

impl FileContents {
    /// Adds the contents of another tablet.
    pub fn add(&mut self, other: &Self) {
        self.content_bytes += other.content_bytes;
        self.data_bytes += other.data_bytes;
        self.index_bytes += other.index_bytes;
        self.filter_bytes += other.filter_bytes;
    }

    /// Parses RocksDB's text about the properties of tables: `…; raw key size=16; …; index block size (user-key? 1,
    /// delta-value? 1)=100; …`.
    pub(crate) fn read(properties: &str) -> Option<Self> {
        let find = |name: &str| {
            let fields = properties.split(';').filter_map(|field| field.split_once('='));
            let is_meant =
                |found: &str| found.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("));
            fields.filter(|(found, _)| is_meant(found.trim())).find_map(|(_, value)| value.trim().parse::<u64>().ok())
        };
        Some(Self {
            content_bytes: find("raw key size")? + find("raw value size")?,
            data_bytes: find("data block size")?,
            index_bytes: find("index block size")?,
            filter_bytes: find("filter block size")?,
        })
    }
}

/// The last result, valid for one number of flushes and compactions, so that the files are not read again each time.
#[derive(Debug, Default)]
pub(crate) struct FilesKept {
    pub(crate) version: Option<u64>,
    pub(crate) files: TabletFiles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_read_from_the_text_about_tables() {
        let text = "# data blocks=3; raw key size=16; raw average key size=8.000000; raw value size=100; data block size=90; \
                    index block size (user-key? 1, delta-value? 1)=7; # index partitions=1; filter block size=5; ";
        let contents = FileContents { content_bytes: 116, data_bytes: 90, index_bytes: 7, filter_bytes: 5 };
        assert_eq!(FileContents::read(text), Some(contents));
        assert_eq!(FileContents::read("raw key size=16; "), None);
    }
}
