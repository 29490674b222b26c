//! What a Rust file must look like: it opens with its story, it fits in the head, every `allow` says why, and it is part
//! of its crate.
//!
//! Functions that are longer than a screen are listed in `long_functions.txt`, one `path function lines` each. The list may
//! only shrink: a listed function that got shorter must be lowered or struck, and a new one is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::{committed_files, expect_none, read, root};

const LONGEST_FUNCTION_LINES: usize = 70;
const LONGEST_FILE_LINES: usize = 600;
const LONG_FUNCTIONS: &str = "crates/diorite/tests/style/long_functions.txt";

pub fn rust_files() -> Vec<String> {
    committed_files().into_iter().filter(|path| path.ends_with(".rs")).collect()
}

pub fn parse(path: &str) -> syn::File {
    syn::parse_file(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_module_opens_with_its_story() {
    let findings: Vec<String> = rust_files()
        .into_iter()
        .filter(|path| path.starts_with("crates/") && path.contains("/src/"))
        .filter(|path| !read(path).starts_with("//! "))
        .collect();
    expect_none("files that do not open with `//! `, saying what they are for:", &findings);
}

#[test]
fn files_are_at_most_six_hundred_lines() {
    let findings: Vec<String> = rust_files()
        .into_iter()
        .map(|path| (read(&path).lines().count(), path))
        .filter(|(lines, _)| *lines > LONGEST_FILE_LINES)
        .map(|(lines, path)| format!("{path}: {lines} lines"))
        .collect();
    expect_none("files longer than 600 lines:", &findings);
}

/// Collects every function with its qualified name and its length, signature to closing brace.
#[derive(Default)]
struct Functions {
    scope: Vec<String>,
    found: Vec<(String, usize)>,
}

impl Functions {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let lines = body.span().end().line - signature.span().start().line + 1;
        let name = self.scope.iter().cloned().chain([signature.ident.to_string()]).collect::<Vec<_>>().join("::");
        self.found.push((name, lines));
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        visit(self);
        self.scope.pop();
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        self.within(item.sig.ident.to_string(), |this| visit::visit_item_fn(this, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        self.within(item.sig.ident.to_string(), |this| visit::visit_impl_item_fn(this, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.measure(&item.sig, body);
        }
        self.within(item.sig.ident.to_string(), |this| visit::visit_trait_item_fn(this, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(item.ident.to_string(), |this| visit::visit_item_mod(this, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(item.ident.to_string(), |this| visit::visit_item_trait(this, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(name.unwrap_or_else(|| "impl".to_owned()), |this| visit::visit_item_impl(this, item));
    }
}

/// The longest function of each name in each file, where it is too long.
fn long_functions() -> BTreeMap<(String, String), usize> {
    let mut long = BTreeMap::new();
    for path in rust_files() {
        let mut functions = Functions::default();
        functions.visit_file(&parse(&path));
        for (name, lines) in functions.found.into_iter().filter(|(_, lines)| *lines > LONGEST_FUNCTION_LINES) {
            let longest = long.entry((path.clone(), name)).or_insert(0);
            *longest = lines.max(*longest);
        }
    }
    long
}

fn listed_functions() -> BTreeMap<(String, String), usize> {
    read(LONG_FUNCTIONS)
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let [path, name, lines] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{LONG_FUNCTIONS}: {line}")
            };
            ((path.to_owned(), name.to_owned()), lines.parse().unwrap())
        })
        .collect()
}

#[test]
fn functions_fit_a_screen() {
    let (long, listed) = (long_functions(), listed_functions());
    let mut findings = Vec::new();
    for ((path, name), lines) in &long {
        match listed.get(&(path.clone(), name.clone())) {
            Some(limit) if lines < limit => findings.push(format!("{path} {name}: now {lines} lines, lower its entry")),
            Some(limit) if lines == limit => {}
            Some(limit) => findings.push(format!("{path} {name}: grew from {limit} to {lines} lines")),
            None => findings.push(format!("{path} {name}: {lines} lines, at most {LONGEST_FUNCTION_LINES}")),
        }
    }
    for (path, name) in listed.keys().filter(|key| !long.contains_key(*key)) {
        findings.push(format!("{path} {name}: short now or gone, strike its entry"));
    }
    expect_none(&format!("functions against {LONG_FUNCTIONS}:"), &findings);
}

/// Collects `allow` and `expect` attributes without a reason.
#[derive(Default)]
struct Allows {
    bare: Vec<usize>,
}

impl<'ast> Visit<'ast> for Allows {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            let is_allow = list.path.is_ident("allow") || list.path.is_ident("expect");
            if is_allow && !list.tokens.to_string().contains("reason") {
                self.bare.push(attribute.span().start().line);
            }
        }
    }
}

#[test]
fn every_allow_says_why() {
    let mut findings = Vec::new();
    for path in rust_files() {
        let mut allows = Allows::default();
        allows.visit_file(&parse(&path));
        findings.extend(allows.bare.into_iter().map(|line| format!("{path}:{line}")));
    }
    expect_none("`allow` without `reason = \"…\"`:", &findings);
}

/// Adds `file` and every file its `mod` declarations lead to. `home` is the folder where its child modules live.
fn reach(file: &Path, home: &Path, reached: &mut BTreeSet<PathBuf>) {
    reached.insert(file.to_path_buf());
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    reach_items(&parsed.items, file, home, reached);
}

fn reach_items(items: &[syn::Item], file: &Path, home: &Path, reached: &mut BTreeSet<PathBuf>) {
    let modules = items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module),
        _ => None,
    });
    for module in modules {
        let name = module.ident.to_string();
        if let Some((_, inner)) = &module.content {
            reach_items(inner, file, &home.join(&name), reached);
        } else if let Some(path) = path_attribute(&module.attrs) {
            let child = file.parent().unwrap().join(path);
            let child_home = child.parent().unwrap().to_path_buf();
            reach(&child, &child_home, reached);
        } else {
            let flat = home.join(format!("{name}.rs"));
            let child = if flat.is_file() { flat } else { home.join(&name).join("mod.rs") };
            reach(&child, &home.join(&name), reached);
        }
    }
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        match &attribute.meta {
            syn::Meta::NameValue(syn::MetaNameValue {
                value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }),
                ..
            }) => Some(path.value()),
            _ => None,
        }
    })
}

#[test]
fn every_source_file_is_part_of_its_crate() {
    let sources: Vec<String> =
        rust_files().into_iter().filter(|path| path.starts_with("crates/") && path.contains("/src/")).collect();
    let mut reached = BTreeSet::new();
    for path in &sources {
        let (folder, file) = path.split_once("/src/").unwrap();
        if file == "lib.rs" || file == "main.rs" || file.starts_with("bin/") {
            let home = root().join(folder).join("src");
            reach(&root().join(path), &home, &mut reached);
        }
    }
    let findings: Vec<String> = sources.into_iter().filter(|path| !reached.contains(&root().join(path))).collect();
    expect_none("files that no `mod` declaration leads to:", &findings);
}

#[test]
fn functions_are_measured_from_signature_to_closing_brace() {
    let text = "mod m { struct S; impl S {\n#[inline]\nfn f() {\n\n}\n} }\ntrait T { fn declared(); fn given() {} }";
    let mut functions = Functions::default();
    functions.visit_file(&syn::parse_file(text).unwrap());
    assert_eq!(functions.found, [("m::S::f".to_owned(), 3), ("T::given".to_owned(), 1)]);
}

#[test]
fn an_allow_without_a_reason_is_found() {
    let text = "#![allow(dead_code, reason = \"why\")]\n#[allow(dead_code)]\nfn f() {}";
    let mut allows = Allows::default();
    allows.visit_file(&syn::parse_file(text).unwrap());
    assert_eq!(allows.bare, [2]);
}
