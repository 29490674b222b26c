//! What a type may be: its methods stand in a few files, and few of its fields are open to others.
//!
//! Types that are too large are listed in `large_types.txt`, one `crate type rule number` each, with a reason above. The list may only shrink.

use crate::sources::{parse, rust_files};
use crate::{expect_none, read};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Fields, ImplItem, Item, ItemImpl, ItemStruct, Visibility};

const MOST_FILES: usize = 5;
const MOST_OPEN_FIELDS: usize = 12;
const LARGE_TYPES: &str = "crates/diorite/tests/style/large_types.txt";

#[derive(Default)]
struct Types {
    /// With methods of their own.
    implemented: BTreeSet<String>,
    /// With so many open fields.
    open: BTreeMap<String, usize>,
}

/// What is cloned as it is, or counts, has no invariant that an open field could break.
fn is_record(item: &ItemStruct) -> bool {
    let derives_clone = item.attrs.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| {
        let mut found = false;
        // What is no path is no derive.
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta
                .path
                .segments
                .last()
                .is_some_and(|last| ["Clone", "Args", "Parser"].contains(&&*last.ident.to_string()));
            Ok(())
        });
        found
    });
    derives_clone || item.ident.to_string().ends_with("Counters")
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Struct(item) = item
            && let Fields::Named(fields) = &item.fields
            && !is_record(item)
        {
            let open = fields.named.iter().filter(|field| !matches!(field.vis, Visibility::Inherited)).count();
            self.open.insert(item.ident.to_string(), open);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let has_methods = item.items.iter().any(|item| matches!(item, ImplItem::Fn(_)));
        if item.trait_.is_none()
            && has_methods
            && let syn::Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            self.implemented.insert(last.ident.to_string());
        }
    }
}

#[test]
fn types_are_small() {
    let mut files: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in rust_files().into_iter().filter(|path| path.starts_with("crates/") && path.contains("/src/")) {
        let crate_name = path.split('/').nth(1).unwrap_or_default().to_owned();
        let mut types = Types::default();
        types.visit_file(&parse(&path));
        for name in types.implemented {
            *files.entry((crate_name.clone(), name)).or_default() += 1;
        }
        for (name, open) in types.open.into_iter().filter(|(_, open)| *open > MOST_OPEN_FIELDS) {
            found.insert(format!("{crate_name} {name} fields"), open);
        }
    }
    for ((crate_name, name), count) in files.into_iter().filter(|(_, count)| *count > MOST_FILES) {
        found.insert(format!("{crate_name} {name} files"), count);
    }
    let listed: BTreeMap<String, usize> = read(LARGE_TYPES)
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (what, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{LARGE_TYPES}: {line}"));
            (what.to_owned(), number.parse().unwrap_or_else(|error| panic!("{LARGE_TYPES}: {line}: {error}")))
        })
        .collect();
    let larger: Vec<String> = found
        .iter()
        .filter(|(what, number)| listed.get(*what).is_none_or(|most| most < number))
        .map(|(what, number)| format!("{what} {number}"))
        .collect();
    expect_none("types with methods in more than 5 files, or more than 12 open fields:", &larger);
    let smaller: Vec<String> =
        listed.iter().filter(|(what, most)| found.get(*what) != Some(*most)).map(|(what, _)| what.clone()).collect();
    expect_none("types that are smaller than listed, lower or strike them:", &smaller);
}
