//! The frame of all pages: head, navigation, and the assets that they load from the same node.
//!
//! Always true: addresses of assets change with their content, so that browsers may cache them; the content policy
//! allows no other origin.

use crate::NodeView;
use crate::api::Failure;
use crate::routes::status_of;
use crate::visitor::{self, Visitor};
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("ui.css");
const SCRIPT: &str = include_str!("ui.js");
/// The logo: layers of a lens, as of a stratified rock.
const MARK: &str = r#"<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 2 21 7v10l-9 5-9-5V7z" fill="currentColor" opacity=".16"/><path d="M3 7l9 5 9-5M3 12l9 5 9-5M12 2 21 7v10l-9 5-9-5V7z" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"/></svg>"#;
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E%3Cpath d='M12 2 21 7v10l-9 5-9-5V7z' fill='%232f6f73'/%3E%3Cpath d='M3 7l9 5 9-5M3 12l9 5 9-5' fill='none' stroke='%23fff' stroke-width='1.6'/%3E%3C/svg%3E";
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// How often browsers without scripts reload a page, seconds.
const RELOAD_S: u32 = 10;

/// Pages about the whole cluster, then pages about one node.
const CLUSTER: [(&str, &str); 7] = [
    ("/", "Overview"),
    ("/nodes", "Nodes"),
    ("/tables", "Tables"),
    ("/tablets", "Tablets"),
    ("/moves", "Moves"),
    ("/transactions", "Transactions"),
    ("/indexes", "Indexes"),
];
const NODE: [(&str, &str); 4] =
    [("/queries", "Queries"), ("/memory", "Memory"), ("/logs", "Logs"), ("/config", "Configuration")];

/// The frame of a page: its title, and its place in the navigation.
pub(super) struct Frame<'v> {
    view: &'v NodeView,
    /// The page of the navigation that it belongs to.
    path: &'static str,
    title: String,
    /// The title of the page above it, if it is not in the navigation itself.
    above: Option<&'static str>,
}

impl<'v> Frame<'v> {
    /// The frame of a page of the navigation.
    pub(super) fn new(view: &'v NodeView, path: &'static str) -> Self {
        let title = CLUSTER.iter().chain(&NODE).find(|(of, _)| *of == path).map_or("", |(_, title)| title);
        Self { view, path, title: title.to_owned(), above: None }
    }

    /// The frame of a page below it.
    pub(super) fn below(self, title: impl Into<String>) -> Self {
        let above = CLUSTER.iter().chain(&NODE).find(|(of, _)| *of == self.path).map(|(_, title)| *title);
        Self { title: title.into(), above, ..self }
    }

    /// The whole page, with the content or the error.
    pub(super) fn answer(&self, content: Result<Markup, Failure>) -> Response {
        match content {
            Ok(content) => self.page(&content),
            Err(failure) => {
                let content = html! { p.notice.bad role="alert" { (failure.message) } };
                (status_of(failure.kind), self.page(&content)).into_response()
            }
        }
    }

    fn page(&self, content: &Markup) -> Response {
        let updates = html! {
            script src=(address_of("ui.js", SCRIPT)) defer {}
            noscript { meta http-equiv="refresh" content=(RELOAD_S); }
        };
        let body = html! {
            a.skip href="#main" { "Skip to content" }
            (self.navigation())
            main id="main" {
                header {
                    h1 {
                        @if let Some(above) = self.above { a href=(self.path) { (above) } span.dim { " / " } }
                        (self.title)
                    }
                }
                (content)
            }
        };
        whole(&self.title, &updates, &body)
    }

    fn navigation(&self) -> Markup {
        let links = |links: &[(&'static str, &'static str)]| {
            html! {
                @for (of, title) in links {
                    a href=(of) aria-current=[(*of == self.path).then_some("page")] { (title) }
                }
            }
        };
        html! {
            nav aria-label="Pages" {
                a.brand href="/" { (PreEscaped(MARK)) "Diorite" }
                div.group { (links(&CLUSTER)) }
                div.group { (links(&NODE)) }
                @if let Some(Visitor { user, token }) = visitor::current() {
                    form.asked method="post" action="/logout" {
                        input type="hidden" name="token" value=(token);
                        span { "logged in as " (user) }
                        button type="submit" { "Log out" }
                    }
                }
                p.asked { "shown by node " (self.view.node) br; "version " (env!("CARGO_PKG_VERSION")) }
                p.live hidden aria-live="off" { button type="button" {} }
            }
        }
    }
}

/// A page without navigation, which does not change by itself.
pub(super) fn bare(title: &str, body: &Markup) -> Response {
    whole(title, &html! {}, body)
}

fn whole(title: &str, updates: &Markup, body: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Diorite" }
                link rel="icon" href=(ICON);
                link rel="stylesheet" href=(address_of("ui.css", STYLE));
                (updates)
            }
            body { (body) }
        }
    };
    let headers = [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    ];
    (headers, Html(page.into_string())).into_response()
}

/// Where an asset is, with a digest of its content.
fn address_of(name: &str, content: &str) -> String {
    // FNV-1a suffices to distinguish versions.
    let digest = content
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("/assets/{name}?v={digest:016x}")
}

/// Serves the style sheet and the script.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let (kind, content) = match name.as_str() {
        "ui.css" => ("text/css; charset=utf-8", STYLE),
        "ui.js" => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
        (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
    ];
    (headers, content).into_response()
}
