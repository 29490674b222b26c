//! Refusals that routes do not make themselves, for programs: as JSON with the reason, as all others are.
//!
//! Always true: an answer of another kind than a refusal, or outside `/api/`, is left as it is; status and other headers
//! are.

use crate::api::{Failure, FailureKind};
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

/// The longest reason that is passed on.
const LONGEST_REASON_BYTES: usize = 16 << 10;

/// Answers a request as the routes do, with refusals in JSON.
pub(crate) async fn in_json(request: Request, next: Next) -> Response {
    let is_for_programs = request.uri().path().starts_with("/api/");
    let answer = next.run(request).await;
    let status = answer.status();
    let is_refusal = status.is_client_error() || status.is_server_error();
    let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.starts_with("application/json"));
    if is_for_programs && is_refusal && !is_json { with_reason(answer).await } else { answer }
}

async fn with_reason(answer: Response) -> Response {
    let (mut head, body) = answer.into_parts();
    let said = to_bytes(body, LONGEST_REASON_BYTES).await.unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let failure = match (said.trim(), head.status) {
        ("", StatusCode::NOT_FOUND) => Failure::new(kind_of(head.status), "there is nothing under this path"),
        ("", StatusCode::METHOD_NOT_ALLOWED) => Failure::new(kind_of(head.status), "the path is for another method"),
        ("", status) => Failure::new(kind_of(status), status.canonical_reason().unwrap_or_default()),
        (said, status) => Failure::new(kind_of(status), said),
    };
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(head, Body::from(serde_json::to_string(&failure).unwrap_or_default()))
}

fn kind_of(status: StatusCode) -> FailureKind {
    match status {
        StatusCode::NOT_FOUND => FailureKind::NotFound,
        StatusCode::UNAUTHORIZED => FailureKind::Unauthenticated,
        StatusCode::FORBIDDEN => FailureKind::Forbidden,
        StatusCode::CONFLICT => FailureKind::Refused,
        status if status.is_server_error() => FailureKind::Unavailable,
        _ => FailureKind::Invalid,
    }
}
