//! `ALTER` and `DROP` of schema objects.
//!
//! Always true: an `ALTER` changes at least one thing.

use super::super::ast::{
    AlterKeyspace, AlterMaterializedView, AlterTable, AlterType, Drop, DroppedObject, FunctionSignature, Statement,
    TableChange, TypeChange,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::{Parser, Result};

impl Parser<'_> {
    pub(super) fn alter(&mut self) -> Result<Statement> {
        self.expect(Keyword::Alter)?;
        let Kind::Keyword(keyword) = self.current.kind else { return Err(self.unexpected("what to alter")) };
        match keyword {
            Keyword::Keyspace | Keyword::Schema => {
                self.bump();
                let if_exists = self.if_exists()?;
                let name = self.identifier("keyspace name")?;
                let properties = self.with_properties()?;
                Ok(Statement::AlterKeyspace(AlterKeyspace { name, if_exists, properties }))
            }
            Keyword::Table | Keyword::Columnfamily => self.alter_table(),
            Keyword::Type => self.alter_type(),
            Keyword::Materialized => {
                self.bump();
                self.expect(Keyword::View)?;
                let if_exists = self.if_exists()?;
                let name = self.qualified_name("view name")?;
                let properties = self.with_properties()?;
                Ok(Statement::AlterMaterializedView(AlterMaterializedView { name, if_exists, properties }))
            }
            Keyword::Role => self.alter_role(),
            Keyword::User => self.alter_user(),
            _ => Err(self.unexpected("what to alter")),
        }
    }

    fn alter_table(&mut self) -> Result<Statement> {
        self.bump();
        let if_exists = self.if_exists()?;
        let name = self.qualified_name("table name")?;
        let mut changes = Vec::new();
        loop {
            let change = match self.current.kind {
                Kind::Keyword(Keyword::Add) => self.add_columns()?,
                Kind::Keyword(Keyword::Drop) => self.drop_columns()?,
                Kind::Keyword(Keyword::Rename) => {
                    self.bump();
                    let if_exists = self.if_exists()?;
                    TableChange::Rename { if_exists, columns: self.renames("column name")? }
                }
                Kind::Keyword(Keyword::Alter) => self.alter_column()?,
                Kind::Keyword(Keyword::With) => TableChange::With(self.with_properties()?),
                _ if changes.is_empty() => return Err(self.unexpected("ADD, ALTER, DROP, RENAME or WITH")),
                _ => return Ok(Statement::AlterTable(AlterTable { name, if_exists, changes })),
            };
            changes.push(change);
        }
    }

    fn add_columns(&mut self) -> Result<TableChange> {
        self.bump();
        let if_not_exists = self.if_not_exists()?;
        let columns = match self.at_symbol(Symbol::LeftParenthesis) {
            true => self.parenthesised(Self::column_definition)?,
            false => self.comma_separated(Self::column_definition)?,
        };
        Ok(TableChange::Add { if_not_exists, columns })
    }

    fn drop_columns(&mut self) -> Result<TableChange> {
        self.bump();
        if self.at(Keyword::Compact) && self.followed_by(Keyword::Storage) {
            self.bump();
            self.bump();
            return Ok(TableChange::DropCompactStorage);
        }
        let if_exists = self.if_exists()?;
        let columns = match self.at_symbol(Symbol::LeftParenthesis) {
            true => self.column_names()?,
            false => self.comma_separated(Self::column_name)?,
        };
        let mut timestamp = None;
        if self.eat(Keyword::Using) {
            self.expect(Keyword::Timestamp)?;
            timestamp = Some(self.integer()?);
        }
        Ok(TableChange::Drop { if_exists, columns, timestamp })
    }

    /// `old TO new AND …`; YCQL has commas.
    fn renames(&mut self, expected: &str) -> Result<Vec<(String, String)>> {
        let mut renames = Vec::new();
        loop {
            let old = self.identifier(expected)?;
            self.expect(Keyword::To)?;
            renames.push((old, self.identifier(expected)?));
            if !self.eat(Keyword::And) && !self.eat_symbol(Symbol::Comma) {
                return Ok(renames);
            }
        }
    }

    fn alter_column(&mut self) -> Result<TableChange> {
        self.bump();
        let if_exists = self.if_exists()?;
        let column = self.column_name()?;
        if self.eat(Keyword::Type) {
            return Ok(TableChange::AlterType { if_exists, column, data_type: self.type_name()? });
        }
        if self.eat(Keyword::Drop) {
            self.expect(Keyword::Masked)?;
            return Ok(TableChange::AlterMask { if_exists, column, mask: None });
        }
        if !self.at(Keyword::Masked) {
            return Err(self.unexpected("TYPE, MASKED or DROP MASKED"));
        }
        Ok(TableChange::AlterMask { if_exists, column, mask: Some(self.column_mask()?) })
    }

    fn alter_type(&mut self) -> Result<Statement> {
        self.bump();
        let if_exists = self.if_exists()?;
        let name = self.qualified_name("type name")?;
        let change = if self.eat(Keyword::Add) {
            let if_not_exists = self.if_not_exists()?;
            let field = self.identifier("field name")?;
            TypeChange::Add { if_not_exists, field, data_type: self.type_name()? }
        } else if self.eat(Keyword::Rename) {
            let if_exists = self.if_exists()?;
            TypeChange::Rename { if_exists, fields: self.renames("field name")? }
        } else if self.eat(Keyword::Alter) {
            let if_exists = self.if_exists()?;
            let field = self.identifier("field name")?;
            self.expect(Keyword::Type)?;
            TypeChange::AlterType { if_exists, field, data_type: self.type_name()? }
        } else {
            return Err(self.unexpected("ADD, ALTER or RENAME"));
        };
        Ok(Statement::AlterType(AlterType { name, if_exists, change }))
    }

    pub(super) fn drop_object(&mut self) -> Result<Statement> {
        self.expect(Keyword::Drop)?;
        let Kind::Keyword(keyword) = self.current.kind else { return Err(self.unexpected("what to drop")) };
        match keyword {
            Keyword::Role | Keyword::User => return self.drop_role(),
            Keyword::Identity => return self.drop_identity(),
            _ => {}
        }
        let known = self.eat_keyspace_keyword()
            || self.eat_table_keyword()
            || self.eat(Keyword::Type)
            || self.eat(Keyword::Index)
            || self.eat(Keyword::Function)
            || self.eat(Keyword::Aggregate)
            || self.eat(Keyword::Trigger);
        if !known {
            if !self.eat(Keyword::Materialized) {
                return Err(self.unexpected("what to drop"));
            }
            self.expect(Keyword::View)?;
        }
        let if_exists = self.if_exists()?;
        let object = match keyword {
            Keyword::Keyspace | Keyword::Schema => DroppedObject::Keyspace(self.identifier("keyspace name")?),
            Keyword::Type => DroppedObject::Type(self.qualified_name("type name")?),
            Keyword::Index => DroppedObject::Index(self.qualified_name("index name")?),
            Keyword::Function => DroppedObject::Function(self.function_signature("function name")?),
            Keyword::Aggregate => DroppedObject::Aggregate(self.function_signature("aggregate name")?),
            Keyword::Materialized => DroppedObject::MaterializedView(self.qualified_name("view name")?),
            Keyword::Trigger => {
                let name = self.identifier("trigger name")?;
                self.expect(Keyword::On)?;
                DroppedObject::Trigger { name, table: self.qualified_name("table name")? }
            }
            _ => DroppedObject::Table(self.qualified_name("table name")?),
        };
        Ok(Statement::Drop(Drop { object, if_exists }))
    }

    /// `name [(types)]`
    pub(super) fn function_signature(&mut self, expected: &str) -> Result<FunctionSignature> {
        let name = self.qualified_name(expected)?;
        let given = self.at_symbol(Symbol::LeftParenthesis);
        let argument_types = if given { Some(self.parenthesised_or_empty(Self::type_name)?) } else { None };
        Ok(FunctionSignature { name, argument_types })
    }
}
