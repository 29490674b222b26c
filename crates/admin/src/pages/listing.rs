//! Tables that can be sorted, filtered and paged through, by links and a form. The whole state is in the page's address.
//!
//! Always true: a page has at most [`ROWS`] rows; a bookmarked address shows the same list later; unknown parameters are
//! kept and ignored.

use super::show;
use crate::percent::encoded;
use maud::{Markup, html};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Rows on a page.
pub(super) const ROWS: usize = 100;

/// The path and the query of a page.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    path: String,
    given: BTreeMap<String, String>,
}

impl Parameters {
    /// The parameters of a request. Empty fields of a form are dropped.
    pub(super) fn new(path: &str, mut given: BTreeMap<String, String>) -> Self {
        given.retain(|_, value| {
            *value = value.trim().to_owned();
            !value.is_empty()
        });
        Self { path: path.to_owned(), given }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// The number of the page, from 0.
    pub(super) fn page(&self) -> usize {
        // A greater limit than any list needs, so that no product overflows.
        self.number("page").map_or(0, |page| page.clamp(1, 1_000_000) as usize - 1)
    }

    pub(super) fn is_descending(&self) -> bool {
        self.get("desc").is_some()
    }

    /// The address of the same page with other parameters; `None` removes one.
    pub(super) fn with(&self, changes: &[(&str, Option<&str>)]) -> String {
        let mut given = self.given.clone();
        for (name, value) in changes {
            match value {
                Some(value) => given.insert((*name).to_owned(), (*value).to_owned()),
                None => given.remove(*name),
            };
        }
        address(&self.path, &given)
    }

    fn sort(&self, key: &str, descending: bool) -> String {
        self.with(&[("sort", Some(key)), ("desc", descending.then_some("1")), ("page", None)])
    }
}

fn address(path: &str, given: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> =
        given.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

type Compare<T> = Box<dyn Fn(&T, &T) -> Ordering + Send + Sync>;
type Cell<T> = Box<dyn Fn(&T) -> Markup + Send + Sync>;

/// A column.
pub(super) struct Column<T> {
    key: &'static str,
    title: &'static str,
    is_number: bool,
    /// Compares rows by this column; `None` if the list is not sorted by it here.
    compare: Option<Compare<T>>,
    cell: Cell<T>,
}

impl<T> Column<T> {
    /// Numbers are aligned right.
    fn class(&self) -> Option<&'static str> {
        self.is_number.then_some("n")
    }

    pub(super) fn new(title: &'static str, cell: impl Fn(&T) -> Markup + Send + Sync + 'static) -> Self {
        Self { key: "", title, is_number: false, compare: None, cell: Box::new(cell) }
    }

    /// Its values are numbers: aligned right, and sorted in descending order first.
    pub(super) fn number(mut self) -> Self {
        self.is_number = true;
        self
    }

    /// Makes the list sortable by this column, under the name `key`.
    pub(super) fn by<K: Ord>(mut self, key: &'static str, of: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        self.key = key;
        self.compare = Some(Box::new(move |a, b| of(a).cmp(&of(b))));
        self
    }

    /// As [`Self::by`], for numbers that may be fractional or unknown; unknown ones sort first.
    pub(super) fn by_f64(mut self, key: &'static str, of: impl Fn(&T) -> Option<f64> + Send + Sync + 'static) -> Self {
        let value = move |row: &T| of(row).unwrap_or(f64::NEG_INFINITY);
        self.key = key;
        self.compare = Some(Box::new(move |a, b| value(a).total_cmp(&value(b))));
        self
    }

    /// As [`Self::by`]; the API sorts the list.
    pub(super) fn sorted_elsewhere(mut self, key: &'static str) -> Self {
        self.key = key;
        self
    }
}

/// The rows of one page, and the number of all rows that match.
pub(super) struct Page<T> {
    pub(super) rows: Vec<T>,
    pub(super) total: usize,
}

/// Filters, sorts and pages a list. The form's text is searched for in the text that `text` returns.
pub(super) fn select<T>(
    parameters: &Parameters,
    columns: &[Column<T>],
    mut rows: Vec<T>,
    text: impl Fn(&T) -> String,
) -> Page<T> {
    if let Some(wanted) = parameters.get("q").map(str::to_lowercase) {
        rows.retain(|row| wanted.split_whitespace().all(|word| text(row).to_lowercase().contains(word)));
    }
    let wanted = parameters.get("sort");
    let compare = columns.iter().find(|column| Some(column.key) == wanted).and_then(|column| column.compare.as_ref());
    if let Some(compare) = compare {
        // The sort is stable, so that equal rows keep the order of the list.
        match parameters.is_descending() {
            true => rows.sort_by(|a, b| compare(b, a)),
            false => rows.sort_by(compare),
        }
    }
    let total = rows.len();
    let rows = rows.into_iter().skip(parameters.page() * ROWS).take(ROWS).collect();
    Page { rows, total }
}

/// A form that filters: a text field, and further fields. The order of the list is kept.
pub(super) fn filter(parameters: &Parameters, placeholder: &str, others: Markup) -> Markup {
    html! {
        form.filter role="search" {
            input type="search" name="q" value=[parameters.get("q")] placeholder=(placeholder) aria-label=(placeholder);
            (others)
            @for kept in ["sort", "desc"] {
                @if let Some(value) = parameters.get(kept) { input type="hidden" name=(kept) value=(value); }
            }
            button { "Filter" }
            @if parameters.given.keys().any(|name| !["sort", "desc", "page"].contains(&name.as_str())) {
                a href=(address(&parameters.path, &BTreeMap::new())) { "clear" }
            }
        }
    }
}

/// A field to choose one of several values, or none.
pub(super) fn choice(parameters: &Parameters, name: &str, none: &str, values: &[(&str, &str)]) -> Markup {
    html! {
        select name=(name) aria-label=(name) {
            option value="" { (none) }
            @for (value, title) in values {
                option value=(value) selected[parameters.get(name) == Some(*value)] { (title) }
            }
        }
    }
}

/// The table of a page, with links for sorting and paging.
pub(super) fn table<T>(
    parameters: &Parameters,
    columns: &[Column<T>],
    page: &Page<T>,
    tone: impl Fn(&T) -> &'static str,
) -> Markup {
    html! {
        (rows(parameters, columns, &page.rows, tone))
        (pager(parameters, page.total))
    }
}

/// As [`table`], without the links between pages.
pub(super) fn rows<T>(
    parameters: &Parameters,
    columns: &[Column<T>],
    rows: &[T],
    tone: impl Fn(&T) -> &'static str,
) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="table" {
            table {
                thead { tr { @for column in columns { (heading(parameters, column)) } } }
                tbody {
                    @for row in rows {
                        tr class=[Some(tone(row)).filter(|class| !class.is_empty())] {
                            @for column in columns { td class=[column.class()] { ((column.cell)(row)) } }
                        }
                    }
                    @if rows.is_empty() {
                        tr { td.none colspan=(columns.len()) { "No entries." } }
                    }
                }
            }
        }
    }
}

fn heading<T>(parameters: &Parameters, column: &Column<T>) -> Markup {
    if column.key.is_empty() {
        return html! { th class=[column.class()] scope="col" { (column.title) } };
    }
    let is_sorted = parameters.get("sort") == Some(column.key);
    let descending = is_sorted && parameters.is_descending();
    let next = if is_sorted { !descending } else { column.is_number };
    let order = is_sorted.then_some(if descending { "descending" } else { "ascending" });
    html! {
        th class=[column.class()] scope="col" aria-sort=[order] {
            a href=(parameters.sort(column.key, next)) { (column.title) }
        }
    }
}

fn pager(parameters: &Parameters, total: usize) -> Markup {
    if total <= ROWS {
        return html! { p.pager { (show::count(total as u64)) " in all" } };
    }
    let (page, last) = (parameters.page(), total.saturating_sub(1) / ROWS);
    let first = page * ROWS + 1;
    let link = |title: &str, to: usize, is_there: bool| {
        html! {
            @if is_there { a href=(parameters.with(&[("page", Some(&(to + 1).to_string()))])) { (title) } }
            @else { span.dim { (title) } }
        }
    };
    html! {
        p.pager {
            (link("« first", 0, page > 0))
            (link("‹ previous", page.saturating_sub(1).min(last), page > 0))
            span { (show::count(first.min(total) as u64)) "–" (show::count((first + ROWS - 1).min(total) as u64)) " of " (show::count(total as u64)) }
            (link("next ›", page + 1, page < last))
            (link("last »", last, page < last))
        }
    }
}

/// A table of a few rows that needs neither order nor pages.
pub(super) fn short<T>(columns: &[Column<T>], rows: Vec<T>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="table" {
            table {
                thead { tr { @for column in columns { th class=[column.class()] scope="col" { (column.title) } } } }
                tbody {
                    @for row in &rows { tr { @for column in columns { td class=[column.class()] { ((column.cell)(row)) } } } }
                    @if rows.is_empty() { tr { td.none colspan=(columns.len()) { "No entries." } } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Parameters {
        let given = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Parameters::new("/list", given)
    }

    fn columns() -> Vec<Column<(u64, &'static str)>> {
        vec![
            Column::new("Number", |row: &(u64, &str)| show::text(row.0)).number().by("number", |row| row.0),
            Column::new("Name", |row: &(u64, &str)| show::text(row.1)).by("name", |row| row.1),
        ]
    }

    fn rows() -> Vec<(u64, &'static str)> {
        (0..250).map(|number| (number, if number % 2 == 0 { "even" } else { "odd" })).collect()
    }

    #[test]
    fn lists_are_filtered_sorted_and_cut() {
        let text = |row: &(u64, &str)| format!("{} {}", row.0, row.1);
        let numbers = |pairs: &[(&str, &str)]| -> (usize, Vec<u64>) {
            let page = select(&parameters(pairs), &columns(), rows(), text);
            (page.total, page.rows.iter().map(|row| row.0).collect())
        };
        assert_eq!(numbers(&[]), (250, (0..100).collect()));
        assert_eq!(numbers(&[("page", "3")]), (250, (200..250).collect()));
        assert_eq!(numbers(&[("sort", "number"), ("desc", "1")]).1[0], 249);
        assert_eq!(numbers(&[("q", "ODD 24"), ("sort", "number")]), (5, vec![241, 243, 245, 247, 249]));
        assert_eq!(numbers(&[("page", "99")]), (250, vec![]));
        assert_eq!(numbers(&[("page", "-1"), ("sort", "none")]).1.len(), 100);
    }

    #[test]
    fn links_keep_what_they_do_not_change() {
        let parameters = parameters(&[("q", "a b"), ("sort", "name"), ("page", "2"), ("empty", " ")]);
        assert_eq!(parameters.sort("number", true), "/list?desc=1&q=a%20b&sort=number");
        assert_eq!(parameters.with(&[("q", None), ("page", Some("3"))]), "/list?page=3&sort=name");
        let page = select(&parameters, &columns(), rows(), |_| "a b".to_owned());
        let shown = table(&parameters, &columns(), &page, |_| "").into_string();
        assert!(
            shown
                .contains(r#"<th scope="col" aria-sort="ascending"><a href="/list?desc=1&amp;q=a%20b&amp;sort=name">"#),
            "{shown}"
        );
        assert!(shown.contains("101–200 of 250"), "{shown}");
    }
}
