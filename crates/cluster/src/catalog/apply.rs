//! The transition function of the catalog.
//!
//! Always true: a rejected or needless command leaves the snapshot as it was, version included.

use super::bounds::{Rules, check_table, check_type};
use super::command::{Command, Outcome, Rejection};
use super::{Catalog, Placement};
use diorite_base::limits::MAX_TABLETS_PER_TABLE;
use diorite_base::program::LoggedProgram;
use diorite_base::{NodeId, TableId, TabletId};
use diorite_model::schema::{Keyspace, Table, TableEntry, TabletRange};
use diorite_model::types::{CqlType, UserType};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The reason a command is turned down, on its way out.
pub(super) struct Rejected(pub Rejection, pub String);

/// What a command that was not turned down did.
pub(super) enum Done {
    Changed,
    Registered(NodeId),
    Nothing,
}

pub(super) type Step = Result<Done, Rejected>;

impl Catalog {
    /// The snapshot after `command` and the answer to it. What nodes have to do about it says [`Catalog::changes_since`].
    pub fn apply(&self, command: &Command) -> (Catalog, Outcome) {
        self.apply_by(command, Rules::Limited)
    }

    /// Like [`Self::apply`], by the rules that the command was logged with.
    pub fn apply_by(&self, command: &Command, rules: Rules) -> (Catalog, Outcome) {
        let mut next = self.clone();
        let mut step = next.step(command, rules);
        if let (Ok(Done::Changed), true) = (&step, command.is_definition())
            && let Err(rejected) = next.check_loadable(self, rules)
        {
            step = Err(rejected);
        }
        let version = self.identity.version + 1;
        next.identity.version = version;
        match step {
            Ok(Done::Changed) => (next, Outcome::Applied { version }),
            Ok(Done::Registered(node)) => (next, Outcome::Registered { node, version }),
            Ok(Done::Nothing) => (self.clone(), Outcome::Unchanged { version: self.version() }),
            Err(Rejected(rejection, message)) => {
                (self.clone(), Outcome::Rejected { version: self.version(), rejection, message })
            }
        }
    }

    fn step(&mut self, command: &Command, rules: Rules) -> Step {
        if rules == Rules::Limited {
            command.check()?;
        }
        match command {
            Command::Bootstrap { cluster_id, name, replication_factor } => {
                self.bootstrap(*cluster_id, name, *replication_factor)
            }
            Command::RegisterNode { node } => self.register_node(node),
            Command::UpdateNode { node, description } => self.update_node(*node, description),
            Command::ForgetDropped { node, tablets } => self.forget_dropped(*node, tablets),
            Command::Place { tablet, expected, replicas } => self.place(*tablet, expected, replicas),
            Command::FinishMoves { tablets } => Ok(self.finish_moves(tablets)),
            Command::BeginMerge { tablet, into } => self.begin_merge(*tablet, *into),
            Command::ServeMerge { tablet, into, number } => self.serve_merge(*tablet, *into, *number),
            Command::CancelMerge { tablet, number, cancelled } => self.cancel_merge(*tablet, *number, cancelled),
            Command::EndCancelledMerge { tablet, number } => self.end_cancelled_merge(*tablet, *number),
            Command::BeginSplit { tablet, at, stays } => self.begin_split(*tablet, *at, *stays),
            Command::CommitSplit { tablet, children } => self.commit_split(*tablet, *children),
            Command::CancelSplit { tablet } => self.cancel_split(*tablet),
            Command::ServeSplit { tablet, index, term } => self.serve_split(*tablet, *index, *term),
            Command::SetNodeState { node, state } => self.set_node_state(*node, *state),
            Command::AssignZone { node, zone } => self.assign_zone(*node, zone.as_deref()),
            Command::SetLeading { node, leads_nothing } => self.set_leading(*node, *leads_nothing),
            Command::RemoveNode { node } => self.remove_node(*node),
            Command::Set { setting } => Ok(self.set(setting)),
            Command::CreateKeyspace { keyspace, if_not_exists } => self.create_keyspace(keyspace, *if_not_exists),
            Command::AlterKeyspace { name, replication, durable_writes, if_exists } => {
                self.alter_keyspace(name, replication.as_ref(), *durable_writes, *if_exists)
            }
            Command::DropKeyspace { name, if_exists } => self.drop_keyspace(name, *if_exists),
            Command::CreateTable { table, tablets, if_not_exists } => {
                self.create_table(table, *tablets, *if_not_exists)
            }
            Command::AlterTable { table } => self.alter_table(table),
            Command::DropTable { keyspace, name, if_exists } => self.drop_table(keyspace, name, *if_exists),
            Command::TruncateTable { keyspace, name } => self.truncate_table(keyspace, name),
            Command::CreateType { user_type, if_not_exists } => self.create_type(user_type, *if_not_exists),
            Command::AlterType { expected, changed } => self.alter_type(expected, changed, rules),
            Command::DropType { keyspace, name, if_exists } => self.drop_type(keyspace, name, *if_exists),
            Command::Roles { change } => self.change_roles(change),
        }
    }

    fn bootstrap(&mut self, cluster_id: uuid::Uuid, name: &str, replication_factor: u32) -> Step {
        match self.identity.cluster_id {
            Some(existing) if existing == cluster_id => return Ok(Done::Nothing),
            Some(existing) => {
                let message = format!("this catalog belongs to cluster {existing}, not to {cluster_id}");
                return Err(Rejected(Rejection::AlreadyExists, message));
            }
            None => {}
        }
        if replication_factor == 0 {
            return Err(Rejected(Rejection::Invalid, "the replication factor must be at least 1".to_owned()));
        }
        self.identity.cluster_id = Some(cluster_id);
        self.identity.name = name.to_owned();
        self.identity.replication_factor = replication_factor;
        Ok(Done::Changed)
    }

    fn create_keyspace(&mut self, keyspace: &Keyspace, if_not_exists: bool) -> Step {
        if self.keyspaces.contains_key(&keyspace.name) {
            return already_exists(if_not_exists, || format!("keyspace {} already exists", keyspace.name));
        }
        self.toggle_digest(keyspace);
        Arc::make_mut(&mut self.keyspaces).insert(keyspace.name.clone(), Arc::new(keyspace.clone()));
        Ok(Done::Changed)
    }

    fn alter_keyspace(
        &mut self,
        name: &str,
        replication: Option<&BTreeMap<String, String>>,
        durable_writes: Option<bool>,
        if_exists: bool,
    ) -> Step {
        let Some(current) = self.keyspaces.get(name).cloned() else {
            return missing(if_exists, || no_such_keyspace(name));
        };
        let mut changed = Keyspace::clone(&current);
        if let Some(replication) = replication {
            changed.replication.clone_from(replication);
        }
        changed.durable_writes = durable_writes.unwrap_or(changed.durable_writes);
        // CQL answers every ALTER KEYSPACE with UPDATED, also one that sets what was set already; the version counts it.
        self.toggle_digest(&*current);
        self.toggle_digest(&changed);
        Arc::make_mut(&mut self.keyspaces).insert(name.to_owned(), Arc::new(changed));
        Ok(Done::Changed)
    }

    fn drop_keyspace(&mut self, name: &str, if_exists: bool) -> Step {
        let Some(keyspace) = self.keyspaces.get(name).cloned() else {
            return missing(if_exists, || no_such_keyspace(name));
        };
        let entries: Vec<_> = self.tables_in(name).cloned().collect();
        for entry in entries {
            self.remove_table(&entry);
        }
        let types: Vec<_> = self.types_in(name).cloned().collect();
        for user_type in types {
            self.toggle_digest(&*user_type);
            Arc::make_mut(&mut self.types).remove(&(name.to_owned(), user_type.name.clone()));
        }
        self.toggle_digest(&*keyspace);
        Arc::make_mut(&mut self.keyspaces).remove(name);
        self.forget_permissions(&format!("data/{name}"));
        Ok(Done::Changed)
    }

    fn create_table(&mut self, definition: &Table, tablets: u32, if_not_exists: bool) -> Step {
        let (keyspace, name) = (&definition.keyspace, &definition.name);
        if !self.keyspaces.contains_key(keyspace) {
            return Err(no_such_keyspace(keyspace));
        }
        if self.table(keyspace, name).is_some() {
            return already_exists(if_not_exists, || format!("table {keyspace}.{name} already exists"));
        }
        self.check_types(definition)?;
        if tablets == 0 || tablets > MAX_TABLETS_PER_TABLE {
            let message = format!("a table has 1 to {MAX_TABLETS_PER_TABLE} tablets, not {tablets}");
            return Err(Rejected(Rejection::Invalid, message));
        }
        if self.nodes.is_empty() {
            return Err(Rejected(Rejection::Invalid, "no node has registered yet".to_owned()));
        }
        let id = TableId(self.identity.next_table);
        self.identity.next_table += 1;
        let table = Arc::new(Table { id, version: 1, ..definition.clone() });
        self.toggle_digest(&*table);
        let names = Arc::make_mut(&mut self.names);
        names.entry(keyspace.clone()).or_default().insert(name.clone(), id);
        self.add_tablets(table, tablets, tablets);
        Ok(Done::Changed)
    }

    /// Another command may have changed a user type since the definition was made.
    fn check_types(&self, definition: &Table) -> Result<(), Rejected> {
        for column in &definition.columns {
            let mut current = true;
            visit_user_types(&column.data_type, &mut |found| {
                current &= self.user_type(&found.keyspace, &found.name).is_some_and(|known| **known == *found);
            });
            if !current {
                let message = format!("the type of column {} changed meanwhile", column.name);
                return Err(Rejected(Rejection::Conflict, message));
            }
        }
        Ok(())
    }

    fn alter_table(&mut self, changed: &Table) -> Step {
        let Some(entry) = self.tables.get(&changed.id).cloned() else {
            return Err(no_such_table(&changed.keyspace, &changed.name));
        };
        if entry.table.version != changed.version {
            let message = format!("table {}.{} was changed meanwhile", changed.keyspace, changed.name);
            return Err(Rejected(Rejection::Conflict, message));
        }
        if (&changed.keyspace, &changed.name, changed.uuid)
            != (&entry.table.keyspace, &entry.table.name, entry.table.uuid)
        {
            return Err(Rejected(Rejection::Invalid, "a table keeps its name and uuid".to_owned()));
        }
        self.check_types(changed)?;
        self.replace_table(&entry, Table { version: changed.version + 1, ..changed.clone() });
        Ok(Done::Changed)
    }

    fn replace_table(&mut self, entry: &TableEntry, changed: Table) {
        self.toggle_digest(&*entry.table);
        self.toggle_digest(&changed);
        let table = Arc::new(changed);
        let entry = TableEntry { table: table.clone(), ..entry.clone() };
        Arc::make_mut(&mut self.tables).insert(table.id, Arc::new(entry));
    }

    fn drop_table(&mut self, keyspace: &str, name: &str, if_exists: bool) -> Step {
        let Some(entry) = self.table(keyspace, name).cloned() else {
            return missing(if_exists, || no_such_table(keyspace, name));
        };
        self.remove_table(&entry);
        self.forget_permissions(&format!("data/{keyspace}/{name}"));
        Ok(Done::Changed)
    }

    fn remove_table(&mut self, entry: &TableEntry) {
        let table = &entry.table;
        self.drop_tablets(entry);
        self.toggle_digest(&**table);
        Arc::make_mut(&mut self.tables).remove(&table.id);
        let names = Arc::make_mut(&mut self.names);
        if let Some(of_keyspace) = names.get_mut(&table.keyspace) {
            of_keyspace.remove(&table.name);
            if of_keyspace.is_empty() {
                names.remove(&table.keyspace);
            }
        }
    }

    fn truncate_table(&mut self, keyspace: &str, name: &str) -> Step {
        let Some(entry) = self.table(keyspace, name).cloned() else {
            return Err(no_such_table(keyspace, name));
        };
        let tablets = u32::try_from(entry.tablets.len()).unwrap_or(MAX_TABLETS_PER_TABLE);
        self.add_tablets(entry.table.clone(), tablets, entry.least_tablets);
        self.drop_tablets(&entry);
        Ok(Done::Changed)
    }

    fn drop_tablets(&mut self, entry: &TableEntry) {
        for TabletRange { tablet, .. } in &entry.tablets {
            let Some(placement) = self.drop_tablet(*tablet) else { continue };
            // Nodes may have made the children already, or still hold the parent.
            for child in placement.split.iter().flat_map(|split| split.children) {
                self.leave_to_drop(child, &placement);
            }
            if let Some(origin) = placement.origin {
                self.drop_tablet(origin.parent);
            }
        }
    }

    /// A tablet is gone; the nodes that hold it are to remove it.
    pub(super) fn drop_tablet(&mut self, tablet: TabletId) -> Option<Arc<Placement>> {
        let placement = Arc::make_mut(&mut self.tablets).remove(&tablet)?;
        self.leave_to_drop(tablet, &placement);
        Some(placement)
    }

    /// The nodes that hold what `placement` says may have something of `tablet`, which is to go.
    fn leave_to_drop(&mut self, tablet: TabletId, placement: &Placement) {
        let placement = Placement::founded(placement.table, placement.holders().collect());
        Arc::make_mut(&mut self.dropped).insert(tablet, Arc::new(placement));
    }

    fn create_type(&mut self, user_type: &UserType, if_not_exists: bool) -> Step {
        let (keyspace, name) = (&user_type.keyspace, &user_type.name);
        if !self.keyspaces.contains_key(keyspace) {
            return Err(no_such_keyspace(keyspace));
        }
        if self.user_type(keyspace, name).is_some() {
            return already_exists(if_not_exists, || format!("a user type {keyspace}.{name} already exists"));
        }
        self.toggle_digest(user_type);
        Arc::make_mut(&mut self.types).insert((keyspace.clone(), name.clone()), Arc::new(user_type.clone()));
        Ok(Done::Changed)
    }

    fn alter_type(&mut self, expected: &UserType, changed: &UserType, rules: Rules) -> Step {
        let (keyspace, name) = (&expected.keyspace, &expected.name);
        let Some(current) = self.user_type(keyspace, name) else { return Err(no_such_type(keyspace, name)) };
        if **current != *expected || (&changed.keyspace, &changed.name) != (keyspace, name) {
            return Err(Rejected(Rejection::Conflict, format!("type {keyspace}.{name} was changed meanwhile")));
        }
        let changed = Arc::new(changed.clone());
        let types: Vec<_> = self.types_in(keyspace).cloned().collect();
        for user_type in types {
            let next = if user_type.name == *name {
                changed.clone()
            } else {
                let fields = user_type.fields.iter().map(|(field, of)| (field.clone(), with_type(of, &changed)));
                Arc::new(UserType { fields: fields.collect(), ..UserType::clone(&user_type) })
            };
            if next != user_type {
                if rules == Rules::Limited {
                    check_type(&next)?;
                }
                self.toggle_digest(&*user_type);
                self.toggle_digest(&*next);
                Arc::make_mut(&mut self.types).insert((keyspace.clone(), next.name.clone()), next);
            }
        }
        let entries: Vec<_> = self.tables_in(keyspace).cloned().collect();
        for entry in entries {
            let mut table = Table::clone(&entry.table);
            for column in &mut table.columns {
                column.data_type = with_type(&column.data_type, &changed);
            }
            if table != *entry.table {
                if rules == Rules::Limited {
                    check_table(&table)?;
                }
                table.version += 1;
                self.replace_table(&entry, table);
            }
        }
        Ok(Done::Changed)
    }

    fn drop_type(&mut self, keyspace: &str, name: &str, if_exists: bool) -> Step {
        let Some(current) = self.user_type(keyspace, name).cloned() else {
            return missing(if_exists, || no_such_type(keyspace, name));
        };
        if let Some(user) = self.user_of_type(&current) {
            let message = format!("cannot drop user type '{keyspace}.{name}' as it is still used by {user}");
            return Err(Rejected(Rejection::InUse, message));
        }
        self.toggle_digest(&*current);
        Arc::make_mut(&mut self.types).remove(&(keyspace.to_owned(), name.to_owned()));
        Ok(Done::Changed)
    }

    fn user_of_type(&self, wanted: &UserType) -> Option<String> {
        let uses = |data_type: &CqlType| {
            let mut uses = false;
            visit_user_types(data_type, &mut |found| {
                uses |= (&found.keyspace, &found.name) == (&wanted.keyspace, &wanted.name);
            });
            uses
        };
        let table =
            self.tables_in(&wanted.keyspace).find(|entry| entry.table.columns.iter().any(|c| uses(&c.data_type)));
        if let Some(entry) = table {
            return Some(format!("table {}", entry.table.name));
        }
        let user = self.types_in(&wanted.keyspace).find(|user_type| user_type.fields.iter().any(|(_, of)| uses(of)));
        user.map(|user_type| format!("type {}", user_type.name))
    }
}

fn visit_user_types(data_type: &CqlType, visit: &mut dyn FnMut(&UserType)) {
    match data_type {
        CqlType::List(of, _) | CqlType::Set(of, _) | CqlType::Vector(of, _) => visit_user_types(of, visit),
        CqlType::Map(key, value, _) => {
            visit_user_types(key, visit);
            visit_user_types(value, visit);
        }
        CqlType::Tuple(parts) => parts.iter().for_each(|part| visit_user_types(part, visit)),
        CqlType::UserDefined(user_type, _) => {
            visit(user_type);
            user_type.fields.iter().for_each(|(_, of)| visit_user_types(of, visit));
        }
        _ => {}
    }
}

/// `data_type` with every mention of the user type called like `changed` replaced by it.
fn with_type(data_type: &CqlType, changed: &Arc<UserType>) -> CqlType {
    let again = |of: &Arc<CqlType>| Arc::new(with_type(of, changed));
    match data_type {
        CqlType::List(of, frozen) => CqlType::List(again(of), *frozen),
        CqlType::Set(of, frozen) => CqlType::Set(again(of), *frozen),
        CqlType::Vector(of, dimension) => CqlType::Vector(again(of), *dimension),
        CqlType::Map(key, value, frozen) => CqlType::Map(again(key), again(value), *frozen),
        CqlType::Tuple(parts) => CqlType::Tuple(parts.iter().map(|part| with_type(part, changed)).collect()),
        CqlType::UserDefined(user_type, frozen) => {
            if (&user_type.keyspace, &user_type.name) == (&changed.keyspace, &changed.name) {
                return CqlType::UserDefined(changed.clone(), *frozen);
            }
            let fields = user_type.fields.iter().map(|(field, of)| (field.clone(), with_type(of, changed)));
            let user_type = UserType { fields: fields.collect(), ..UserType::clone(user_type) };
            CqlType::UserDefined(Arc::new(user_type), *frozen)
        }
        scalar => scalar.clone(),
    }
}

fn already_exists(tolerated: bool, message: impl FnOnce() -> String) -> Step {
    if tolerated { Ok(Done::Nothing) } else { Err(Rejected(Rejection::AlreadyExists, message())) }
}

fn missing(tolerated: bool, rejected: impl FnOnce() -> Rejected) -> Step {
    if tolerated { Ok(Done::Nothing) } else { Err(rejected()) }
}

fn no_such_keyspace(name: &str) -> Rejected {
    Rejected(Rejection::NoSuchKeyspace, format!("keyspace '{name}' doesn't exist"))
}

fn no_such_table(keyspace: &str, name: &str) -> Rejected {
    Rejected(Rejection::NoSuchTable, format!("table '{keyspace}.{name}' doesn't exist"))
}

fn no_such_type(keyspace: &str, name: &str) -> Rejected {
    Rejected(Rejection::NoSuchType, format!("type '{keyspace}.{name}' doesn't exist"))
}
