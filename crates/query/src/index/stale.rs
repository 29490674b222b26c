//! Which entries are stale.
//!
//! Always true: each row is looked through once, however many entries name it. Left out: what becomes of stale entries
//! ([`super::step`]).

use diorite_model::index::{Derived, TabletIndexes};

/// Those of the forms that do not follow from what is stored under the key of a row; `counts` says which of the values
/// there do.
pub(super) fn wrong_forms<'f>(
    indexes: &TabletIndexes,
    (row, stored): (&[u8], Option<&[u8]>),
    mut forms: Vec<&'f [u8]>,
    counts: &dyn Fn(&Derived<'_>) -> bool,
) -> Vec<&'f [u8]> {
    forms.sort_unstable();
    forms.dedup();
    let (mut is_right, mut wrong) = (vec![false; forms.len()], forms.len());
    if let Some(stored) = stored {
        indexes.derive(row, stored, &mut |derived| {
            if let Ok(at) = forms.binary_search(&derived.entry.form)
                && counts(derived)
                && !std::mem::replace(&mut is_right[at], true)
            {
                wrong -= 1;
            }
            wrong > 0
        });
    }
    forms.into_iter().zip(is_right).filter(|(_, is_right)| !is_right).map(|(form, _)| form).collect()
}
