//! Levels: one number for all that is stored and for what an entry of a log does when it is applied.
//!
//! The catalog has the cluster's level. It grows by one at a time, once every member's program knows the next level
//! (`diorite admin upgrade`). Until then nothing is written that a program of the release before could not read, so
//! that any node may go back to it. `docs/formats/levels.md` lists what each level has added.
//!
//! Always true: what an entry does depends on the entry and the state before it, never on the program that applies it.
//! A change of a format or of such an effect is a new form of the entry, which belongs to a level; the earlier form
//! keeps its effect for as long as [`Levels::OWN`] has the earlier level.
//! Left out: what is only said between two nodes. That has a level of its own for each connection, by its handshake.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u32);

impl Level {
    /// The level of programs and clusters that know of no levels.
    pub const FIRST: Self = Self(1);
    /// The catalog has a level, the levels of its nodes' programs, and CIDR groups.
    pub const RECORDED: Self = Self(2);

    /// The level after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The level before this one; that of the first one is itself.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1)).max(Self::FIRST)
    }

    /// Whether it is [`Level::FIRST`], which is not written.
    pub fn is_first(&self) -> bool {
        *self == Self::FIRST
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The levels that a program knows: all from `least` to `greatest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// The lowest.
    pub least: Level,
    /// The highest.
    pub greatest: Level,
}

impl Levels {
    /// The levels of this program: that of the release before, and its own.
    pub const OWN: Self = Self { least: Level::FIRST, greatest: Level::RECORDED };
    /// The level of a program that knows of no levels.
    pub const FIRST: Self = Self { least: Level::FIRST, greatest: Level::FIRST };

    /// Whether the level is one of them.
    pub fn contains(self, level: Level) -> bool {
        (self.least..=self.greatest).contains(&level)
    }
}

/// What an operator has decided about the next level: to hold the cluster at its level, or to let it be raised by
/// itself again. Noted on the disks of all nodes; the decision with the greatest number is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The level of the cluster; the decision means nothing at another one.
    pub level: Level,
    /// Counts the decisions.
    pub number: u64,
    /// Whether the cluster is held.
    pub is_held: bool,
}

impl Hold {
    /// Whether it overrules another decision. Of two with the same number, the one that holds is in force.
    pub fn overrules(&self, other: &Self) -> bool {
        (self.level, self.number, self.is_held) > (other.level, other.number, other.is_held)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.level, self.number, if self.is_held { "held" } else { "resumed" })
    }
}

impl FromStr for Hold {
    type Err = InvalidHold;

    fn from_str(text: &str) -> Result<Self, InvalidHold> {
        let mut words = text.split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (level, number) = number().zip(number()).ok_or(InvalidHold)?;
        let level = u32::try_from(level).map_err(|_| InvalidHold)?;
        let is_held = match (words.next(), words.next()) {
            (Some("held"), None) => true,
            (Some("resumed"), None) => false,
            _ => return Err(InvalidHold),
        };
        Ok(Self { level: Level(level), number, is_held })
    }
}

/// A text is no [`Hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not LEVEL NUMBER held|resumed")]
pub struct InvalidHold;

impl Default for Levels {
    /// Of a node that has not said which levels its program knows.
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least == self.greatest {
            true => write!(f, "level {}", self.least),
            false => write!(f, "levels {} to {}", self.least, self.greatest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_one_another() {
        assert_eq!((Level::FIRST.next(), Level::RECORDED.previous()), (Level::RECORDED, Level::FIRST));
        assert_eq!(Level::FIRST.previous(), Level::FIRST);
        assert!(Levels::OWN.contains(Level::FIRST) && !Levels::FIRST.contains(Level::RECORDED));
        assert_eq!(Levels::OWN.to_string(), "levels 1 to 2");
        assert_eq!(Levels::default().to_string(), "level 1");
    }

    #[test]
    fn the_newest_decision_of_an_operator_is_in_force() {
        let decided = |level, number, is_held| Hold { level: Level(level), number, is_held };
        for hold in [decided(1, 0, true), decided(2, u64::MAX, false)] {
            assert_eq!(hold.to_string().parse(), Ok(hold));
        }
        assert_eq!(decided(1, 3, true).to_string(), "1 3 held");
        for text in ["", "1", "1 3", "1 3 kept", "1 3 held 4", "4294967296 3 held", "-1 3 held"] {
            assert_eq!(text.parse::<Hold>(), Err(InvalidHold), "{text}");
        }
        assert!(decided(1, 3, true).overrules(&decided(1, 3, false)), "in doubt it is held");
        assert!(decided(1, 4, false).overrules(&decided(1, 3, true)));
        assert!(decided(2, 1, false).overrules(&decided(1, 3, true)), "a decision is for one level");
        assert!(!decided(1, 3, true).overrules(&decided(1, 3, true)));
    }

    #[test]
    fn no_release_lies_between_the_levels_of_a_program() {
        assert!(Levels::OWN.least >= Levels::OWN.greatest.previous(), "that of the release before, and its own");
    }
}
