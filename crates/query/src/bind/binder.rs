//! The state of binding a statement: its table, its markers, and the cost so far.
//!
//! Always true: the table of a statement is resolved before anything in it; a marker has one type. Left out: the plans
//! of statements, which the other modules of [`crate::bind`] make.

use super::fields::FieldPlaces;
use super::known::Typing;
use super::receiver::Receiver;
use crate::ddl;
use crate::error::{invalid, unprovable};
use crate::plan::budget::Budget;
use crate::plan::term::Term;
use crate::system;
use crate::table::{Source, TableContext};
use crate::types::{charge_type_option, type_option};
use diorite_base::TableId;
use diorite_base::level::Level;
use diorite_base::program::Unprovable;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{QualifiedName, TypeName};
use diorite_cql::protocol::rows::BindMarkers;
use diorite_cql::protocol::{ColumnSpec, CqlError};
use diorite_model::schema::Table;
use diorite_model::types::{CqlType, UserType};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The facts about a bind marker that binding has found so far.
#[derive(Debug, Clone)]
struct MarkerSlot {
    keyspace: String,
    table: String,
    name: String,
    data_type: CqlType,
}

/// The state of binding one statement.
pub(super) struct Binder<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) keyspace: Option<&'a str>,
    pub(super) names: &'a [Option<String>],
    markers: Vec<Option<MarkerSlot>>,
    /// The table of the statement being planned.
    pub(super) table: Option<Arc<TableContext>>,
    pub(super) tables: Vec<Arc<TableContext>>,
    /// The places in `tables`, by keyspace and name.
    pub(super) table_places: HashMap<(String, String), usize>,
    /// Tables whose columns the answer names.
    pub(super) answered_tables: HashSet<TableId>,
    pub(super) budget: Budget,
    pub(super) typing: Typing,
    fields: FieldPlaces,
}

impl<'a> Binder<'a> {
    /// Of a statement with markers of these names; unqualified names belong to `keyspace`.
    pub(super) fn new(
        catalog: &'a Catalog,
        keyspace: Option<&'a str>,
        names: &'a [Option<String>],
        budget: Budget,
    ) -> Self {
        Self {
            catalog,
            keyspace,
            names,
            markers: vec![None; names.len()],
            table: None,
            tables: Vec::new(),
            table_places: HashMap::new(),
            answered_tables: HashSet::new(),
            budget,
            typing: Typing::default(),
            fields: FieldPlaces::default(),
        }
    }

    /// The table of the statement being planned.
    pub(super) fn context(&self) -> &TableContext {
        self.table.as_deref().expect("a statement's table is resolved before anything in it")
    }

    /// As [`Self::context`], shared.
    pub(super) fn shared_context(&self) -> Arc<TableContext> {
        Arc::clone(self.table.as_ref().expect("a statement's table is resolved before anything in it"))
    }

    /// Resolves the table of a statement.
    pub(super) fn use_table(&mut self, name: &QualifiedName) -> Result<(), CqlError> {
        let keyspace = name.keyspace.as_deref().or(self.keyspace).ok_or_else(|| {
            invalid("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
        })?;
        self.budget.step()?;
        if let Some(at) = self.table_places.get(&(keyspace.to_owned(), name.name.clone())) {
            self.table = Some(Arc::clone(&self.tables[*at]));
            return Ok(());
        }
        let context = if let Some(entry) = self.catalog.table(keyspace, &name.name) {
            TableContext::new(Arc::clone(&entry.table), Source::Tablets)
        } else if let Some(definition) = system::table(keyspace, &name.name) {
            TableContext::new(definition, Source::Virtual)
        } else if self.catalog.keyspace(keyspace).is_none() && system::keyspace(keyspace).is_none() {
            return Err(invalid(format!("keyspace {keyspace} does not exist")));
        } else {
            return Err(invalid(format!("table {} does not exist", name.name)));
        };
        let context = Arc::new(context);
        self.table_places.insert((keyspace.to_owned(), name.name.clone()), self.tables.len());
        self.tables.push(Arc::clone(&context));
        self.table = Some(context);
        Ok(())
    }

    /// Refuses what the cluster's level does not have yet.
    pub(super) fn require_level(&self, needed: Level) -> Result<(), CqlError> {
        let level = self.catalog.level();
        if level >= needed { Ok(()) } else { Err(unprovable(Unprovable::Early { needed, level })) }
    }

    /// The position of a column of the statement's table.
    pub(super) fn column_position(&self, name: &str) -> Result<usize, CqlError> {
        let context = self.context();
        context
            .position(name)
            .ok_or_else(|| invalid(format!("Undefined column name {name} in table {}", context.full_name())))
    }

    /// The place of a field of a user-defined type, if it has that field.
    pub(super) fn field_place(&mut self, user: &Arc<UserType>, field: &str) -> Result<Option<usize>, CqlError> {
        self.budget.step()?;
        Ok(self.fields.find(user, field))
    }

    /// Meets a marker: from now on its type is known.
    pub(super) fn marker(&mut self, index: u16, receiver: &Receiver<'_>) -> Result<Term, CqlError> {
        let (keyspace, table) = match &self.table {
            Some(context) => (context.table().keyspace.clone(), context.table().name.clone()),
            None => (String::new(), String::new()),
        };
        let data_type = (*receiver.data_type).clone();
        let name = match &self.names[usize::from(index)] {
            Some(name) => name.clone(),
            None => receiver.name.to_string(),
        };
        // Once here and once in the columns that the client is sent.
        self.budget.charge(2 * (keyspace.len() + table.len() + name.len() + size_of::<MarkerSlot>()))?;
        self.markers[usize::from(index)] = Some(MarkerSlot { keyspace, table, name, data_type: data_type.clone() });
        Ok(Term::Marker { index, data_type })
    }

    /// Takes memory for the columns of a table as the answer to a conditional write names them, once.
    pub(super) fn charge_answer(&mut self, table: &TableContext) -> Result<(), CqlError> {
        if self.answered_tables.insert(table.table().id) {
            for column in &table.table().columns {
                self.budget.charge(size_of::<ColumnSpec>() + column.name.len())?;
                self.charge_told(&column.data_type)?;
            }
        }
        Ok(())
    }

    /// Charges the description of a type that clients are sent.
    pub(super) fn charge_told(&mut self, data_type: &CqlType) -> Result<(), CqlError> {
        charge_type_option(data_type, &mut |bytes| self.budget.charge(bytes))
    }

    /// Says of all markers met so far that they are of another table: drivers look for the tablets of a prepared statement
    /// under the table of its markers.
    pub(super) fn name_markers_after(&mut self, table: &Table) -> Result<(), CqlError> {
        self.budget.charge(self.markers.len() * table.name.len())?;
        for slot in self.markers.iter_mut().flatten() {
            slot.table.clone_from(&table.name);
        }
        Ok(())
    }

    pub(super) fn bind_markers(&mut self, partition_key_indexes: Vec<u16>) -> Result<BindMarkers, CqlError> {
        let markers = std::mem::take(&mut self.markers);
        let mut columns = Vec::with_capacity(markers.len());
        for slot in &markers {
            let slot = slot.as_ref().ok_or_else(|| invalid("Cannot infer the type of a bind marker"))?;
            let names = slot.keyspace.len() + slot.table.len() + slot.name.len();
            self.budget.charge(size_of::<ColumnSpec>() + names)?;
            self.charge_told(&slot.data_type)?;
            columns.push(ColumnSpec {
                keyspace: slot.keyspace.clone(),
                table: slot.table.clone(),
                name: slot.name.clone(),
                type_option: type_option(&slot.data_type),
            });
        }
        Ok(BindMarkers { columns, partition_key_indexes })
    }

    /// Resolves a type name.
    pub(super) fn resolve_type(&self, name: &TypeName) -> Result<CqlType, CqlError> {
        ddl::resolve_type(self.catalog, self.keyspace.unwrap_or_default(), name)
    }
}
