//! Statements that define the schema, and `DESCRIBE`.

use super::super::ast::{
    AlterTable, AlterType, ColumnDefinition, ColumnMask, CreateAggregate, CreateFunction, CreateIndex,
    CreateMaterializedView, CreateTable, DescribedObject, DroppedObject, FunctionSignature, IndexColumn, Literal,
    PrimaryKey, Property, PropertyValue, QualifiedName, Statement, TableChange, TableOptions, TypeChange, TypeName,
};
use super::super::keyword;
use super::formatter::{Formatter, quoted};

impl Formatter<'_> {
    pub(super) fn definition_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CreateKeyspace(keyspace) => {
                self.create("KEYSPACE ", keyspace.if_not_exists);
                self.name(&keyspace.name);
                self.with(&keyspace.properties);
            }
            Statement::AlterKeyspace(keyspace) => {
                self.alter("KEYSPACE ", keyspace.if_exists);
                self.name(&keyspace.name);
                self.with(&keyspace.properties);
            }
            Statement::CreateTable(table) => self.create_table(table),
            Statement::AlterTable(table) => self.alter_table(table),
            Statement::CreateType(user_type) => {
                self.create("TYPE ", user_type.if_not_exists);
                self.qualified(&user_type.name);
                self.push(" ");
                self.parenthesised(&user_type.fields, Self::name_and_type);
            }
            Statement::AlterType(user_type) => self.alter_type(user_type),
            Statement::CreateIndex(index) => self.create_index(index),
            Statement::CreateMaterializedView(view) => self.create_materialized_view(view),
            Statement::AlterMaterializedView(view) => {
                self.alter("MATERIALIZED VIEW ", view.if_exists);
                self.qualified(&view.name);
                self.with(&view.properties);
            }
            Statement::CreateFunction(function) => self.create_function(function),
            Statement::CreateAggregate(aggregate) => self.create_aggregate(aggregate),
            Statement::CreateTrigger(trigger) => {
                self.create("TRIGGER ", trigger.if_not_exists);
                self.name(&trigger.name);
                self.push(" ON ");
                self.qualified(&trigger.table);
                self.push(" USING ");
                self.string(&trigger.class);
            }
            Statement::Drop(drop) => self.drop_object(&drop.object, drop.if_exists),
            Statement::Describe(describe) => {
                self.push("DESCRIBE ");
                self.described(&describe.object);
                self.flag(describe.with_internals, " WITH INTERNALS");
            }
            // All others are written elsewhere.
            _ => {}
        }
    }

    fn create(&mut self, what: &str, if_not_exists: bool) {
        self.push("CREATE ");
        self.push(what);
        self.flag(if_not_exists, "IF NOT EXISTS ");
    }

    fn alter(&mut self, what: &str, if_exists: bool) {
        self.push("ALTER ");
        self.push(what);
        self.flag(if_exists, "IF EXISTS ");
    }

    fn with(&mut self, properties: &[Property]) {
        if !properties.is_empty() {
            self.push(" WITH ");
            self.separated(properties, " AND ", Self::property);
        }
    }

    fn property(&mut self, property: &Property) {
        self.name(&property.name);
        self.push(" = ");
        match &property.value {
            PropertyValue::Literal(literal) => self.literal(literal),
            PropertyValue::Identifier(word) => self.name(word),
            PropertyValue::Map(entries) => self.constant_map(entries),
            PropertyValue::Set(values) => {
                self.push("{");
                self.separated(values, ", ", Self::literal);
                self.push("}");
            }
        }
    }

    pub(super) fn constant_map(&mut self, entries: &[(Literal, Literal)]) {
        self.push("{");
        self.separated(entries, ", ", |formatter, (key, value)| {
            formatter.literal(key);
            formatter.push(": ");
            formatter.literal(value);
        });
        self.push("}");
    }

    fn name_and_type(&mut self, pair: &(String, TypeName)) {
        self.name(&pair.0);
        self.push(" ");
        self.type_name(&pair.1);
    }

    fn create_table(&mut self, table: &CreateTable) {
        self.create("TABLE ", table.if_not_exists);
        self.qualified(&table.name);
        self.push(" (");
        for column in &table.columns {
            self.column(column);
            self.push(", ");
        }
        self.primary_key(&table.primary_key);
        self.push(")");
        self.options(&table.options);
    }

    fn column(&mut self, column: &ColumnDefinition) {
        self.name(&column.name);
        self.push(" ");
        self.type_name(&column.data_type);
        self.flag(column.is_static, " STATIC");
        if let Some(mask) = &column.mask {
            self.push(" ");
            self.mask(mask);
        }
    }

    fn mask(&mut self, mask: &ColumnMask) {
        self.push("MASKED WITH ");
        self.qualified(&mask.function);
        self.parenthesised(&mask.arguments, |formatter, argument| formatter.expression(argument));
    }

    fn primary_key(&mut self, key: &PrimaryKey) {
        self.push("PRIMARY KEY (");
        match key.partition.as_slice() {
            [column] => self.name(column),
            columns => self.names(columns),
        }
        for column in &key.clustering {
            self.push(", ");
            self.name(column);
        }
        self.push(")");
    }

    fn options(&mut self, options: &TableOptions) {
        let mut introduction = " WITH ";
        if options.compact_storage {
            self.push(introduction);
            self.push("COMPACT STORAGE");
            introduction = " AND ";
        }
        if !options.clustering_order.is_empty() {
            self.push(introduction);
            self.push("CLUSTERING ORDER BY ");
            self.parenthesised(&options.clustering_order, |formatter, (column, direction)| {
                formatter.name(column);
                formatter.direction(*direction);
            });
            introduction = " AND ";
        }
        if !options.properties.is_empty() {
            self.push(introduction);
            self.separated(&options.properties, " AND ", Self::property);
        }
    }

    fn alter_table(&mut self, table: &AlterTable) {
        self.alter("TABLE ", table.if_exists);
        self.qualified(&table.name);
        for change in &table.changes {
            self.table_change(change);
        }
    }

    fn table_change(&mut self, change: &TableChange) {
        match change {
            TableChange::Add { if_not_exists, columns } => {
                self.push(" ADD ");
                self.flag(*if_not_exists, "IF NOT EXISTS ");
                self.one_or_parenthesised(columns, Self::column);
            }
            TableChange::Drop { if_exists, columns, timestamp } => {
                self.push(" DROP ");
                self.flag(*if_exists, "IF EXISTS ");
                self.one_or_parenthesised(columns, |formatter, column| formatter.name(column));
                if let Some(timestamp) = timestamp {
                    self.push(" USING TIMESTAMP ");
                    self.literal(timestamp);
                }
            }
            TableChange::DropCompactStorage => self.push(" DROP COMPACT STORAGE"),
            TableChange::Rename { if_exists, columns } => {
                self.push(" RENAME ");
                self.flag(*if_exists, "IF EXISTS ");
                self.renames(columns);
            }
            TableChange::AlterType { if_exists, column, data_type } => {
                self.push(" ALTER ");
                self.flag(*if_exists, "IF EXISTS ");
                self.name(column);
                self.push(" TYPE ");
                self.type_name(data_type);
            }
            TableChange::AlterMask { if_exists, column, mask } => {
                self.push(" ALTER ");
                self.flag(*if_exists, "IF EXISTS ");
                self.name(column);
                self.push(" ");
                match mask {
                    Some(mask) => self.mask(mask),
                    None => self.push("DROP MASKED"),
                }
            }
            TableChange::With(properties) => self.with(properties),
        }
    }

    fn one_or_parenthesised<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        match items {
            [item] => write(self, item),
            items => self.parenthesised(items, write),
        }
    }

    fn renames(&mut self, renames: &[(String, String)]) {
        self.separated(renames, " AND ", |formatter, (old, new)| {
            formatter.name(old);
            formatter.push(" TO ");
            formatter.name(new);
        });
    }

    fn alter_type(&mut self, user_type: &AlterType) {
        self.alter("TYPE ", user_type.if_exists);
        self.qualified(&user_type.name);
        match &user_type.change {
            TypeChange::Add { if_not_exists, field, data_type } => {
                self.push(" ADD ");
                self.flag(*if_not_exists, "IF NOT EXISTS ");
                self.name(field);
                self.push(" ");
                self.type_name(data_type);
            }
            TypeChange::Rename { if_exists, fields } => {
                self.push(" RENAME ");
                self.flag(*if_exists, "IF EXISTS ");
                self.renames(fields);
            }
            TypeChange::AlterType { if_exists, field, data_type } => {
                self.push(" ALTER ");
                self.flag(*if_exists, "IF EXISTS ");
                self.name(field);
                self.push(" TYPE ");
                self.type_name(data_type);
            }
        }
    }

    fn create_index(&mut self, index: &CreateIndex) {
        self.push("CREATE ");
        self.flag(index.unique, "UNIQUE ");
        self.flag(index.deferred, "DEFERRED ");
        self.flag(index.custom, "CUSTOM ");
        self.push("INDEX ");
        self.flag(index.if_not_exists, "IF NOT EXISTS ");
        if let Some(name) = &index.name {
            self.name(name);
            self.push(" ");
        }
        self.push("ON ");
        self.qualified(&index.table);
        self.push(" (");
        self.one_or_parenthesised(&index.partition, Self::index_column);
        for column in &index.clustering {
            self.push(", ");
            self.index_column(column);
        }
        self.push(")");
        if !index.include.is_empty() {
            self.push(" INCLUDE ");
            self.names(&index.include);
        }
        if let Some(class) = &index.using {
            self.push(" USING ");
            self.string(class);
        }
        self.options(&index.options);
        self.where_clause(&index.where_clause);
    }

    fn index_column(&mut self, column: &IndexColumn) {
        let (part, column) = match column {
            IndexColumn::Column(column) => return self.name(column),
            IndexColumn::Values(column) => ("VALUES", column),
            IndexColumn::Keys(column) => ("KEYS", column),
            IndexColumn::Entries(column) => ("ENTRIES", column),
            IndexColumn::Full(column) => ("FULL", column),
            IndexColumn::JsonPath { column, path, as_text } => {
                self.name(column);
                return self.json_path(path, *as_text);
            }
        };
        self.push(part);
        self.names(std::slice::from_ref(column));
    }

    fn create_materialized_view(&mut self, view: &CreateMaterializedView) {
        self.create("MATERIALIZED VIEW ", view.if_not_exists);
        self.qualified(&view.name);
        self.push(" AS SELECT ");
        self.selection(&view.selection);
        self.push(" FROM ");
        self.qualified(&view.base);
        self.where_clause(&view.where_clause);
        self.push(" ");
        self.primary_key(&view.primary_key);
        self.options(&view.options);
    }

    fn create_function(&mut self, function: &CreateFunction) {
        self.create(if function.or_replace { "OR REPLACE FUNCTION " } else { "FUNCTION " }, function.if_not_exists);
        self.qualified(&function.name);
        self.push(" ");
        self.parenthesised(&function.arguments, Self::name_and_type);
        self.push(if function.called_on_null { " CALLED" } else { " RETURNS NULL" });
        self.push(" ON NULL INPUT RETURNS ");
        self.type_name(&function.returns);
        self.push(" LANGUAGE ");
        self.name(&function.language);
        self.push(" AS ");
        // Source code reads better without its quotes doubled.
        if function.body.contains("$$") || function.body.ends_with('$') {
            self.string(&function.body);
        } else {
            self.push(&std::format!("$${}$$", function.body));
        }
    }

    fn create_aggregate(&mut self, aggregate: &CreateAggregate) {
        self.create(if aggregate.or_replace { "OR REPLACE AGGREGATE " } else { "AGGREGATE " }, aggregate.if_not_exists);
        self.qualified(&aggregate.name);
        self.push(" ");
        self.parenthesised(&aggregate.argument_types, Self::type_name);
        self.push(" SFUNC ");
        self.name(&aggregate.state_function);
        self.push(" STYPE ");
        self.type_name(&aggregate.state_type);
        if let Some(function) = &aggregate.final_function {
            self.push(" FINALFUNC ");
            self.name(function);
        }
        if let Some(condition) = &aggregate.initial_condition {
            self.push(" INITCOND ");
            self.expression(condition);
        }
    }

    fn drop_object(&mut self, object: &DroppedObject, if_exists: bool) {
        self.push(object.kind());
        self.push(" ");
        self.flag(if_exists, "IF EXISTS ");
        match object {
            DroppedObject::Keyspace(name) => self.name(name),
            DroppedObject::Table(name)
            | DroppedObject::Type(name)
            | DroppedObject::Index(name)
            | DroppedObject::MaterializedView(name) => self.qualified(name),
            DroppedObject::Function(signature) | DroppedObject::Aggregate(signature) => {
                self.function_signature(signature);
            }
            DroppedObject::Trigger { name, table } => {
                self.name(name);
                self.push(" ON ");
                self.qualified(table);
            }
        }
    }

    pub(super) fn function_signature(&mut self, signature: &FunctionSignature) {
        self.qualified(&signature.name);
        if let Some(types) = &signature.argument_types {
            self.parenthesised(types, Self::type_name);
        }
    }

    fn described(&mut self, object: &DescribedObject) {
        let (kind, name) = match object {
            DescribedObject::Cluster => return self.push("CLUSTER"),
            DescribedObject::Schema { full } => return self.push(if *full { "FULL SCHEMA" } else { "SCHEMA" }),
            DescribedObject::Keyspaces => return self.push("KEYSPACES"),
            DescribedObject::Tables => return self.push("TABLES"),
            DescribedObject::Types => return self.push("TYPES"),
            DescribedObject::Functions => return self.push("FUNCTIONS"),
            DescribedObject::Aggregates => return self.push("AGGREGATES"),
            DescribedObject::Keyspace { only, name } => {
                self.push(if *only { "ONLY KEYSPACE" } else { "KEYSPACE" });
                if let Some(name) = name {
                    self.push(" ");
                    self.name(name);
                }
                return;
            }
            DescribedObject::Table(name) => ("TABLE ", name),
            DescribedObject::Type(name) => ("TYPE ", name),
            DescribedObject::Function(name) => ("FUNCTION ", name),
            DescribedObject::Aggregate(name) => ("AGGREGATE ", name),
            DescribedObject::Index(name) => ("INDEX ", name),
            DescribedObject::MaterializedView(name) => ("MATERIALIZED VIEW ", name),
            DescribedObject::Any(name) => return self.any_described(name),
        };
        self.push(kind);
        self.qualified(name);
    }

    /// A name by itself: in quotes if it is any keyword, as it could be read as a kind of object.
    fn any_described(&mut self, name: &QualifiedName) {
        let first = name.keyspace.as_ref().unwrap_or(&name.name);
        if keyword::find(first).is_none() {
            return self.qualified(name);
        }
        self.push(&quoted(first, '"'));
        if name.keyspace.is_some() {
            self.push(".");
            self.name(&name.name);
        }
    }
}
