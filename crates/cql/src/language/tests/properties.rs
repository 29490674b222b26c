//! Properties of the parser and formatter over statements put together at random.
//!
//! The material is the golden scripts: their tokens are cut, doubled, swapped and spliced. No result may make the
//! parser panic, and a result that it accepts must round-trip through the formatter.

use super::super::ast::{
    ArithmeticOperator, ComparisonOperator, Duration, Expression, Literal, MetadataKind, NativeType, Operand, Parsed,
    QualifiedName, Relation, RowLimits, Select, Selection, Selector, Statement, TypeName,
};
use super::super::lexer::{Kind, Lexer};
use super::super::{format, parse};
use super::{STATEMENTS, round_trip};
use proptest::prelude::*;

/// The tokens of a statement.
fn tokens(text: &str) -> Vec<String> {
    let mut lexer = Lexer::new(text);
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next();
        if token.kind == Kind::End {
            return tokens;
        }
        tokens.push(text[token.start..token.end].to_owned());
    }
}

fn check(text: &str) {
    if let Ok(parsed) = parse(text) {
        round_trip(&parsed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,60}") {
        check(&text);
    }

    #[test]
    fn changed_statements_are_parsed_or_refused(
        seed in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        edits in prop::collection::vec((0..5_u8, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4),
        separator in prop::sample::select(vec![" ", "", "\n", "/**/"]),
    ) {
        let mut words = tokens(&STATEMENTS[seed.index(STATEMENTS.len())]);
        let others = tokens(&STATEMENTS[other.index(STATEMENTS.len())]);
        for (edit, at, from) in edits {
            if words.is_empty() || others.is_empty() {
                break;
            }
            let index = at.index(words.len());
            match edit {
                0 => { words.remove(index); }
                1 => { let word = words[index].clone(); words.insert(from.index(words.len()), word); }
                2 => { let to = from.index(words.len()); words.swap(index, to); }
                3 => words[index] = others[from.index(others.len())].clone(),
                _ => { words.truncate(index); words.extend_from_slice(&others[from.index(others.len())..]); }
            }
        }
        check(&words.join(separator));
    }

    #[test]
    fn every_tree_is_written_as_text_that_parses(statement in select()) {
        let parsed = Parsed { statement, markers: Vec::new() };
        let text = format::format(&parsed);
        let again = parse(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        round_trip(&again);
    }

    #[test]
    fn constants_come_back(literal in literal()) {
        let text = std::format!("INSERT INTO t (a) VALUES ({})", format::format_literal(&literal));
        let expected = format::format_literal(&literal);
        let Statement::Insert(insert) = parse(&text).unwrap().statement else { panic!("{text}") };
        let super::super::ast::InsertSource::Values { values, .. } = insert.source else { panic!("{text}") };
        prop_assert_eq!(&values, &[Expression::Literal(literal)], "{}", expected);
    }

    #[test]
    fn types_come_back(data_type in type_name()) {
        let text = std::format!("CREATE TYPE t (a {})", format::format_type(&data_type));
        let Statement::CreateType(created) = parse(&text).unwrap().statement else { panic!("{text}") };
        prop_assert_eq!(&created.fields[0].1, &data_type, "{}", text);
    }
}

/// Names that need quotes in one way or another, and some that do not.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9_]{0,5}",
        "[A-Za-z\"' é]{1,4}",
        prop::sample::select(vec![
            "select",
            "json",
            "distinct",
            "exists",
            "token",
            "ttl",
            "writetime",
            "count",
            "cast",
            "key",
            "list",
            "as",
            "int",
            "expr",
            "p",
            "P1Y",
            "per",
            "group",
            "true",
            "nan",
            "set",
            "frozen",
            "values",
            "timestamp",
            "jsonb",
        ])
        .prop_map(str::to_owned),
    ]
}

fn qualified() -> impl Strategy<Value = QualifiedName> {
    (prop::option::of(name()), name()).prop_map(|(keyspace, name)| QualifiedName { keyspace, name })
}

fn duration() -> impl Strategy<Value = Duration> {
    (any::<bool>(), 0..=i32::MAX, 0..=i32::MAX, 0..=i64::MAX).prop_map(|(negative, months, days, nanoseconds)| {
        let sign = if negative { -1 } else { 1 };
        Duration { months: sign * months, days: sign * days, nanoseconds: i64::from(sign) * nanoseconds }
    })
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        Just(Literal::Null),
        "[a-z'$\\\\é\n]{0,6}".prop_map(Literal::String),
        "-?[0-9]{1,30}".prop_map(Literal::Integer),
        "-?[0-9]{1,5}(\\.[0-9]{0,3}([eE][+-]?[0-9]{1,2})?|[eE]-?[0-9])".prop_map(Literal::Float),
        prop::sample::select(vec!["NaN", "Infinity", "-Infinity"]).prop_map(|text| Literal::Float(text.to_owned())),
        any::<bool>().prop_map(Literal::Boolean),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(Literal::Blob),
        any::<[u8; 16]>().prop_map(Literal::Uuid),
        duration().prop_map(Literal::Duration),
    ]
}

fn type_name() -> impl Strategy<Value = TypeName> {
    let leaf = prop_oneof![
        prop::sample::select(vec![NativeType::Int, NativeType::Text, NativeType::Jsonb, NativeType::Timestamp])
            .prop_map(TypeName::Native),
        qualified().prop_map(TypeName::UserDefined),
        "[a-z.'(),]{0,8}".prop_map(TypeName::Custom),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed.clone().prop_map(TypeName::List),
            boxed.clone().prop_map(TypeName::Set),
            boxed.clone().prop_map(TypeName::Frozen),
            (boxed.clone(), boxed.clone()).prop_map(|(key, value)| TypeName::Map(key, value)),
            (boxed, 1..=u32::MAX).prop_map(|(element, dimension)| TypeName::Vector(element, dimension)),
            prop::collection::vec(inner, 1..3).prop_map(TypeName::Tuple),
        ]
    })
}

fn expression() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        literal().prop_map(Expression::Literal),
        (0..9_u16).prop_map(Expression::Marker),
        name().prop_map(Expression::Column),
        Just(Expression::CountAll),
        name().prop_map(|column| Expression::Metadata {
            kind: MetadataKind::WriteTime,
            of: Box::new(Expression::Column(column)),
        }),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let many = prop::collection::vec(inner.clone(), 0..3);
        let boxed = inner.clone().prop_map(Box::new);
        let operator = prop::sample::select(vec![
            ArithmeticOperator::Add,
            ArithmeticOperator::Subtract,
            ArithmeticOperator::Multiply,
            ArithmeticOperator::Divide,
            ArithmeticOperator::Modulo,
        ]);
        prop_oneof![
            many.clone().prop_map(Expression::List),
            many.clone().prop_map(Expression::Set),
            prop::collection::vec(inner.clone(), 1..3).prop_map(Expression::Tuple),
            prop::collection::vec((name(), inner.clone()), 1..3).prop_map(Expression::UserType),
            (qualified(), many).prop_map(|(name, arguments)| Expression::Function { name, arguments }),
            boxed.clone().prop_map(|value| Expression::Cast { value, to: NativeType::Int }),
            boxed.clone().prop_map(Expression::Negate),
            (operator, boxed.clone(), boxed).prop_map(|(operator, left, right)| Expression::Arithmetic {
                operator,
                left,
                right
            }),
            (name(), type_name())
                .prop_map(|(column, hint)| Expression::TypeHint { hint, value: Box::new(Expression::Column(column)) }),
            (name(), name()).prop_map(|(of, field)| Expression::Field { of: Box::new(Expression::Column(of)), field }),
            (name(), any::<bool>()).prop_map(|(of, as_text)| Expression::JsonPath {
                of: Box::new(Expression::Column(of)),
                path: vec![Expression::Literal(Literal::Integer("1".to_owned()))],
                as_text,
            }),
            name().prop_map(|of| Expression::Slice {
                of: Box::new(Expression::Column(of)),
                from: Some(Box::new(Expression::Literal(Literal::Float("1.".to_owned())))),
                to: None,
            }),
        ]
    })
}

fn select() -> impl Strategy<Value = Statement> {
    let selector =
        (expression(), prop::option::of(name())).prop_map(|(expression, alias)| Selector { expression, alias });
    let relation = (name(), literal()).prop_map(|(column, value)| Relation::Compare {
        left: Operand::column(column),
        operator: ComparisonOperator::Equal,
        right: Expression::Literal(value),
    });
    let rest = (any::<bool>(), any::<bool>(), prop::collection::vec(expression(), 0..2), qualified());
    (rest, prop::collection::vec(selector, 1..4), prop::collection::vec(relation, 0..3)).prop_map(
        |((json, distinct, group_by, from), selectors, where_clause)| {
            Statement::Select(Box::new(Select {
                json,
                distinct,
                selection: Selection::Selectors(selectors),
                from,
                where_clause,
                filter: None,
                group_by,
                order_by: Vec::new(),
                limits: RowLimits::default(),
                allow_filtering: false,
                timeout: json.then_some(Expression::Literal(Literal::Duration(Duration {
                    months: 0,
                    days: 1,
                    nanoseconds: 7_000_000,
                }))),
            }))
        },
    )
}
