//! Values that options refuse, each with the reason: with them a node would start and not work.

use diorite_base::text::Size;
use thiserror::Error;

/// The least memory limit: the buffers of some connections and requests, and a memtable.
const LEAST_MEMORY_BYTES: u64 = 16 << 20;
/// RocksDB takes no more.
const MOST_BLOOM_BITS: f64 = 100.0;
/// Without any, nobody could use the node.
const LEAST_CONNECTIONS: usize = 1;

/// Two ports are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("--{one} and --{other} are both {port}: each needs a port of its own")]
pub struct SamePort {
    /// The name of an option.
    pub one: &'static str,
    /// The name of the other.
    pub other: &'static str,
    /// Their value.
    pub port: u16,
}

/// Why the value of an option is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RefusedValue(String);

pub(super) fn memory_limit(text: &str) -> Result<Size, RefusedValue> {
    let size: Size = text.parse().map_err(RefusedValue)?;
    if size.0 < LEAST_MEMORY_BYTES {
        return Err(RefusedValue(format!("a node needs {} MiB at least", LEAST_MEMORY_BYTES >> 20)));
    }
    Ok(size)
}

pub(super) fn connections(text: &str) -> Result<usize, RefusedValue> {
    let number = text.parse::<usize>().ok().filter(|number| *number >= LEAST_CONNECTIONS);
    number.ok_or_else(|| RefusedValue(format!("it is a number, at least {LEAST_CONNECTIONS}")))
}

pub(super) fn bloom_bits(text: &str) -> Result<f64, RefusedValue> {
    let bits = text.parse::<f64>().ok().filter(|bits| (0.0..=MOST_BLOOM_BITS).contains(bits));
    bits.ok_or_else(|| RefusedValue(format!("it is a number from 0 to {MOST_BLOOM_BITS}")))
}

/// Fails if two of these options name one port; 0 is any port that is free.
pub(super) fn check_ports(ports: &[(&'static str, u16)]) -> Result<(), SamePort> {
    for (at, &(one, port)) in ports.iter().enumerate().filter(|(_, (_, port))| *port != 0) {
        if let Some(&(other, _)) = ports[at + 1..].iter().find(|(_, other)| *other == port) {
            return Err(SamePort { one, other, port });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_which_a_node_does_not_work_are_refused() {
        assert!(memory_limit("1KB").is_err_and(|reason| reason.0.contains("16 MiB")));
        assert_eq!(memory_limit("64MiB"), Ok(Size(64 << 20)));
        assert!(connections("0").is_err() && connections("many").is_err());
        assert_eq!(connections("1"), Ok(1));
        assert!(["1000", "-1", "NaN", "x"].iter().all(|bits| bloom_bits(bits).is_err()));
        assert_eq!((bloom_bits("0"), bloom_bits("9.5"), bloom_bits("100")), (Ok(0.0), Ok(9.5), Ok(100.0)));
    }

    #[test]
    fn help_names_these_limits() {
        let command = <super::super::StartOptions as clap::Args>::augment_args(clap::Command::new("start"));
        let help = |option: &str| {
            let argument = command.get_arguments().find(|argument| argument.get_long() == Some(option));
            argument.and_then(|argument| argument.get_help()).map(ToString::to_string).unwrap_or_default()
        };
        for (option, limit) in [
            ("memory-limit", format!("at least {}MiB", LEAST_MEMORY_BYTES >> 20)),
            ("bloom-bits", format!("from 0 to {MOST_BLOOM_BITS}")),
            ("max-connections", format!("at least {LEAST_CONNECTIONS}.")),
        ] {
            assert!(help(option).contains(&limit), "--{option}: {}", help(option));
        }
    }

    #[test]
    fn two_options_do_not_name_one_port() {
        assert_eq!(check_ports(&[("a", 1), ("b", 2), ("c", 3)]), Ok(()));
        assert_eq!(check_ports(&[("a", 0), ("b", 0)]), Ok(()));
        let same = check_ports(&[("a", 1), ("b", 2), ("c", 1)]);
        assert_eq!(same, Err(SamePort { one: "a", other: "c", port: 1 }));
    }
}
