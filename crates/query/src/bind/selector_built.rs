//! Collections and tuples that are made of other selectors.
//!
//! Always true: all elements of a collection have one type. Left out: those of constants and markers alone, which are terms.

use super::literal::literal_type;
use super::receiver::Receiver;
use super::selector::{Named, SelectorBinder};
use super::selector_text::{cannot_infer, text};
use crate::error::invalid;
use crate::plan::selection::Selector;
use crate::types::is_assignable;
use diorite_cql::language::ast::Expression;
use diorite_cql::protocol::CqlError;
use diorite_model::types::{CqlType, Frozen};
use std::sync::Arc;

impl SelectorBinder<'_, '_> {
    /// The common type of the parts: that of the first part with a type of its own, or else the preferred type of the first. The part that decided is
    /// bound already; it is returned with its position.
    fn common_type(
        &mut self,
        parts: &[&Expression],
        whole: &Expression,
    ) -> Result<(CqlType, Option<(usize, Named)>), CqlError> {
        for (at, part) in parts.iter().enumerate() {
            if !self.binder.needs_type(part)? {
                let named = self.selector(part, None)?;
                return Ok((named.data_type.clone(), Some((at, named))));
            }
        }
        let preferred = parts.first().and_then(|part| literal_type(part));
        preferred.map(|data_type| (data_type, None)).ok_or_else(|| cannot_infer(whole))
    }

    /// Parts of one type, one of which may be planned already.
    fn parts(
        &mut self,
        parts: &[&Expression],
        wanted: &CqlType,
        mut planned: Option<(usize, Named)>,
    ) -> Result<Vec<Named>, CqlError> {
        let mut all = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            all.push(match planned.take_if(|(at, _)| *at == number) {
                Some((_, named)) => named,
                None => self.part(part, Some(wanted))?,
            });
        }
        Ok(all)
    }

    /// A collection, tuple or user type made of other selectors.
    pub(super) fn built(&mut self, expression: &Expression, wanted: Option<&CqlType>) -> Result<Named, CqlError> {
        if self.binder.needs_type(expression)? {
            let Some(wanted) = wanted else { return Err(cannot_infer(expression)) };
            let term = self.binder.term(expression, &Receiver::new("[selection]", wanted))?;
            return Ok(Named { selector: Selector::Term(term), data_type: wanted.clone(), name: text(expression) });
        }
        match expression {
            Expression::List(elements) => self.built_sequence(elements, true, wanted, expression),
            Expression::Set(elements) => self.built_sequence(elements, false, wanted, expression),
            Expression::Map(entries) => self.built_map(entries, wanted, expression),
            Expression::Tuple(elements) => {
                let wanted_types = match wanted {
                    Some(CqlType::Tuple(types)) if types.len() == elements.len() => Some(types),
                    _ => None,
                };
                let mut parts = Vec::with_capacity(elements.len());
                for (at, element) in elements.iter().enumerate() {
                    parts.push(self.part(element, wanted_types.map(|types| &types[at]))?);
                }
                let data_type = CqlType::Tuple(parts.iter().map(|part| part.data_type.clone()).collect());
                Ok(together(data_type, parts, |names| format!("({})", names.join(", "))))
            }
            _ => Err(cannot_infer(expression)),
        }
    }

    /// A part of something that is built; of this type, if one is given.
    fn part(&mut self, part: &Expression, wanted: Option<&CqlType>) -> Result<Named, CqlError> {
        let preferred = literal_type(part);
        let named = self.selector(part, wanted.or(preferred.as_ref()))?;
        match wanted.filter(|wanted| !is_assignable(wanted, &named.data_type)) {
            Some(wanted) => Err(invalid(format!("{} is of type {}, not {wanted}", named.name, named.data_type))),
            None => Ok(named),
        }
    }

    /// A list, set or vector.
    fn built_sequence(
        &mut self,
        elements: &[Expression],
        is_list: bool,
        wanted: Option<&CqlType>,
        whole: &Expression,
    ) -> Result<Named, CqlError> {
        let elements: Vec<&Expression> = elements.iter().collect();
        let (element, planned) = match wanted {
            Some(CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Vector(element, _)) => {
                (CqlType::clone(element), None)
            }
            _ => self.common_type(&elements, whole)?,
        };
        let parts = self.parts(&elements, &element, planned)?;
        let element = Arc::new(element);
        let data_type = match wanted {
            Some(CqlType::Vector(_, dimension)) if usize::from(*dimension) == elements.len() => {
                CqlType::Vector(element, *dimension)
            }
            _ if is_list => CqlType::List(element, Frozen::Yes),
            _ => CqlType::Set(element, Frozen::Yes),
        };
        let [open, close] = if is_list { ["[", "]"] } else { ["{", "}"] };
        Ok(together(data_type, parts, |names| format!("{open}{}{close}", names.join(", "))))
    }

    fn built_map(
        &mut self,
        entries: &[(Expression, Expression)],
        wanted: Option<&CqlType>,
        whole: &Expression,
    ) -> Result<Named, CqlError> {
        let (keys, values): (Vec<&Expression>, Vec<&Expression>) =
            entries.iter().map(|(key, value)| (key, value)).unzip();
        let ((key, one_key), (value, one_value)) = match wanted {
            Some(CqlType::Map(key, value, _)) => ((CqlType::clone(key), None), (CqlType::clone(value), None)),
            _ => (self.common_type(&keys, whole)?, self.common_type(&values, whole)?),
        };
        let keys = self.parts(&keys, &key, one_key)?;
        let values = self.parts(&values, &value, one_value)?;
        let parts = keys.into_iter().zip(values).flat_map(|(key, value)| [key, value]).collect();
        let data_type = CqlType::Map(Arc::new(key), Arc::new(value), Frozen::Yes);
        let shown = |names: &[String]| {
            let pairs: Vec<String> = names.chunks(2).map(|pair| pair.join(": ")).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        Ok(together(data_type, parts, shown))
    }
}

/// Combines parts into one value.
fn together(data_type: CqlType, parts: Vec<Named>, shown: impl FnOnce(&[String]) -> String) -> Named {
    let (names, selectors): (Vec<String>, Vec<Selector>) =
        parts.into_iter().map(|part| (part.name, part.selector)).unzip();
    let name = shown(&names);
    Named { selector: Selector::Build(data_type.clone(), selectors), data_type, name }
}
