//! No module cycles: within a crate the modules stand in an order, and each uses only those below it.
//!
//! A module is a file, with the modules written inside it. It uses another if its code outside `#[cfg(test)]` imports one of
//! its items or names one by a path that begins with `crate`, `self`, `super` or a child module. An item that a module
//! re-exports is used where it is defined; the re-export itself is no use.
//! Left out: calls of methods, which no import shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::{committed_files, expect_none, root};

/// A path as it is written, or the module path of a file below its crate.
type Segments = Vec<String>;

/// What one file imports, names and contains.
#[derive(Default)]
struct Module {
    /// Relative to `src`.
    file: String,
    /// Imported names (an alias counts) and the paths that they stand for.
    imports: BTreeMap<String, Segments>,
    /// Paths of imports that are visible in this module only: each of these is a use.
    private: Vec<Segments>,
    /// Modules of which all items are imported.
    globs: Vec<Segments>,
    /// Paths that the code names.
    named: BTreeSet<Segments>,
    /// Items that are defined here.
    defined: BTreeSet<String>,
}

/// Collects the module that a file is. `inner` is the path of the module inside the file that is being visited.
struct Reading {
    module: Module,
    inner: Segments,
}

impl Reading {
    fn import(&mut self, tree: &syn::UseTree, prefix: &[String], is_private: bool) {
        let joined = |name: &syn::Ident| prefix.iter().cloned().chain([name.to_string()]).collect::<Segments>();
        let (name, path) = match tree {
            syn::UseTree::Path(path) => return self.import(&path.tree, &joined(&path.ident), is_private),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, prefix, is_private));
            }
            syn::UseTree::Glob(_) => {
                self.module.globs.push(prefix.to_vec());
                self.module.private.extend(is_private.then(|| prefix.to_vec()));
                return;
            }
            // `use a::b::{self}` imports `b`.
            syn::UseTree::Name(name) if name.ident == "self" => {
                (prefix.last().cloned().unwrap_or_default(), prefix.to_vec())
            }
            syn::UseTree::Name(name) => (name.ident.to_string(), joined(&name.ident)),
            syn::UseTree::Rename(rename) => (rename.rename.to_string(), joined(&rename.ident)),
        };
        self.module.private.extend(is_private.then(|| path.clone()));
        self.module.imports.insert(name, path);
    }

    /// Paths in the arguments of a macro, which are not parsed.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Segments = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.name(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.name(std::mem::take(&mut path));
                    self.scan(group.stream());
                }
                _ => self.name(std::mem::take(&mut path)),
            }
        }
        self.name(path);
    }

    fn name(&mut self, mut path: Segments) {
        // Inside a module of the file, `super` may be the file itself.
        let mut depth = self.inner.len();
        while depth > 0 && path.first().is_some_and(|first| first == "super") {
            path.remove(0);
            depth -= 1;
            if depth == 0 && path.first().is_some_and(|first| first != "super") {
                path.insert(0, "self".to_owned());
            }
        }
        if !path.is_empty() {
            self.module.named.insert(path);
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Reading {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = match item {
            syn::Item::Const(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            syn::Item::Impl(item) => (&item.attrs, None),
            syn::Item::Mod(item) => (&item.attrs, None),
            syn::Item::Static(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Type(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Use(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        if is_for_tests(attributes) {
            return;
        }
        if let (Some(name), true) = (name, self.inner.is_empty()) {
            self.module.defined.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if let Some((_, items)) = &item.content {
            self.inner.push(item.ident.to_string());
            items.iter().for_each(|item| self.visit_item(item));
            self.inner.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if self.inner.is_empty() {
            self.import(&item.tree, &[], matches!(item.vis, syn::Visibility::Inherited));
        }
    }

    /// `pub(crate)` names the crate and uses nothing of it.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.scan(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

/// The modules of a crate by their path; the root's is empty.
type Modules = BTreeMap<Segments, Module>;

fn read_module(text: &str, file: &str) -> (Module, Vec<(String, bool)>) {
    let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut reading = Reading { module: Module { file: file.to_owned(), ..Module::default() }, inner: Vec::new() };
    parsed.items.iter().for_each(|item| reading.visit_item(item));
    let children = parsed.items.iter().filter_map(|item| match item {
        syn::Item::Mod(child) if child.content.is_none() => Some((child.ident.to_string(), is_for_tests(&child.attrs))),
        _ => None,
    });
    (reading.module, children.collect())
}

/// Reads the module at `path`, which is in `file` and whose children are in `home`.
fn add(source: &Path, file: PathBuf, home: &Path, path: Segments, modules: &mut Modules) {
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let shown = file.strip_prefix(source).unwrap().display().to_string();
    let (module, children) = read_module(&text, &shown);
    modules.insert(path.clone(), module);
    for (name, is_for_tests) in children {
        let flat = home.join(format!("{name}.rs"));
        let child = if flat.is_file() { flat } else { home.join(&name).join("mod.rs") };
        if !is_for_tests && child.is_file() {
            let path = path.iter().cloned().chain([name.clone()]).collect();
            add(source, child, &home.join(&name), path, modules);
        }
    }
}

/// The module that holds what `path`, as written in module `at`, names; `None` if it is outside the crate.
fn holder(modules: &Modules, at: &Segments, path: &[String], depth: usize) -> Option<Segments> {
    let (first, mut rest) = path.split_first()?;
    let mut here = match first.as_str() {
        "crate" => Vec::new(),
        "self" => at.clone(),
        "super" => {
            let mut above = at.clone();
            above.pop()?;
            while let Some((_, after)) = rest.split_first().filter(|(next, _)| *next == "super") {
                above.pop()?;
                rest = after;
            }
            above
        }
        name => {
            let child: Segments = at.iter().cloned().chain([name.to_owned()]).collect();
            if !modules.contains_key(&child) {
                let import = modules.get(at)?.imports.get(name).filter(|_| depth > 0)?;
                let whole: Segments = import.iter().chain(rest).cloned().collect();
                return holder(modules, at, &whole, depth - 1);
            }
            child
        }
    };
    while let Some((name, after)) = rest.split_first() {
        let child: Segments = here.iter().cloned().chain([name.clone()]).collect();
        if !modules.contains_key(&child) {
            return Some(exporter(modules, here, rest, depth));
        }
        (here, rest) = (child, after);
    }
    Some(here)
}

/// Where an item of module `here` is defined, if `here` only re-exports it.
fn exporter(modules: &Modules, here: Segments, path: &[String], depth: usize) -> Segments {
    let module = &modules[&here];
    if depth == 0 || module.defined.contains(&path[0]) {
        return here;
    }
    let imported = module.imports.get(&path[0]).cloned();
    let by_glob = module.globs.iter().find(|glob| {
        let target = holder(modules, &here, glob, depth - 1);
        target.is_some_and(|target| modules[&target].defined.contains(&path[0]))
    });
    let whole = imported.map(|import| import.into_iter().chain(path[1..].iter().cloned()).collect());
    let whole: Option<Segments> = whole.or_else(|| Some(by_glob?.iter().chain(path).cloned().collect()));
    // What is imported from outside the crate belongs to whoever imports it.
    whole.and_then(|whole| holder(modules, &here, &whole, depth - 1)).unwrap_or(here)
}

/// Each file and the files that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn uses(modules: &Modules) -> Uses {
    const RE_EXPORTS: usize = 8;
    let mut uses = Uses::new();
    for (at, module) in modules {
        let used = uses.entry(module.file.clone()).or_default();
        for path in module.named.iter().chain(&module.private) {
            let holder = holder(modules, at, path, RE_EXPORTS).map(|holder| modules[&holder].file.clone());
            used.extend(holder.filter(|file| *file != module.file));
        }
    }
    uses
}

fn reachable<'a>(uses: &'a Uses, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        for used in uses.get(file).into_iter().flatten() {
            if reached.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    reached
}

/// The sets of files that use each other.
fn cycles(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|file| (file.as_str(), reachable(uses, file))).collect();
    let in_cycle = reached.iter().filter(|(file, reached)| reached.contains(*file));
    let cycle = in_cycle.map(|(file, others)| {
        let around = others.iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(file)));
        around.map(|other| (*other).to_owned()).collect()
    });
    cycle.collect()
}

/// A crate's name and its modules.
fn crates() -> Vec<(String, Modules)> {
    let files = committed_files();
    let roots = files.iter().filter_map(|path| {
        let (folder, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
        let is_root =
            file == "lib.rs" || (file == "main.rs" && !files.contains(&format!("crates/{folder}/src/lib.rs")));
        is_root.then(|| (folder.to_owned(), path))
    });
    let read = |(name, path): (String, &String)| {
        let mut modules = Modules::new();
        let source = root().join("crates").join(&name).join("src");
        add(&source, root().join(path), &source, Vec::new(), &mut modules);
        (name, modules)
    };
    roots.map(read).collect()
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let mut findings = Vec::new();
    for (name, modules) in crates() {
        let uses = uses(&modules);
        for files in cycles(&uses) {
            let inside = |file: &String| {
                let used: Vec<_> = uses[file].intersection(&files).cloned().collect();
                format!("    {file} uses {}", used.join(" "))
            };
            findings.push(format!("{name}:\n{}", files.iter().map(inside).collect::<Vec<_>>().join("\n")));
        }
    }
    expect_none("modules that use each other:", &findings);
}

/// A crate of the given files, `lib.rs` among them, all of them children of the root.
fn modules_of(files: &[(&str, &str)]) -> Modules {
    let module = |(file, text): &(&str, &str)| {
        let name = file.strip_suffix(".rs").unwrap();
        let path = if name == "lib" { Vec::new() } else { vec![name.to_owned()] };
        (path, read_module(text, file).0)
    };
    files.iter().map(module).collect()
}

#[test]
fn a_cycle_is_found_through_imports_paths_macros_and_re_exports() {
    let lib = ("lib.rs", "mod a; mod b; mod c; pub use b::B; pub use c::*;");
    let found =
        |a: &str, b: &str| cycles(&uses(&modules_of(&[lib, ("a.rs", a), ("b.rs", b), ("c.rs", "pub fn c() {}")])));
    let both: BTreeSet<_> = [["a.rs", "b.rs"].map(str::to_owned).into_iter().collect()].into_iter().collect();
    let back = "use crate::a::A; pub struct B;";
    assert_eq!(found("use crate::B; pub struct A;", back), both, "a re-export");
    assert_eq!(found("pub struct A(super::b::B);", back), both, "a path");
    assert_eq!(found("fn f() { println!(\"{}\", 1 + crate::b::N); }", back), both, "a macro");
    assert_eq!(found("mod inside { fn f() { super::super::b::g(); } }", back), both, "a module inside");
    let none = BTreeSet::new();
    assert_eq!(found("#[cfg(test)] mod tests { use crate::B; } pub struct A;", back), none, "tests do not count");
    assert_eq!(found("pub(crate) struct A;", "use crate::a::A; pub(super) struct B;"), none, "visibility is no use");
    assert_eq!(found("use crate::c; fn f() { c(); }", back), none, "a glob leads to its module");
}
