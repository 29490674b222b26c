//! `system_auth`: roles, their members and permissions, and groups of networks, as tools read them.
//!
//! Always true: the rows are those of the catalog. Left out: writing them; the statements about roles do, and
//! operators.

use super::cells::{RowBuilder, boolean, inet, list, set, smallint, text, tuple};
use super::source::Row;
use diorite_cluster::catalog::{Catalog, Permitted};
use diorite_model::schema::Table;
use std::collections::BTreeSet;

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

/// The networks of a role itself are among the names: nothing else shows them.
pub(super) fn cidr_permissions<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    catalog.roles().filter_map(move |role| match &role.cidrs {
        Permitted::All => None,
        Permitted::Only(names) => {
            let names = set(names.iter().map(String::as_str));
            Some(RowBuilder::new(table).set("role", text(&role.name)).set("cidr_groups", names).finish())
        }
    })
}

pub(super) fn cidr_groups<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    catalog.cidr_groups().map(move |(name, group)| {
        // Tuples are ordered by the bytes of their elements.
        let networks = group.cidrs.iter().map(|network| (inet(network.address()), smallint(network.bits().into())));
        let networks: BTreeSet<_> = networks.collect();
        let tuples = networks.into_iter().map(|(address, bits)| tuple([&address, &bits]));
        let cidrs = list(tuples.collect::<Vec<_>>().into_iter());
        RowBuilder::new(table).set("cidr_group", text(name)).set("cidrs", cidrs).finish()
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
