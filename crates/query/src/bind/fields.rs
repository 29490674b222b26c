//! The positions of the fields of user-defined types, for statements that name many of them.
//!
//! Always true: the first question to a type walks its fields, as most statements ask once; from the second on there is an index, so that many
//! questions to one type cost a logarithm each. Left out: values that are written with all their fields ([`super::term`]).

use crate::steps;
use diorite_model::types::UserType;
use std::collections::HashMap;
use std::sync::Arc;

/// A type whose fields were asked for.
struct Known {
    /// Keeps its address from being used for another type.
    user: Arc<UserType>,
    /// The places of its fields in the order of their names; empty until a second question.
    by_name: Vec<usize>,
}

/// The types that were asked about, by their addresses: those of one column are one value.
#[derive(Default)]
pub(super) struct FieldPlaces(HashMap<usize, Known>);

impl FieldPlaces {
    /// The place of a field, if the type has it.
    pub(super) fn find(&mut self, user: &Arc<UserType>, field: &str) -> Option<usize> {
        let Some(known) = self.0.get_mut(&(Arc::as_ptr(user) as usize)) else {
            let known = Known { user: Arc::clone(user), by_name: Vec::new() };
            self.0.insert(Arc::as_ptr(user) as usize, known);
            return user.fields.iter().inspect(|_| steps::count(1)).position(|(name, _)| name == field);
        };
        let fields = &known.user.fields;
        if known.by_name.is_empty() {
            known.by_name = (0..fields.len()).collect();
            steps::count(fields.len() * steps::among(fields.len()));
            known.by_name.sort_unstable_by(|one, other| fields[*one].0.cmp(&fields[*other].0));
        }
        steps::count(steps::among(fields.len()));
        let found = known.by_name.binary_search_by(|at| fields[*at].0.as_str().cmp(field));
        found.ok().map(|at| known.by_name[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_model::types::CqlType;

    fn user(count: usize) -> Arc<UserType> {
        let fields = (0..count).map(|at| (format!("f{at}"), CqlType::Int)).collect();
        Arc::new(UserType { keyspace: "ks".to_owned(), name: "u".to_owned(), fields })
    }

    #[test]
    fn fields_are_found_by_index_as_by_walking() {
        let (one, other, none) = (user(30), user(20), user(0));
        let mut places = FieldPlaces::default();
        for _ in 0..3 {
            assert_eq!((places.find(&one, "f25"), places.find(&other, "f25")), (Some(25), None));
            assert_eq!((places.find(&one, "f0"), places.find(&none, "f0")), (Some(0), None));
        }
    }

    #[test]
    fn many_questions_to_a_large_type_are_not_quadratic() {
        let steps = |count| {
            let (user, mut places) = (user(count), FieldPlaces::default());
            steps::of(|| (0..count).for_each(|at| assert_eq!(places.find(&user, &format!("f{at}")), Some(at)))).1
        };
        let (small, large) = (steps(1_000), steps(2_000));
        assert!(large <= small * 5 / 2, "{small} steps, for twice as much {large}");
    }
}
