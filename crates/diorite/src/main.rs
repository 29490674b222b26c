//! The `diorite` binary: parses the command line and hands over to the crate that does the work.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {}
