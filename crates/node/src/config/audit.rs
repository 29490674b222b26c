//! What an operator can set about the audit log.

use clap::ValueEnum;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the audit log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOption {
    /// There is none.
    None,
    /// The journal of the system.
    Journal,
    /// A file.
    File(PathBuf),
}

impl FromStr for AuditOption {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "none" => Self::None,
            "journal" => Self::Journal,
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for AuditOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Journal => f.write_str("journal"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Serialize for AuditOption {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What is kept in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditCategory {
    /// Logins, those that fail included.
    Logins,
    /// Changes of roles, memberships and permissions.
    Roles,
    /// Changes of the schema.
    Schema,
    /// Settings, and operations on nodes and tablets.
    Operations,
    /// Reads and writes of rows of the tables that --audit-tables chooses.
    #[value(skip)]
    Data,
}

/// A table whose reads and writes are kept in the audit log, or all tables of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedTable {
    keyspace: String,
    table: Option<String>,
}

impl AuditedTable {
    /// Whether it is, or has, this table.
    pub fn has(&self, keyspace: &str, table: &str) -> bool {
        self.keyspace == keyspace && self.table.as_deref().is_none_or(|known| known == table)
    }
}

impl FromStr for AuditedTable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (keyspace, table) = match text.split_once('.') {
            Some((keyspace, table)) => (keyspace, Some(table)),
            None => (text, None),
        };
        if keyspace.is_empty() || table.is_some_and(|table| table.is_empty() || table.contains('.')) {
            return Err(format!("'{text}' is neither KEYSPACE nor KEYSPACE.TABLE"));
        }
        Ok(Self { keyspace: keyspace.to_owned(), table: table.map(str::to_owned) })
    }
}

impl fmt::Display for AuditedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Some(table) => write!(f, "{}.{table}", self.keyspace),
            None => f.write_str(&self.keyspace),
        }
    }
}

impl Serialize for AuditedTable {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audited_tables() {
        let read = |text: &str| text.parse::<AuditedTable>();
        assert!(read("ks").is_ok_and(|all| all.has("ks", "t") && !all.has("KS", "t")));
        assert!(read("ks.t").is_ok_and(|one| one.has("ks", "t") && !one.has("ks", "u") && !one.has("t", "ks")));
        assert_eq!(read("ks.t").map(|one| one.to_string()), Ok("ks.t".to_owned()));
        for wrong in ["", ".", "ks.", ".t", "ks.t.u"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
