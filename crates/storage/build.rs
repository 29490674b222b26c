//! Compiles the one function that RocksDB's C interface lacks, against the headers of the RocksDB that is linked.

fn main() {
    const SOURCE: &str = "src/rate_limiter/rate_limiter.cc";
    println!("cargo::rerun-if-changed={SOURCE}");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++20").file(SOURCE);
    if let Some(include) = std::env::var_os("DEP_ROCKSDB_INCLUDE") {
        build.include(include);
    }
    build.compile("diorite_rate_limiter");
}
