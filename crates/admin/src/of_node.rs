//! A node's answers about itself, over HTTP (`docs/operate.md`): `/api/v1/` for the asked node, and `/api/v1/nodes/N/`
//! for node N, through any node.
//!
//! Always true: both give the same answer to the same question.

use crate::NodeView;
use crate::api::{Ask, Failure, FailureKind, LogChange, LogFilter, NodeQuestion};
use crate::routes::{answer, failed, parsed};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use diorite_base::NodeId;

type Question = fn() -> NodeQuestion;
type LogQuery = Result<Query<LogFilter>, QueryRejection>;

/// The routes of questions to one node.
pub(crate) fn of_nodes() -> Router<NodeView> {
    let questions: [(&str, Question); 4] = [
        ("history", || NodeQuestion::History),
        ("queries", || NodeQuestion::Queries),
        ("memory", || NodeQuestion::Memory),
        ("config", || NodeQuestion::Configuration),
    ];
    let mut router = Router::new();
    for (name, question) in questions {
        router = router
            .route(&format!("/api/v1/{name}"), get(move |State(view): State<NodeView>| ask(view, None, question())))
            .route(&format!("/api/v1/nodes/{{node}}/{name}"), of_node(question));
    }
    router
        .route("/api/v1/logs", get(|State(view), filter: LogQuery| logs(view, None, filter)))
        .route(
            "/api/v1/nodes/{node}/logs",
            get(|State(view), Path(node): Path<u64>, filter: LogQuery| logs(view, Some(node), filter)),
        )
        .route(
            "/api/v1/queries/{number}/cancel",
            post(|State(view), Path(number): Path<u64>| cancel(view, None, number)),
        )
        .route(
            "/api/v1/nodes/{node}/queries/{number}/cancel",
            post(|State(view), Path((node, number)): Path<(u64, u64)>| cancel(view, Some(node), number)),
        )
        .route(
            "/api/v1/logging",
            get(|State(view)| change(view, None, Bytes::new())).post(|State(view), body| change(view, None, body)),
        )
        .route(
            "/api/v1/nodes/{node}/logging",
            get(|State(view), Path(node)| change(view, Some(node), Bytes::new()))
                .post(|State(view), Path(node), body| change(view, Some(node), body)),
        )
}

fn of_node(question: Question) -> MethodRouter<NodeView> {
    get(move |State(view): State<NodeView>, Path(node): Path<u64>| ask(view, Some(node), question()))
}

async fn ask(view: NodeView, node: Option<u64>, question: NodeQuestion) -> Response {
    answer(view, Ask::Node { node: node.map(NodeId), question }).await
}

async fn cancel(view: NodeView, node: Option<u64>, number: u64) -> Response {
    ask(view, node, NodeQuestion::Cancel { number }).await
}

async fn logs(view: NodeView, node: Option<u64>, filter: LogQuery) -> Response {
    match filter {
        Ok(Query(filter)) => ask(view, node, NodeQuestion::Logs(filter)).await,
        Err(error) => failed(&Failure::new(FailureKind::Invalid, error.to_string())),
    }
}

async fn change(view: NodeView, node: Option<u64>, body: Bytes) -> Response {
    match parsed::<LogChange>(&body) {
        Ok(change) => ask(view, node, NodeQuestion::Logging(change)).await,
        Err(failure) => failed(&failure),
    }
}
