//! The page on which a role logs in.
//!
//! Always true: it loads nothing that needs a login; what was typed is not shown again. Left out: checking it ([`crate::login`]).

use super::frame;
use axum::response::Response;
use maud::html;

/// The form, with what was wrong with the last attempt. `next`: the page that was asked for.
pub(crate) fn page(next: &str, wrong: Option<&str>) -> Response {
    let content = html! {
        main.login id="main" {
            header { h1 { "Log in" } }
            @if let Some(wrong) = wrong { p.notice.bad role="alert" { (wrong) } }
            form.login method="post" action="/login" {
                input type="hidden" name="next" value=(next);
                label { "Role" input name="user" autocomplete="username" autocapitalize="none" spellcheck="false" required autofocus; }
                label { "Password" input name="password" type="password" autocomplete="current-password" required; }
                button type="submit" { "Log in" }
            }
            p.dim { "The roles of CQL: to look, a role needs DESCRIBE on all keyspaces." }
        }
    };
    frame::bare("Log in", &content)
}
