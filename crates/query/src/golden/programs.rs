//! The golden bytes of programs and of their replies.

use super::golden;
use crate::program::{
    ColumnTest, KnownView, ListEdit, Maintained, PathStep, Program, ProgramOperation, ProgramReply, RowCondition,
    RowTest, Seen, SeenRow, TestTree, TestedPart, Turn, Unchanged, ValueTest, put_type, read_type,
};
use diorite_base::bytes::Reader;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_golden::{Decoded, kinds};
use diorite_model::row::Expiry;
use diorite_model::types::{CqlType, Frozen, UserType};
use std::sync::Arc;

kinds!(ROW_TESTS, row_test(RowTest): Exists, NotExists, Columns, Tree, Unchanged);
kinds!(TREES, tree(TestTree): Column, All, Any, Not, Exists);
kinds!(STEPS, step(PathStep): Member, Element);
kinds!(PARTS, part(TestedPart): Whole, Element, Field, Path);
kinds!(VALUE_TESTS, value_test(ValueTest): Compare, In, Contains, ContainsKey);
kinds!(OPERATORS, operator(ComparisonOperator): Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual);
kinds!(OPERATIONS, operation(ProgramOperation): Row, Delete, List, Document, Sum);
kinds!(TURNS, turn(Turn): Operation, SameStatement, Condition, ConditionElseError);
kinds!(EDITS, edit(ListEdit): Set, Remove);
kinds!(REPLIES, reply(ProgramReply): Applied, Refused, Failed, Outdated);
kinds!(TYPES, type_of(CqlType):
    Ascii, Bigint, Blob, Boolean, Counter, Date, Decimal, Double, Duration, Float, Inet, Int, Jsonb, Smallint, Text,
    Time, Timestamp, Timeuuid, Tinyint, Uuid, Varint, List, Set, Map, Tuple, UserDefined, Vector);

fn condition(test: RowTest) -> RowCondition {
    RowCondition { partition: vec![1; 12], row: vec![2, 3], test }
}

fn column(part: TestedPart, test: ValueTest) -> ColumnTest {
    let data_type = CqlType::Map(Arc::new(CqlType::Text), Arc::new(CqlType::Int), Frozen::No);
    ColumnTest { column: 300, is_static: false, data_type, part, test }
}

fn compare(operator: ComparisonOperator) -> ColumnTest {
    column(TestedPart::Whole, ValueTest::Compare(operator, Some(vec![0, 0, 0, 1])))
}

fn path() -> Vec<PathStep> {
    vec![PathStep::Member("name".to_owned()), PathStep::Element(-1)]
}

fn row(is_overwrite: bool, is_stamped: bool, is_unplaced: bool) -> ProgramOperation {
    ProgramOperation::Row { is_overwrite, is_stamped, is_unplaced, key: vec![9; 10], value: vec![8; 20] }
}

fn list(edit: ListEdit, explicit_us: Option<i64>, expiry: Option<Expiry>) -> ProgramOperation {
    ProgramOperation::List { key: vec![6; 10], partition_len: 9, column: 4, edit, explicit_us, expiry }
}

fn document(explicit_us: Option<i64>, expiry: Option<Expiry>) -> ProgramOperation {
    let edits = vec![(path(), b"{\"a\":1}".to_vec()), (vec![], b"null".to_vec())];
    ProgramOperation::Document { key: vec![6; 10], partition_len: 9, column: 4, edits, explicit_us, expiry }
}

/// Of version 1.
fn plain() -> Program {
    let operators = [
        ComparisonOperator::Equal,
        ComparisonOperator::NotEqual,
        ComparisonOperator::Less,
        ComparisonOperator::LessOrEqual,
        ComparisonOperator::Greater,
        ComparisonOperator::GreaterOrEqual,
    ];
    let of_columns = vec![
        column(TestedPart::Whole, ValueTest::In(vec![None, Some(vec![1])])),
        column(TestedPart::Element(vec![7]), ValueTest::Compare(ComparisonOperator::Equal, None)),
        column(TestedPart::Field(3), ValueTest::Contains(vec![1])),
        ColumnTest { is_static: true, ..column(TestedPart::Whole, ValueTest::ContainsKey(vec![1])) },
    ];
    Program {
        conditions: vec![
            condition(RowTest::Exists),
            condition(RowTest::NotExists),
            condition(RowTest::Columns(operators.map(compare).to_vec())),
            RowCondition { row: vec![], ..condition(RowTest::Columns(of_columns)) },
        ],
        operations: vec![
            row(true, false, false),
            row(false, true, true),
            ProgramOperation::Delete { partition: vec![5; 9], range: None, explicit_us: Some(-4) },
            ProgramOperation::Delete { partition: vec![5; 9], range: Some((vec![], vec![0xFF])), explicit_us: None },
            list(ListEdit::Set(-1, Some(vec![1])), None, Some(Expiry { ttl_s: 5, at_s: 50 })),
            list(ListEdit::Set(7, None), Some(i64::MAX), None),
            list(ListEdit::Remove(vec![vec![], vec![1]]), Some(1), None),
        ],
        dropped_columns: vec![],
        turns: None,
        maintained: None,
    }
}

/// Of version 3.
fn with_trees() -> Program {
    let place = |as_text| {
        let test = ValueTest::Compare(ComparisonOperator::Equal, Some(b"1".to_vec()));
        ColumnTest { data_type: CqlType::Jsonb, ..column(TestedPart::Path(path(), as_text), test) }
    };
    let leaf = TestTree::Column(Box::new(compare(ComparisonOperator::Less)));
    let any = TestTree::Any(vec![TestTree::Exists, TestTree::Not(Box::new(leaf.clone()))]);
    Program {
        conditions: vec![
            condition(RowTest::Tree(TestTree::All(vec![leaf, any, TestTree::Any(vec![])]))),
            condition(RowTest::Columns(vec![place(true), place(false)])),
        ],
        operations: vec![document(None, Some(Expiry { ttl_s: 5, at_s: 50 })), document(Some(-1), None)],
        dropped_columns: vec![],
        turns: None,
        maintained: None,
    }
}

fn sum(data_type: CqlType, subtracts: bool, number: Vec<u8>, expiry: Option<Expiry>) -> ProgramOperation {
    ProgramOperation::Sum { key: vec![6; 10], partition_len: 9, column: 300, data_type, subtracts, number, expiry }
}

/// Of version 4.
fn in_turns() -> Program {
    Program {
        conditions: vec![condition(RowTest::Exists), condition(RowTest::NotExists)],
        operations: vec![
            sum(CqlType::Int, true, vec![0, 0, 0, 5], None),
            list(ListEdit::Remove(vec![vec![1]]), None, None),
            sum(CqlType::Decimal, false, vec![0, 0, 0, 2, 1], Some(Expiry { ttl_s: 5, at_s: 50 })),
            ProgramOperation::Delete { partition: vec![5; 9], range: Some((vec![], vec![0xFF])), explicit_us: None },
            row(true, true, false),
        ],
        dropped_columns: vec![],
        turns: Some(vec![
            Turn::ConditionElseError,
            Turn::Operation,
            Turn::SameStatement,
            Turn::Condition,
            Turn::Operation,
            Turn::Operation,
            Turn::SameStatement,
        ]),
        maintained: None,
    }
}

/// A program as text; those of earlier versions as they were shown before later ones had more parts.
fn shown(program: &Program) -> String {
    format!("{program:?}").replace(", turns: None", "").replace(", maintained: None", "")
}

fn kinds_of_tree(found: &mut Vec<&'static str>, test: &TestTree) {
    found.push(tree(test));
    match test {
        TestTree::Column(test) => kinds_of_test(found, test),
        TestTree::All(parts) | TestTree::Any(parts) => parts.iter().for_each(|part| kinds_of_tree(found, part)),
        TestTree::Not(inner) => kinds_of_tree(found, inner),
        TestTree::Exists => {}
    }
}

fn kinds_of_test(found: &mut Vec<&'static str>, test: &ColumnTest) {
    found.extend([part(&test.part), value_test(&test.test)]);
    if let TestedPart::Path(path, _) = &test.part {
        found.extend(path.iter().map(step));
    }
    if let ValueTest::Compare(compared, _) = &test.test {
        found.push(operator(compared));
    }
}

fn kinds_of(program: &Program) -> Vec<&'static str> {
    let mut found = Vec::new();
    let guards = program.maintained.iter().flat_map(|maintained| &maintained.guards);
    for condition in program.conditions.iter().chain(guards) {
        found.push(row_test(&condition.test));
        match &condition.test {
            RowTest::Columns(columns) => columns.iter().for_each(|test| kinds_of_test(&mut found, test)),
            RowTest::Tree(tree) => kinds_of_tree(&mut found, tree),
            RowTest::Exists | RowTest::NotExists | RowTest::Unchanged(_) => {}
        }
    }
    for changed in &program.operations {
        found.push(operation(changed));
        if let ProgramOperation::List { edit: change, .. } = changed {
            found.push(edit(change));
        }
    }
    found.extend(program.turns.iter().flatten().map(turn));
    found
}

#[test]
fn programs_have_their_bytes() {
    let dropped = |program| Program { dropped_columns: vec![3, 300], ..program };
    let guards = vec![condition(RowTest::Columns(vec![compare(ComparisonOperator::Equal)]))];
    let maintained =
        |program| Program { maintained: Some(Maintained { version: 300, guards: guards.clone() }), ..program };
    let unchanged = |columns_since, columns, end| {
        let views = vec![KnownView { id: 7, columns_since: 0 }, KnownView { id: 300, columns_since }];
        RowTest::Unchanged(Unchanged { views, columns, end, rows: 300, digest: [5; 32] })
    };
    let of_views =
        vec![condition(unchanged(0, None, None)), condition(unchanged(0, Some(vec![4, 300]), Some(vec![2, 4])))];
    let of_extended = vec![condition(unchanged(300, None, None))];
    let programs = [
        ("empty", Program::default()),
        ("version 1", plain()),
        ("version 2", dropped(plain())),
        ("version 3", with_trees()),
        ("version 3, with dropped columns", dropped(with_trees())),
        ("version 4", in_turns()),
        ("version 4, with dropped columns", dropped(in_turns())),
        ("version 5", maintained(plain())),
        ("version 5, in turns", maintained(in_turns())),
        (
            "version 5, with views",
            Program { maintained: Some(Maintained { version: 300, guards: of_views }), ..plain() },
        ),
        (
            "version 5, with views that have got columns",
            Program { maintained: Some(Maintained { version: 300, guards: of_extended }), ..Program::default() },
        ),
    ];
    let written = programs.map(|(name, program)| (name, program.encode()));
    assert_eq!(written.each_ref().map(|(_, bytes)| bytes[0]), [1, 1, 2, 3, 3, 4, 4, 5, 5, 5, 5]);
    let kinds = [ROW_TESTS, TREES, STEPS, PARTS, VALUE_TESTS, OPERATORS, OPERATIONS, EDITS, TURNS];
    golden("programs", &kinds).check(&written, |_, bytes| {
        let program = Program::decode(bytes).unwrap();
        Decoded { kinds: kinds_of(&program), shown: shown(&program), encoded: Some(program.encode()) }
    });
}

#[test]
fn replies_of_programs_have_their_bytes() {
    let row = SeenRow { key: vec![1, 2], deleted_us: i64::MIN, value: vec![3; 10] };
    let seen = Seen {
        now_s: 1_700_000_000,
        partition: vec![4; 9],
        static_row: Some(SeenRow { deleted_us: 7, ..row.clone() }),
        rows: vec![row.clone(), row],
        is_cut: false,
    };
    let without = Seen { static_row: None, rows: vec![], ..seen.clone() };
    let replies = [
        ("applied", ProgramReply::Applied),
        ("refused", ProgramReply::Refused(seen.clone())),
        ("refused, without rows", ProgramReply::Refused(without)),
        ("refused, with more rows", ProgramReply::Refused(Seen { is_cut: true, ..seen })),
        ("failed", ProgramReply::Failed("no".to_owned())),
        ("outdated", ProgramReply::Outdated),
    ];
    golden("program-replies", &[REPLIES]).check(&replies.map(|(name, reply)| (name, reply.encode())), |_, bytes| {
        let decoded = ProgramReply::decode(bytes).unwrap();
        Decoded { kinds: vec![reply(&decoded)], shown: format!("{decoded:?}"), encoded: Some(decoded.encode()) }
    });
}

fn types() -> Vec<CqlType> {
    use CqlType::{
        Ascii, Bigint, Blob, Boolean, Counter, Date, Decimal, Double, Duration, Float, Inet, Int, Jsonb, Smallint,
        Text, Time, Timestamp, Timeuuid, Tinyint, Uuid, Varint,
    };
    let mut types = vec![
        Ascii, Bigint, Blob, Boolean, Counter, Date, Decimal, Double, Duration, Float, Inet, Int, Jsonb, Smallint,
        Text, Time, Timestamp, Timeuuid, Tinyint, Uuid, Varint,
    ];
    let (text, int) = (Arc::new(Text), Arc::new(Int));
    let fields = vec![(String::new(), Text), (String::new(), Int)];
    let user = Arc::new(UserType { keyspace: String::new(), name: String::new(), fields });
    for frozen in [Frozen::Yes, Frozen::No] {
        types.extend([
            CqlType::List(int.clone(), frozen),
            CqlType::Set(text.clone(), frozen),
            CqlType::Map(text.clone(), int.clone(), frozen),
            CqlType::UserDefined(user.clone(), frozen),
        ]);
    }
    types.extend([CqlType::Tuple([Text, Int].into()), CqlType::Vector(int, 300)]);
    types
}

#[test]
fn types_in_programs_have_their_bytes() {
    let encoded = |data_type: &CqlType| {
        let mut out = Vec::new();
        put_type(&mut out, data_type);
        out
    };
    let named: Vec<_> = types().iter().map(|data_type| (format!("{data_type:?}"), encoded(data_type))).collect();
    let written: Vec<_> = named.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    golden("types", &[TYPES]).check(&written, |_, bytes| {
        let data_type = read_type(&mut Reader::new(bytes)).unwrap();
        Decoded {
            kinds: vec![type_of(&data_type)],
            shown: format!("{data_type:?}"),
            encoded: Some(encoded(&data_type)),
        }
    });
}
