//! `system_auth`: roles, their members and permissions, as tools read them.
//!
//! Always true: the rows are those of the catalog. Left out: writing them; the statements about roles do.

use super::cells::{RowBuilder, boolean, set, text};
use super::source::Row;
use diorite_cluster::catalog::{Catalog, Permitted};
use diorite_model::schema::Table;

pub(super) fn roles<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    catalog.roles().map(move |role| {
        let mut row = RowBuilder::new(table)
            .set("role", text(&role.name))
            .set("can_login", boolean(role.can_login))
            .set("is_superuser", boolean(role.is_superuser));
        if !role.member_of.is_empty() {
            row = row.set("member_of", set(role.member_of.iter().map(String::as_str)));
        }
        match &role.password_hash {
            Some(hash) => row.set("salted_hash", text(hash)).finish(),
            None => row.finish(),
        }
    })
}

pub(super) fn networks<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    catalog.roles().filter_map(move |role| match &role.datacenters {
        Permitted::All => None,
        Permitted::Only(names) => {
            let names = set(names.iter().map(String::as_str));
            Some(RowBuilder::new(table).set("role", text(&role.name)).set("dcs", names).finish())
        }
    })
}

pub(super) fn members<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    let row = move |role: &String, member: &String| {
        RowBuilder::new(table).set("role", text(role)).set("member", text(member)).finish()
    };
    catalog.roles().flat_map(move |member| member.member_of.iter().map(move |role| row(role, &member.name)))
}

pub(super) fn permissions<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    catalog.roles().flat_map(move |role| {
        role.permissions.iter().map(move |(resource, permissions)| {
            RowBuilder::new(table)
                .set("role", text(&role.name))
                .set("resource", text(resource))
                .set("permissions", set(permissions.iter().map(String::as_str)))
                .finish()
        })
    })
}
