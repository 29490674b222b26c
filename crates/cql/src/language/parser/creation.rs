//! `CREATE` of schema objects, and the options that follow `WITH`.
//!
//! Always true: a table has exactly one primary key. What is left out: whether key columns exist, whether options are known.

use super::super::ast::{
    ColumnDefinition, ColumnMask, CreateAggregate, CreateFunction, CreateIndex, CreateKeyspace, CreateMaterializedView,
    CreateTable, CreateTrigger, CreateType, Direction, IndexColumn, Literal, PrimaryKey, Property, PropertyValue,
    QualifiedName, Statement, TableOptions, TypeName,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::{Parser, Result};

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<Statement> {
        self.expect(Keyword::Create)?;
        if self.eat(Keyword::Or) {
            self.expect(Keyword::Replace)?;
            return match self.current.kind {
                Kind::Keyword(Keyword::Function) => self.create_function(true),
                Kind::Keyword(Keyword::Aggregate) => self.create_aggregate(true),
                _ => Err(self.unexpected("FUNCTION or AGGREGATE")),
            };
        }
        let Kind::Keyword(keyword) = self.current.kind else { return Err(self.unexpected("what to create")) };
        match keyword {
            Keyword::Keyspace | Keyword::Schema => self.create_keyspace(),
            Keyword::Table | Keyword::Columnfamily => self.create_table(),
            Keyword::Type => self.create_type(),
            Keyword::Index | Keyword::Unique | Keyword::Deferred | Keyword::Custom => self.create_index(),
            Keyword::Materialized => self.create_materialized_view(),
            Keyword::Function => self.create_function(false),
            Keyword::Aggregate => self.create_aggregate(false),
            Keyword::Trigger => self.create_trigger(),
            Keyword::Role => self.create_role(),
            Keyword::User => self.create_user(),
            _ => Err(self.unexpected("what to create")),
        }
    }

    fn create_keyspace(&mut self) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let name = self.identifier("keyspace name")?;
        let properties = if self.at(Keyword::With) { self.with_properties()? } else { Vec::new() };
        Ok(Statement::CreateKeyspace(CreateKeyspace { name, if_not_exists, properties }))
    }

    fn create_table(&mut self) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let start = self.current;
        let name = self.qualified_name("table name")?;
        let mut columns = Vec::new();
        let mut primary_key = None;
        self.parenthesised(|parser| parser.table_element(&mut columns, &mut primary_key))?;
        let Some(primary_key) = primary_key else {
            return Err(self.invalid(start, format!("no PRIMARY KEY specified for table '{}'", name.name)));
        };
        let options = self.table_options()?;
        Ok(Statement::CreateTable(Box::new(CreateTable { name, if_not_exists, columns, primary_key, options })))
    }

    /// A column or the primary key of `CREATE TABLE`.
    fn table_element(&mut self, columns: &mut Vec<ColumnDefinition>, key: &mut Option<PrimaryKey>) -> Result<()> {
        let start = self.current;
        let found = if self.at(Keyword::Primary) {
            Some(self.primary_key()?)
        } else {
            let column = self.column_definition()?;
            let inline = self.at(Keyword::Primary).then(|| PrimaryKey::of(&column.name));
            if inline.is_some() {
                self.bump();
                self.expect(Keyword::Key)?;
            }
            columns.push(column);
            inline
        };
        if found.is_some() && key.is_some() {
            return Err(self.invalid(start, "multiple PRIMARY KEYs specified (exactly one required)".to_owned()));
        }
        *key = found.or(key.take());
        Ok(())
    }

    /// `name type [STATIC] [MASKED WITH …]`
    pub(super) fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let name = self.column_name()?;
        let data_type = self.type_name()?;
        let is_static = self.eat(Keyword::Static);
        let mask = if self.at(Keyword::Masked) { Some(self.column_mask()?) } else { None };
        Ok(ColumnDefinition { name, data_type, is_static, mask })
    }

    /// `MASKED WITH function(…)` or `MASKED WITH DEFAULT`
    pub(super) fn column_mask(&mut self) -> Result<ColumnMask> {
        self.expect(Keyword::Masked)?;
        self.expect(Keyword::With)?;
        if self.at(Keyword::Default) && !self.followed_by_symbol(Symbol::LeftParenthesis) {
            self.bump();
            return Ok(ColumnMask { function: QualifiedName::unqualified("mask_default"), arguments: Vec::new() });
        }
        let function = self.qualified_name("function name")?;
        let arguments = self.parenthesised_or_empty(Self::term)?;
        Ok(ColumnMask { function, arguments })
    }

    /// `PRIMARY KEY (…)`
    fn primary_key(&mut self) -> Result<PrimaryKey> {
        self.expect(Keyword::Primary)?;
        self.expect(Keyword::Key)?;
        self.expect_symbol(Symbol::LeftParenthesis)?;
        let partition = match self.at_symbol(Symbol::LeftParenthesis) {
            true => self.column_names()?,
            false => vec![self.column_name()?],
        };
        let mut clustering = Vec::new();
        while self.eat_symbol(Symbol::Comma) {
            clustering.push(self.column_name()?);
        }
        self.expect_symbol(Symbol::RightParenthesis)?;
        Ok(PrimaryKey { partition, clustering })
    }

    /// `WITH …` of a table, view or index, if it is next.
    fn table_options(&mut self) -> Result<TableOptions> {
        let mut options = TableOptions::default();
        if !self.eat(Keyword::With) {
            return Ok(options);
        }
        self.and_separated(|parser| {
            if parser.at(Keyword::Compact) && parser.followed_by(Keyword::Storage) {
                parser.bump();
                parser.bump();
                options.compact_storage = true;
            } else if parser.at(Keyword::Clustering) && parser.followed_by(Keyword::Order) {
                parser.bump();
                parser.bump();
                parser.expect(Keyword::By)?;
                let order = parser.parenthesised(|parser| {
                    let column = parser.column_name()?;
                    Ok((column, parser.direction()))
                })?;
                options.clustering_order.extend::<Vec<(String, Direction)>>(order);
            } else {
                options.properties.push(parser.property()?);
            }
            Ok(())
        })?;
        Ok(options)
    }

    /// `WITH name = value AND …`
    pub(super) fn with_properties(&mut self) -> Result<Vec<Property>> {
        self.expect(Keyword::With)?;
        self.and_separated(Self::property)
    }

    fn property(&mut self) -> Result<Property> {
        let name = self.identifier("option name")?;
        self.expect_symbol(Symbol::Equal)?;
        let value = if self.at_symbol(Symbol::LeftBrace) {
            self.property_braces()?
        } else if self.at_identifier() {
            PropertyValue::Identifier(self.identifier("option value")?)
        } else {
            PropertyValue::Literal(self.signed_constant()?)
        };
        Ok(Property { name, value })
    }

    fn property_braces(&mut self) -> Result<PropertyValue> {
        self.bump();
        if self.eat_symbol(Symbol::RightBrace) {
            return Ok(PropertyValue::Map(Vec::new()));
        }
        let first = self.signed_constant()?;
        if self.at_symbol(Symbol::Colon) {
            return Ok(PropertyValue::Map(self.map_entries(first)?));
        }
        let mut values = vec![first];
        while self.eat_symbol(Symbol::Comma) {
            values.push(self.signed_constant()?);
        }
        self.expect_symbol(Symbol::RightBrace)?;
        Ok(PropertyValue::Set(values))
    }

    /// The rest of a map of constants after its first key.
    fn map_entries(&mut self, mut key: Literal) -> Result<Vec<(Literal, Literal)>> {
        let mut entries = Vec::new();
        loop {
            self.expect_symbol(Symbol::Colon)?;
            entries.push((key, self.signed_constant()?));
            if !self.eat_symbol(Symbol::Comma) {
                break;
            }
            key = self.signed_constant()?;
        }
        self.expect_symbol(Symbol::RightBrace)?;
        Ok(entries)
    }

    /// `{constant: constant, …}`
    pub(super) fn constant_map(&mut self) -> Result<Vec<(Literal, Literal)>> {
        self.expect_symbol(Symbol::LeftBrace)?;
        if self.eat_symbol(Symbol::RightBrace) {
            return Ok(Vec::new());
        }
        let first = self.signed_constant()?;
        self.map_entries(first)
    }

    fn create_type(&mut self) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified_name("type name")?;
        let fields = self.parenthesised(|parser| Ok((parser.identifier("field name")?, parser.type_name()?)))?;
        Ok(Statement::CreateType(CreateType { name, if_not_exists, fields }))
    }

    fn create_index(&mut self) -> Result<Statement> {
        let unique = self.eat(Keyword::Unique);
        let deferred = self.eat(Keyword::Deferred);
        let custom = self.eat(Keyword::Custom);
        self.expect(Keyword::Index)?;
        let if_not_exists = self.if_not_exists()?;
        let name = if self.at(Keyword::On) { None } else { Some(self.identifier("index name")?) };
        self.expect(Keyword::On)?;
        let table = self.qualified_name("table name")?;
        let (partition, clustering) = self.index_columns()?;
        let mut index = CreateIndex {
            name,
            if_not_exists,
            unique,
            deferred,
            custom,
            table,
            partition,
            clustering,
            include: Vec::new(),
            using: None,
            options: TableOptions::default(),
            where_clause: Vec::new(),
        };
        self.index_clauses(&mut index)?;
        Ok(Statement::CreateIndex(Box::new(index)))
    }

    /// `(a, b)` or `((a, b), c)`
    fn index_columns(&mut self) -> Result<(Vec<IndexColumn>, Vec<IndexColumn>)> {
        self.expect_symbol(Symbol::LeftParenthesis)?;
        let partition = match self.at_symbol(Symbol::LeftParenthesis) {
            true => self.parenthesised(Self::index_column)?,
            false => vec![self.index_column()?],
        };
        let mut clustering = Vec::new();
        while self.eat_symbol(Symbol::Comma) {
            clustering.push(self.index_column()?);
        }
        self.expect_symbol(Symbol::RightParenthesis)?;
        Ok((partition, clustering))
    }

    fn index_column(&mut self) -> Result<IndexColumn> {
        let part_of: Option<fn(String) -> IndexColumn> = match self.current.kind {
            _ if !self.followed_by_symbol(Symbol::LeftParenthesis) => None,
            Kind::Keyword(Keyword::Values) => Some(IndexColumn::Values),
            Kind::Keyword(Keyword::Keys) => Some(IndexColumn::Keys),
            Kind::Keyword(Keyword::Entries) => Some(IndexColumn::Entries),
            Kind::Keyword(Keyword::Full) => Some(IndexColumn::Full),
            _ => None,
        };
        if let Some(part_of) = part_of {
            self.bump();
            self.bump();
            let column = self.column_name()?;
            self.expect_symbol(Symbol::RightParenthesis)?;
            return Ok(part_of(column));
        }
        let column = self.column_name()?;
        let start = self.current;
        let markers = self.markers.len();
        let (path, as_text) = self.json_path()?;
        if self.markers.len() > markers {
            return Err(self.syntax_error(start, "bind variables cannot be used in an index".to_owned()));
        }
        if path.is_empty() {
            Ok(IndexColumn::Column(column))
        } else {
            Ok(IndexColumn::JsonPath { column, path, as_text })
        }
    }

    /// What follows the columns of an index, in any order, each at most once.
    fn index_clauses(&mut self, index: &mut CreateIndex) -> Result<()> {
        loop {
            let covering = self.at(Keyword::Include) || self.at(Keyword::Covering);
            if covering && index.include.is_empty() {
                self.bump();
                index.include = self.column_names()?;
            } else if index.using.is_none() && self.eat(Keyword::Using) {
                index.using = Some(self.string("a class name in quotes")?);
            } else if index.options.is_empty() && self.at(Keyword::With) {
                index.options = self.table_options()?;
            } else if index.where_clause.is_empty() && self.at(Keyword::Where) {
                index.where_clause = self.where_clause()?;
            } else {
                return Ok(());
            }
        }
    }

    fn create_materialized_view(&mut self) -> Result<Statement> {
        self.bump();
        self.expect(Keyword::View)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified_name("view name")?;
        self.expect(Keyword::As)?;
        self.expect(Keyword::Select)?;
        let selection = self.selection()?;
        self.expect(Keyword::From)?;
        let base = self.qualified_name("table name")?;
        let where_clause = self.optional_where_clause()?;
        let primary_key = self.primary_key()?;
        let options = self.table_options()?;
        Ok(Statement::CreateMaterializedView(Box::new(CreateMaterializedView {
            name,
            if_not_exists,
            selection,
            base,
            where_clause,
            primary_key,
            options,
        })))
    }

    fn create_function(&mut self, or_replace: bool) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified_name("function name")?;
        let arguments =
            self.parenthesised_or_empty(|parser| Ok((parser.identifier("argument name")?, parser.type_name()?)))?;
        let called_on_null = self.eat(Keyword::Called);
        if !called_on_null {
            self.expect(Keyword::Returns)?;
            self.expect(Keyword::Null)?;
        }
        for keyword in [Keyword::On, Keyword::Null, Keyword::Input, Keyword::Returns] {
            self.expect(keyword)?;
        }
        let returns = self.type_name()?;
        self.expect(Keyword::Language)?;
        let language = self.identifier("language name")?;
        self.expect(Keyword::As)?;
        let body = self.string("the body of the function as a string")?;
        Ok(Statement::CreateFunction(Box::new(CreateFunction {
            name,
            or_replace,
            if_not_exists,
            arguments,
            called_on_null,
            returns,
            language,
            body,
        })))
    }

    fn create_aggregate(&mut self, or_replace: bool) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified_name("aggregate name")?;
        let argument_types: Vec<TypeName> = self.parenthesised_or_empty(Self::type_name)?;
        self.expect(Keyword::Sfunc)?;
        let state_function = self.identifier("function name")?;
        self.expect(Keyword::Stype)?;
        let state_type = self.type_name()?;
        let final_function = if self.eat(Keyword::Finalfunc) { Some(self.identifier("function name")?) } else { None };
        let initial_condition = if self.eat(Keyword::Initcond) { Some(self.term()?) } else { None };
        Ok(Statement::CreateAggregate(Box::new(CreateAggregate {
            name,
            or_replace,
            if_not_exists,
            argument_types,
            state_function,
            state_type,
            final_function,
            initial_condition,
        })))
    }

    fn create_trigger(&mut self) -> Result<Statement> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let name = self.identifier("trigger name")?;
        self.expect(Keyword::On)?;
        let table = self.qualified_name("table name")?;
        self.expect(Keyword::Using)?;
        let class = self.string("a class name in quotes")?;
        Ok(Statement::CreateTrigger(CreateTrigger { name, if_not_exists, table, class }))
    }
}

impl PrimaryKey {
    /// A key of one column.
    fn of(column: &str) -> PrimaryKey {
        PrimaryKey { partition: vec![column.to_owned()], clustering: Vec::new() }
    }
}
