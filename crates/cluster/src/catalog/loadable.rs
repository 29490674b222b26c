//! Checks that the objects which a command changes can be stored and loaded again.
//!
//! A stored definition that cannot be loaded keeps every node from starting. So each command that defines something is
//! checked twice: by itself, before it is proposed ([`super::bounds`]), and together with the current catalog, when it
//! is applied: the changed objects are encoded as they will be stored, and decoded again.
//!
//! Always true: a change that is not loadable is not applied.

use super::bounds::{Rules, shortened};
use super::deep::json_depth;
use super::outcome::Rejection;
use super::persist::Put;
use super::snapshot::Catalog;
use super::step::Rejected;
use diorite_base::limits;

/// Checks that the changes from `older` to `catalog` can be stored and loaded.
pub(super) fn check_loadable(catalog: &Catalog, older: &Catalog, rules: Rules) -> Result<(), Rejected> {
    let puts = catalog.puts_since(older);
    if rules == Rules::Limited {
        let bytes = puts.iter().filter_map(|(_, value)| value.as_ref()).map(Vec::len).sum();
        limits::check(&limits::CATALOG_CHANGE_BYTES, bytes, || "what the change stores".to_owned())?;
    }
    puts.iter().try_for_each(|put| check_put(catalog, put, rules))
}

fn check_put(catalog: &Catalog, (key, value): &Put, rules: Rules) -> Result<(), Rejected> {
    let Some(value) = value else { return Ok(()) };
    let key = String::from_utf8_lossy(key);
    if rules == Rules::Limited {
        let what = || format!("the definition of {}", shortened(&key));
        limits::check(&limits::CATALOG_DEPTH, json_depth(value), what)?;
    }
    let refused = |reason: String| Rejected(Rejection::Invalid, format!("it could not be loaded again: {reason}"));
    match catalog.holds(&key, value) {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused(format!("{} reads back as another", shortened(&key)))),
        Err(error) => Err(refused(error.to_string())),
    }
}
