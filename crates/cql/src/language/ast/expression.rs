//! Expressions, literals, type names and relations of the syntax tree.
//!
//! Always true: one type serves terms (which cannot name columns) and selectors (which can); the parser lets columns, slices and
//! `COUNT(*)` through only where the grammar has them, so a planner of terms meets them never. Trees are at most
//! `MAX_DEPTH` (see the parser) high, so that code over them may recurse.

use super::QualifiedName;

/// A term or a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A constant.
    Literal(Literal),
    /// A bind marker: its index into [`super::Parsed::markers`].
    Marker(u16),
    /// A column.
    Column(String),
    /// `[a, b]`: a list or a vector, by the type asked for.
    List(Vec<Expression>),
    /// `{a, b}`; `{}` is this too and may also stand for an empty map.
    Set(Vec<Expression>),
    /// `{k: v, …}`, at least one entry.
    Map(Vec<(Expression, Expression)>),
    /// `{field: v, …}`, at least one field.
    UserType(Vec<(String, Expression)>),
    /// `(a, b)`. With one element it is either a tuple of one or plain parentheses: only the type asked for can tell.
    Tuple(Vec<Expression>),
    /// `name(arguments)`; `token(…)`, `count(column)`, `cast`-free functions and aggregates alike.
    Function {
        /// The function.
        name: QualifiedName,
        /// In order.
        arguments: Vec<Expression>,
    },
    /// `COUNT(*)`
    CountAll,
    /// `WRITETIME(x)`, `MAXWRITETIME(x)` or `TTL(x)`.
    Metadata {
        /// Which of them.
        kind: MetadataKind,
        /// A column, or an element, slice or field of one.
        of: Box<Expression>,
    },
    /// `CAST(x AS type)`: a conversion.
    Cast {
        /// The converted value.
        value: Box<Expression>,
        /// To this.
        to: NativeType,
    },
    /// `(type) x`: a hint of the type, no conversion.
    TypeHint {
        /// The type.
        hint: TypeName,
        /// The term it is said of.
        value: Box<Expression>,
    },
    /// `-x`; of a number literal it is part of the literal instead.
    Negate(Box<Expression>),
    /// `left operator right`
    Arithmetic {
        /// The operator.
        operator: ArithmeticOperator,
        /// Left operand.
        left: Box<Expression>,
        /// Right operand.
        right: Box<Expression>,
    },
    /// `x[key]`
    Element {
        /// The collection.
        of: Box<Expression>,
        /// Index or key.
        key: Box<Expression>,
    },
    /// `x[from..to]`, either end open.
    Slice {
        /// The collection.
        of: Box<Expression>,
        /// First, included.
        from: Option<Box<Expression>>,
        /// Last, included.
        to: Option<Box<Expression>>,
    },
    /// `x.field`
    Field {
        /// A value of a user-defined type.
        of: Box<Expression>,
        /// The field.
        field: String,
    },
    /// YCQL: `x->'a'->>'b'`
    JsonPath {
        /// A jsonb column.
        of: Box<Expression>,
        /// At least one step: each a string or integer literal or a marker.
        path: Vec<Expression>,
        /// The last arrow is `->>`: the result is text and not jsonb.
        as_text: bool,
    },
}

impl Expression {
    /// The null literal.
    pub const NULL: Expression = Expression::Literal(Literal::Null);
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    /// `NULL`
    Null,
    /// A string, its quotes removed and doubled quotes made single.
    String(String),
    /// Decimal digits after an optional minus sign, of any length.
    Integer(String),
    /// A number with a fraction or exponent as written, or one of `NaN`, `Infinity`, `-Infinity`. `f64::from_str` reads them all.
    Float(String),
    /// `true` or `false`
    Boolean(bool),
    /// `0x…`
    Blob(Vec<u8>),
    /// A uuid, big-endian.
    Uuid([u8; 16]),
    /// A duration in any of its three notations.
    Duration(Duration),
}

/// A duration; its parts never differ in sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Duration {
    /// Months
    pub months: i32,
    /// Days
    pub days: i32,
    /// Nanoseconds
    pub nanoseconds: i64,
}

/// Functions of how a cell was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetadataKind {
    /// `WRITETIME`
    WriteTime,
    /// `MAXWRITETIME`
    MaxWriteTime,
    /// `TTL`
    Ttl,
}

/// Arithmetic of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

/// A type as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeName {
    /// A type known by a keyword.
    Native(NativeType),
    /// `list<T>`
    List(Box<TypeName>),
    /// `set<T>`
    Set(Box<TypeName>),
    /// `map<K, V>`
    Map(Box<TypeName>, Box<TypeName>),
    /// `tuple<…>`, at least one
    Tuple(Vec<TypeName>),
    /// `vector<T, dimension>`; the dimension is at least 1
    Vector(Box<TypeName>, u32),
    /// `frozen<T>`
    Frozen(Box<TypeName>),
    /// A user-defined type.
    UserDefined(QualifiedName),
    /// A class name in single quotes.
    Custom(String),
}

/// Types with a keyword. `varchar` is the same as `text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the keyword of its name")]
pub enum NativeType {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    Float,
    Inet,
    Int,
    /// YCQL
    Jsonb,
    Smallint,
    Text,
    Time,
    Timestamp,
    Timeuuid,
    Tinyint,
    Uuid,
    Varint,
}

impl NativeType {
    /// Its keyword, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            NativeType::Ascii => "ascii",
            NativeType::Bigint => "bigint",
            NativeType::Blob => "blob",
            NativeType::Boolean => "boolean",
            NativeType::Counter => "counter",
            NativeType::Date => "date",
            NativeType::Decimal => "decimal",
            NativeType::Double => "double",
            NativeType::Duration => "duration",
            NativeType::Float => "float",
            NativeType::Inet => "inet",
            NativeType::Int => "int",
            NativeType::Jsonb => "jsonb",
            NativeType::Smallint => "smallint",
            NativeType::Text => "text",
            NativeType::Time => "time",
            NativeType::Timestamp => "timestamp",
            NativeType::Timeuuid => "timeuuid",
            NativeType::Tinyint => "tinyint",
            NativeType::Uuid => "uuid",
            NativeType::Varint => "varint",
        }
    }

    /// The type of a keyword in lower case (`varchar` included).
    pub fn from_name(name: &str) -> Option<NativeType> {
        Some(match name {
            "ascii" => NativeType::Ascii,
            "bigint" => NativeType::Bigint,
            "blob" => NativeType::Blob,
            "boolean" => NativeType::Boolean,
            "counter" => NativeType::Counter,
            "date" => NativeType::Date,
            "decimal" => NativeType::Decimal,
            "double" => NativeType::Double,
            "duration" => NativeType::Duration,
            "float" => NativeType::Float,
            "inet" => NativeType::Inet,
            "int" => NativeType::Int,
            "jsonb" => NativeType::Jsonb,
            "smallint" => NativeType::Smallint,
            "text" | "varchar" => NativeType::Text,
            "time" => NativeType::Time,
            "timestamp" => NativeType::Timestamp,
            "timeuuid" => NativeType::Timeuuid,
            "tinyint" => NativeType::Tinyint,
            "uuid" => NativeType::Uuid,
            "varint" => NativeType::Varint,
            _ => return None,
        })
    }
}

/// One condition of a `WHERE` or `IF`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `left operator right`
    Compare {
        /// The left side.
        left: Operand,
        /// How.
        operator: ComparisonOperator,
        /// With what.
        right: Expression,
    },
    /// `left [NOT] IN values`
    In {
        /// The value that is searched for.
        left: Operand,
        /// `NOT IN`
        negated: bool,
        /// Where.
        values: InValues,
    },
    /// `left [NOT] CONTAINS value`
    Contains {
        /// A collection.
        left: Operand,
        /// `NOT CONTAINS`
        negated: bool,
        /// An element of a list or set, or a value of a map.
        value: Expression,
    },
    /// `left [NOT] CONTAINS KEY key`
    ContainsKey {
        /// A map.
        left: Operand,
        /// `NOT CONTAINS KEY`
        negated: bool,
        /// The key.
        key: Expression,
    },
    /// `left [NOT] LIKE pattern`
    Like {
        /// Text.
        left: Operand,
        /// `NOT LIKE` (YCQL)
        negated: bool,
        /// `%` stands for any text.
        pattern: Expression,
    },
    /// `left [NOT] BETWEEN from AND to`, both included
    Between {
        /// The left side.
        left: Operand,
        /// `NOT BETWEEN` (YCQL)
        negated: bool,
        /// Lower end.
        from: Expression,
        /// Upper end.
        to: Expression,
    },
    /// `left IS NOT NULL`
    IsNotNull(Operand),
    /// `expr(index, value)`: an expression that a custom index understands
    IndexExpression {
        /// The index.
        index: QualifiedName,
        /// The argument for the index.
        value: Expression,
    },
}

/// The left side of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A column, or a part of one.
    Target(super::Target),
    /// YCQL: `column->'a'->>'b'`, text inside a jsonb document.
    JsonText {
        /// The column.
        column: String,
        /// At least one step: each a string or integer literal or a marker.
        path: Vec<Expression>,
    },
    /// `token(columns)`
    Token(Vec<String>),
    /// `(columns)`, at least one
    Tuple(Vec<String>),
    /// YCQL: a function of columns, such as `partition_hash(h)` or `ttl(v)`; never a plain column.
    Function(Expression),
}

impl Operand {
    /// A whole column.
    pub fn column(name: impl Into<String>) -> Operand {
        Operand::Target(super::Target::Column(name.into()))
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComparisonOperator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// The right side of `IN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InValues {
    /// `(a, b)`, possibly none.
    List(Vec<Expression>),
    /// `IN ?` or `IN :name`: one marker bound to a list.
    Marker(u16),
}
