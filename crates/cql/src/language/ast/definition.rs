//! Statements that define the schema, and those that describe it.
//!
//! Always true: options keep their order and are not judged (`WITH colour = 'red'` parses); column and field types are
//! [`TypeName`]s. What is left out: a statement's effect on a schema.

use super::{Direction, Expression, Literal, QualifiedName, Relation, Selection, TypeName};

/// `name = value` after `WITH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its name; an unquoted one in lower case.
    pub name: String,
    /// Its value.
    pub value: PropertyValue,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    /// A constant.
    Literal(Literal),
    /// A bare word, folded to lower case.
    Identifier(String),
    /// `{key: value, …}`, possibly none.
    Map(Vec<(Literal, Literal)>),
    /// `{value, …}`, at least one.
    Set(Vec<Literal>),
}

/// `CREATE KEYSPACE [IF NOT EXISTS] name [WITH …]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateKeyspace {
    /// Its name.
    pub name: String,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// `replication`, `durable_writes`, …; none in YCQL's short form.
    pub properties: Vec<Property>,
}

/// `ALTER KEYSPACE [IF EXISTS] name WITH …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterKeyspace {
    /// Its name.
    pub name: String,
    /// A missing one is no error.
    pub if_exists: bool,
    /// What changes.
    pub properties: Vec<Property>,
}

/// `CREATE TABLE [IF NOT EXISTS] name (columns, PRIMARY KEY (…)) [WITH …]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTable {
    /// Its name.
    pub name: QualifiedName,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// In the order of the text.
    pub columns: Vec<ColumnDefinition>,
    /// The parser has checked that there is exactly one, written either way.
    pub primary_key: PrimaryKey,
    /// `WITH …`
    pub options: TableOptions,
}

/// A column of `CREATE TABLE` or `ALTER TABLE … ADD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: TypeName,
    /// `STATIC`
    pub is_static: bool,
    /// `MASKED WITH function(…)`
    pub mask: Option<ColumnMask>,
}

/// `MASKED WITH function(arguments)` or `MASKED WITH DEFAULT`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMask {
    /// The function; `mask_default` for `DEFAULT`.
    pub function: QualifiedName,
    /// Its arguments after the column.
    pub arguments: Vec<Expression>,
}

/// Names of key columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryKey {
    /// At least one.
    pub partition: Vec<String>,
    /// Possibly none.
    pub clustering: Vec<String>,
}

/// What follows `WITH` in the definition of a table, view or index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// `CLUSTERING ORDER BY (column direction, …)`; empty when absent.
    pub clustering_order: Vec<(String, Direction)>,
    /// `COMPACT STORAGE`
    pub compact_storage: bool,
    /// All others, in the order of the text.
    pub properties: Vec<Property>,
}

impl TableOptions {
    /// Whether there is no `WITH`.
    pub fn is_empty(&self) -> bool {
        self.clustering_order.is_empty() && !self.compact_storage && self.properties.is_empty()
    }
}

/// `ALTER TABLE [IF EXISTS] name …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterTable {
    /// Its name.
    pub name: QualifiedName,
    /// A missing table is no error.
    pub if_exists: bool,
    /// What changes. YCQL lets several follow one another; Cassandra's grammar gives exactly one.
    pub changes: Vec<TableChange>,
}

/// One change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// `ADD [IF NOT EXISTS] columns`
    Add {
        /// A column that exists is skipped.
        if_not_exists: bool,
        /// At least one.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP [IF EXISTS] columns [USING TIMESTAMP t]`
    Drop {
        /// A column that does not exist is skipped.
        if_exists: bool,
        /// At least one.
        columns: Vec<String>,
        /// Microseconds: an integer literal.
        timestamp: Option<Literal>,
    },
    /// `DROP COMPACT STORAGE`
    DropCompactStorage,
    /// `RENAME [IF EXISTS] old TO new AND …`
    Rename {
        /// A column that does not exist is skipped.
        if_exists: bool,
        /// Old and new names; at least one pair.
        columns: Vec<(String, String)>,
    },
    /// `ALTER [IF EXISTS] column TYPE type` (Cassandra refuses it since 3.0.11)
    AlterType {
        /// A column that does not exist is skipped.
        if_exists: bool,
        /// The column.
        column: String,
        /// The type it should have.
        data_type: TypeName,
    },
    /// `ALTER [IF EXISTS] column MASKED WITH …` or, with none, `… DROP MASKED`
    AlterMask {
        /// A column that does not exist is skipped.
        if_exists: bool,
        /// The column.
        column: String,
        /// The new mask.
        mask: Option<ColumnMask>,
    },
    /// `WITH name = value AND …`
    With(Vec<Property>),
}

/// `CREATE TYPE [IF NOT EXISTS] name (field type, …)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateType {
    /// Its name.
    pub name: QualifiedName,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// At least one.
    pub fields: Vec<(String, TypeName)>,
}

/// `ALTER TYPE [IF EXISTS] name …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterType {
    /// Its name.
    pub name: QualifiedName,
    /// A missing type is no error.
    pub if_exists: bool,
    /// What changes.
    pub change: TypeChange,
}

/// One change of a user-defined type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeChange {
    /// `ADD [IF NOT EXISTS] field type`
    Add {
        /// A field that exists is skipped.
        if_not_exists: bool,
        /// The field.
        field: String,
        /// Its type.
        data_type: TypeName,
    },
    /// `RENAME [IF EXISTS] old TO new AND …`
    Rename {
        /// A field that does not exist is skipped.
        if_exists: bool,
        /// Old and new names; at least one pair.
        fields: Vec<(String, String)>,
    },
    /// `ALTER field TYPE type` (Cassandra refuses it since 3.0.11)
    AlterType {
        /// A field that does not exist is skipped.
        if_exists: bool,
        /// The field.
        field: String,
        /// The type it should have.
        data_type: TypeName,
    },
}

/// `CREATE [UNIQUE | CUSTOM] INDEX …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateIndex {
    /// Its name in the keyspace of the table; `None` leaves it to the database.
    pub name: Option<String>,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// YCQL: no two rows may have the same indexed values.
    pub unique: bool,
    /// YCQL: `DEFERRED`, filled by a later request.
    pub deferred: bool,
    /// `CUSTOM`
    pub custom: bool,
    /// The indexed table.
    pub table: QualifiedName,
    /// YCQL's `((a, b), c)`: these make up the index's partition key. Cassandra's grammar gives one column here.
    pub partition: Vec<IndexColumn>,
    /// The rest of YCQL's list: clustering columns of the index. `(a, b)` has `a` above and `b` here.
    pub clustering: Vec<IndexColumn>,
    /// YCQL: `INCLUDE (columns)` or `COVERING (columns)`.
    pub include: Vec<String>,
    /// `USING 'class'`
    pub using: Option<String>,
    /// `WITH …`; Cassandra's grammar knows only `OPTIONS = {…}`.
    pub options: TableOptions,
    /// YCQL: only rows for which all of these hold are indexed.
    pub where_clause: Vec<Relation>,
}

/// What an index is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexColumn {
    /// A column; of a collection its elements (of a map: its values).
    Column(String),
    /// `VALUES(column)`
    Values(String),
    /// `KEYS(column)`
    Keys(String),
    /// `ENTRIES(column)`
    Entries(String),
    /// `FULL(column)`
    Full(String),
    /// YCQL: `column->'a'->>'b'`
    JsonPath {
        /// The column.
        column: String,
        /// At least one step: each a string or integer literal.
        path: Vec<Expression>,
        /// The last arrow is `->>`.
        as_text: bool,
    },
}

/// `CREATE MATERIALIZED VIEW [IF NOT EXISTS] name AS SELECT … FROM … WHERE … PRIMARY KEY (…) [WITH …]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateMaterializedView {
    /// Its name.
    pub name: QualifiedName,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// Its columns.
    pub selection: Selection,
    /// The table it is computed from.
    pub base: QualifiedName,
    /// All must hold.
    pub where_clause: Vec<Relation>,
    /// The view's key.
    pub primary_key: PrimaryKey,
    /// `WITH …`
    pub options: TableOptions,
}

/// `ALTER MATERIALIZED VIEW [IF EXISTS] name WITH …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterMaterializedView {
    /// Its name.
    pub name: QualifiedName,
    /// A missing view is no error.
    pub if_exists: bool,
    /// What changes.
    pub properties: Vec<Property>,
}

/// `CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] name (…) … RETURNS type LANGUAGE language AS 'body'`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateFunction {
    /// Its name.
    pub name: QualifiedName,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// Names and types, in order.
    pub arguments: Vec<(String, TypeName)>,
    /// `CALLED ON NULL INPUT`; otherwise `RETURNS NULL ON NULL INPUT`.
    pub called_on_null: bool,
    /// The result type.
    pub returns: TypeName,
    /// `java`, …; in lower case.
    pub language: String,
    /// Its source.
    pub body: String,
}

/// `CREATE [OR REPLACE] AGGREGATE [IF NOT EXISTS] name (…) SFUNC f STYPE type [FINALFUNC f] [INITCOND term]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateAggregate {
    /// Its name.
    pub name: QualifiedName,
    /// `OR REPLACE`
    pub or_replace: bool,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// In order.
    pub argument_types: Vec<TypeName>,
    /// Folds a row into the state.
    pub state_function: String,
    /// The type of the state.
    pub state_type: TypeName,
    /// Makes the result of the last state.
    pub final_function: Option<String>,
    /// The first state.
    pub initial_condition: Option<Expression>,
}

/// `CREATE TRIGGER [IF NOT EXISTS] name ON table USING 'class'`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTrigger {
    /// Its name.
    pub name: String,
    /// An existing one is no error.
    pub if_not_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// The class to run.
    pub class: String,
}

/// `DROP object [IF EXISTS]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drop {
    /// What goes.
    pub object: DroppedObject,
    /// A missing one is no error.
    pub if_exists: bool,
}

/// A schema object named by `DROP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DroppedObject {
    /// `DROP KEYSPACE name`
    Keyspace(String),
    /// `DROP TABLE name`
    Table(QualifiedName),
    /// `DROP TYPE name`
    Type(QualifiedName),
    /// `DROP INDEX name`
    Index(QualifiedName),
    /// `DROP MATERIALIZED VIEW name`
    MaterializedView(QualifiedName),
    /// `DROP FUNCTION name [(types)]`
    Function(FunctionSignature),
    /// `DROP AGGREGATE name [(types)]`
    Aggregate(FunctionSignature),
    /// `DROP TRIGGER name ON table`
    Trigger {
        /// The trigger.
        name: String,
        /// Its table.
        table: QualifiedName,
    },
}

impl DroppedObject {
    /// The words that name the statement.
    pub fn kind(&self) -> &'static str {
        match self {
            DroppedObject::Keyspace(_) => "DROP KEYSPACE",
            DroppedObject::Table(_) => "DROP TABLE",
            DroppedObject::Type(_) => "DROP TYPE",
            DroppedObject::Index(_) => "DROP INDEX",
            DroppedObject::MaterializedView(_) => "DROP MATERIALIZED VIEW",
            DroppedObject::Function(_) => "DROP FUNCTION",
            DroppedObject::Aggregate(_) => "DROP AGGREGATE",
            DroppedObject::Trigger { .. } => "DROP TRIGGER",
        }
    }
}

/// A function by name, and by argument types where the text gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSignature {
    /// Its name.
    pub name: QualifiedName,
    /// `None`: whichever has that name.
    pub argument_types: Option<Vec<TypeName>>,
}

/// `DESCRIBE … [WITH INTERNALS]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Describe {
    /// The described object.
    pub object: DescribedObject,
    /// `WITH INTERNALS`
    pub with_internals: bool,
}

/// What `DESCRIBE` is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribedObject {
    /// `CLUSTER`
    Cluster,
    /// `[FULL] SCHEMA`; full includes the system keyspaces
    Schema {
        /// `FULL`
        full: bool,
    },
    /// `KEYSPACES`
    Keyspaces,
    /// `[ONLY] KEYSPACE [name]`
    Keyspace {
        /// `ONLY`: without the tables and other objects in it.
        only: bool,
        /// The session's keyspace when absent.
        name: Option<String>,
    },
    /// `TABLES`
    Tables,
    /// `TABLE name`
    Table(QualifiedName),
    /// `TYPES`
    Types,
    /// `TYPE name`
    Type(QualifiedName),
    /// `FUNCTIONS`
    Functions,
    /// `FUNCTION name`
    Function(QualifiedName),
    /// `AGGREGATES`
    Aggregates,
    /// `AGGREGATE name`
    Aggregate(QualifiedName),
    /// `INDEX name`
    Index(QualifiedName),
    /// `MATERIALIZED VIEW name`
    MaterializedView(QualifiedName),
    /// `DESCRIBE name`: a keyspace, table, index or view, whichever there is
    Any(QualifiedName),
}
