//! What the fuzzers do with the catalog; `cargo test` replays their seeds.
//!
//! Always true: whatever a command asks, the catalog after it is stored and loaded as the same catalog. Left out: whether a command is sensible.

use crate::catalog::{Catalog, Command};
use std::collections::BTreeMap;

/// Applies arbitrary commands, a JSON text a line, and loads what each leaves behind.
///
/// # Panics
///
/// If a stored catalog cannot be loaded, or is another one then.
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
