//! Statements without their constants, for logs and operators.
//!
//! Always true: the result contains no constant of the text, of any kind (a password, a key, a name), and no comment;
//! it ends where the text cannot be split into tokens. Left out: whether the text is a statement at all.

use super::lexer::{Kind, Lexer};

/// Bytes of text that are shown at most.
const MAX_BYTES: usize = 2_000;

/// `text` with `?` in place of every constant, and one space between tokens that were separate.
pub fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_BYTES));
    let mut lexer = Lexer::new(text);
    let mut end = 0;
    loop {
        let token = lexer.next();
        let piece = match token.kind {
            Kind::End => return out,
            Kind::Invalid(_) => "…",
            Kind::String
            | Kind::DollarString
            | Kind::Integer
            | Kind::Float
            | Kind::Blob
            | Kind::Uuid
            | Kind::Duration => "?",
            Kind::Identifier | Kind::Keyword(_) | Kind::QuotedName | Kind::Symbol(_) => &text[token.start..token.end],
        };
        if token.start > end && !out.is_empty() {
            out.push(' ');
        }
        end = token.end;
        if out.len() + piece.len() > MAX_BYTES {
            out.push('…');
            return out;
        }
        out.push_str(piece);
        if matches!(token.kind, Kind::Invalid(_)) {
            return out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn constants_are_gone_and_the_rest_is_there() {
        let shown = [
            (
                "CREATE ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true",
                "CREATE ROLE ann WITH PASSWORD = ? AND LOGIN = true",
            ),
            ("ALTER ROLE a WITH HASHED  PASSWORD='$2a$10$x'", "ALTER ROLE a WITH HASHED PASSWORD=?"),
            (
                "INSERT INTO ks.\"T\"(a,b,c,d,e,f)\n VALUES (1, -2.5e3,0xff, 7f3e4c2a-9d1b-4c7e-8a55-0123456789ab, $$x$$, 3h2m)",
                "INSERT INTO ks.\"T\"(a,b,c,d,e,f) VALUES (?, -?,?, ?, ?, ?)",
            ),
            ("SELECT a /* the secret */ FROM t -- it is 5\nWHERE k = ?", "SELECT a FROM t WHERE k = ?"),
            ("SELECT 'a''b' FROM t", "SELECT ? FROM t"),
            ("SELECT 'unfinished", "SELECT …"),
            ("", ""),
        ];
        for (text, wanted) in shown {
            assert_eq!(redacted(text), wanted, "{text}");
        }
    }

    #[test]
    fn long_statements_are_cut() {
        let shown = redacted(&format!("SELECT {} FROM t", vec!["äöü"; 2_000].join(", ")));
        assert!(shown.len() <= MAX_BYTES + '…'.len_utf8());
        let names = redacted(&format!("SELECT {} FROM t", vec!["\"äöü\""; 2_000].join(", ")));
        assert!(names.ends_with('…') && names.len() <= MAX_BYTES + 1 + '…'.len_utf8());
    }

    proptest! {
        // A prefix without quotes, dollars, slashes or dashes: with these the secret may be something other than a
        // constant.
        #[test]
        fn no_constant_gets_through(secret in "[a-z]{12,20}", text in "[ !#%&(-,.0-~]{0,40}") {
            let statement = format!("{text} '{secret}' ");
            let shown = redacted(&statement);
            prop_assert!(!shown.contains(&secret), "{shown}");
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = redacted(&text);
        }
    }
}
