//! The node's memory by component.
//!
//! Always true: the components add up to the process's memory, as far as the system and the allocator report it: memory
//! without an account is a component of its own.

use super::process;
use crate::shared::Shared;
use diorite_admin::api::{AllocatorStatus, MemoryComponent, MemoryStatus};
use diorite_query::trace::MAX_TRACES_BYTES;

/// Reads the memory of all components now.
pub(crate) fn look(
    shared: &Shared,
    lanes_bytes: u64,
    limit_bytes: u64,
    allocator: Option<AllocatorStatus>,
) -> MemoryStatus {
    let resident_bytes = process::resident_bytes();
    let mut components = accounted(shared, lanes_bytes);
    let known: u64 = components.iter().map(|component| component.bytes).sum();
    let mut add = |name: &str, bytes: u64| components.push(MemoryComponent::new(name, bytes, None));
    match (allocator, resident_bytes) {
        (Some(allocator), resident_bytes) => {
            // Memory that the allocator counts as resident may not have been touched yet.
            let resident = allocator.resident.min(resident_bytes.unwrap_or(u64::MAX));
            add("other allocations", allocator.allocated.saturating_sub(known));
            add("allocator: unused parts of pages and bookkeeping", resident.saturating_sub(allocator.allocated));
            add("program, stacks and mapped files", resident_bytes.unwrap_or(0).saturating_sub(resident));
        }
        (None, Some(resident_bytes)) => add("other", resident_bytes.saturating_sub(known)),
        (None, None) => {}
    }
    MemoryStatus { resident_bytes, limit_bytes, components, allocator }
}

/// Components with accounts.
fn accounted(shared: &Shared, lanes_bytes: u64) -> Vec<MemoryComponent> {
    let store = &shared.kv.store;
    let (storage, options) = (store.shared(), store.shared().options());
    let memtables = storage.memtable_usage_bytes() as u64;
    // Memtables are charged to the cache.
    let blocks = (storage.cache_usage_bytes() as u64).saturating_sub(memtables);
    let readers: u64 = store.tablets().values().map(|tablet| tablet.data().reader_bytes()).sum();
    let (queued, queue_limit) = store.queued_bytes();
    vec![
        MemoryComponent::new("block cache: data, indexes and filters", blocks, Some(options.cache_bytes as u64)),
        MemoryComponent::new("memtables", memtables, Some(options.memtable_limit_bytes as u64)),
        MemoryComponent::new("table readers, beside the cache", readers, None),
        MemoryComponent::new("writes and messages queued for the store", queued as u64, Some(2 * queue_limit as u64)),
        MemoryComponent::new(
            "requests of clients, and buffers of their connections",
            shared.account.used_bytes() as u64,
            Some(shared.account.limit_bytes() as u64),
        ),
        MemoryComponent::new("frames waiting for other nodes", lanes_bytes, None),
        MemoryComponent::new("prepared statements", shared.engine.prepared_bytes() as u64, None),
        MemoryComponent::new(
            "traces of requests",
            shared.engine.traces().bytes() as u64,
            Some(MAX_TRACES_BYTES as u64),
        ),
        MemoryComponent::new("recent log lines", shared.logging.recent.bytes() as u64, None),
    ]
}
