//! The words of the grammar.
//!
//! Always true: a reserved word is never an identifier unless quoted, any other word may be one; which words are reserved is the
//! same as in Cassandra 5, so that text that works there works here. Words that only YCQL knows are never reserved.

/// Defines [`Keyword`] and the table that finds one by its text. Entries must be sorted: a test says so.
macro_rules! keywords {
    ($($variant:ident $text:literal $reserved:ident,)*) => {
        /// A word with a meaning in the grammar.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the word of its name")]
        pub(crate) enum Keyword { $($variant,)* }

        impl Keyword {
            /// In lower case.
            pub(crate) fn text(self) -> &'static str {
                match self { $(Keyword::$variant => $text,)* }
            }

            /// Whether it must be quoted to serve as an identifier.
            pub(crate) fn is_reserved(self) -> bool {
                match self { $(Keyword::$variant => $reserved,)* }
            }
        }

        /// All keywords, by text.
        static TABLE: &[(&str, Keyword)] = &[$(($text, Keyword::$variant),)*];
    };
}

/// For the table: the word is reserved.
const RESERVED: bool = true;
/// For the table: the word may be an identifier.
const FREE: bool = false;

keywords! {
    Access "access" FREE,
    Add "add" RESERVED,
    Aggregate "aggregate" FREE,
    Aggregates "aggregates" FREE,
    All "all" FREE,
    Allow "allow" RESERVED,
    Alter "alter" RESERVED,
    And "and" RESERVED,
    Ann "ann" FREE,
    Apply "apply" RESERVED,
    As "as" FREE,
    Asc "asc" RESERVED,
    Authorize "authorize" RESERVED,
    Batch "batch" RESERVED,
    Begin "begin" RESERVED,
    Between "between" FREE,
    By "by" RESERVED,
    Called "called" FREE,
    Cast "cast" FREE,
    Cidrs "cidrs" FREE,
    Cluster "cluster" FREE,
    Clustering "clustering" FREE,
    Columnfamilies "columnfamilies" FREE,
    Columnfamily "columnfamily" RESERVED,
    Commit "commit" FREE,
    Compact "compact" FREE,
    Contains "contains" FREE,
    Count "count" FREE,
    Counter "counter" FREE,
    Covering "covering" FREE,
    Create "create" RESERVED,
    Custom "custom" FREE,
    Datacenters "datacenters" FREE,
    Default "default" FREE,
    Deferred "deferred" FREE,
    Delete "delete" RESERVED,
    Desc "desc" RESERVED,
    Describe "describe" RESERVED,
    Distinct "distinct" FREE,
    Drop "drop" RESERVED,
    Else "else" FREE,
    End "end" FREE,
    Entries "entries" RESERVED,
    Error "error" FREE,
    Execute "execute" RESERVED,
    Exists "exists" FREE,
    Explain "explain" FREE,
    Expr "expr" FREE,
    False "false" RESERVED,
    Filtering "filtering" FREE,
    Finalfunc "finalfunc" FREE,
    From "from" RESERVED,
    Frozen "frozen" FREE,
    Full "full" RESERVED,
    Function "function" FREE,
    Functions "functions" FREE,
    Generated "generated" FREE,
    Grant "grant" RESERVED,
    Group "group" FREE,
    Hashed "hashed" FREE,
    Identity "identity" FREE,
    If "if" RESERVED,
    In "in" RESERVED,
    Include "include" FREE,
    Index "index" RESERVED,
    Infinity "infinity" RESERVED,
    Initcond "initcond" FREE,
    Input "input" FREE,
    Insert "insert" RESERVED,
    Internals "internals" FREE,
    Into "into" RESERVED,
    Is "is" RESERVED,
    Json "json" FREE,
    Key "key" FREE,
    Keys "keys" FREE,
    Keyspace "keyspace" RESERVED,
    Keyspaces "keyspaces" FREE,
    Language "language" FREE,
    Like "like" FREE,
    Limit "limit" RESERVED,
    List "list" FREE,
    Logged "logged" FREE,
    Login "login" FREE,
    Map "map" FREE,
    Masked "masked" FREE,
    Materialized "materialized" RESERVED,
    Maxwritetime "maxwritetime" FREE,
    Mbean "mbean" FREE,
    Mbeans "mbeans" FREE,
    Modify "modify" RESERVED,
    Nan "nan" RESERVED,
    Norecursive "norecursive" RESERVED,
    Nosuperuser "nosuperuser" FREE,
    Not "not" RESERVED,
    Null "null" RESERVED,
    Of "of" RESERVED,
    Offset "offset" FREE,
    On "on" RESERVED,
    Only "only" FREE,
    Options "options" FREE,
    Or "or" RESERVED,
    Order "order" RESERVED,
    Partition "partition" FREE,
    Password "password" FREE,
    Per "per" FREE,
    Permission "permission" FREE,
    Permissions "permissions" FREE,
    Primary "primary" RESERVED,
    Rename "rename" RESERVED,
    Replace "replace" FREE,
    Returns "returns" FREE,
    Revoke "revoke" RESERVED,
    Role "role" FREE,
    Roles "roles" FREE,
    Row "row" FREE,
    Schema "schema" RESERVED,
    Select "select" RESERVED,
    SelectMasked "select_masked" FREE,
    Set "set" RESERVED,
    Sfunc "sfunc" FREE,
    Start "start" FREE,
    Static "static" FREE,
    Status "status" FREE,
    Storage "storage" FREE,
    Stype "stype" FREE,
    Superuser "superuser" FREE,
    Superusers "superusers" FREE,
    Table "table" RESERVED,
    Tables "tables" FREE,
    Timestamp "timestamp" FREE,
    To "to" RESERVED,
    Token "token" RESERVED,
    Transaction "transaction" FREE,
    Trigger "trigger" FREE,
    True "true" RESERVED,
    Truncate "truncate" RESERVED,
    Ttl "ttl" FREE,
    Tuple "tuple" FREE,
    Type "type" FREE,
    Types "types" FREE,
    Unique "unique" FREE,
    Unlogged "unlogged" RESERVED,
    Unmask "unmask" FREE,
    Unset "unset" FREE,
    Update "update" RESERVED,
    Use "use" RESERVED,
    User "user" FREE,
    Users "users" FREE,
    Using "using" RESERVED,
    Values "values" FREE,
    Vector "vector" FREE,
    View "view" RESERVED,
    Where "where" RESERVED,
    With "with" RESERVED,
    Writetime "writetime" FREE,
}

/// The longest keyword, in bytes.
const MAX_LENGTH: usize = 14;

/// For each letter, where in [`TABLE`] the keywords begin that start with it; one more entry ends the last.
static FIRST: [u8; 27] = first_by_letter();

const fn first_by_letter() -> [u8; 27] {
    let mut first = [0; 27];
    let mut letter = 0;
    let mut entry = 0;
    while letter < 27 {
        while entry < TABLE.len() && (TABLE[entry].0.as_bytes()[0] - b'a') < letter as u8 {
            entry += 1;
        }
        first[letter] = entry as u8;
        letter += 1;
    }
    first
}

/// The keyword that this word is, in any case of letters.
pub(crate) fn find(word: &str) -> Option<Keyword> {
    let bytes = word.as_bytes();
    let letter = bytes.first()?.to_ascii_lowercase().checked_sub(b'a').filter(|letter| *letter < 26)? as usize;
    if bytes.len() > MAX_LENGTH {
        return None;
    }
    let candidates = &TABLE[FIRST[letter] as usize..FIRST[letter + 1] as usize];
    candidates
        .iter()
        .find(|(text, _)| text.len() == bytes.len() && text.eq_ignore_ascii_case(word))
        .map(|entry| entry.1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn table_is_sorted_short_and_found() {
        assert!(TABLE.is_sorted_by(|left, right| left.0 < right.0));
        assert!(TABLE.len() < 256);
        assert_eq!(TABLE.iter().map(|entry| entry.0.len()).max().unwrap(), MAX_LENGTH);
        for (text, keyword) in TABLE {
            assert_eq!(find(text), Some(*keyword));
            assert_eq!(find(&text.to_uppercase()), Some(*keyword));
            assert_eq!(keyword.text(), *text);
        }
        for word in ["", "zzz", "selec", "selects", "_select", "{", "überkeyword", "abcdefghijklmnopqrstuvwxyz"] {
            assert_eq!(find(word), None, "{word}");
        }
    }
}
