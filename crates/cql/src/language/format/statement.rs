//! Statements that read and write rows.

use super::super::ast::{
    ArithmeticOperator, Assignment, AssignmentOperation, Batch, BatchKind, Condition, ConditionTest, Delete, Direction,
    Expression, Insert, InsertSource, JsonDefault, Modification, Ordering, OrderingKind, Select, Selection, Statement,
    Transaction, Update, Using,
};
use super::formatter::Formatter;

impl Formatter<'_> {
    pub(super) fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Select(select) => self.select(select),
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => self.update(update),
            Statement::Delete(delete) => self.delete(delete),
            Statement::Batch(batch) => self.batch(batch),
            Statement::Transaction(transaction) => self.transaction(transaction),
            Statement::Explain(inner) => {
                self.push("EXPLAIN ");
                self.statement(inner);
            }
            Statement::Use(keyspace) => {
                self.push("USE ");
                self.name(keyspace);
            }
            Statement::Truncate(table) => {
                self.push("TRUNCATE TABLE ");
                self.qualified(table);
            }
            Statement::CreateRole(_)
            | Statement::AlterRole(_)
            | Statement::DropRole(_)
            | Statement::ListRoles(_)
            | Statement::GrantRole(_)
            | Statement::RevokeRole(_)
            | Statement::GrantPermissions(_)
            | Statement::RevokePermissions(_)
            | Statement::ListPermissions(_)
            | Statement::AddIdentity(_)
            | Statement::DropIdentity(_) => self.access_statement(statement),
            _ => self.definition_statement(statement),
        }
    }

    fn select(&mut self, select: &Select) {
        self.push("SELECT ");
        self.flag(select.json, "JSON ");
        self.flag(select.distinct, "DISTINCT ");
        self.selection(&select.selection);
        self.push(" FROM ");
        self.qualified(&select.from);
        self.where_clause(&select.where_clause);
        if let Some(filter) = &select.filter {
            self.push(" IF ");
            self.predicate(filter);
        }
        if !select.group_by.is_empty() {
            self.push(" GROUP BY ");
            self.separated(&select.group_by, ", ", |formatter, expression| formatter.expression(expression));
        }
        if !select.order_by.is_empty() {
            self.push(" ORDER BY ");
            self.separated(&select.order_by, ", ", Self::ordering);
        }
        self.optional(" PER PARTITION LIMIT ", select.limits.per_partition.as_ref());
        let limit = self.aside(|formatter| formatter.optional(" LIMIT ", select.limits.total.as_ref()));
        let offset = self.aside(|formatter| formatter.optional(" OFFSET ", select.limits.offset.as_ref()));
        self.in_marker_order([limit, offset], "");
        self.flag(select.allow_filtering, " ALLOW FILTERING");
        self.optional(" USING TIMEOUT ", select.timeout.as_ref());
    }

    /// An introduction and an expression, if there is one.
    fn optional(&mut self, introduction: &str, expression: Option<&Expression>) {
        if let Some(expression) = expression {
            self.push(introduction);
            self.expression(expression);
        }
    }

    pub(super) fn selection(&mut self, selection: &Selection) {
        match selection {
            Selection::All => self.push("*"),
            Selection::Selectors(selectors) => self.separated(selectors, ", ", |formatter, selector| {
                formatter.expression(&selector.expression);
                if let Some(alias) = &selector.alias {
                    formatter.push(" AS ");
                    formatter.name(alias);
                }
            }),
        }
    }

    fn ordering(&mut self, ordering: &Ordering) {
        self.expression(&ordering.expression);
        match &ordering.kind {
            OrderingKind::Value(direction) => self.direction(*direction),
            OrderingKind::NearestNeighbours(vector) => {
                self.push(" ANN OF ");
                self.expression(vector);
            }
        }
    }

    pub(super) fn direction(&mut self, direction: Direction) {
        self.push(match direction {
            Direction::Ascending => " ASC",
            Direction::Descending => " DESC",
        });
    }

    fn insert(&mut self, insert: &Insert) {
        self.push("INSERT INTO ");
        self.qualified(&insert.table);
        match &insert.source {
            InsertSource::Values { columns, values } => {
                self.push(" ");
                self.names(columns);
                self.push(" VALUES ");
                self.parenthesised(values, |formatter, value| formatter.expression(value));
            }
            InsertSource::Json { value, default } => {
                self.push(" JSON ");
                self.expression(value);
                self.flag(*default == JsonDefault::Unset, " DEFAULT UNSET");
            }
        }
        let condition = self.aside(|formatter| formatter.condition(insert.condition.as_ref()));
        let using = self.aside(|formatter| formatter.using(&insert.using));
        self.in_marker_order([condition, using], "");
        self.flag(insert.returns_status, " RETURNS STATUS AS ROW");
    }

    fn using(&mut self, using: &Using) {
        if using.is_empty() {
            return;
        }
        self.push(" USING ");
        let timestamp = self.aside(|formatter| formatter.optional("TIMESTAMP ", using.timestamp.as_ref()));
        let ttl = self.aside(|formatter| formatter.optional("TTL ", using.ttl.as_ref()));
        let timeout = self.aside(|formatter| formatter.optional("TIMEOUT ", using.timeout.as_ref()));
        self.in_marker_order([timestamp, ttl, timeout], " AND ");
    }

    fn update(&mut self, update: &Update) {
        self.push("UPDATE ");
        self.qualified(&update.table);
        self.using(&update.using);
        self.push(" SET ");
        self.separated(&update.assignments, ", ", Self::assignment);
        self.where_clause(&update.where_clause);
        self.condition(update.condition.as_ref());
        self.flag(update.returns_status, " RETURNS STATUS AS ROW");
    }

    fn assignment(&mut self, assignment: &Assignment) {
        self.target(&assignment.target);
        match &assignment.operation {
            AssignmentOperation::Set(value) => self.optional(" = ", Some(value)),
            AssignmentOperation::Add(value) => {
                self.push(" = ");
                self.target(&assignment.target);
                self.optional(" + ", Some(value));
            }
            AssignmentOperation::Prepend(value) => {
                self.optional(" = ", Some(value));
                self.push(" + ");
                self.target(&assignment.target);
            }
            // `c = c - 1 + 2` would not be what `c -= 1 + 2` is.
            AssignmentOperation::Subtract(
                sum @ Expression::Arithmetic {
                    operator: ArithmeticOperator::Add | ArithmeticOperator::Subtract, ..
                },
            ) => self.optional(" -= ", Some(sum)),
            AssignmentOperation::Subtract(value) => {
                self.push(" = ");
                self.target(&assignment.target);
                self.optional(" - ", Some(value));
            }
        }
    }

    fn delete(&mut self, delete: &Delete) {
        self.push("DELETE ");
        self.separated(&delete.targets, ", ", Self::target);
        self.flag(!delete.targets.is_empty(), " ");
        self.push("FROM ");
        self.qualified(&delete.table);
        self.flag(delete.timestamp.is_some() || delete.timeout.is_some(), " USING ");
        let timestamp = self.aside(|formatter| formatter.optional("TIMESTAMP ", delete.timestamp.as_ref()));
        let timeout = self.aside(|formatter| formatter.optional("TIMEOUT ", delete.timeout.as_ref()));
        self.in_marker_order([timestamp, timeout], " AND ");
        self.where_clause(&delete.where_clause);
        self.condition(delete.condition.as_ref());
        self.flag(delete.returns_status, " RETURNS STATUS AS ROW");
    }

    fn condition(&mut self, condition: Option<&Condition>) {
        let Some(condition) = condition else { return };
        self.push(" IF ");
        match &condition.test {
            ConditionTest::Exists => self.push("EXISTS"),
            ConditionTest::NotExists => self.push("NOT EXISTS"),
            ConditionTest::If(predicate) => self.predicate(predicate),
        }
        self.flag(condition.else_error, " ELSE ERROR");
    }

    fn batch(&mut self, batch: &Batch) {
        self.push(match batch.kind {
            BatchKind::Logged => "BEGIN BATCH",
            BatchKind::Unlogged => "BEGIN UNLOGGED BATCH",
            BatchKind::Counter => "BEGIN COUNTER BATCH",
        });
        self.using(&batch.using);
        self.push(" ");
        self.modifications(&batch.statements);
        self.push("APPLY BATCH");
    }

    fn transaction(&mut self, transaction: &Transaction) {
        self.push("BEGIN TRANSACTION ");
        self.modifications(&transaction.statements);
        self.push("END TRANSACTION");
    }

    /// Statements, each with a semicolon and a space after it.
    fn modifications(&mut self, statements: &[Modification]) {
        for statement in statements {
            match statement {
                Modification::Insert(insert) => self.insert(insert),
                Modification::Update(update) => self.update(update),
                Modification::Delete(delete) => self.delete(delete),
            }
            self.push("; ");
        }
    }
}
