//! Logins over HTTP, against a node that knows some roles and one session.

use super::*;
use axum::body::Body;
use axum::http::request::Builder;
use axum::routing::get;
use tower::ServiceExt as _;

/// A session of `ann`.
fn of_session(id: &str, token: Option<String>, wanted: Wanted) -> Result<Admitted, Denied> {
    match (id, token.as_deref(), wanted) {
        ("s1", _, Wanted::Look) | ("s1", Some("t1"), _) => {
            let user = "ann".to_owned();
            Ok(Admitted { user: user.clone(), visitor: Some(Visitor { user, token: "t1".to_owned() }) })
        }
        ("s1", ..) => Err(Denied::Forbidden("the token".to_owned())),
        _ => Err(Denied::Unknown),
    }
}

/// Knows two roles; one may look only.
struct Two;

impl Login for Two {
    fn is_required(&self) -> bool {
        true
    }

    fn admit(self: Arc<Self>, proof: Proof, _: Ends, wanted: Wanted) -> BoxFuture<'static, Result<Admitted, Denied>> {
        let given = match proof {
            Proof::Password(given) => given,
            Proof::Session { id, token } => return Box::pin(std::future::ready(of_session(&id, token, wanted))),
            Proof::Certificate { role } => Credentials { user: role, password: "sesame".to_owned() },
        };
        let answer = match (given.user.as_str(), given.password.as_str(), wanted) {
            ("ann", "sesame", _) | ("ben", "sesame", Wanted::Look) | ("cay", "sesame", Wanted::Change) => {
                Ok(Admitted { user: given.user.clone(), visitor: None })
            }
            ("ben" | "cay", "sesame", _) => Err(Denied::Forbidden("ben may not".to_owned())),
            ("eve", ..) => Err(Denied::Busy("too many".to_owned())),
            _ => Err(Denied::Unknown),
        };
        Box::pin(std::future::ready(answer))
    }

    fn begin(self: Arc<Self>, given: Credentials, _: Ends) -> BoxFuture<'static, Result<String, Denied>> {
        let answer = match (given.user.as_str(), given.password.as_str()) {
            ("ann", "sésame & co") => Ok("s1".to_owned()),
            ("eve", _) => Err(Denied::Busy("too many".to_owned())),
            _ => Err(Denied::Unknown),
        };
        Box::pin(std::future::ready(answer))
    }

    fn changed(&self, role: Option<&str>, _: Option<Ends>, what: &str, status: Option<u16>) {
        assert!(status.is_some() && what.starts_with("POST /"), "{role:?} {what}");
    }

    fn end(&self, id: &str, token: &str) {
        assert_eq!((id, token), ("s1", "t1"), "whatever else is sent does not get here in these tests");
    }

    fn role_of(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        std::str::from_utf8(certificate.as_ref()).ok().filter(|role| !role.is_empty()).map(str::to_owned)
    }

    fn is_metrics_token(&self, given: &str) -> bool {
        given == "for-metrics-only"
    }
}

const GROUP: &str = "/api/v1/cidr-groups/office";
const DROP: &str = "/api/v1/cidr-groups/office/drop";

async fn answer_to(request: Builder, login: Option<(&str, &str)>, has_open_metrics: bool) -> Response {
    let answer = || async { "hello" };
    let routes = ["/", "/metrics", "/health/ready", "/metrics/x", AUTH, GROUP, DROP];
    let routes = routes.into_iter().fold(Router::new(), |all, path| all.route(path, get(answer).post(answer)));
    let routes = Guard { login: Arc::new(Two), changes_from: ChangesFrom::Loopback, has_open_metrics }.protect(routes);
    let address = "127.0.0.1:5".parse().expect("a socket");
    let request =
        login.into_iter().fold(request.extension(Ends { client: address, node: address }), |all, (user, password)| {
            let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
            all.header("authorization", credentials.header())
        });
    routes.oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer")
}

async fn status_of(request: Builder, login: Option<(&str, &str)>) -> u16 {
    answer_to(request, login, true).await.status().as_u16()
}

#[tokio::test]
async fn a_certificate_makes_its_role_known_unless_the_request_says_who_asks() {
    let shown = |request: Builder, role: Option<&str>| {
        request.extension(Secured { certificate: role.map(|role| CertificateDer::from(role.as_bytes().to_vec())) })
    };
    assert_eq!(status_of(shown(Request::get("/"), Some("ann")), None).await, 200);
    assert_eq!(status_of(shown(Request::post("/"), Some("ann")), None).await, 200);
    assert_eq!(status_of(shown(Request::post("/"), Some("ben")), None).await, 403);
    assert_eq!(status_of(shown(Request::get("/"), Some("zoe")), None).await, 401);
    assert_eq!(status_of(shown(Request::get("/"), Some("")), None).await, 401, "it names no role");
    assert_eq!(status_of(shown(Request::get("/"), None), None).await, 401);
    assert_eq!(status_of(shown(Request::get("/"), Some("ann")), Some(("ann", "wrong"))).await, 401);
    let malformed = shown(Request::get("/"), Some("ann")).header("authorization", "Basic #");
    assert_eq!(status_of(malformed, None).await, 401);
}

#[tokio::test]
async fn without_a_role_there_are_only_health_and_metrics() {
    for path in ["/", "/metrics/x", "/nothing", "/assetsx", "/api/v1/session"] {
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
        for path in [AUTH, GROUP, DROP] {
            let status = status_of(Request::post(path), Some((user, "sesame"))).await;
            assert_eq!(status, administering, "{user} {path}");
        }
    }
}

/// Asks for no logins.
struct Nobody;

impl Login for Nobody {
    fn is_required(&self) -> bool {
        false
    }

    fn admit(self: Arc<Self>, _: Proof, _: Ends, _: Wanted) -> BoxFuture<'static, Result<Admitted, Denied>> {
        Box::pin(std::future::ready(Err(Denied::Unknown)))
    }

    fn begin(self: Arc<Self>, _: Credentials, _: Ends) -> BoxFuture<'static, Result<String, Denied>> {
        Box::pin(std::future::ready(Err(Denied::Unknown)))
    }

    fn changed(&self, _: Option<&str>, _: Option<Ends>, _: &str, _: Option<u16>) {}

    fn end(&self, _: &str, _: &str) {}

    fn role_of(&self, _: &CertificateDer<'_>) -> Option<String> {
        None
    }

    fn is_metrics_token(&self, _: &str) -> bool {
        false
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
async fn where_nobody_logs_in_there_is_no_login_page() {
    assert_eq!(status_from("10.0.0.9:5", Request::get(LOGIN), ChangesFrom::Loopback).await, 303);
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

/// The answer of a node on port 7000.
async fn answer_at(request: Builder, body: &str) -> Response {
    let answer = || async {
        let visitor = visitor::current();
        visitor.map_or_else(String::new, |visitor| visitor.user)
    };
    let routes = ["/", "/nodes", "/metrics", "/assets/ui.css", AUTH];
    let routes = routes.into_iter().fold(Router::new(), |all, path| all.route(path, get(answer).post(answer)));
    let guard = Guard { login: Arc::new(Two), changes_from: ChangesFrom::Loopback, has_open_metrics: false };
    let ends =
        Ends { client: "127.0.0.1:5".parse().expect("a socket"), node: "127.0.0.1:7000".parse().expect("a socket") };
    let request = request.extension(ends).body(Body::from(body.to_owned())).expect("a request");
    guard.protect(routes).oneshot(request).await.expect("an answer")
}

fn header_of(answer: &Response, name: &str) -> String {
    answer.headers().get(name).map_or_else(String::new, |value| value.to_str().expect("text").to_owned())
}

async fn text_of(answer: Response) -> String {
    let bytes = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn a_browser_is_sent_to_the_login_page_and_a_program_is_not() {
    let answer = answer_at(Request::get("/nodes?q=a%20b").header("accept", "text/html,*/*"), "").await;
    assert_eq!(
        (answer.status().as_u16(), header_of(&answer, "location").as_str()),
        (303, "/login?next=%2Fnodes%3Fq%3Da%2520b")
    );
    for request in [
        Request::get("/nodes"),
        Request::get("/nodes").header("accept", "application/json"),
        Request::post("/nodes").header("accept", "text/html"),
        Request::get("/nodes").header("accept", "text/html").header("authorization", "Basic #"),
    ] {
        let answer = answer_at(request, "").await;
        assert_eq!(answer.status(), 401);
        assert!(header_of(&answer, "www-authenticate").starts_with("Basic"));
    }
    assert_eq!(answer_at(Request::get("/assets/ui.css"), "").await.status(), 200, "the login page needs it");
    let page = text_of(answer_at(Request::get("/login?next=/nodes?q=%22%3E"), "").await).await;
    assert!(page.contains("value=\"/nodes?q=&quot;&gt;\"") && page.contains("type=\"password\""), "{page}");
}

#[tokio::test]
async fn the_login_page_begins_a_session_and_goes_to_the_page_that_was_asked_for() {
    let form = "user=ann&password=s%C3%A9same+%26+co&next=%2Fnodes%3Fq%3D1";
    let answer = answer_at(Request::post("/login"), form).await;
    assert_eq!((answer.status().as_u16(), header_of(&answer, "location").as_str()), (303, "/nodes?q=1"));
    assert_eq!(header_of(&answer, "set-cookie"), "diorite-7000=s1; Path=/; HttpOnly; SameSite=Strict");
    for (form, status) in [("user=ann&password=x", 401), ("user=eve&password=x", 429)] {
        let answer = answer_at(Request::post("/login"), form).await;
        assert_eq!(answer.status(), status);
        assert!(!answer.headers().contains_key("set-cookie"));
        assert!(text_of(answer).await.contains("role=\"alert\""));
    }
    for form in ["", "user=ann", "\u{0}", "user=%FF&password=%FF", &"x".repeat(MAX_FORM_BYTES + 1)] {
        assert!(!answer_at(Request::post("/login"), form).await.headers().contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn a_login_goes_to_no_other_site() {
    for next in ["//evil.example", "/\\evil.example", "http://evil.example", "evil", "", "/a b", "/a\r\nx: y"] {
        let form = format!("user=ann&password=s%C3%A9same+%26+co&next={}", encoded(next));
        let answer = answer_at(Request::post("/login"), &form).await;
        assert_eq!((answer.status().as_u16(), header_of(&answer, "location").as_str()), (303, "/"), "{next:?}");
        let page = text_of(answer_at(Request::get(format!("/login?next={}", encoded(next))), "").await).await;
        assert!(page.contains("name=\"next\" value=\"/\""), "{page}");
    }
}

#[tokio::test]
async fn a_session_looks_and_changes_with_its_token_only() {
    let with = |request: Builder, cookie: &str| request.header("cookie", cookie);
    let answer = answer_at(with(Request::get("/nodes"), "a=b; diorite-7000=s1"), "").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(text_of(answer).await, "ann", "the page knows its visitor");
    for other in ["diorite-7000=s2", "diorite-7000=", "diorite-7001=s1", "s1", "xdiorite-7000=s1"] {
        assert_eq!(answer_at(with(Request::get("/nodes"), other), "").await.status(), 401, "{other}");
    }
    let change = || with(Request::post(AUTH), "diorite-7000=s1");
    assert_eq!(answer_at(change(), "").await.status(), 403);
    assert_eq!(answer_at(change().header(TOKEN, "t2"), "").await.status(), 403);
    assert_eq!(answer_at(change().header(TOKEN, "t1"), "").await.status(), 200);
    let leaving = answer_at(with(Request::post("/logout"), "diorite-7000=s1"), "token=t1").await;
    assert_eq!((leaving.status().as_u16(), header_of(&leaving, "location").as_str()), (303, "/login"));
    assert!(header_of(&leaving, "set-cookie").contains("Max-Age=0"));
}

#[tokio::test]
async fn metrics_are_answered_to_their_token() {
    let status = async |path: &str, given: &str| {
        let request = Request::get(path).header("authorization", given);
        answer_at(request, "").await.status().as_u16()
    };
    assert_eq!(status("/metrics", "Bearer for-metrics-only").await, 200);
    assert_eq!(status("/metrics", "bearer for-metrics-only").await, 200);
    for wrong in ["Bearer for-metrics", "Bearer", "Basic for-metrics-only", "for-metrics-only"] {
        assert_eq!(status("/metrics", wrong).await, 401, "{wrong}");
    }
    assert_eq!(status("/nodes", "Bearer for-metrics-only").await, 401, "for nothing else");
}
