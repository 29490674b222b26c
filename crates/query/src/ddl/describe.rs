//! `DESCRIBE`: the schema as statements that create it again.
//!
//! Always true: a CREATE statement given here, run against an empty keyspace of the same name, makes an object that is described by the same
//! text (user types come before what uses them). Column names and messages are those of Cassandra 4, whose cqlsh prints the rows.
//! What is left out: functions and aggregates, of which there are none: their listings are empty.

mod statements;

use super::text;
use crate::budget::Budget;
use crate::error::invalid;
use crate::kv::Kv;
use crate::system::{self, PARTITIONER};
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::{Describe, DescribedObject, QualifiedName};
use diorite_cql::protocol::{ColumnSpec, CqlError, NativeType, Response, ResultMetadata, Rows, TypeOption};
use diorite_model::schema::{Index, Keyspace, Table};
use diorite_model::types::UserType;
use std::sync::Arc;

/// The snitch that is named to clients: they learn data centre and rack from the system tables.
const SNITCH: &str = "SimpleSnitch";

/// The catalog and the keyspace that a DESCRIBE reads.
#[derive(Debug)]
pub struct Scope {
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// The session's keyspace.
    pub keyspace: Option<String>,
}

/// A row of the answer: keyspace, kind, name, CREATE statement.
type Element = (String, &'static str, String, String);

/// The rows of the answer, charged to the request as they grow: once here and once for the encoded rows.
struct Elements<'b> {
    budget: &'b Budget,
    all: Vec<Element>,
}

impl Elements<'_> {
    fn push(&mut self, element: Element) -> Result<(), CqlError> {
        self.budget.check()?;
        let texts = element.0.len() + element.2.len() + element.3.len();
        self.budget.take(2 * (texts + size_of::<Element>()))?;
        self.all.push(element);
        Ok(())
    }

    fn extend(&mut self, elements: impl IntoIterator<Item = Element>) -> Result<(), CqlError> {
        elements.into_iter().try_for_each(|element| self.push(element))
    }
}

impl Scope {
    /// The current state, as a session sees it.
    pub fn new<K: Kv>(kv: &K, keyspace: Option<&str>) -> Self {
        Self { catalog: kv.catalog(), keyspace: keyspace.map(str::to_owned) }
    }

    fn keyspace(&self, name: &str) -> Result<&Keyspace, CqlError> {
        let found = self.catalog.keyspace(name).map(|keyspace| &**keyspace).or_else(|| system::keyspace(name));
        found.ok_or_else(|| invalid(format!("'{name}' not found in keyspaces")))
    }

    /// All keyspaces by name, the server's own among them if asked for.
    fn keyspaces(&self, with_system: bool) -> Vec<&Keyspace> {
        let mut all: Vec<&Keyspace> = self.catalog.keyspaces().map(|keyspace| &**keyspace).collect();
        if with_system {
            all.extend(system::keyspaces().map(|(keyspace, _)| keyspace));
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The tables of a keyspace; views are not among them.
    fn tables(&self, keyspace: &str) -> Vec<&Table> {
        let system = system::keyspaces().filter(|(of, _)| of.name == keyspace).flat_map(|(_, tables)| tables);
        let user = self.catalog.tables_in(keyspace).map(|entry| &*entry.table).filter(|table| table.view.is_none());
        system.map(|table| &**table).chain(user).collect()
    }

    fn table(&self, keyspace: &str, name: &str) -> Option<&Table> {
        self.tables(keyspace).into_iter().find(|table| table.name == name)
    }

    /// The keyspace that a name is looked up in.
    fn keyspace_of<'a>(&'a self, name: &'a QualifiedName) -> Result<&'a str, CqlError> {
        let keyspace = name.keyspace.as_deref().or(self.keyspace.as_deref());
        let keyspace = keyspace.ok_or_else(|| invalid("No keyspace specified and no current keyspace"))?;
        self.keyspace(keyspace)?;
        Ok(keyspace)
    }

    /// The keyspaces that a listing covers: the session's, or all.
    fn listed(&self) -> Result<Vec<&Keyspace>, CqlError> {
        match &self.keyspace {
            Some(name) => Ok(vec![self.keyspace(name)?]),
            None => Ok(self.keyspaces(true)),
        }
    }
}

/// Answers a DESCRIBE. How long that takes depends on the schema, not on the statement.
pub fn execute(scope: &Scope, request: &Describe, budget: &Budget) -> Result<Response, CqlError> {
    if request.object == DescribedObject::Cluster {
        return Ok(cluster(scope));
    }
    let mut elements = Elements { budget, all: Vec::new() };
    let with_statements = gather(scope, request, &mut elements)?;
    let names: &[&str] = &["keyspace_name", "type", "name", "create_statement"];
    let width = if with_statements { 4 } else { 3 };
    let mut rows = Rows::new(Arc::new(metadata(&names[..width])));
    for (keyspace, kind, name, statement) in &elements.all {
        let (keyspace, name) = (text::identifier(keyspace), text::identifier(name));
        let cells = [keyspace.as_bytes(), kind.as_bytes(), name.as_bytes(), statement.as_bytes()];
        rows.push_row(cells.into_iter().take(width).map(Some));
    }
    Ok(Response::Rows(rows))
}

/// The statements that make a table again in its keyspace: the user types that it needs, the table, its indexes and views.
pub fn table_schema(catalog: &Catalog, keyspace: &str, name: &str) -> Option<String> {
    let table = &catalog.table(keyspace, name)?.table;
    let types = catalog.types_in(keyspace).map(|found| &**found).collect();
    let types = statements::needed_by(table, types).into_iter().map(statements::create_type);
    let indexes = table.defined_indexes().map(|index| statements::create_index(table, index));
    let views = views_of(catalog, table).map(|view| statements::create_view(table, view, false));
    let own = match base_of(catalog, table) {
        Some(base) => statements::create_view(base, table, false),
        None => statements::create_table(table, false),
    };
    let statements: Vec<String> = types.chain([own]).chain(indexes).chain(views).collect();
    Some(statements.join("\n\n"))
}

/// The materialized views of a table, without those of indexes.
fn views_of<'c>(catalog: &'c Catalog, table: &'c Table) -> impl Iterator<Item = &'c Table> {
    table.named_views().filter_map(|view| Some(&*catalog.table_by_id(view.table)?.table))
}

/// The table of a materialized view.
fn base_of<'c>(catalog: &'c Catalog, view: &Table) -> Option<&'c Table> {
    Some(&catalog.table_by_id(view.view.as_ref()?.base)?.table)
}

/// The columns of the answer, which a prepared DESCRIBE returns.
pub fn result_columns(request: &Describe) -> ResultMetadata {
    metadata(match request.object {
        DescribedObject::Cluster => &["cluster", "partitioner", "snitch"],
        DescribedObject::Keyspaces
        | DescribedObject::Tables
        | DescribedObject::Types
        | DescribedObject::Functions
        | DescribedObject::Aggregates => &["keyspace_name", "type", "name"],
        _ => &["keyspace_name", "type", "name", "create_statement"],
    })
}

fn metadata(names: &[&str]) -> ResultMetadata {
    let column = |name: &&str| ColumnSpec {
        keyspace: "system".to_owned(),
        table: "describe".to_owned(),
        name: (*name).to_owned(),
        type_option: TypeOption::Native(NativeType::Varchar),
    };
    ResultMetadata::new(names.iter().map(column).collect())
}

fn cluster(scope: &Scope) -> Response {
    let mut rows = Rows::new(Arc::new(metadata(&["cluster", "partitioner", "snitch"])));
    let partitioner = PARTITIONER.rsplit('.').next().unwrap_or(PARTITIONER);
    let cells = [scope.catalog.cluster_name(), partitioner, SNITCH];
    rows.push_row(cells.map(|cell| Some(cell.as_bytes())));
    Response::Rows(rows)
}

/// Gathers the rows; whether their statements are shown.
fn gather(scope: &Scope, request: &Describe, into: &mut Elements<'_>) -> Result<bool, CqlError> {
    let internals = request.with_internals;
    match &request.object {
        DescribedObject::Cluster => unreachable!("answered before"),
        DescribedObject::Keyspaces => {
            let names = scope.keyspaces(true).into_iter().map(|keyspace| &keyspace.name);
            into.extend(names.map(|name| (name.clone(), "keyspace", name.clone(), String::new())))?;
            return Ok(false);
        }
        DescribedObject::Tables => {
            let tables = scope.listed()?.into_iter().flat_map(|keyspace| scope.tables(&keyspace.name));
            into.extend(tables.map(|table| (table.keyspace.clone(), "table", table.name.clone(), String::new())))?;
            return Ok(false);
        }
        DescribedObject::Types => {
            let types = scope.listed()?.into_iter().flat_map(|keyspace| scope.catalog.types_in(&keyspace.name));
            into.extend(types.map(|found| (found.keyspace.clone(), "type", found.name.clone(), String::new())))?;
            return Ok(false);
        }
        DescribedObject::Functions | DescribedObject::Aggregates => return Ok(false),
        DescribedObject::Schema { full } => {
            for keyspace in scope.keyspaces(*full) {
                whole_keyspace(scope, keyspace, internals, into)?;
            }
        }
        DescribedObject::Keyspace { only, name } => {
            let name = name.as_deref().or(scope.keyspace.as_deref());
            let name = name.ok_or_else(|| invalid("No keyspace specified and no current keyspace"))?;
            let keyspace = scope.keyspace(name)?;
            match only {
                true => into.push(keyspace_element(keyspace))?,
                false => whole_keyspace(scope, keyspace, internals, into)?,
            }
        }
        DescribedObject::Table(name) => into.extend(one_table(scope, name, internals)?)?,
        DescribedObject::Type(name) => into.push(one_type(scope, name)?)?,
        DescribedObject::Any(name) => any(scope, name, internals, into)?,
        DescribedObject::Function(name) => return Err(missing(scope, name, "User defined function")),
        DescribedObject::Aggregate(name) => return Err(missing(scope, name, "User defined aggregate")),
        DescribedObject::Index(name) => into.push(one_index(scope, name)?)?,
        DescribedObject::MaterializedView(name) => into.push(one_view(scope, name, internals)?)?,
    }
    Ok(true)
}

/// The error for an object that is not there.
fn missing(scope: &Scope, name: &QualifiedName, what: &str) -> CqlError {
    match scope.keyspace_of(name) {
        Ok(keyspace) => invalid(format!("{what} '{}' not found in keyspace '{keyspace}'", name.name)),
        Err(error) => error,
    }
}

fn one_table(scope: &Scope, name: &QualifiedName, internals: bool) -> Result<Vec<Element>, CqlError> {
    let table = scope.table(scope.keyspace_of(name)?, &name.name);
    table.map(|table| table_elements(scope, table, internals)).ok_or_else(|| missing(scope, name, "Table"))
}

fn one_view(scope: &Scope, name: &QualifiedName, internals: bool) -> Result<Element, CqlError> {
    let view = scope.catalog.table(scope.keyspace_of(name)?, &name.name).map(|entry| &entry.table);
    let found = view.and_then(|view| Some(view_element(base_of(&scope.catalog, view)?, view, internals)));
    found.ok_or_else(|| missing(scope, name, "Materialized view"))
}

fn one_index(scope: &Scope, name: &QualifiedName) -> Result<Element, CqlError> {
    let tables = scope.tables(scope.keyspace_of(name)?);
    let mut found = tables.into_iter().filter_map(|table| Some(index_element(table, table.index(&name.name)?)));
    found.next().ok_or_else(|| missing(scope, name, "Table for existing index"))
}

fn one_type(scope: &Scope, name: &QualifiedName) -> Result<Element, CqlError> {
    let user_type = scope.catalog.user_type(scope.keyspace_of(name)?, &name.name);
    user_type.map(|found| type_element(found)).ok_or_else(|| missing(scope, name, "User defined type"))
}

/// A keyspace of that name, else a table, a view, an index or a type.
fn any(scope: &Scope, name: &QualifiedName, internals: bool, into: &mut Elements<'_>) -> Result<(), CqlError> {
    if name.keyspace.is_none()
        && let Ok(keyspace) = scope.keyspace(&name.name)
    {
        return whole_keyspace(scope, keyspace, internals, into);
    }
    if name.keyspace.is_none() && scope.keyspace.is_none() {
        return Err(invalid(format!("'{}' not found in keyspaces", name.name)));
    }
    let keyspace = scope.keyspace_of(name)?;
    if let Some(table) = scope.table(keyspace, &name.name) {
        return into.extend(table_elements(scope, table, internals));
    }
    if let Ok(view) = one_view(scope, name, internals) {
        return into.push(view);
    }
    if let Ok(index) = one_index(scope, name) {
        return into.push(index);
    }
    if let Some(user_type) = scope.catalog.user_type(keyspace, &name.name) {
        return into.push(type_element(user_type));
    }
    Err(invalid(format!("'{}' not found in keyspace '{keyspace}'", name.name)))
}

fn keyspace_element(keyspace: &Keyspace) -> Element {
    let name = &keyspace.name;
    (name.clone(), "keyspace", name.clone(), statements::create_keyspace(keyspace))
}

/// A table, its indexes and its views.
fn table_elements(scope: &Scope, table: &Table, internals: bool) -> Vec<Element> {
    let name = table.name.clone();
    let own = (table.keyspace.clone(), "table", name, statements::create_table(table, internals));
    let indexes = table.defined_indexes().map(|index| index_element(table, index));
    let views = views_of(&scope.catalog, table).map(|view| view_element(table, view, internals));
    std::iter::once(own).chain(indexes).chain(views).collect()
}

fn view_element(base: &Table, view: &Table, internals: bool) -> Element {
    let statement = statements::create_view(base, view, internals);
    (view.keyspace.clone(), "materialized_view", view.name.clone(), statement)
}

fn index_element(table: &Table, index: &Index) -> Element {
    (table.keyspace.clone(), "index", index.name.clone(), statements::create_index(table, index))
}

fn type_element(user_type: &UserType) -> Element {
    (user_type.keyspace.clone(), "type", user_type.name.clone(), statements::create_type(user_type))
}

/// The keyspace and everything in it, in an order in which it can be made again.
fn whole_keyspace(
    scope: &Scope,
    keyspace: &Keyspace,
    internals: bool,
    into: &mut Elements<'_>,
) -> Result<(), CqlError> {
    into.push(keyspace_element(keyspace))?;
    let types: Vec<&UserType> = scope.catalog.types_in(&keyspace.name).map(|found| &**found).collect();
    into.extend(statements::dependencies_first(types).into_iter().map(type_element))?;
    into.extend(scope.tables(&keyspace.name).into_iter().flat_map(|table| table_elements(scope, table, internals)))
}
