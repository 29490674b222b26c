//! Whether clients have to log in.
//!
//! Always true: the decision is the cluster's. It is made when the cluster is created. In a catalog of an earlier version it is not made yet; then
//! the first decision counts, and later ones that are meant for such a catalog change nothing. An operator may change it. Logins are not
//! required by an operator while no superuser could log in. Left out: what a node does as long as nothing is decided (`diorite_control::access`).

use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};

pub(super) fn require_login(catalog: &mut Catalog, required: bool, if_undecided: bool) -> Step {
    match catalog.identity.requires_login {
        Some(decided) if if_undecided || decided == required => return Ok(Done::Nothing),
        Some(_) | None => {}
    }
    if required && !if_undecided && !has_administrator(catalog) {
        let message = "no superuser could log in: first create one, with a password of its own (CREATE ROLE … WITH PASSWORD = … AND LOGIN = true AND SUPERUSER = true)";
        return Err(Rejected(Rejection::Invalid, message.to_owned()));
    }
    catalog.identity.requires_login = Some(required);
    Ok(Done::Changed)
}

/// Whether a superuser can log in, with a password that not everybody knows; and nobody with one that everybody knows.
fn has_administrator(catalog: &Catalog) -> bool {
    let can_log_in = catalog.roles().filter(|role| role.can_login && role.password_hash.is_some());
    let mut superusers = can_log_in.filter(|role| catalog.is_superuser(&role.name));
    !catalog.has_initial_password() && superusers.next().is_some()
}
