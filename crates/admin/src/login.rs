//! Logins over HTTP, where the node requires passwords: the roles of CQL, by basic authentication.
//!
//! Always true: without a role and its password only health is answered, and metrics unless they are restricted to
//! roles. Left out: whether the password is right and which permissions the role has ([`Login`], which the node
//! implements), and pages of other sites, for which browsers send passwords too ([`crate::gate`]).

use crate::api::{Failure, FailureKind};
use crate::gate::{Ends, is_about_health, only_reads};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
pub use diorite_base::basic::Credentials;
use futures::future::BoxFuture;
use std::sync::Arc;

/// The challenge to a client without a password.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Diorite\", charset=\"UTF-8\"");

/// The effect that a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It only reads.
    Look,
    /// It may change something.
    Change,
}

/// Why a request is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The role does not exist, or its password is wrong.
    Unknown,
    /// The role lacks the permission; the reason in words.
    Forbidden(String),
    /// Too many passwords are being checked, or were wrong.
    Busy(String),
}

/// Checks logins.
pub trait Login: Send + Sync + 'static {
    /// Checks that this is a role and its password, and that the role may do what is wanted from that address.
    fn admit(self: Arc<Self>, given: Credentials, ends: Ends, wanted: Wanted)
    -> BoxFuture<'static, Result<(), Denied>>;
}

/// Requires logins for routes.
#[derive(Clone)]
pub struct Guard {
    /// Checks the logins.
    pub login: Arc<dyn Login>,
    /// Whether metrics are answered without a login.
    pub has_open_metrics: bool,
}

impl Guard {
    /// Puts the routes behind the login.
    pub fn protect(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, judge))
    }

    fn is_open(&self, request: &Request) -> bool {
        let path = request.uri().path();
        only_reads(request.method()) && (is_about_health(path) || (self.has_open_metrics && path == "/metrics"))
    }
}

async fn judge(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if guard.is_open(&request) {
        return next.run(request).await;
    }
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credentials = given.and_then(Credentials::parse);
    let ends = request.extensions().get::<Ends>().copied();
    let (Some(credentials), Some(ends)) = (credentials, ends) else {
        return unknown("this node asks for a role and its password");
    };
    let wanted = if only_reads(request.method()) { Wanted::Look } else { Wanted::Change };
    match Arc::clone(&guard.login).admit(credentials, ends, wanted).await {
        Ok(()) => next.run(request).await,
        Err(Denied::Unknown) => unknown("the role or its password is wrong"),
        Err(Denied::Forbidden(why)) => {
            (StatusCode::FORBIDDEN, Json(Failure::new(FailureKind::Forbidden, why))).into_response()
        }
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

    /// Has two roles; one of them may only read.
    struct Two;

    impl Login for Two {
        fn admit(
            self: Arc<Self>,
            given: Credentials,
            _: Ends,
            wanted: Wanted,
        ) -> BoxFuture<'static, Result<(), Denied>> {
            let answer = match (given.user.as_str(), given.password.as_str(), wanted) {
                ("ann", "sesame", _) | ("ben", "sesame", Wanted::Look) => Ok(()),
                ("ben", "sesame", Wanted::Change) => Err(Denied::Forbidden("ben may not".to_owned())),
                ("eve", ..) => Err(Denied::Busy("too many".to_owned())),
                _ => Err(Denied::Unknown),
            };
            Box::pin(std::future::ready(answer))
        }
    }

    async fn answer_to(request: Builder, login: Option<(&str, &str)>, has_open_metrics: bool) -> Response {
        let answer = || async { "hello" };
        let routes = ["/", "/metrics", "/health/ready", "/metrics/x"];
        let routes = routes.into_iter().fold(Router::new(), |all, path| all.route(path, get(answer).post(answer)));
        let routes = Guard { login: Arc::new(Two), has_open_metrics }.protect(routes);
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
}
