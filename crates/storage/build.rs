//! Compiles what RocksDB's C interface lacks, against the headers of the RocksDB that is linked.

use std::path::PathBuf;

fn main() {
    const SOURCES: [&str; 2] = ["src/rate_limiter/rate_limiter.cc", "src/memtable/memtable.cc"];
    const HEADERS: [&str; 1] = ["src/memtable/tree.h"];
    for file in SOURCES.iter().chain(&HEADERS) {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut build = cc::Build::new();
    // As RocksDB itself is compiled: classes and their layouts depend on these.
    build.cpp(true).std("c++20").define("NDEBUG", "1").define("ROCKSDB_PLATFORM_POSIX", None);
    build.define("ROCKSDB_LIB_IO_POSIX", None).flag("-fno-rtti").flag("-fno-builtin-memcmp");
    build.files(SOURCES);
    if let Some(include) = std::env::var_os("DEP_ROCKSDB_INCLUDE") {
        build.include(include);
    }
    if let Some(root) = std::env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR") {
        build.include(PathBuf::from(root).join("rocksdb"));
    }
    build.compile("diorite_storage_rocksdb");
}
