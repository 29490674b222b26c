//! Clauses that several statements of the schema share: options after `WITH`, constant maps, masks, signatures of functions.
//!
//! Always true: an option is a name and a constant, a map or a set. Left out: which options there are.

use super::super::ast::{ColumnMask, FunctionSignature, Literal, Property, PropertyValue, QualifiedName};
use super::super::keyword::Keyword;
use super::super::lexer::Symbol;
use super::cursor::{Parser, Result};

/// `WITH name = value AND …`
pub(super) fn with_properties(parser: &mut Parser<'_>) -> Result<Vec<Property>> {
    parser.expect(Keyword::With)?;
    parser.and_separated(property)
}

pub(super) fn property(parser: &mut Parser<'_>) -> Result<Property> {
    let name = parser.identifier("option name")?;
    parser.expect_symbol(Symbol::Equal)?;
    let value = if parser.at_symbol(Symbol::LeftBrace) {
        property_braces(parser)?
    } else if parser.at_identifier() {
        PropertyValue::Identifier(parser.identifier("option value")?)
    } else {
        PropertyValue::Literal(parser.signed_constant()?)
    };
    Ok(Property { name, value })
}

fn property_braces(parser: &mut Parser<'_>) -> Result<PropertyValue> {
    parser.bump();
    if parser.eat_symbol(Symbol::RightBrace) {
        return Ok(PropertyValue::Map(Vec::new()));
    }
    let first = parser.signed_constant()?;
    if parser.at_symbol(Symbol::Colon) {
        return Ok(PropertyValue::Map(map_entries(parser, first)?));
    }
    let mut values = vec![first];
    while parser.eat_symbol(Symbol::Comma) {
        values.push(parser.signed_constant()?);
    }
    parser.expect_symbol(Symbol::RightBrace)?;
    Ok(PropertyValue::Set(values))
}

/// The rest of a map of constants after its first key.
fn map_entries(parser: &mut Parser<'_>, mut key: Literal) -> Result<Vec<(Literal, Literal)>> {
    let mut entries = Vec::new();
    loop {
        parser.expect_symbol(Symbol::Colon)?;
        entries.push((key, parser.signed_constant()?));
        if !parser.eat_symbol(Symbol::Comma) {
            break;
        }
        key = parser.signed_constant()?;
    }
    parser.expect_symbol(Symbol::RightBrace)?;
    Ok(entries)
}

/// `{constant: constant, …}`
pub(super) fn constant_map(parser: &mut Parser<'_>) -> Result<Vec<(Literal, Literal)>> {
    parser.expect_symbol(Symbol::LeftBrace)?;
    if parser.eat_symbol(Symbol::RightBrace) {
        return Ok(Vec::new());
    }
    let first = parser.signed_constant()?;
    map_entries(parser, first)
}

/// `MASKED WITH function(…)` or `MASKED WITH DEFAULT`
pub(super) fn column_mask(parser: &mut Parser<'_>) -> Result<ColumnMask> {
    parser.expect(Keyword::Masked)?;
    parser.expect(Keyword::With)?;
    if parser.at(Keyword::Default) && !parser.followed_by_symbol(Symbol::LeftParenthesis) {
        parser.bump();
        return Ok(ColumnMask { function: QualifiedName::unqualified("mask_default"), arguments: Vec::new() });
    }
    let function = parser.qualified_name("function name")?;
    let arguments = parser.parenthesised_or_empty(Parser::term)?;
    Ok(ColumnMask { function, arguments })
}

/// `name [(types)]`
pub(super) fn function_signature(parser: &mut Parser<'_>, expected: &str) -> Result<FunctionSignature> {
    let name = parser.qualified_name(expected)?;
    let given = parser.at_symbol(Symbol::LeftParenthesis);
    let argument_types = if given { Some(parser.parenthesised_or_empty(Parser::type_name)?) } else { None };
    Ok(FunctionSignature { name, argument_types })
}
