//! The tables that a text names as a statement on rows, whether or not it is one.
//!
//! Always true: of the text only the names are taken that stand where a statement has a table (after `FROM`, `INTO` and
//! `UPDATE`), so that a value that was written without quotes is not taken for one; in time linear in the text, up to
//! where it cannot be split into tokens. Left out: whether the text can be parsed, and whether the tables exist.

use super::ast::QualifiedName;
use super::keyword::Keyword;
use super::lexer::{Kind, Lexer, Symbol, Token};

/// Tables that are taken of one text at most.
const MAX_TABLES: usize = 64;

/// See the top of this module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTables {
    /// `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `BATCH` or `TRANSACTION`; `EXPLAIN` of whatever statement.
    pub kind: &'static str,
    /// Each one once.
    pub tables: Vec<QualifiedName>,
}

/// A token's name, in its stored form.
fn name_of(text: &str, token: Token) -> Option<String> {
    let written = &text[token.start..token.end];
    match token.kind {
        Kind::Identifier => Some(written.to_ascii_lowercase()),
        Kind::Keyword(keyword) if !keyword.is_reserved() => Some(written.to_ascii_lowercase()),
        Kind::QuotedName => Some(written.get(1..written.len() - 1)?.replace("\"\"", "\"")),
        _ => None,
    }
}

/// The tables that a text names; `None`: it does not begin as a statement on rows does.
pub fn named_tables(text: &str) -> Option<NamedTables> {
    let mut lexer = Lexer::new(text);
    let mut token = lexer.next();
    let is_explained = token.kind == Kind::Keyword(Keyword::Explain);
    if is_explained {
        token = lexer.next();
    }
    let kind = match token.kind {
        Kind::Keyword(Keyword::Select) => "SELECT",
        Kind::Keyword(Keyword::Insert) => "INSERT",
        Kind::Keyword(Keyword::Update) => "UPDATE",
        Kind::Keyword(Keyword::Delete) => "DELETE",
        Kind::Keyword(Keyword::Begin | Keyword::Start) => {
            let is_start = token.kind == Kind::Keyword(Keyword::Start);
            token = lexer.next();
            match token.kind {
                Kind::Keyword(Keyword::Transaction) => "TRANSACTION",
                _ if is_start => return None,
                _ => "BATCH",
            }
        }
        _ => return None,
    };
    let mut tables: Vec<QualifiedName> = Vec::new();
    while !matches!(token.kind, Kind::End | Kind::Invalid(_)) && tables.len() < MAX_TABLES {
        let is_before_table = matches!(token.kind, Kind::Keyword(Keyword::From | Keyword::Into | Keyword::Update));
        token = lexer.next();
        let Some(first) = name_of(text, token).filter(|_| is_before_table) else { continue };
        token = lexer.next();
        let mut table = QualifiedName { keyspace: None, name: first };
        if token.kind == Kind::Symbol(Symbol::Dot) {
            token = lexer.next();
            let Some(name) = name_of(text, token) else { continue };
            table = QualifiedName { keyspace: Some(table.name), name };
        }
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    Some(NamedTables { kind: if is_explained { "EXPLAIN" } else { kind }, tables })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Option<String> {
        let named = named_tables(text)?;
        let tables = named.tables.iter().map(|table| match &table.keyspace {
            Some(keyspace) => format!("{keyspace}.{}", table.name),
            None => table.name.clone(),
        });
        Some(format!("{} {}", named.kind, tables.collect::<Vec<_>>().join(", ")))
    }

    #[test]
    fn the_names_of_tables_are_taken_and_nothing_else() {
        for (text, wanted) in [
            ("SELECT v FROM ks.Kept WHERE k = 'sesame'", "SELECT ks.kept"),
            ("select * from \"Kept\" where k = sesame", "SELECT Kept"),
            ("INSERT INTO ks . \"a\"\"b\" (k) VALUES (sesame", "INSERT ks.a\"b"),
            ("UPDATE kept SET v = sesame WHER", "UPDATE kept"),
            ("DELETE v FROM ks.kept", "DELETE ks.kept"),
            ("EXPLAIN UPDATE ks.kept SET v = sesame WHER", "EXPLAIN ks.kept"),
            (
                "BEGIN UNLOGGED BATCH INSERT INTO a (k) VALUES (1); UPDATE b SET v = 1; DELETE FROM ks.c; INSERT INTO a x",
                "BATCH a, b, ks.c",
            ),
            ("BEGIN TRANSACTION INSERT INTO a (k) VALUES (1); UPDATE ks.b SET v = x", "TRANSACTION a, ks.b"),
            ("start transaction; DELETE FROM c WHERE k = sesame; COMMIT", "TRANSACTION c"),
            ("SELECT * FROM values", "SELECT values"),
            // Where a table should be is something else.
            ("SELECT * FROM 'sesame'", "SELECT "),
            ("SELECT * FROM ks.'sesame'", "SELECT "),
            ("SELECT * FROM", "SELECT "),
            ("INSERT kept (k) VALUES (1)", "INSERT "),
            ("SELECT 'unfinished FROM kept", "SELECT "),
            ("SELECT /* FROM kept */ sesame -- FROM kept", "SELECT "),
        ] {
            assert_eq!(shown(text).as_deref(), Some(wanted), "{text}");
        }
        for other in
            ["", "SELEKT * FROM kept", "REVOKE SELECT ON t FROM kept", "'SELECT' FROM kept", "START UPDATE kept"]
        {
            assert_eq!(named_tables(other), None, "{other}");
        }
        let many: String = (0..200).map(|at| format!(" FROM t{at}")).collect();
        assert_eq!(named_tables(&format!("SELECT{many}")).map(|named| named.tables.len()), Some(MAX_TABLES));
    }

    proptest! {
        #[test]
        fn any_text_is_looked_through(text in "(SELECT|BEGIN|\"|'|FROM|INTO|UPDATE|\\.|ü| |a|\\$\\$|/\\*)*") {
            named_tables(&text);
        }
    }
}
