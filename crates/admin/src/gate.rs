//! The requests that the HTTP port accepts, by their headers and by the addresses of the connection.
//!
//! Always true: a page of another site neither reads nor changes anything. A request names this node as its host, whatever the name resolves to; one that may
//! change something comes from a page of this node or from no page, and its body is JSON, which no form sends, except that of the login. Health is answered under any name. Left out: who asks
//! ([`crate::login`]), how much (the server).

use crate::api::{Failure, FailureKind};
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// From where changes are taken while nobody has to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangesFrom {
    /// Clients on the node's own machine.
    Loopback,
    /// All clients that reach the port.
    Anywhere,
}

impl std::fmt::Display for ChangesFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::Anywhere => "anywhere",
        })
    }
}

/// The addresses of the two ends of a connection, attached to each of its requests.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The client.
    pub client: SocketAddr,
    /// The node.
    pub node: SocketAddr,
}

/// Attached to each request of a connection that speaks TLS.
#[derive(Clone, Debug)]
pub struct Secured {
    /// The certificate that the client has shown, and that an authority for clients has signed.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Ends {
    /// Whether both ends are on the same machine: a client on the machine that connects to another address of it than
    /// loopback has that address itself.
    pub fn are_one_machine(&self) -> bool {
        let client = self.client.ip().to_canonical();
        client.is_loopback() || client == self.node.ip().to_canonical()
    }
}

/// The rules by which requests are checked.
#[derive(Clone, Debug)]
pub struct Gate {
    names: BTreeSet<String>,
}

/// Why a request is refused.
struct Refusal(StatusCode, FailureKind, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, kind, message) = self;
        (status, Json(Failure::new(kind, message))).into_response()
    }
}

fn forbidden(message: impl Into<String>) -> Refusal {
    Refusal(StatusCode::FORBIDDEN, FailureKind::Forbidden, message.into())
}

fn invalid(status: StatusCode, message: &str) -> Refusal {
    Refusal(status, FailureKind::Invalid, message.to_owned())
}

/// A host in the form in which it is compared: in lower case, and without the dot of the root.
fn plain(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// The host of an address.
fn host_of(authority: &Authority) -> &str {
    let host = authority.host();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Whether host and port are the same; an absent port is the usual one.
fn is_same(one: &Authority, other: &Authority, usual_port: u16) -> bool {
    let port = |of: &Authority| of.port_u16().unwrap_or(usual_port);
    plain(host_of(one)) == plain(host_of(other)) && port(one) == port(other)
}

/// The path under which it is decided whether clients have to log in.
pub(crate) const AUTH: &str = "/api/v1/auth";
/// Where a role logs in and out by a form of a page.
pub(crate) const LOGIN: &str = "/login";
pub(crate) const LOGOUT: &str = "/logout";
const FORMS: [&str; 2] = [LOGIN, LOGOUT];

/// Whether a request asks for nothing but an answer.
pub(crate) fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether the path is about the node's health, which reveals no data.
pub(crate) fn is_about_health(path: &str) -> bool {
    path.starts_with("/health/")
}

impl Gate {
    /// For a node that is called by these names, beside its addresses and `localhost`.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().chain(["localhost".to_owned()]).map(|name| plain(&name)).collect() }
    }

    /// Puts the routes behind the gate.
    pub fn guard(self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(Arc::new(self), judge))
    }

    fn check(&self, head: &Parts, has_body: bool) -> Result<(), Refusal> {
        if only_reads(&head.method) && is_about_health(head.uri.path()) {
            return Ok(());
        }
        let host = self.check_host(head)?;
        if only_reads(&head.method) {
            return Ok(());
        }
        check_origin(&head.headers, host.as_ref())?;
        let is_form = FORMS.contains(&head.uri.path()) && has_kind(&head.headers, "application/x-www-form-urlencoded");
        if has_body && !is_form && !has_kind(&head.headers, "application/json") {
            let message = "the body must be JSON, and the request must say so: Content-Type: application/json";
            return Err(invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        Ok(())
    }

    /// The host of the request, if it is this node. An attacker who makes a name resolve to this node's address cannot
    /// make a browser send another host than that name.
    fn check_host(&self, head: &Parts) -> Result<Option<Authority>, Refusal> {
        let wrong = || invalid(StatusCode::BAD_REQUEST, "the request must name one host: Host: NAME[:PORT]");
        let mut given = head.headers.get_all(header::HOST).iter();
        let host = match (head.uri.authority(), given.next(), given.next()) {
            (_, _, Some(_)) => return Err(wrong()),
            (Some(authority), ..) => authority.clone(),
            (None, Some(host), None) => Authority::try_from(host.as_bytes()).map_err(|_| wrong())?,
            // Browsers always send it.
            (None, None, None) if head.version == Version::HTTP_10 => return Ok(None),
            (None, None, None) => return Err(wrong()),
        };
        let name = host_of(&host);
        if name.parse::<IpAddr>().is_ok() || self.names.contains(&plain(name)) {
            return Ok(Some(host));
        }
        Err(forbidden(format!(
            "this node does not know itself as '{name}': use an IP address, or start it with --http-host {name}"
        )))
    }
}

/// Refuses changes by pages of other sites: browsers name the page of a request.
fn check_origin(headers: &HeaderMap, host: Option<&Authority>) -> Result<(), Refusal> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let is_ours = origin.to_str().is_ok_and(|origin| {
        let (authority, usual_port) = match origin.split_once("://") {
            Some(("http", authority)) => (authority, 80),
            Some(("https", authority)) => (authority, 443),
            _ => return false,
        };
        let parsed = authority.parse::<Authority>();
        parsed.is_ok_and(|parsed| host.is_some_and(|host| is_same(host, &parsed, usual_port)))
    });
    if is_ours && origins.next().is_none() {
        return Ok(());
    }
    Err(forbidden("pages of other sites (Origin) may not change anything"))
}

fn has_kind(headers: &HeaderMap, wanted: &str) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let essence = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case(wanted))
}

async fn judge(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match gate.check(&head, !body.is_end_stream()) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::request::Builder;
    use axum::routing::get;
    use tower::ServiceExt as _;

    const ELSEWHERE: &str = "10.0.0.9:5";

    fn routes(gate: &Gate) -> Router {
        let answer = || async { "hello" };
        gate.clone().guard(Router::new().route("/", get(answer).post(answer)).route("/health/live", get(answer)))
    }

    async fn status_of(gate: &Gate, request: Builder, client: &str, body: &'static str) -> u16 {
        let ends = Ends { client: client.parse().expect("a socket"), node: "10.0.0.1:7000".parse().expect("a socket") };
        let request = request.extension(ends).body(Body::from(body)).expect("a request");
        routes(gate).oneshot(request).await.expect("an answer").status().as_u16()
    }

    fn gate() -> Gate {
        Gate::new(["DB-1.example.".to_owned()])
    }

    async fn reading(host: &str) -> u16 {
        status_of(&gate(), Request::get("/").header("host", host), ELSEWHERE, "").await
    }

    /// The status of a change by a page of `origin`, sent to `host`.
    async fn changing(host: &str, origin: &str) -> u16 {
        let request = Request::post("/").header("host", host).header("origin", origin);
        status_of(&gate(), request, "127.0.0.1:5", "").await
    }

    async fn sending(kind: Option<&str>, body: &'static str) -> u16 {
        let request = Request::post("/").header("host", "[::1]:7000");
        let request = kind.into_iter().fold(request, |request, kind| request.header("content-type", kind));
        status_of(&gate(), request, "[::1]:5", body).await
    }

    #[tokio::test]
    async fn a_name_that_is_not_the_nodes_is_refused_for_reads_too() {
        for host in ["10.0.0.1", "10.0.0.1:7000", "[::1]:7000", "localhost:7000", "LOCALHOST", "db-1.example:7000"] {
            assert_eq!(reading(host).await, 200, "{host}");
        }
        for host in ["evil.example", "evil.example:7000", "localhost.evil.example", "db-1", "127.0.0.1.evil.example"] {
            assert_eq!(reading(host).await, 403, "{host}");
        }
        for host in ["", "a b", "http://localhost"] {
            assert_eq!(reading(host).await, 400, "{host}");
        }
        let two = Request::get("/").header("host", "localhost").header("host", "evil.example");
        assert_eq!(status_of(&gate(), two, ELSEWHERE, "").await, 400);
        let absolute = Request::get("http://evil.example/").header("host", "localhost");
        assert_eq!(status_of(&gate(), absolute, ELSEWHERE, "").await, 403);
        assert_eq!(status_of(&gate(), Request::get("/"), ELSEWHERE, "").await, 400);
        assert_eq!(status_of(&gate(), Request::get("/").version(Version::HTTP_10), ELSEWHERE, "").await, 200);
    }

    #[tokio::test]
    async fn health_is_answered_under_any_name() {
        let request = Request::get("/health/live").header("host", "balancer.example");
        assert_eq!(status_of(&gate(), request, ELSEWHERE, "").await, 200);
    }

    #[tokio::test]
    async fn pages_of_other_sites_change_nothing() {
        for (host, origin) in [
            ("localhost:7000", "http://localhost:7000"),
            ("[::1]:7000", "http://[::1]:7000"),
            ("10.0.0.1:80", "http://10.0.0.1"),
            ("db-1.example", "https://DB-1.example"),
        ] {
            assert_eq!(changing(host, origin).await, 200, "{origin}");
        }
        for origin in [
            "http://evil.example",
            "http://localhost",
            "http://localhost:7001",
            "http://127.0.0.1:7000",
            "null",
            "",
            "file://localhost:7000",
            "http://localhost:7000/a",
        ] {
            assert_eq!(changing("localhost:7000", origin).await, 403, "{origin}");
        }
    }

    #[tokio::test]
    async fn bodies_are_json() {
        for kind in ["application/json", "Application/JSON; charset=utf-8"] {
            assert_eq!(sending(Some(kind), "{}").await, 200, "{kind}");
        }
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "text/plain; application/json"]
        {
            assert_eq!(sending(Some(kind), "{}").await, 415, "{kind}");
        }
        let form =
            Request::post("/").header("host", "[::1]:7000").header("content-type", "application/x-www-form-urlencoded");
        assert_eq!(status_of(&gate(), form.uri(LOGIN), "[::1]:5", "user=ann").await, 404, "it may be sent there");
        assert_eq!(sending(None, "{}").await, 415);
        assert_eq!(sending(None, "").await, 200, "no body, no kind");
    }
}
