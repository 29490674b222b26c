//! Replays the seed inputs of a fuzz target in `cargo test`: `fuzz/seeds/<target>`, each as it is and with a few hundred small changes.
//!
//! Always true: the same tree replays the same inputs; a target without seeds fails, so that a renamed folder is noticed. Left out: searching
//! for new inputs, which `make fuzz` does, guided by coverage.

use std::path::{Path, PathBuf};

/// How many changed copies of each seed are run.
const CHANGES_PER_SEED: u64 = 200;

/// The folder of the crate whose test runs, as Cargo says when it runs it: checkouts at several places may share what is compiled.
///
/// # Panics
///
/// If Cargo does not run the test.
pub fn crate_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the test").into()
}

/// The folder of a target's seeds.
pub fn folder(target: &str) -> PathBuf {
    crate_folder().join("../../fuzz/seeds").join(target)
}

/// Runs `run` on each seed of `target`, and on changed copies of it.
///
/// # Panics
///
/// If there is no seed, or `run` panics; the input is then printed as hexadecimal digits.
pub fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = folder(target);
    let listed = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no seed", folder.display());
    for (number, path) in paths.iter().enumerate() {
        let seed = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        shown(path, &seed, &run);
        let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (number as u64 + 1));
        for _ in 0..CHANGES_PER_SEED {
            shown(path, &changed(&seed, &mut random), &run);
        }
    }
}

/// Runs one input and prints it if it fails.
fn shown(path: &Path, input: &[u8], run: &impl Fn(&[u8])) {
    struct OnPanic<'a>(&'a Path, &'a [u8]);
    impl Drop for OnPanic<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let digits: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
                eprintln!("failed on a change of {}: {digits}", self.0.display());
            }
        }
    }
    let _on_panic = OnPanic(path, input);
    run(input);
}

/// Xorshift: the same inputs in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if limit == 0 { 0 } else { (self.0 % limit as u64) as usize }
    }
}

/// A copy with one to three changes: a byte replaced, a bit flipped, a piece removed, repeated or moved, the end cut off.
fn changed(seed: &[u8], random: &mut Random) -> Vec<u8> {
    const EDGES: [u8; 6] = [0, 1, 0x7F, 0x80, 0xFE, 0xFF];
    let mut input = seed.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(input.len());
        let end = at + random.below(input.len().saturating_sub(at).min(64) + 1);
        match random.below(6) {
            _ if input.is_empty() => input.push(random.below(256) as u8),
            0 => input[at] = EDGES[random.below(EDGES.len())],
            1 => input[at] ^= 1 << random.below(8),
            2 => drop(input.drain(at..end)),
            3 => {
                let piece = input[at..end].to_vec();
                let to = random.below(input.len());
                input.splice(to..to, piece);
            }
            4 => input.truncate(at),
            _ => input[at] = random.below(256) as u8,
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_changes() {
        let changes = |start| {
            let mut random = Random(start);
            (0..50).map(|_| changed(b"some bytes to start from", &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(changes(7), changes(7));
        assert_ne!(changes(7), changes(8));
    }

    #[test]
    #[should_panic(expected = "no-such-target")]
    fn a_target_without_seeds_fails() {
        replay("no-such-target", |_| {});
    }
}
