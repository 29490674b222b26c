//! Who may ask over HTTP: where clients have to log in, the roles of CQL, by basic authentication or by a session that a login page begins; elsewhere everybody, and
//! only this machine changes anything, unless the operator says otherwise.
//!
//! Always true: whether clients have to log in is asked anew for each request. If they have to, nothing is answered without a login but health, what pages are
//! drawn with, the login page, and metrics unless they are for a token or for roles. A session is a cookie that no script reads and that browsers send to pages of this
//! node only; a change that it asks for has to name its token, which no page of another site knows. Left out: whether a password is right, the sessions
//! themselves and what a role may do ([`Login`], which the node implements), and pages of other sites ([`crate::gate`]).

use crate::api::CIDR_GROUPS;
use crate::api::{Failure, FailureKind};
use crate::gate::{AUTH, ChangesFrom, Ends, LOGIN, LOGOUT, Secured, is_about_health, only_reads};
use crate::pages::login as page;
use crate::percent::encoded;
use crate::visitor::{self, Visitor};
use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
pub use diorite_base::basic::Credentials;
use futures::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The challenge to a client without a password.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Diorite\", charset=\"UTF-8\"");
/// The header in which a change names the token of its session.
const TOKEN: &str = "x-diorite-token";
/// Bytes of a form.
const MAX_FORM_BYTES: usize = 8 << 10;

/// What a request is to be permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It only reads.
    Look,
    /// It may change something.
    Change,
    /// It may change who gets in.
    Administer,
}

/// Whether changes under a path let somebody in, or keep somebody out.
fn decides_who_gets_in(path: &str) -> bool {
    path == AUTH || path.strip_prefix(CIDR_GROUPS).is_some_and(|below| below.starts_with('/'))
}

/// What a request does.
fn wanted(request: &Request) -> Wanted {
    match (only_reads(request.method()), request.uri().path()) {
        (true, _) => Wanted::Look,
        // Whoever may let everybody in may do everything.
        (false, path) if decides_who_gets_in(path) => Wanted::Administer,
        (false, _) => Wanted::Change,
    }
}

/// Why a request is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is no such role, or its password is another one; or there is no such session.
    Unknown,
    /// The role lacks the permission; the reason in words.
    Forbidden(String),
    /// Too many passwords are being checked, or were wrong.
    Busy(String),
}

/// By what somebody is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A role and its password.
    Password(Credentials),
    /// A session.
    Session {
        /// Its secret name.
        id: String,
        /// The token that the request names.
        token: Option<String>,
    },
    /// A client's certificate that names this role.
    Certificate {
        /// The role.
        role: String,
    },
}

/// Somebody who may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The role.
    pub user: String,
    /// The same, if it is known by a session.
    pub visitor: Option<Visitor>,
}

/// Says who may.
pub trait Login: Send + Sync + 'static {
    /// Whether clients have to log in at the moment.
    fn is_required(&self) -> bool;

    /// Whether somebody is known by this, and may do that from there; who it is. A change by a session needs its token.
    fn admit(self: Arc<Self>, proof: Proof, ends: Ends, wanted: Wanted)
    -> BoxFuture<'static, Result<Admitted, Denied>>;

    /// Begins a session; returns its secret name.
    fn begin(self: Arc<Self>, given: Credentials, ends: Ends) -> BoxFuture<'static, Result<String, Denied>>;

    /// A request that may change something has ended with this status; `None`: whoever asked did not wait. For the audit log.
    fn changed(&self, role: Option<&str>, ends: Option<Ends>, what: &str, status: Option<u16>);

    /// Ends a session, if the token is its own.
    fn end(&self, id: &str, token: &str);

    /// The role that is known by this certificate, if certificates make known.
    fn role_of(&self, certificate: &CertificateDer<'_>) -> Option<String>;

    /// Whether this is the token for metrics.
    fn is_metrics_token(&self, given: &str) -> bool;
}

/// Requires logins for routes.
#[derive(Clone)]
pub struct Guard {
    /// Checks the logins.
    pub login: Arc<dyn Login>,
    /// From where changes are taken while nobody has to log in.
    pub changes_from: ChangesFrom,
    /// Metrics are answered without one.
    pub has_open_metrics: bool,
}

impl Guard {
    /// Puts the routes behind the login.
    pub fn protect(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, judge))
    }

    /// Whether nobody has to log in for a request.
    fn is_open(&self, request: &Request) -> bool {
        let path = request.uri().path();
        let is_metrics = path == "/metrics";
        let has_token = || bearer(request.headers()).is_some_and(|token| self.login.is_metrics_token(token));
        only_reads(request.method())
            && (is_about_health(path)
                || path.starts_with("/assets/")
                || (is_metrics && (self.has_open_metrics || has_token())))
    }

    /// Whether a change may come from there while nobody has to log in.
    fn accepts_from(&self, ends: Option<Ends>) -> bool {
        self.changes_from == ChangesFrom::Anywhere || ends.as_ref().is_some_and(Ends::are_one_machine)
    }

    /// Answers a request while nobody has to log in.
    async fn let_in(&self, request: Request, next: Next) -> Response {
        if request.uri().path() == LOGIN {
            return to("/");
        }
        let ends = request.extensions().get::<Ends>().copied();
        let change = Changing::new(&self.login, &request, None);
        if only_reads(request.method()) || self.accepts_from(ends) {
            return Changing::ended(change, next.run(request).await);
        }
        let refused = forbidden(
            "changes are accepted from the node's own machine only: make them there, or start the node with --http-changes anywhere",
        );
        Changing::ended(change, refused)
    }

    /// What a client's certificate proves, unless the request says by itself who asks.
    fn certified(&self, request: &Request) -> Option<Proof> {
        let certificate = request.extensions().get::<Secured>()?.certificate.as_ref()?;
        let is_by_itself = request.headers().contains_key(header::AUTHORIZATION);
        let role = self.login.role_of(certificate).filter(|_| !is_by_itself)?;
        Some(Proof::Certificate { role })
    }

    /// Begins a session with what was typed.
    async fn log_in(&self, request: Request, ends: Ends) -> Response {
        let is_secured = is_secured(&request);
        let Some(Typed { user, password, next }) = form(request).await else {
            return page::page("/", Some("the form cannot be read"));
        };
        let next = if is_page(&next) { next } else { "/".to_owned() };
        match Arc::clone(&self.login).begin(Credentials { user, password }, ends).await {
            Ok(id) => (set_cookie(&cookie(ends), &id, is_secured), to(&next)).into_response(),
            Err(denied) => {
                let (status, why) = match denied {
                    Denied::Unknown => (StatusCode::UNAUTHORIZED, "the role or its password is wrong".to_owned()),
                    Denied::Forbidden(why) => (StatusCode::FORBIDDEN, why),
                    Denied::Busy(why) => (StatusCode::TOO_MANY_REQUESTS, why),
                };
                (status, page::page(&next, Some(&why))).into_response()
            }
        }
    }

    async fn log_out(&self, request: Request, ends: Ends) -> Response {
        let (id, is_secured) = (session_of(request.headers(), ends), is_secured(&request));
        if let (Some(id), Some(Leaving { token })) = (id, form(request).await) {
            self.login.end(&id, &token);
        }
        (set_cookie(&cookie(ends), "", is_secured), to(LOGIN)).into_response()
    }
}

/// What the form of the login page holds.
#[derive(Deserialize)]
struct Typed {
    user: String,
    password: String,
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
struct Leaving {
    token: String,
}

/// Reads a form, which is written as the query of an address is.
async fn form<T: DeserializeOwned>(request: Request) -> Option<T> {
    let bytes = to_bytes(request.into_body(), MAX_FORM_BYTES).await.ok()?;
    let query = String::from_utf8(bytes.to_vec()).ok()?;
    let address: Uri = format!("/?{query}").parse().ok()?;
    Some(Query::try_from_uri(&address).ok()?.0)
}

/// Whether this is a page of this node: a path, and not the beginning of an address elsewhere.
fn is_page(next: &str) -> bool {
    let mut bytes = next.bytes();
    bytes.next() == Some(b'/')
        && !matches!(next.as_bytes().get(1), Some(b'/' | b'\\'))
        && bytes.all(|byte| byte.is_ascii_graphic())
        && HeaderValue::from_str(next).is_ok()
}

/// The name of the cookie of a session: browsers send the cookies of a host to all of its ports.
fn cookie(ends: Ends) -> String {
    format!("diorite-{}", ends.node.port())
}

fn is_secured(request: &Request) -> bool {
    request.extensions().get::<Secured>().is_some()
}

/// Sets the cookie of a session, or removes it. Browsers send one that was set by TLS by TLS only.
fn set_cookie(name: &str, id: &str, is_secured: bool) -> [(header::HeaderName, String); 1] {
    let age = if id.is_empty() { "; Max-Age=0" } else { "" };
    let secure = if is_secured { "; Secure" } else { "" };
    [(header::SET_COOKIE, format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"))]
}

fn session_of(headers: &HeaderMap, ends: Ends) -> Option<String> {
    let name = cookie(ends);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, id)| *known == name && !id.is_empty()).map(|(_, id)| id.to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// By what the sender of a request is known, if it says.
fn proof(headers: &HeaderMap, ends: Ends) -> Option<Proof> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("authorization") {
        Some(given) => Credentials::parse(given).map(Proof::Password),
        None => session_of(headers, ends).map(|id| Proof::Session { id, token: text(TOKEN).map(str::to_owned) }),
    }
}

/// Whether a person waits for a page.
fn is_browser(request: &Request) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    *request.method() == Method::GET
        && !request.headers().contains_key(header::AUTHORIZATION)
        && accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

fn to(path: &str) -> Response {
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    let headers = [(header::LOCATION, location), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn forbidden(why: impl Into<String>) -> Response {
    (StatusCode::FORBIDDEN, Json(Failure::new(FailureKind::Forbidden, why))).into_response()
}

/// Whoever asks is not known.
fn unknown(request_of_browser: Option<&str>, message: &str) -> Response {
    if let Some(path) = request_of_browser {
        return to(&format!("{LOGIN}?next={}", encoded(path)));
    }
    let failure = Json(Failure::new(FailureKind::Unauthenticated, message));
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, CHALLENGE)], failure).into_response()
}

async fn judge(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if !guard.login.is_required() {
        return guard.let_in(request, next).await;
    }
    if guard.is_open(&request) {
        return next.run(request).await;
    }
    let Some(ends) = request.extensions().get::<Ends>().copied() else {
        return unknown(None, "this node asks for a role and its password");
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET, LOGIN) => return page::page(&wanted_page(request.uri()), None),
        (&Method::POST, LOGIN) => return guard.log_in(request, ends).await,
        (&Method::POST, LOGOUT) => return guard.log_out(request, ends).await,
        _ => {}
    }
    let path = request.uri().path_and_query().map(|path| path.as_str().to_owned()).filter(|_| is_browser(&request));
    let Some(proof) = proof(request.headers(), ends).or_else(|| guard.certified(&request)) else {
        return unknown(path.as_deref(), "this node asks for a role and its password");
    };
    let named = match &proof {
        Proof::Password(given) => Some(given.user.clone()),
        Proof::Certificate { role } => Some(role.clone()),
        Proof::Session { .. } => None,
    };
    let mut change = Changing::new(&guard.login, &request, named);
    let admitted = Arc::clone(&guard.login).admit(proof, ends, wanted(&request)).await;
    let answer = match admitted {
        Ok(Admitted { user, visitor }) => {
            if let Some(change) = &mut change {
                change.role = Some(user);
            }
            visitor::answering(visitor, next.run(request)).await
        }
        Err(Denied::Unknown) => unknown(path.as_deref(), "the role or its password is wrong"),
        Err(Denied::Forbidden(why)) => forbidden(why),
        Err(Denied::Busy(why)) => {
            let failure = Json(Failure::new(FailureKind::NotBegun, why));
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, HeaderValue::from_static("2"))], failure)
                .into_response()
        }
    };
    Changing::ended(change, answer)
}

/// A request that may change something: the audit log is told of it when this is dropped at the latest.
struct Changing {
    login: Arc<dyn Login>,
    role: Option<String>,
    ends: Option<Ends>,
    what: String,
    status: Option<u16>,
}

impl Changing {
    fn new(login: &Arc<dyn Login>, request: &Request, role: Option<String>) -> Option<Self> {
        let ends = request.extensions().get::<Ends>().copied();
        let what = || format!("{} {}", request.method(), request.uri().path());
        (!only_reads(request.method())).then(|| Self {
            login: Arc::clone(login),
            role,
            ends,
            what: what(),
            status: None,
        })
    }

    fn ended(change: Option<Self>, answer: Response) -> Response {
        if let Some(mut change) = change {
            change.status = Some(answer.status().as_u16());
        }
        answer
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.login.changed(self.role.as_deref(), self.ends, &self.what, self.status);
    }
}

#[derive(Deserialize)]
struct Wished {
    next: String,
}

/// The page that was asked for before the login.
fn wanted_page(address: &Uri) -> String {
    let wished = Query::<Wished>::try_from_uri(address).map(|Query(Wished { next })| next);
    wished.ok().filter(|next| is_page(next)).unwrap_or_else(|| "/".to_owned())
}

#[cfg(test)]
mod tests;
