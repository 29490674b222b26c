//! Who may ask over HTTP: where clients have to log in, the roles of CQL, by basic authentication; elsewhere everybody, and only this machine changes anything, unless
//! the operator says otherwise.
//!
//! Always true: whether clients have to log in is asked anew for each request. If they have to, nothing is answered without a role and its password but health, and metrics unless they are for roles only. Left out: whether the password is right and what the role may do
//! ([`Login`], which the node implements), and pages of other sites, for whom browsers send passwords, too ([`crate::gate`]).

use crate::api::{Failure, FailureKind};
use crate::gate::{ChangesFrom, Ends, is_about_health, only_reads};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
pub use diorite_base::basic::Credentials;
use futures::future::BoxFuture;
use std::sync::Arc;

/// What a client without a password is asked for.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Diorite\", charset=\"UTF-8\"");

/// The path under which it is decided whether clients have to log in.
pub(crate) const AUTH: &str = "/api/v1/auth";

/// What a request is to be permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It reads.
    Look,
    /// It may change something.
    Change,
    /// It may change who gets in.
    Administer,
}

/// What a request does.
fn wanted(request: &Request) -> Wanted {
    match (only_reads(request.method()), request.uri().path()) {
        (true, _) => Wanted::Look,
        // Whoever may let everybody in may do everything.
        (false, AUTH) => Wanted::Administer,
        (false, _) => Wanted::Change,
    }
}

/// Why somebody may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is no such role, or its password is another one.
    Unknown,
    /// The role may not, for this reason.
    Forbidden(String),
    /// Too many passwords are being checked, or were wrong.
    Busy(String),
}

/// Says who may.
pub trait Login: Send + Sync + 'static {
    /// Whether clients have to log in at the moment.
    fn is_required(&self) -> bool;

    /// Whether these are a role and its password, and the role may do this from there.
    fn admit(self: Arc<Self>, given: Credentials, ends: Ends, wanted: Wanted)
    -> BoxFuture<'static, Result<(), Denied>>;
}

/// What asks for passwords.
#[derive(Clone)]
pub struct Guard {
    /// Who knows them.
    pub login: Arc<dyn Login>,
    /// From where changes are taken while nobody has to log in.
    pub changes_from: ChangesFrom,
    /// Metrics are answered without one.
    pub has_open_metrics: bool,
}

impl Guard {
    /// The routes behind the guard.
    pub fn protect(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, judge))
    }

    /// Whether nobody has to log in for a request.
    fn is_open(&self, request: &Request) -> bool {
        let path = request.uri().path();
        only_reads(request.method()) && (is_about_health(path) || (self.has_open_metrics && path == "/metrics"))
    }
}

impl Guard {
    /// Whether a change may come from there while nobody has to log in.
    fn accepts_from(&self, ends: Option<Ends>) -> bool {
        self.changes_from == ChangesFrom::Anywhere || ends.as_ref().is_some_and(Ends::are_one_machine)
    }
}

fn forbidden(why: impl Into<String>) -> Response {
    (StatusCode::FORBIDDEN, Json(Failure::new(FailureKind::Forbidden, why))).into_response()
}

async fn judge(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let ends = request.extensions().get::<Ends>().copied();
    if !guard.login.is_required() {
        if only_reads(request.method()) || guard.accepts_from(ends) {
            return next.run(request).await;
        }
        let message = "changes are accepted from the node's own machine only: make them there, or start the node with --http-changes anywhere";
        return forbidden(message);
    }
    if guard.is_open(&request) {
        return next.run(request).await;
    }
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credentials = given.and_then(Credentials::parse);
    let (Some(credentials), Some(ends)) = (credentials, ends) else {
        return unknown("this node asks for a role and its password");
    };
    match Arc::clone(&guard.login).admit(credentials, ends, wanted(&request)).await {
        Ok(()) => next.run(request).await,
        Err(Denied::Unknown) => unknown("the role or its password is wrong"),
        Err(Denied::Forbidden(why)) => forbidden(why),
        Err(Denied::Busy(why)) => {
            let failure = Json(Failure::new(FailureKind::NotBegun, why));
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, HeaderValue::from_static("2"))], failure)
                .into_response()
        }
    }
}

fn unknown(message: &str) -> Response {
    let failure = Json(Failure::new(FailureKind::Unauthenticated, message));
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, CHALLENGE)], failure).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::request::Builder;
    use axum::routing::get;
    use tower::ServiceExt as _;

    /// Knows two roles; one may look only.
    struct Two;

    impl Login for Two {
        fn is_required(&self) -> bool {
            true
        }

        fn admit(
            self: Arc<Self>,
            given: Credentials,
            _: Ends,
            wanted: Wanted,
        ) -> BoxFuture<'static, Result<(), Denied>> {
            let answer = match (given.user.as_str(), given.password.as_str(), wanted) {
                ("ann", "sesame", _) | ("ben", "sesame", Wanted::Look) | ("cay", "sesame", Wanted::Change) => Ok(()),
                ("ben" | "cay", "sesame", _) => Err(Denied::Forbidden("ben may not".to_owned())),
                ("eve", ..) => Err(Denied::Busy("too many".to_owned())),
                _ => Err(Denied::Unknown),
            };
            Box::pin(std::future::ready(answer))
        }
    }

    async fn answer_to(request: Builder, login: Option<(&str, &str)>, has_open_metrics: bool) -> Response {
        let answer = || async { "hello" };
        let routes = ["/", "/metrics", "/health/ready", "/metrics/x", AUTH];
        let routes = routes.into_iter().fold(Router::new(), |all, path| all.route(path, get(answer).post(answer)));
        let routes =
            Guard { login: Arc::new(Two), changes_from: ChangesFrom::Loopback, has_open_metrics }.protect(routes);
        let address = "127.0.0.1:5".parse().expect("a socket");
        let request = login.into_iter().fold(
            request.extension(Ends { client: address, node: address }),
            |all, (user, password)| {
                let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
                all.header("authorization", credentials.header())
            },
        );
        routes.oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer")
    }

    async fn status_of(request: Builder, login: Option<(&str, &str)>) -> u16 {
        answer_to(request, login, true).await.status().as_u16()
    }

    #[tokio::test]
    async fn without_a_role_there_are_only_health_and_metrics() {
        for path in ["/", "/metrics/x", "/nothing"] {
            let answer = answer_to(Request::get(path), None, true).await;
            assert_eq!(answer.status(), 401, "{path}");
            assert!(answer.headers().contains_key("www-authenticate"));
        }
        assert_eq!(status_of(Request::post("/metrics"), None).await, 401, "it is read only");
        assert_eq!(status_of(Request::get("/health/ready"), None).await, 200);
        assert_eq!(status_of(Request::get("/metrics"), None).await, 200);
        assert_eq!(answer_to(Request::get("/metrics"), None, false).await.status(), 401);
        let malformed = Request::get("/").header("authorization", "Basic #");
        assert_eq!(status_of(malformed, None).await, 401);
    }

    #[tokio::test]
    async fn roles_do_what_they_may() {
        for (user, password, looking, changing) in [
            ("ann", "sesame", 200, 200),
            ("ben", "sesame", 200, 403),
            ("ann", "Sesame", 401, 401),
            ("nobody", "", 401, 401),
            ("eve", "", 429, 429),
        ] {
            assert_eq!(status_of(Request::get("/"), Some((user, password))).await, looking, "{user}");
            assert_eq!(status_of(Request::head("/"), Some((user, password))).await, looking, "{user}");
            assert_eq!(status_of(Request::post("/"), Some((user, password))).await, changing, "{user}");
        }
    }

    #[tokio::test]
    async fn who_gets_in_is_not_decided_by_everybody_who_may_change_something() {
        for (user, changing, administering) in [("ann", 200, 200), ("ben", 403, 403), ("cay", 200, 403)] {
            assert_eq!(status_of(Request::post("/"), Some((user, "sesame"))).await, changing, "{user}");
            assert_eq!(status_of(Request::post(AUTH), Some((user, "sesame"))).await, administering, "{user}");
        }
    }

    /// Asks for no logins.
    struct Nobody;

    impl Login for Nobody {
        fn is_required(&self) -> bool {
            false
        }

        fn admit(self: Arc<Self>, _: Credentials, _: Ends, _: Wanted) -> BoxFuture<'static, Result<(), Denied>> {
            Box::pin(std::future::ready(Err(Denied::Unknown)))
        }
    }

    async fn status_from(client: &str, request: Builder, changes_from: ChangesFrom) -> u16 {
        let answer = || async { "hello" };
        let routes = Router::new().route("/", get(answer).post(answer));
        let routes = Guard { login: Arc::new(Nobody), changes_from, has_open_metrics: true }.protect(routes);
        let ends = Ends { client: client.parse().expect("a socket"), node: "10.0.0.1:7000".parse().expect("a socket") };
        let request = request.extension(ends).body(Body::empty()).expect("a request");
        routes.oneshot(request).await.expect("an answer").status().as_u16()
    }

    #[tokio::test]
    async fn where_nobody_logs_in_changes_come_from_this_machine_unless_told_otherwise() {
        let elsewhere = "10.0.0.9:5";
        for here in ["127.0.0.1:5", "127.9.8.7:5", "[::1]:5", "[::ffff:127.0.0.1]:5", "10.0.0.1:5"] {
            assert_eq!(status_from(here, Request::post("/"), ChangesFrom::Loopback).await, 200, "{here}");
        }
        assert_eq!(status_from(elsewhere, Request::post("/"), ChangesFrom::Loopback).await, 403);
        assert_eq!(status_from(elsewhere, Request::get("/"), ChangesFrom::Loopback).await, 200);
        assert_eq!(status_from(elsewhere, Request::post("/"), ChangesFrom::Anywhere).await, 200);
    }
}
