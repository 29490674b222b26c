//! Cells with a TTL: readable during their lifetime, and not afterwards.
//!
//! Always true: each cell is written once. A write with an unknown outcome may be present or absent; a cell that was
//! seen was written before that, so it expires no later than its TTL afterwards. Expiry is counted in whole seconds and
//! by other clocks, so the caller adds a margin on both sides.

use crate::operation::Ended;
use crate::violation::Violation;
use std::collections::BTreeMap;

/// One write of a cell that no other write has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiring {
    /// The cell.
    pub key: u64,
    /// Its lifetime, nanoseconds.
    pub lifetime_ns: u64,
    /// The outcome of the write.
    pub ended: Ended,
    /// When it was sent, nanoseconds on the clock of all clients.
    pub sent_ns: u64,
    /// When it was answered.
    pub answered_ns: u64,
}

/// One read of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The cell.
    pub key: u64,
    /// Whether it was there.
    pub is_seen: bool,
    /// When the read was sent, nanoseconds on the clock of all clients.
    pub sent_ns: u64,
    /// When it was answered.
    pub answered_ns: u64,
}

/// Checks that each cell was seen by reads during its lifetime, and by none before its write or after its lifetime.
pub fn check_expiring(writes: &[Expiring], looks: &[Look], margin_ns: u64) -> Result<(), Violation> {
    let mut by_key: BTreeMap<u64, Expiring> = BTreeMap::new();
    for write in writes {
        if by_key.insert(write.key, *write).is_some() {
            return Err(Violation::Malformed(format!("cell {} was written twice", write.key)));
        }
    }
    let first_seen = first_seen(looks);
    let wrong = |key, reason| Err(Violation::Expiring { key, reason });
    for look in looks {
        let Some(write) = by_key.get(&look.key) else {
            if look.is_seen {
                return wrong(look.key, "it was seen and nobody wrote it".to_owned());
            }
            continue;
        };
        // The time before which the cell existed, if that is known.
        let answered = (write.ended == Ended::Done).then_some(write.answered_ns);
        let there_ns = [answered, first_seen.get(&look.key).copied()].into_iter().flatten().min();
        let since = |earlier_ns: u64| look.sent_ns.saturating_sub(earlier_ns) / 1_000_000;
        if look.is_seen {
            let is_over = |there_ns: u64| look.sent_ns > there_ns.saturating_add(write.lifetime_ns + margin_ns);
            match there_ns {
                _ if write.ended == Ended::NotDone => return wrong(look.key, "it was refused and seen".to_owned()),
                _ if look.answered_ns < write.sent_ns => {
                    return wrong(look.key, "it was seen before it was sent".to_owned());
                }
                Some(there_ns) if is_over(there_ns) => {
                    let lifetime_ms = write.lifetime_ns / 1_000_000;
                    return wrong(
                        look.key,
                        format!("it lives {lifetime_ms} ms and was seen {} ms after it was there", since(there_ns)),
                    );
                }
                _ => {}
            }
        } else if write.ended == Ended::Done
            && look.sent_ns >= write.answered_ns
            && look.answered_ns + margin_ns < write.sent_ns + write.lifetime_ns
        {
            let lifetime_ms = write.lifetime_ns / 1_000_000;
            return wrong(
                look.key,
                format!("it lives {lifetime_ms} ms and was gone {} ms after it was sent", since(write.sent_ns)),
            );
        }
    }
    Ok(())
}

/// When each cell was seen first.
fn first_seen(looks: &[Look]) -> BTreeMap<u64, u64> {
    let mut first: BTreeMap<u64, u64> = BTreeMap::new();
    for look in looks.iter().filter(|look| look.is_seen) {
        let known = first.entry(look.key).or_insert(look.answered_ns);
        *known = look.answered_ns.min(*known);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Expiring =
        Expiring { key: 1, lifetime_ns: 100, ended: Ended::Done, sent_ns: 1_000, answered_ns: 1_010 };
    const MARGIN_NS: u64 = 10;

    fn look(is_seen: bool, sent_ns: u64) -> Look {
        Look { key: 1, is_seen, sent_ns, answered_ns: sent_ns + 5 }
    }

    fn is_right(write: Expiring, looks: &[Look]) -> bool {
        check_expiring(&[write], looks, MARGIN_NS).is_ok()
    }

    #[test]
    fn a_cell_is_there_for_its_lifetime_and_not_after_it() {
        let during = [look(false, 900), look(true, 1_005), look(true, 1_010), look(true, 1_080)];
        assert!(is_right(WRITE, &during));
        assert!(is_right(WRITE, &[look(true, 1_115), look(false, 1_095), look(false, 1_300)]), "within the margin");
        assert!(!is_right(WRITE, &[look(true, 900)]), "seen before it was sent");
        assert!(!is_right(WRITE, &[look(false, 1_020)]), "gone before its time");
        assert!(!is_right(WRITE, &[look(true, 1_121)]), "there after its time");
        assert!(is_right(WRITE, &[look(false, 1_005)]), "the write was not answered yet");
    }

    #[test]
    fn what_was_refused_is_never_seen_and_what_is_unknown_is_bounded_by_the_first_look_that_saw_it() {
        let refused = Expiring { ended: Ended::NotDone, ..WRITE };
        assert!(is_right(refused, &[look(false, 1_020)]) && !is_right(refused, &[look(true, 1_020)]));
        let unknown = Expiring { ended: Ended::Unknown, ..WRITE };
        assert!(is_right(unknown, &[look(false, 1_020), look(true, 2_000), look(true, 2_110)]));
        assert!(!is_right(unknown, &[look(true, 2_000), look(true, 2_116)]));
        assert!(check_expiring(&[], &[look(true, 1)], MARGIN_NS).is_err(), "nobody wrote it");
        assert!(check_expiring(&[], &[look(false, 1)], MARGIN_NS).is_ok());
        assert!(matches!(check_expiring(&[WRITE, WRITE], &[], 0), Err(Violation::Malformed(_))));
    }
}
