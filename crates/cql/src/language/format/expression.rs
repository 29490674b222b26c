//! Expressions, constants, types and relations.

use super::super::ast::NativeType;
use super::super::ast::{
    ArithmeticOperator, ComparisonOperator, Expression, InValues, Literal, MetadataKind, Operand, Predicate,
    QualifiedName, Relation, Target, TypeName,
};
use super::formatter::{Formatter, quoted};
use std::fmt::Write;

/// How strongly operators bind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Sum,
    Product,
    Operand,
}

fn binding(expression: &Expression) -> Binding {
    match expression {
        Expression::Arithmetic { operator: ArithmeticOperator::Add | ArithmeticOperator::Subtract, .. } => Binding::Sum,
        Expression::Arithmetic { .. } => Binding::Product,
        _ => Binding::Operand,
    }
}

impl Formatter<'_> {
    pub(super) fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Literal(literal) => self.literal(literal),
            Expression::Marker(index) => self.marker(*index),
            Expression::Column(name) => self.name(name),
            Expression::List(items) => self.enclosed("[", items, "]"),
            Expression::Set(items) => self.enclosed("{", items, "}"),
            Expression::Tuple(items) => self.enclosed("(", items, ")"),
            Expression::Map(entries) => {
                self.push("{");
                self.separated(entries, ", ", |formatter, (key, value)| {
                    formatter.expression(key);
                    formatter.push(": ");
                    formatter.expression(value);
                });
                self.push("}");
            }
            Expression::UserType(fields) => {
                self.push("{");
                self.separated(fields, ", ", |formatter, (field, value)| {
                    formatter.name(field);
                    formatter.push(": ");
                    formatter.expression(value);
                });
                self.push("}");
            }
            Expression::Function { name, arguments } => {
                self.function_name(name);
                self.enclosed("(", arguments, ")");
            }
            Expression::CountAll => self.push("COUNT(*)"),
            Expression::Metadata { kind, of } => {
                self.push(match kind {
                    MetadataKind::WriteTime => "WRITETIME(",
                    MetadataKind::MaxWriteTime => "MAXWRITETIME(",
                    MetadataKind::Ttl => "TTL(",
                });
                self.expression(of);
                self.push(")");
            }
            Expression::Cast { value, to } => {
                self.push("CAST(");
                self.expression(value);
                self.push(" AS ");
                self.push(to.name());
                self.push(")");
            }
            Expression::TypeHint { hint, value } => {
                self.push("(");
                self.type_name(hint);
                self.push(") ");
                self.expression(value);
            }
            Expression::Negate(operand) => {
                // The space keeps two signs from being a comment.
                self.push("- ");
                self.operand_of(operand, Binding::Operand);
            }
            Expression::Arithmetic { operator, left, right } => self.arithmetic(*operator, left, right),
            _ => self.part(expression),
        }
    }

    /// Something taken out of an expression.
    fn part(&mut self, expression: &Expression) {
        match expression {
            Expression::Element { of, key } => {
                self.operand_of(of, Binding::Operand);
                self.push("[");
                self.expression(key);
                self.push("]");
            }
            Expression::Slice { of, from, to } => {
                self.operand_of(of, Binding::Operand);
                self.push("[");
                if let Some(from) = from {
                    self.expression(from);
                }
                self.push("..");
                if let Some(to) = to {
                    self.expression(to);
                }
                self.push("]");
            }
            Expression::Field { of, field } => {
                self.operand_of(of, Binding::Operand);
                // A dot right after a number would be its decimal point.
                self.flag(matches!(**of, Expression::Literal(_)), " ");
                self.push(".");
                self.name(field);
            }
            Expression::JsonPath { of, path, as_text } => {
                self.operand_of(of, Binding::Operand);
                self.json_path(path, *as_text);
            }
            _ => self.expression(expression),
        }
    }

    fn enclosed(&mut self, open: &str, items: &[Expression], close: &str) {
        self.push(open);
        self.separated(items, ", ", |formatter, item| formatter.expression(item));
        self.push(close);
    }

    fn arithmetic(&mut self, operator: ArithmeticOperator, left: &Expression, right: &Expression) {
        let (text, weakest) = match operator {
            ArithmeticOperator::Add => (" + ", Binding::Sum),
            ArithmeticOperator::Subtract => (" - ", Binding::Sum),
            ArithmeticOperator::Multiply => (" * ", Binding::Product),
            ArithmeticOperator::Divide => (" / ", Binding::Product),
            ArithmeticOperator::Modulo => (" % ", Binding::Product),
        };
        self.operand_of(left, weakest);
        self.push(text);
        self.operand_of(right, if weakest == Binding::Sum { Binding::Product } else { Binding::Operand });
    }

    /// An operand, in parentheses if it binds weaker than its place asks for. The parser's trees never need them.
    fn operand_of(&mut self, operand: &Expression, weakest: Binding) {
        let parentheses = binding(operand) < weakest;
        self.flag(parentheses, "(");
        self.expression(operand);
        self.flag(parentheses, ")");
    }

    /// The name of a called function. Those that the grammar has a form of its own for are quoted.
    fn function_name(&mut self, name: &QualifiedName) {
        match (&name.keyspace, name.name.as_str()) {
            (None, "token") => self.push("token"),
            (None, text @ ("cast" | "ttl" | "writetime" | "maxwritetime" | "expr")) => self.push(&quoted(text, '"')),
            _ => self.qualified(name),
        }
    }

    pub(super) fn json_path(&mut self, path: &[Expression], as_text: bool) {
        for (index, step) in path.iter().enumerate() {
            self.push(if as_text && index + 1 == path.len() { "->>" } else { "->" });
            self.expression(step);
        }
    }

    pub(super) fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Null => self.push("NULL"),
            Literal::String(text) => self.string(text),
            Literal::Integer(text) | Literal::Float(text) => self.push(text),
            Literal::Boolean(value) => self.push(if *value { "true" } else { "false" }),
            Literal::Blob(bytes) => {
                self.push("0x");
                self.hexadecimal(bytes);
            }
            Literal::Uuid(bytes) => {
                for (index, part) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
                    self.flag(index > 0, "-");
                    self.hexadecimal(&bytes[part]);
                }
            }
            Literal::Duration(duration) => {
                // Writing to a string cannot fail.
                let _ = write!(self.out, "{duration}");
            }
        }
    }

    fn hexadecimal(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
            self.out.push(digit(byte >> 4));
            self.out.push(digit(byte & 15));
        }
    }

    pub(super) fn type_name(&mut self, name: &TypeName) {
        match name {
            TypeName::Native(native) => self.push(native.name()),
            TypeName::List(element) => self.type_with_parameters("list", std::slice::from_ref(&**element)),
            TypeName::Set(element) => self.type_with_parameters("set", std::slice::from_ref(&**element)),
            TypeName::Frozen(inner) => self.type_with_parameters("frozen", std::slice::from_ref(&**inner)),
            TypeName::Tuple(elements) => self.type_with_parameters("tuple", elements),
            TypeName::Map(key, value) => {
                self.push("map<");
                self.type_name(key);
                self.push(", ");
                self.type_name(value);
                self.push(">");
            }
            TypeName::Vector(element, dimension) => {
                self.push("vector<");
                self.type_name(element);
                self.push(&std::format!(", {dimension}>"));
            }
            TypeName::UserDefined(name) => self.user_type_name(name),
            TypeName::Custom(class) => self.string(class),
        }
    }

    fn type_with_parameters(&mut self, word: &str, parameters: &[TypeName]) {
        self.push(word);
        self.push("<");
        self.separated(parameters, ", ", Self::type_name);
        self.push(">");
    }

    /// The name of a user-defined type, quoted where it is the keyword of another.
    fn user_type_name(&mut self, name: &QualifiedName) {
        let is_keyword = NativeType::from_name(&name.name).is_some()
            || matches!(name.name.as_str(), "list" | "map" | "tuple" | "frozen" | "vector");
        if name.keyspace.is_none() && is_keyword {
            return self.push(&quoted(&name.name, '"'));
        }
        self.qualified(name);
    }

    pub(super) fn where_clause(&mut self, relations: &[Relation]) {
        if !relations.is_empty() {
            self.push(" WHERE ");
            self.separated(relations, " AND ", Self::relation);
        }
    }

    pub(super) fn predicate(&mut self, predicate: &Predicate) {
        match predicate {
            Predicate::Relation(relation) => self.relation(relation),
            Predicate::And(parts) => self.separated(parts, " AND ", |formatter, part| {
                formatter.inner_predicate(part, matches!(part, Predicate::And(_) | Predicate::Or(_)));
            }),
            Predicate::Or(parts) => self.separated(parts, " OR ", |formatter, part| {
                formatter.inner_predicate(part, matches!(part, Predicate::Or(_)));
            }),
            Predicate::Not(inner) => {
                self.push("NOT ");
                self.inner_predicate(inner, matches!(**inner, Predicate::And(_) | Predicate::Or(_)));
            }
            Predicate::Exists => self.push("EXISTS"),
            Predicate::NotExists => self.push("NOT EXISTS"),
        }
    }

    fn inner_predicate(&mut self, predicate: &Predicate, parentheses: bool) {
        self.flag(parentheses, "(");
        self.predicate(predicate);
        self.flag(parentheses, ")");
    }

    pub(super) fn relation(&mut self, relation: &Relation) {
        match relation {
            Relation::Compare { left, operator, right } => {
                self.relation_operand(left);
                self.push(match operator {
                    ComparisonOperator::Equal => " = ",
                    ComparisonOperator::NotEqual => " != ",
                    ComparisonOperator::Less => " < ",
                    ComparisonOperator::LessOrEqual => " <= ",
                    ComparisonOperator::Greater => " > ",
                    ComparisonOperator::GreaterOrEqual => " >= ",
                });
                self.expression(right);
            }
            Relation::In { left, negated, values } => {
                self.operator_word(left, *negated, "IN ");
                match values {
                    InValues::List(values) => self.enclosed("(", values, ")"),
                    InValues::Marker(index) => self.marker(*index),
                }
            }
            Relation::Contains { left, negated, value } => {
                self.operator_word(left, *negated, "CONTAINS ");
                self.expression(value);
            }
            Relation::ContainsKey { left, negated, key } => {
                self.operator_word(left, *negated, "CONTAINS KEY ");
                self.expression(key);
            }
            Relation::Like { left, negated, pattern } => {
                self.operator_word(left, *negated, "LIKE ");
                self.expression(pattern);
            }
            Relation::Between { left, negated, from, to } => {
                self.operator_word(left, *negated, "BETWEEN ");
                self.expression(from);
                self.push(" AND ");
                self.expression(to);
            }
            Relation::IsNotNull(left) => {
                self.relation_operand(left);
                self.push(" IS NOT NULL");
            }
            Relation::IndexExpression { index, value } => {
                self.push("expr(");
                self.qualified(index);
                self.push(", ");
                self.expression(value);
                self.push(")");
            }
        }
    }

    /// The left side, `NOT` and the operator.
    fn operator_word(&mut self, left: &Operand, negated: bool, operator: &str) {
        self.relation_operand(left);
        self.push(" ");
        self.flag(negated, "NOT ");
        self.push(operator);
    }

    fn relation_operand(&mut self, operand: &Operand) {
        match operand {
            Operand::Target(target) => self.target(target),
            Operand::JsonText { column, path } => {
                self.name(column);
                self.json_path(path, true);
            }
            Operand::Token(columns) => {
                self.push("token");
                self.names(columns);
            }
            Operand::Tuple(columns) => self.names(columns),
            // In quotes it is a function like any other and not the grammar's `token`.
            Operand::Function(Expression::Function { name, arguments })
                if *name == QualifiedName::unqualified("token") =>
            {
                self.push("\"token\"");
                self.enclosed("(", arguments, ")");
            }
            Operand::Function(function) => self.expression(function),
        }
    }

    pub(super) fn target(&mut self, target: &Target) {
        self.name(target.column());
        match target {
            Target::Column(_) => {}
            Target::Element { key, .. } => {
                self.push("[");
                self.expression(key);
                self.push("]");
            }
            Target::Field { field, .. } => {
                self.push(".");
                self.name(field);
            }
            Target::JsonPath { path, .. } => self.json_path(path, false),
        }
    }
}
