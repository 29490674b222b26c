//! What functions return: errors have types, and numbers that go together have names.
//!
//! Errors in words are for command lines, where the next thing that happens to them is that a person reads them. Left out: tests, and what a module keeps to itself.

use crate::sources::{parse, rust_files};
use crate::{expect_none, read};
use syn::visit::{self, Visit};
use syn::{
    Attribute, GenericArgument, ImplItemFn, ItemFn, ItemMod, PathArguments, ReturnType, Signature, Type, Visibility,
};

/// Files that read what a person has written on a command line.
const COMMAND_LINES: &[&str] = &[
    "crates/base/src/text.rs",
    "crates/node/src/config.rs",
    "crates/node/src/config/audit.rs",
    "crates/node/src/config/values.rs",
    "crates/workload/src/arguments.rs",
    "crates/sim/src/main.rs",
];

const NUMBERS: [&str; 14] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64"];
const MOST_NUMBERS: usize = 2;

#[derive(Default)]
struct Signatures {
    errors_in_words: Vec<String>,
    unnamed_numbers: Vec<String>,
}

fn is_named(ty: &Type, names: &[&str]) -> bool {
    matches!(ty, Type::Path(path) if path.path.get_ident().is_some_and(|ident| names.contains(&&*ident.to_string())))
}

/// Looks into a returned type, whatever it is within.
#[derive(Default)]
struct Returned {
    has_error_in_words: bool,
    has_unnamed_numbers: bool,
}

impl<'ast> Visit<'ast> for Returned {
    fn visit_type(&mut self, ty: &'ast Type) {
        if let Type::Tuple(tuple) = ty {
            let numbers = tuple.elems.iter().filter(|element| is_named(element, &NUMBERS)).count();
            self.has_unnamed_numbers |= numbers > MOST_NUMBERS;
        }
        if let Type::Path(path) = ty
            && let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result")
            && let PathArguments::AngleBracketed(arguments) = &last.arguments
            && let Some(GenericArgument::Type(error)) = arguments.args.iter().nth(1)
        {
            self.has_error_in_words |= is_named(error, &["String"]);
        }
        visit::visit_type(self, ty);
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    };
    attributes.iter().any(is_test)
}

impl Signatures {
    fn look_at(&mut self, signature: &Signature, is_open: bool) {
        let ReturnType::Type(_, ty) = &signature.output else { return };
        let mut returned = Returned::default();
        returned.visit_type(ty);
        if returned.has_error_in_words {
            self.errors_in_words.push(signature.ident.to_string());
        }
        if returned.has_unnamed_numbers && is_open {
            self.unnamed_numbers.push(signature.ident.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Signatures {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.look_at(&function.sig, !matches!(function.vis, Visibility::Inherited));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.look_at(&function.sig, !matches!(function.vis, Visibility::Inherited));
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn errors_have_types_and_numbers_have_names() {
    let (mut in_words, mut unnamed) = (Vec::new(), Vec::new());
    let is_source = |path: &String| {
        path.starts_with("crates/") && path.contains("/src/") && !path.contains("/tests") && !path.contains("/testing")
    };
    for path in rust_files().into_iter().filter(is_source) {
        if read(&path).contains("#![cfg(test)]") {
            continue;
        }
        let mut signatures = Signatures::default();
        signatures.visit_file(&parse(&path));
        if !COMMAND_LINES.contains(&&*path) {
            in_words.extend(signatures.errors_in_words.iter().map(|name| format!("{path}: {name}")));
        }
        unnamed.extend(signatures.unnamed_numbers.iter().map(|name| format!("{path}: {name}")));
    }
    expect_none("functions whose error is a string:", &in_words);
    expect_none("functions that return three or more numbers without names:", &unnamed);
}

#[test]
fn signatures_are_looked_into() {
    let found = |code: &str| {
        let mut signatures = Signatures::default();
        signatures.visit_file(&syn::parse_file(code).unwrap());
        (signatures.errors_in_words.len(), signatures.unnamed_numbers.len())
    };
    assert_eq!(found("fn f() -> Result<u8, String> { }"), (1, 0));
    assert_eq!(found("impl A { pub(crate) fn f() -> Option<Vec<(u64, u8, String, f64)>> { } }"), (0, 1));
    assert_eq!(found("fn f() -> (u64, u64, u64) { }"), (0, 0), "within the module");
    assert_eq!(found("pub fn f() -> (u64, u64) { } #[cfg(test)] mod t { fn f() -> Result<(), String> { } }"), (0, 0));
}
