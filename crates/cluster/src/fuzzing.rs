//! The fuzz target of the catalog; `cargo test` replays its seeds.
//!
//! Always true: whatever a command asks, the catalog after it can be stored and loaded without a change. Left out:
//! whether a command makes sense.

use crate::catalog::{Catalog, Command};
use std::collections::BTreeMap;

/// Applies arbitrary commands, one JSON text per line, and stores and loads the catalog after each.
///
/// # Panics
///
/// If a stored catalog cannot be loaded, or differs then.
pub fn catalog(input: &[u8]) {
    let mut current = Catalog::default();
    let mut stored: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Ok(command) = Command::decode(line) else { continue };
        let (after, _) = current.apply(&command);
        for (key, value) in after.puts_since(&current) {
            match value {
                Some(value) => drop(stored.insert(key, value)),
                None => drop(stored.remove(&key)),
            }
        }
        let loaded = Catalog::load(stored.iter()).unwrap_or_else(|error| panic!("{error} after {command:?}"));
        assert_eq!(loaded.version(), after.version(), "after {command:?}");
        assert!(loaded.puts_since(&after).is_empty(), "a catalog is loaded as it was stored, after {command:?}");
        current = after;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_the_catalog() {
        diorite_seeds::replay("catalog", super::catalog);
    }
}
