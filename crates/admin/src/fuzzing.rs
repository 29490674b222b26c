//! Fuzz targets for requests to the HTTP port; `cargo test` replays their seeds.
//!
//! Always true: every request is answered, with a status that blames the client or the node rightly. Left out: HTTP's
//! own syntax, which is the library's.

use crate::api::{Ask, Failure, FailureKind};
use crate::{Metrics, NodeView, Operator, router};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use diorite_base::NodeId;
use futures::future::BoxFuture;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tower::ServiceExt as _;

/// A node without metrics that parses every request and refuses it.
struct Refusing;

impl Metrics for Refusing {
    fn render(&self, out: &mut String) -> std::fmt::Result {
        out.push_str("# EOF\n");
        Ok(())
    }
}

impl Operator for Refusing {
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<serde_json::Value, Failure>> {
        let text = serde_json::to_string(&ask).expect("questions have string keys");
        assert!(serde_json::from_str::<Ask>(&text).is_ok(), "a question can be sent to another node: {text}");
        Box::pin(std::future::ready(Err(Failure::new(FailureKind::NotFound, "nothing is known"))))
    }
}

/// Sends a request: the first line is its method and path, the rest its body.
///
/// # Panics
///
/// If it is not answered, or as if the node had failed.
pub fn http(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (head, body) = (&input[..at], input.get(at + 1..).unwrap_or_default());
    let Ok(head) = std::str::from_utf8(head) else { return };
    let (method, path) = head.split_once(' ').unwrap_or(("GET", head));
    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
    let request = Request::builder().method(method).uri(path).body(Body::from(body.to_vec()));
    let Ok(request) = request else { return };
    let refusing = Arc::new(Refusing);
    let view = NodeView { node: NodeId(1), metrics: Arc::clone(&refusing) as Arc<dyn Metrics>, operator: refusing };
    let mut answering = pin!(router(view).oneshot(request));
    let Poll::Ready(answer) = answering.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("a request waits for nothing: {head}");
    };
    let status = answer.map_or(StatusCode::INTERNAL_SERVER_ERROR, |answer| answer.status());
    assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{head}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_http() {
        diorite_seeds::replay("http", super::http);
    }
}
