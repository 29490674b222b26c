//! The syntax tree of one CQL statement.
//!
//! Always true: nothing is resolved. A table, type or function is a name with an optional keyspace, a literal is its text in a
//! checked shape, a marker is its number. Identifiers are stored the way the catalog stores them: unquoted ones folded to lower
//! case, quoted ones as written. Spelling that means the same gives the same tree (`c += 1` and `c = c + 1`, `USING TTL 1 AND
//! TIMESTAMP 2` and its mirror, `SCHEMA` and `KEYSPACE`), which is what lets the formatter be checked by parsing its output.
//!
//! What is left out: source positions (an error about a name says the name) and any judgement on meaning. The parser accepts, for
//! example, `CREATE TRIGGER`; the planner refuses it by name ([`Statement::kind`]).

mod access;
mod definition;
mod expression;

pub use access::*;
pub use definition::*;
pub use expression::*;

/// A parsed request: one statement and the bind markers of all its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The statement.
    pub statement: Statement,
    /// One entry per marker in the order of the text (over all statements of a batch or transaction): `None` for `?`, the name
    /// for `:name`. A name used twice has two entries; a value bound by that name goes to both.
    pub markers: Vec<Option<String>>,
}

/// A name that may be qualified by a keyspace: a table, type, index, view, function or aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QualifiedName {
    /// The keyspace, where the text gives one.
    pub keyspace: Option<String>,
    /// The name in its stored form.
    pub name: String,
}

impl QualifiedName {
    /// A name without a keyspace.
    pub fn unqualified(name: impl Into<String>) -> QualifiedName {
        QualifiedName { keyspace: None, name: name.into() }
    }

    /// `keyspace.name`.
    pub fn qualified(keyspace: impl Into<String>, name: impl Into<String>) -> QualifiedName {
        QualifiedName { keyspace: Some(keyspace.into()), name: name.into() }
    }
}

/// Any CQL statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `SELECT …`
    Select(Box<Select>),
    /// `INSERT …`
    Insert(Box<Insert>),
    /// `UPDATE …`
    Update(Box<Update>),
    /// `DELETE …`
    Delete(Box<Delete>),
    /// `BEGIN … BATCH … APPLY BATCH`
    Batch(Box<Batch>),
    /// YCQL: `BEGIN TRANSACTION … END TRANSACTION` or `START TRANSACTION; … COMMIT`
    Transaction(Transaction),
    /// YCQL: `EXPLAIN` of a select or modification; of any other statement but `EXPLAIN` for the planner to refuse
    Explain(Box<Statement>),
    /// `USE keyspace`
    Use(String),
    /// `TRUNCATE [TABLE] table`
    Truncate(QualifiedName),
    /// `CREATE KEYSPACE …`
    CreateKeyspace(CreateKeyspace),
    /// `ALTER KEYSPACE …`
    AlterKeyspace(AlterKeyspace),
    /// `CREATE TABLE …`
    CreateTable(Box<CreateTable>),
    /// `ALTER TABLE …`
    AlterTable(AlterTable),
    /// `CREATE TYPE …`
    CreateType(CreateType),
    /// `ALTER TYPE …`
    AlterType(AlterType),
    /// `CREATE INDEX …`
    CreateIndex(Box<CreateIndex>),
    /// `CREATE MATERIALIZED VIEW …`
    CreateMaterializedView(Box<CreateMaterializedView>),
    /// `ALTER MATERIALIZED VIEW …`
    AlterMaterializedView(AlterMaterializedView),
    /// `CREATE FUNCTION …`
    CreateFunction(Box<CreateFunction>),
    /// `CREATE AGGREGATE …`
    CreateAggregate(Box<CreateAggregate>),
    /// `CREATE TRIGGER …`
    CreateTrigger(CreateTrigger),
    /// `DROP` of any schema object
    Drop(Drop),
    /// `CREATE ROLE …` or `CREATE USER …`
    CreateRole(CreateRole),
    /// `ALTER ROLE …` or `ALTER USER …`
    AlterRole(AlterRole),
    /// `DROP ROLE …` or `DROP USER …`
    DropRole(DropRole),
    /// `LIST ROLES …`, `LIST USERS` or `LIST SUPERUSERS`
    ListRoles(ListRoles),
    /// `GRANT role TO role`
    GrantRole(RoleMembership),
    /// `REVOKE role FROM role`
    RevokeRole(RoleMembership),
    /// `GRANT permissions ON resource TO role`
    GrantPermissions(PermissionChange),
    /// `REVOKE permissions ON resource FROM role`
    RevokePermissions(PermissionChange),
    /// `LIST permissions …`
    ListPermissions(ListPermissions),
    /// `ADD IDENTITY …`
    AddIdentity(AddIdentity),
    /// `DROP IDENTITY …`
    DropIdentity(DropIdentity),
    /// `DESCRIBE …`
    Describe(Describe),
}

impl Statement {
    /// The words that name this kind of statement, for messages: `CREATE TRIGGER`, `SELECT`, …
    pub fn kind(&self) -> &'static str {
        match self {
            Statement::Select(_) => "SELECT",
            Statement::Insert(_) => "INSERT",
            Statement::Update(_) => "UPDATE",
            Statement::Delete(_) => "DELETE",
            Statement::Batch(_) => "BATCH",
            Statement::Transaction(_) => "TRANSACTION",
            Statement::Explain(_) => "EXPLAIN",
            Statement::Use(_) => "USE",
            Statement::Truncate(_) => "TRUNCATE",
            Statement::CreateKeyspace(_) => "CREATE KEYSPACE",
            Statement::AlterKeyspace(_) => "ALTER KEYSPACE",
            Statement::CreateTable(_) => "CREATE TABLE",
            Statement::AlterTable(_) => "ALTER TABLE",
            Statement::CreateType(_) => "CREATE TYPE",
            Statement::AlterType(_) => "ALTER TYPE",
            Statement::CreateIndex(_) => "CREATE INDEX",
            Statement::CreateMaterializedView(_) => "CREATE MATERIALIZED VIEW",
            Statement::AlterMaterializedView(_) => "ALTER MATERIALIZED VIEW",
            Statement::CreateFunction(_) => "CREATE FUNCTION",
            Statement::CreateAggregate(_) => "CREATE AGGREGATE",
            Statement::CreateTrigger(_) => "CREATE TRIGGER",
            Statement::Drop(drop) => drop.object.kind(),
            Statement::CreateRole(_) => "CREATE ROLE",
            Statement::AlterRole(_) => "ALTER ROLE",
            Statement::DropRole(_) => "DROP ROLE",
            Statement::ListRoles(_) => "LIST ROLES",
            Statement::GrantRole(_) | Statement::GrantPermissions(_) => "GRANT",
            Statement::RevokeRole(_) | Statement::RevokePermissions(_) => "REVOKE",
            Statement::ListPermissions(_) => "LIST PERMISSIONS",
            Statement::AddIdentity(_) => "ADD IDENTITY",
            Statement::DropIdentity(_) => "DROP IDENTITY",
            Statement::Describe(_) => "DESCRIBE",
        }
    }
}

/// `SELECT [JSON] [DISTINCT] … FROM … [WHERE …] [IF …] [GROUP BY …] [ORDER BY …] [PER PARTITION LIMIT n] [LIMIT n] [OFFSET n]
/// [ALLOW FILTERING]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// Rows are returned as one JSON text each.
    pub json: bool,
    /// Each partition (or static row) once.
    pub distinct: bool,
    /// The result columns.
    pub selection: Selection,
    /// The table or view.
    pub from: QualifiedName,
    /// All must hold; empty without `WHERE`.
    pub where_clause: Vec<Relation>,
    /// YCQL: `IF` after `WHERE`, a filter that no key or index has to serve.
    pub filter: Option<Predicate>,
    /// Columns, or functions of columns.
    pub group_by: Vec<Expression>,
    /// Orderings, first the most significant.
    pub order_by: Vec<Ordering>,
    /// How many rows.
    pub limits: RowLimits,
    /// `ALLOW FILTERING`
    pub allow_filtering: bool,
    /// `USING TIMEOUT`: how long the request may take.
    pub timeout: Option<Expression>,
}

/// How many rows a `SELECT` returns: integer literals or markers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLimits {
    /// `PER PARTITION LIMIT`
    pub per_partition: Option<Expression>,
    /// `LIMIT`
    pub total: Option<Expression>,
    /// YCQL's `OFFSET`
    pub offset: Option<Expression>,
}

/// The result columns of a `SELECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// `*`
    All,
    /// At least one selector.
    Selectors(Vec<Selector>),
}

/// One selected expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The expression computed for each row (or group).
    pub expression: Expression,
    /// `AS alias`
    pub alias: Option<String>,
}

/// One entry of `ORDER BY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordering {
    /// A column; in YCQL also a jsonb path or a function of columns.
    pub expression: Expression,
    /// How rows are put in order by it.
    pub kind: OrderingKind,
}

/// How rows are put in order by an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderingKind {
    /// By its value; the direction is ascending when the text says nothing.
    Value(Direction),
    /// `ANN OF term`: by the distance of a vector to this one, nearest first.
    NearestNeighbours(Expression),
}

/// Ascending or descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `ASC`
    Ascending,
    /// `DESC`
    Descending,
}

/// `USING TIMESTAMP t AND TTL s AND TIMEOUT d`, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Using {
    /// Microseconds since the epoch: an integer literal or a marker.
    pub timestamp: Option<Expression>,
    /// Seconds: an integer literal or a marker.
    pub ttl: Option<Expression>,
    /// How long the request may take, as in ScyllaDB: a constant.
    pub timeout: Option<Expression>,
}

impl Using {
    /// Whether the clause is absent.
    pub fn is_empty(&self) -> bool {
        self.timestamp.is_none() && self.ttl.is_none() && self.timeout.is_none()
    }
}

/// `INSERT INTO table …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// Where to.
    pub table: QualifiedName,
    /// The object.
    pub source: InsertSource,
    /// `USING …`
    pub using: Using,
    /// `IF NOT EXISTS`; in YCQL any condition.
    pub condition: Option<Condition>,
    /// YCQL: `RETURNS STATUS AS ROW`
    pub returns_status: bool,
}

/// The row that an `INSERT` writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertSource {
    /// `(columns) VALUES (values)`
    Values {
        /// At least one.
        columns: Vec<String>,
        /// As many as columns: the parser has checked it.
        values: Vec<Expression>,
    },
    /// `JSON value [DEFAULT NULL | UNSET]`
    Json {
        /// A string literal or a marker.
        value: Expression,
        /// The treatment of columns that the JSON does not name.
        default: JsonDefault,
    },
}

/// The treatment of columns that the JSON of an `INSERT … JSON` does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonDefault {
    /// They are set to null; also when the text says nothing.
    #[default]
    Null,
    /// They are left alone.
    Unset,
}

/// `UPDATE table [USING …] SET … WHERE … [IF …]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Which table.
    pub table: QualifiedName,
    /// `USING …`
    pub using: Using,
    /// At least one.
    pub assignments: Vec<Assignment>,
    /// All must hold.
    pub where_clause: Vec<Relation>,
    /// `IF …`
    pub condition: Option<Condition>,
    /// YCQL: `RETURNS STATUS AS ROW`
    pub returns_status: bool,
}

/// One assignment of an `UPDATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The assignments.
    pub target: Target,
    /// How.
    pub operation: AssignmentOperation,
}

/// A column or a part of one, in an assignment, a deletion or a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A column.
    Column(String),
    /// `column[key]`: an element of a list (by index), map (by key) or, to delete it, set.
    Element {
        /// The column.
        column: String,
        /// The index or key.
        key: Expression,
    },
    /// `column.field` of a user-defined type.
    Field {
        /// The column.
        column: String,
        /// The field.
        field: String,
    },
    /// YCQL: `column->'a'->2`, a place inside a jsonb document.
    JsonPath {
        /// The column.
        column: String,
        /// At least one step: each a string or integer literal or a marker.
        path: Vec<Expression>,
    },
}

impl Target {
    /// The column this is, or is a part of.
    pub fn column(&self) -> &str {
        match self {
            Target::Column(column)
            | Target::Element { column, .. }
            | Target::Field { column, .. }
            | Target::JsonPath { column, .. } => column,
        }
    }
}

/// The effect of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignmentOperation {
    /// `target = value`
    Set(Expression),
    /// `column = column + value` or `column += value`: a counter, or appending to a collection
    Add(Expression),
    /// `column = value + column`: prepending to a list
    Prepend(Expression),
    /// `column = column - value` or `column -= value`: a counter, or removing from a collection
    Subtract(Expression),
}

/// `DELETE [targets] FROM table [USING TIMESTAMP t AND TIMEOUT d] WHERE … [IF …]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The targets; empty for whole rows, ranges or partitions.
    pub targets: Vec<Target>,
    /// Which table.
    pub table: QualifiedName,
    /// Microseconds since the epoch: an integer literal or a marker.
    pub timestamp: Option<Expression>,
    /// How long the request may take: a constant.
    pub timeout: Option<Expression>,
    /// All must hold.
    pub where_clause: Vec<Relation>,
    /// `IF …`
    pub condition: Option<Condition>,
    /// YCQL: `RETURNS STATUS AS ROW`
    pub returns_status: bool,
}

/// The `IF` of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition.
    pub test: ConditionTest,
    /// YCQL: `ELSE ERROR`: a condition that fails is an error and not a row saying so.
    pub else_error: bool,
}

/// The condition of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionTest {
    /// `IF EXISTS`
    Exists,
    /// `IF NOT EXISTS`
    NotExists,
    /// `IF relation AND …`; in Cassandra's grammar always [`Predicate::conjuncts`] of relations.
    If(Predicate),
}

/// A boolean expression over relations. Cassandra's grammar knows only `AND`; `OR`, `NOT` and nesting are YCQL's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// One relation.
    Relation(Box<Relation>),
    /// Two or more, all of which must hold.
    And(Vec<Predicate>),
    /// Two or more, one of which must hold.
    Or(Vec<Predicate>),
    /// Must not hold.
    Not(Box<Predicate>),
    /// YCQL: `EXISTS` inside a larger condition.
    Exists,
    /// YCQL: `NOT EXISTS` inside a larger condition.
    NotExists,
}

impl Predicate {
    /// The relations when this is nothing but relations joined by `AND`, as all of Cassandra's are; `None` otherwise.
    pub fn conjuncts(&self) -> Option<Vec<&Relation>> {
        match self {
            Predicate::Relation(relation) => Some(vec![relation.as_ref()]),
            Predicate::And(parts) => parts
                .iter()
                .map(|part| match part {
                    Predicate::Relation(relation) => Some(relation.as_ref()),
                    _ => None,
                })
                .collect(),
            Predicate::Or(_) | Predicate::Not(_) | Predicate::Exists | Predicate::NotExists => None,
        }
    }
}

/// `BEGIN [UNLOGGED | COUNTER] BATCH [USING TIMESTAMP t] … APPLY BATCH`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Logged when the text says nothing.
    pub kind: BatchKind,
    /// `USING …` of the batch as a whole (Cassandra's grammar lets a TTL through here; its planner refuses it).
    pub using: Using,
    /// In the order of the text; may be empty.
    pub statements: Vec<Modification>,
}

/// The kind of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchKind {
    /// All or nothing.
    #[default]
    Logged,
    /// Each partition by itself.
    Unlogged,
    /// Counter updates only.
    Counter,
}

/// A statement that writes rows, as batches and transactions hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modification {
    /// `INSERT …`
    Insert(Insert),
    /// `UPDATE …`
    Update(Update),
    /// `DELETE …`
    Delete(Delete),
}

/// YCQL: a transaction sent as one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// In the order of the text; at least one.
    pub statements: Vec<Modification>,
}
