//! The memtable of tablets: the entries that have been written and not yet flushed, in order.
//!
//! Always true: one thread at a time writes to a tablet, as [`base_options`](super::shared) says; readers wait for nothing.
//! Left out: the structure itself (`memtable/tree.h`), which RocksDB calls through `memtable/memtable.cc`.

use rust_librocksdb_sys as ffi;
use rust_rocksdb::{AsRawPtr, Options};

unsafe extern "C" {
    fn diorite_options_set_memtable(options: *mut ffi::rocksdb_options_t);
}

/// Makes everything that is opened with these options use this memtable, which does not support concurrent writers.
pub(crate) fn set(options: &mut Options) {
    options.set_allow_concurrent_memtable_write(false);
    // SAFETY: the pointer is valid for the call, in which RocksDB's options take a counted reference to the factory.
    unsafe { diorite_options_set_memtable(options.as_raw_ptr()) };
}

#[cfg(test)]
mod tests;
