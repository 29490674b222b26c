//! `DESCRIBE`.
//!
//! Always true: a word that names a kind of object is read as that kind wherever the grammar of Cassandra reads it so; anything
//! else is the name of an object of any kind.

use super::super::ast::{Describe, DescribedObject, Statement};
use super::super::keyword::Keyword;
use super::super::lexer::Kind;
use super::{Parser, Result};

impl Parser<'_> {
    pub(super) fn describe(&mut self) -> Result<Statement> {
        self.bump();
        let object = self.described_object()?;
        let with_internals = self.eat(Keyword::With);
        if with_internals {
            self.expect(Keyword::Internals)?;
        }
        Ok(Statement::Describe(Describe { object, with_internals }))
    }

    fn described_object(&mut self) -> Result<DescribedObject> {
        let Kind::Keyword(keyword) = self.current.kind else { return self.described_by_name() };
        let whole = match keyword {
            Keyword::Cluster => DescribedObject::Cluster,
            Keyword::Schema => DescribedObject::Schema { full: false },
            Keyword::Keyspaces => DescribedObject::Keyspaces,
            Keyword::Tables | Keyword::Columnfamilies => DescribedObject::Tables,
            Keyword::Types => DescribedObject::Types,
            Keyword::Functions => DescribedObject::Functions,
            Keyword::Aggregates => DescribedObject::Aggregates,
            _ => return self.described_by_kind(keyword),
        };
        self.bump();
        Ok(whole)
    }

    /// `TABLE name` and its like.
    fn described_by_kind(&mut self, keyword: Keyword) -> Result<DescribedObject> {
        if !matches!(
            keyword,
            Keyword::Full
                | Keyword::Only
                | Keyword::Keyspace
                | Keyword::Table
                | Keyword::Columnfamily
                | Keyword::Type
                | Keyword::Function
                | Keyword::Aggregate
                | Keyword::Index
                | Keyword::Materialized
        ) {
            return self.described_by_name();
        }
        self.bump();
        match keyword {
            Keyword::Full => {
                self.expect(Keyword::Schema)?;
                Ok(DescribedObject::Schema { full: true })
            }
            Keyword::Only => {
                self.expect(Keyword::Keyspace)?;
                Ok(DescribedObject::Keyspace { only: true, name: self.optional_keyspace()? })
            }
            Keyword::Keyspace => Ok(DescribedObject::Keyspace { only: false, name: self.optional_keyspace()? }),
            Keyword::Type => Ok(DescribedObject::Type(self.qualified_name("type name")?)),
            Keyword::Function => Ok(DescribedObject::Function(self.qualified_name("function name")?)),
            Keyword::Aggregate => Ok(DescribedObject::Aggregate(self.qualified_name("aggregate name")?)),
            Keyword::Index => Ok(DescribedObject::Index(self.qualified_name("index name")?)),
            Keyword::Materialized => {
                self.expect(Keyword::View)?;
                Ok(DescribedObject::MaterializedView(self.qualified_name("view name")?))
            }
            _ => Ok(DescribedObject::Table(self.qualified_name("table name")?)),
        }
    }

    fn optional_keyspace(&mut self) -> Result<Option<String>> {
        if self.at_identifier() { Ok(Some(self.identifier("keyspace name")?)) } else { Ok(None) }
    }

    fn described_by_name(&mut self) -> Result<DescribedObject> {
        Ok(DescribedObject::Any(self.qualified_name("what to describe, or its name")?))
    }
}
