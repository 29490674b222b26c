//! The catalog as keys and values: one key per object, JSON values.
//!
//! Keys are text: `cluster`, `keyspace/<name>`, `table/<id>`, `type/<keyspace>/<name>`, `node/<id>`, `tablet/<id>`,
//! `dropped/<id>`, `role/<name>`, `join_token/<id>`, `cidr_group/<name>`; ids are 16 hexadecimal digits. `cluster`
//! carries the format number and is written with every change. An unknown key or a newer format is an error that names
//! it: serving half a catalog would drop what it does not see. A catalog is written in the oldest format that has
//! everything in it.

use super::cidr_groups;
use super::deep::made_shallow;
use super::identity::Identity;
use super::snapshot::{Catalog, Map};
use diorite_base::{Level, Levels, NodeId, TableId, TabletId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// The newest format of the stored catalog.
const STORED_FORMAT: u32 = 4;
/// The oldest format that has join tokens.
const TOKENS_FORMAT: u32 = 3;
/// The oldest format that says who has to log in.
const LOGINS_FORMAT: u32 = 2;
/// The format of a catalog that every version can load.
const FIRST_FORMAT: u32 = 1;
const CLUSTER_KEY: &str = "cluster";

/// A key with its new value, or `None` if it is to be removed.
pub type Put = (Vec<u8>, Option<Vec<u8>>);

/// Why stored keys do not make a catalog.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    /// Written by a newer version of the program.
    #[error("the stored catalog has format {found}, this program knows up to {STORED_FORMAT}: upgrade it")]
    NewerFormat {
        /// Its format.
        found: u32,
    },
    /// Written at a level that the program does not know.
    #[error("the catalog is at level {found}, this program knows {known}: it needs another release")]
    OtherLevel {
        /// Its level.
        found: Level,
        /// The levels of the program.
        known: Levels,
    },
    /// A key or value that does not belong to a catalog.
    #[error("the stored catalog is damaged at key {key:?}: {reason}")]
    Damaged {
        /// The key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
struct StoredIdentity {
    format: u32,
    #[serde(flatten)]
    identity: Identity,
}

impl Catalog {
    /// The writes that turn the stored form of `older` into that of this snapshot.
    pub fn puts_since(&self, older: &Catalog) -> Vec<Put> {
        let mut puts = Vec::new();
        if self.identity != older.identity {
            let stored = StoredIdentity { format: self.stored_format(), identity: self.identity.clone() };
            puts.push((CLUSTER_KEY.as_bytes().to_vec(), Some(json(&stored))));
        }
        differences(&older.keyspaces, &self.keyspaces, |name| format!("keyspace/{name}"), &mut puts);
        differences(&older.types, &self.types, |(keyspace, name)| format!("type/{keyspace}/{name}"), &mut puts);
        differences(&older.tables, &self.tables, |id| format!("table/{:016x}", id.0), &mut puts);
        differences(&older.nodes, &self.nodes, |id| format!("node/{:016x}", id.0), &mut puts);
        differences(&older.tablets, &self.tablets, |id| format!("tablet/{:016x}", id.0), &mut puts);
        differences(&older.dropped, &self.dropped, |id| format!("dropped/{:016x}", id.0), &mut puts);
        differences(&older.roles, &self.roles, |name| format!("role/{name}"), &mut puts);
        differences(&older.join_tokens, &self.join_tokens, |id| format!("join_token/{id}"), &mut puts);
        differences(&older.cidr_groups, &self.cidr_groups, |name| format!("cidr_group/{name}"), &mut puts);
        puts
    }

    /// The oldest format that has everything in it: a program that ignored who may enter would let everybody in.
    fn stored_format(&self) -> u32 {
        let is_restricted = || self.roles.values().any(|role| role.is_restricted());
        if !self.level().is_first() || !self.cidr_groups.is_empty() {
            STORED_FORMAT
        } else if !self.join_tokens.is_empty() {
            TOKENS_FORMAT
        } else if self.identity.requires_login.is_some() || is_restricted() {
            LOGINS_FORMAT
        } else {
            FIRST_FORMAT
        }
    }

    /// Reads a stored catalog. No entries at all make the empty catalog of a cluster that has no identity yet.
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(entries: impl IntoIterator<Item = (K, V)>) -> Result<Self, LoadError> {
        let mut catalog = Catalog::default();
        let (mut has_identity, mut first_key) = (false, None);
        for (key, value) in entries {
            let key = String::from_utf8_lossy(key.as_ref()).into_owned();
            if key == CLUSTER_KEY {
                catalog.identity = load_identity(&key, value.as_ref())?;
                has_identity = true;
            } else {
                let shallow = made_shallow(value.as_ref());
                catalog.load_object(&key, shallow.as_deref().unwrap_or_else(|| value.as_ref()))?;
            }
            first_key.get_or_insert(key);
        }
        match first_key {
            Some(key) if !has_identity => {
                Err(LoadError::Damaged { key, reason: "there is no key \"cluster\"".to_owned() })
            }
            _ => catalog.with_derived(),
        }
    }

    fn load_object(&mut self, key: &str, value: &[u8]) -> Result<(), LoadError> {
        let damaged = |reason: &str| LoadError::Damaged { key: key.to_owned(), reason: reason.to_owned() };
        let (kind, name) = key.split_once('/').ok_or_else(|| damaged("unknown kind of object"))?;
        let id = || u64::from_str_radix(name, 16).map_err(|_| damaged("not an id"));
        match kind {
            "role" => insert(&mut self.roles, name.to_owned(), key, value),
            "cidr_group" => insert(&mut self.cidr_groups, name.to_owned(), key, value),
            "keyspace" => insert(&mut self.keyspaces, name.to_owned(), key, value),
            "type" => {
                let (keyspace, name) = name.split_once('/').ok_or_else(|| damaged("not a type's name"))?;
                insert(&mut self.types, (keyspace.to_owned(), name.to_owned()), key, value)
            }
            "table" => insert(&mut self.tables, TableId(id()?), key, value),
            "node" => insert(&mut self.nodes, NodeId(id()?), key, value),
            "tablet" => insert(&mut self.tablets, TabletId(id()?), key, value),
            "dropped" => insert(&mut self.dropped, TabletId(id()?), key, value),
            "join_token" => {
                let id = name.parse().map_err(|_| damaged("not the id of a join token"))?;
                insert(&mut self.join_tokens, id, key, value)
            }
            _ => Err(damaged("unknown kind of object")),
        }
    }

    /// Whether a stored object, decoded, equals that object of this snapshot.
    pub(super) fn holds(&self, key: &str, value: &[u8]) -> Result<bool, LoadError> {
        fn all_same<K: Ord, V: PartialEq>(read: &Map<K, V>, known: &Map<K, V>) -> bool {
            read.iter().all(|(id, object)| known.get(id) == Some(object))
        }
        if key == CLUSTER_KEY {
            return Ok(load_identity(key, value)? == self.identity);
        }
        let mut read = Catalog::default();
        read.load_object(key, value)?;
        Ok(all_same(&read.keyspaces, &self.keyspaces)
            && all_same(&read.types, &self.types)
            && all_same(&read.tables, &self.tables)
            && all_same(&read.nodes, &self.nodes)
            && all_same(&read.tablets, &self.tablets)
            && all_same(&read.dropped, &self.dropped)
            && all_same(&read.roles, &self.roles)
            && all_same(&read.join_tokens, &self.join_tokens)
            && all_same(&read.cidr_groups, &self.cidr_groups))
    }

    /// Fills in the values that are computed from the objects.
    fn with_derived(mut self) -> Result<Self, LoadError> {
        cidr_groups::index(&mut self);
        let (keyspaces, types, tables) = (self.keyspaces.clone(), self.types.clone(), self.tables.clone());
        keyspaces.values().for_each(|keyspace| self.toggle_digest(&**keyspace));
        types.values().for_each(|user_type| self.toggle_digest(&**user_type));
        for entry in tables.values() {
            let table = &entry.table;
            self.toggle_digest(&**table);
            if table.index_of.is_some() {
                continue;
            }
            let of_keyspace = Arc::make_mut(&mut self.names).entry(table.keyspace.clone()).or_default();
            if of_keyspace.insert(table.name.clone(), table.id).is_some() {
                let reason = format!("two tables are called {}.{}", table.keyspace, table.name);
                return Err(LoadError::Damaged { key: format!("table/{:016x}", table.id.0), reason });
            }
        }
        Ok(self)
    }
}

fn load_identity(key: &str, value: &[u8]) -> Result<Identity, LoadError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    // The format is read before the rest, whose shape a newer format may have changed.
    let Format { format } = parse(key, value)?;
    if format > STORED_FORMAT {
        return Err(LoadError::NewerFormat { found: format });
    }
    Ok(parse::<StoredIdentity>(key, value)?.identity)
}

fn insert<K: Ord + Clone, V: DeserializeOwned + Clone>(
    map: &mut Map<K, V>,
    id: K,
    key: &str,
    value: &[u8],
) -> Result<(), LoadError> {
    Arc::make_mut(map).insert(id, Arc::new(parse(key, value)?));
    Ok(())
}

fn parse<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, LoadError> {
    serde_json::from_slice(value).map_err(|error| LoadError::Damaged { key: key.to_owned(), reason: error.to_string() })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("catalog objects have string keys")
}

fn differences<K: Ord, V: PartialEq + Serialize>(
    older: &Arc<BTreeMap<K, Arc<V>>>,
    newer: &Arc<BTreeMap<K, Arc<V>>>,
    key_of: impl Fn(&K) -> String,
    puts: &mut Vec<Put>,
) {
    if Arc::ptr_eq(older, newer) {
        return;
    }
    for id in older.keys().filter(|id| !newer.contains_key(id)) {
        puts.push((key_of(id).into_bytes(), None));
    }
    for (id, value) in newer.iter() {
        if !older.get(id).is_some_and(|before| Arc::ptr_eq(before, value) || before == value) {
            puts.push((key_of(id).into_bytes(), Some(json(&**value))));
        }
    }
}
