//! Functions whose types depend on their arguments: on any number, collection, vector or value at all.
//!
//! Always true: what a call takes and gives is decided by the types of its arguments; a marker or constant among them takes the type that the
//! others ask for. Left out: functions of fixed types ([`mod@super::overloads`]), `token` and its like, which depend on the table.

use super::function::{Function, Signature};
use super::mask::Mask;
use super::math::MathFunction;
use super::vector::Similarity;
use super::{arithmetic, mask};
use crate::error::invalid;
use diorite_cql::protocol::CqlError;
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

/// Whether the name (in lower case, without underscores) is one of these functions.
pub fn is_generic(plain: &str) -> bool {
    MathFunction::from_name(plain).is_some()
        || Similarity::from_name(plain).is_some()
        || mask::is_mask(plain)
        || matches!(
            plain,
            "tojson"
                | "floor"
                | "mapkeys"
                | "mapvalues"
                | "collectioncount"
                | "collectionmin"
                | "collectionmax"
                | "collectionsum"
                | "collectionavg"
        )
}

fn no_match(name: &str, arguments: &[Option<CqlType>]) -> CqlError {
    let types: Vec<String> =
        arguments.iter().map(|known| known.as_ref().map_or("?".to_owned(), ToString::to_string)).collect();
    invalid(format!("Invalid call to function {name}, none of its type signatures match (given: {})", types.join(", ")))
}

/// The overload of `name` for arguments of these types, as far as they are known, or the error.
pub fn resolve(name: &str, arguments: &[Option<CqlType>]) -> Result<Signature, CqlError> {
    let plain = name.replace('_', "");
    let found = match arguments {
        [Some(single)] => of_one(&plain, single),
        [None] => return Err(invalid(format!("Cannot infer the type of the argument of {name}: use a type hint"))),
        _ => None,
    };
    let found = found.or_else(|| of_vectors(&plain, arguments)).or_else(|| of_floor(&plain, arguments));
    match found {
        Some(found) => Ok(found),
        None if mask::is_mask(&plain) => of_mask(&plain, arguments).ok_or_else(|| no_match(name, arguments)),
        None => Err(no_match(name, arguments)),
    }
}

fn signature(function: Function, arguments: Vec<CqlType>, returns: CqlType) -> Option<Signature> {
    Some(Signature { function, arguments, returns })
}

fn element_of(data_type: &CqlType) -> Option<CqlType> {
    match data_type {
        CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Vector(element, _) => {
            Some(CqlType::clone(element))
        }
        _ => None,
    }
}

fn of_one(plain: &str, of: &CqlType) -> Option<Signature> {
    let taken = vec![of.clone()];
    if let Some(function) = MathFunction::from_name(plain) {
        let returns = if *of == CqlType::Counter { CqlType::Bigint } else { of.clone() };
        return arithmetic::is_number(of).then(|| signature(Function::Math(function, of.clone()), taken, returns))?;
    }
    let is_collection = matches!(of, CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..));
    match (plain, of) {
        ("tojson", _) => signature(Function::ToJson(of.clone()), taken, CqlType::Text),
        ("mapkeys", CqlType::Map(key, ..)) => {
            let returns = CqlType::Set(Arc::clone(key), Frozen::No);
            signature(Function::MapKeys(of.clone()), taken, returns)
        }
        ("mapvalues", CqlType::Map(_, value, _)) => {
            let returns = CqlType::List(Arc::clone(value), Frozen::No);
            signature(Function::MapValues(of.clone()), taken, returns)
        }
        ("collectioncount", _) if is_collection => {
            signature(Function::CollectionCount(of.clone()), taken, CqlType::Int)
        }
        ("collectionmin" | "collectionmax", _) => {
            let function = Function::CollectionExtreme(of.clone(), plain == "collectionmax");
            signature(function, taken, element_of(of)?)
        }
        ("collectionsum" | "collectionavg", _) => {
            let element = element_of(of).filter(arithmetic::is_number)?;
            signature(Function::CollectionSum(of.clone(), plain == "collectionavg"), taken, element)
        }
        _ => None,
    }
}

fn of_vectors(plain: &str, arguments: &[Option<CqlType>]) -> Option<Signature> {
    let similarity = Similarity::from_name(plain)?;
    let [first, second] = arguments else { return None };
    let known = first.as_ref().or(second.as_ref())?;
    let fits = |given: &Option<CqlType>| given.as_ref().is_none_or(|given| given == known);
    let CqlType::Vector(element, dimension) = known else { return None };
    if **element != CqlType::Float || !fits(first) || !fits(second) {
        return None;
    }
    let function = Function::Similarity(similarity, *dimension);
    signature(function, vec![known.clone(), known.clone()], CqlType::Float)
}

fn of_floor(plain: &str, arguments: &[Option<CqlType>]) -> Option<Signature> {
    if plain != "floor" {
        return None;
    }
    let (moment, rest) = arguments.split_first()?;
    let moment = moment.clone()?;
    let is_duration = |given: &Option<CqlType>| given.as_ref().is_none_or(|given| *given == CqlType::Duration);
    let returns = match &moment {
        CqlType::Timestamp | CqlType::Timeuuid => CqlType::Timestamp,
        CqlType::Date => CqlType::Date,
        CqlType::Time => CqlType::Time,
        _ => return None,
    };
    let mut taken = vec![moment.clone(), CqlType::Duration];
    match rest {
        [duration] if is_duration(duration) => {}
        [duration, start] if is_duration(duration) && moment != CqlType::Time => {
            if start.as_ref().is_some_and(|start| *start != returns) {
                return None;
            }
            taken.push(returns.clone());
        }
        _ => return None,
    }
    signature(Function::Floor(moment), taken, returns)
}

fn of_mask(plain: &str, arguments: &[Option<CqlType>]) -> Option<Signature> {
    let mask = mask::from_name(plain)?;
    let (first, rest) = arguments.split_first()?;
    let of = first.clone()?;
    let text = matches!(of, CqlType::Text | CqlType::Ascii);
    let fits = |at: usize, wanted: &CqlType| {
        rest.get(at).is_none_or(|given| given.as_ref().is_none_or(|given| given == wanted))
    };
    let taken = match mask {
        Mask::Null | Mask::Default if rest.is_empty() => vec![of.clone()],
        Mask::Hash if rest.len() <= 1 && fits(0, &CqlType::Text) => {
            let mut taken = vec![of.clone()];
            taken.extend((rest.len() == 1).then_some(CqlType::Text));
            taken
        }
        Mask::Replace if rest.len() == 1 && fits(0, &of) => vec![of.clone(), of.clone()],
        Mask::Inner | Mask::Outer
            if text
                && (2..=3).contains(&rest.len())
                && fits(0, &CqlType::Int)
                && fits(1, &CqlType::Int)
                && fits(2, &CqlType::Text) =>
        {
            let mut taken = vec![of.clone(), CqlType::Int, CqlType::Int];
            taken.extend((rest.len() == 3).then_some(CqlType::Text));
            taken
        }
        _ => return None,
    };
    let returns = if mask == Mask::Hash { CqlType::Blob } else { of.clone() };
    Some(Signature { function: Function::Mask(mask, of), arguments: taken, returns })
}
