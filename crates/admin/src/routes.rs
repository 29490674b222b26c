//! The operations over HTTP (`docs/operate.md`): path, query and JSON body become an [`Ask`].

use crate::NodeView;
use crate::api::{
    Ask, CIDR_GROUPS, Change, CompactionOrder, Failure, FailureKind, INDEX_RATE, INDEXES, JOIN_TOKENS, ScrubOrder,
    TabletFilter, WantedCheck, WantedPart,
};
use crate::gate::AUTH;
use crate::upgrade::UPGRADE;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use diorite_base::{NodeId, TabletId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The routes under `/api/v1/` that are about the cluster.
pub(crate) fn operations() -> Router<NodeView> {
    Router::new()
        .route("/api/v1/status", get(|State(view): State<NodeView>| answer(view, Ask::Status)))
        .route("/api/v1/nodes", get(|State(view): State<NodeView>| answer(view, Ask::Nodes)))
        .route("/api/v1/tables", get(|State(view): State<NodeView>| answer(view, Ask::Tables)))
        .route("/api/v1/moves", get(|State(view): State<NodeView>| answer(view, Ask::Moves)))
        .route("/api/v1/transactions", get(|State(view): State<NodeView>| answer(view, Ask::Transactions)))
        .route(INDEXES, get(|State(view): State<NodeView>| answer(view, Ask::Indexes)))
        .route(INDEX_RATE, post(index_rate))
        .route("/api/v1/indexes/{keyspace}/{name}", get(index))
        .route("/api/v1/indexes/{keyspace}/{name}/check", post(check_index))
        .route("/api/v1/restart-plan", get(restart_plan))
        .route(UPGRADE, get(|State(view): State<NodeView>| answer(view, Ask::Upgrade)))
        .route(
            "/api/v1/upgrade/hold",
            post(|State(view): State<NodeView>| answer(view, Ask::Change(Change::HoldUpgrade))),
        )
        .route(
            "/api/v1/upgrade/resume",
            post(|State(view): State<NodeView>| answer(view, Ask::Change(Change::ResumeUpgrade))),
        )
        .route(
            "/api/v1/upgrade/finish",
            post(|State(view): State<NodeView>| answer(view, Ask::Change(Change::FinishUpgrade))),
        )
        .route("/api/v1/tables/{keyspace}/{table}", get(table))
        .route("/api/v1/tablets", get(tablets))
        .route("/api/v1/tablets/{tablet}", get(tablet))
        .route("/api/v1/cluster/history", get(|State(view): State<NodeView>| answer(view, Ask::History)))
        .route("/api/v1/nodes/{node}/{operation}", post(node_operation).get(no_question))
        .route("/api/v1/tablets/{tablet}/split", post(split))
        .route("/api/v1/tablets/{tablet}/merge", post(merge))
        .route("/api/v1/tablets/{tablet}/cancel-split", post(cancel_split))
        .route("/api/v1/tablets/{tablet}/cancel-merge", post(cancel_merge))
        .route("/api/v1/settings", post(settings))
        .route(AUTH, post(auth))
        .route(JOIN_TOKENS, get(|State(view): State<NodeView>| answer(view, Ask::JoinTokens)).post(create_join_token))
        .route("/api/v1/join-tokens/{id}/revoke", post(revoke_join_token))
        .route(CIDR_GROUPS, get(|State(view): State<NodeView>| answer(view, Ask::CidrGroups)))
        .route("/api/v1/cidr-groups/{name}", post(set_cidr_group))
        .route("/api/v1/cidr-groups/{name}/drop", post(drop_cidr_group))
        .route(
            "/api/v1/scrub",
            get(|State(view): State<NodeView>| answer(view, Ask::Scrub(ScrubOrder::Look))).post(scrub),
        )
        .route(
            "/api/v1/compaction",
            get(|State(view): State<NodeView>| answer(view, Ask::Compaction(CompactionOrder::Look)))
                .post(|State(view): State<NodeView>| answer(view, Ask::Compaction(CompactionOrder::Begin))),
        )
        .route("/api/v1/compaction/rate", post(compaction_rate))
        .route("/api/v1/scrub/stop", post(|State(view): State<NodeView>| answer(view, Ask::Scrub(ScrubOrder::Stop))))
}

pub(crate) async fn answer(view: NodeView, ask: Ask) -> Response {
    match view.operator.ask(ask).await {
        Ok(value) => Json(value).into_response(),
        Err(failure) => failed(&failure),
    }
}

/// The HTTP status of a failure.
pub(crate) fn status_of(kind: FailureKind) -> StatusCode {
    match kind {
        FailureKind::NotFound => StatusCode::NOT_FOUND,
        FailureKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        FailureKind::Forbidden => StatusCode::FORBIDDEN,
        FailureKind::Refused => StatusCode::CONFLICT,
        FailureKind::Invalid => StatusCode::BAD_REQUEST,
        FailureKind::Unavailable | FailureKind::NotBegun => StatusCode::SERVICE_UNAVAILABLE,
    }
}

pub(crate) fn failed(failure: &Failure) -> Response {
    (status_of(failure.kind), Json(failure)).into_response()
}

async fn tablets(
    State(view): State<NodeView>,
    filter: Result<Query<TabletFilter>, impl std::fmt::Display + Send>,
) -> Response {
    match filter {
        Ok(Query(filter)) => answer(view, Ask::Tablets(filter)).await,
        Err(error) => failed(&Failure::new(FailureKind::Invalid, error.to_string())),
    }
}

/// Without a time, no node counts as restarted.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Elapsed {
    elapsed_ms: u64,
}

async fn restart_plan(
    State(view): State<NodeView>,
    elapsed: Result<Query<Elapsed>, impl std::fmt::Display + Send>,
) -> Response {
    match elapsed {
        Ok(Query(Elapsed { elapsed_ms })) => answer(view, Ask::RestartPlan { elapsed_ms }).await,
        Err(error) => failed(&Failure::new(FailureKind::Invalid, error.to_string())),
    }
}

async fn table(State(view): State<NodeView>, Path((keyspace, name)): Path<(String, String)>) -> Response {
    answer(view, Ask::Table { keyspace, name }).await
}

async fn index(State(view): State<NodeView>, Path((keyspace, name)): Path<(String, String)>) -> Response {
    answer(view, Ask::Index { keyspace, name }).await
}

async fn check_index(
    State(view): State<NodeView>,
    Path((keyspace, name)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    match parsed::<WantedPart>(&body) {
        Ok(part) => answer(view, Ask::CheckIndex(WantedCheck { keyspace, name, part })).await,
        Err(failure) => failed(&failure),
    }
}

async fn tablet(State(view): State<NodeView>, Path(tablet): Path<u64>) -> Response {
    answer(view, Ask::Tablet { tablet: TabletId(tablet) }).await
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Zone {
    zone: Option<String>,
}

/// What [`node_operation`] can do.
const NODE_OPERATIONS: [&str; 7] = ["drain", "undrain", "remove", "replace", "move-leaders", "return-leaders", "zone"];

/// Answers a question to a node that there is not. An operation is there, and is no question.
async fn no_question(Path((_, what)): Path<(String, String)>) -> Response {
    if NODE_OPERATIONS.contains(&what.as_str()) {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, HeaderValue::from_static("POST"))]).into_response();
    }
    failed(&Failure::new(FailureKind::NotFound, format!("there is no question '{what}' to a node")))
}

async fn node_operation(
    State(view): State<NodeView>,
    Path((node, operation)): Path<(u64, String)>,
    body: Bytes,
) -> Response {
    let node = NodeId(node);
    let change = match operation.as_str() {
        "drain" => Ok(Change::Drain { node }),
        "undrain" => Ok(Change::Undrain { node }),
        "remove" => Ok(Change::Remove { node }),
        "replace" => Ok(Change::Replace { node }),
        "move-leaders" => Ok(Change::MoveLeaders { node, back: false }),
        "return-leaders" => Ok(Change::MoveLeaders { node, back: true }),
        "zone" => parsed::<Zone>(&body).map(|Zone { zone }| Change::SetZone { node, zone }),
        other => Err(Failure::new(FailureKind::NotFound, format!("there is no operation '{other}' on a node"))),
    };
    match change {
        Ok(change) => answer(view, Ask::Change(change)).await,
        Err(failure) => failed(&failure),
    }
}

async fn split(State(view): State<NodeView>, Path(tablet): Path<u64>) -> Response {
    answer(view, Ask::Change(Change::Split { tablet: TabletId(tablet) })).await
}

async fn cancel_split(State(view): State<NodeView>, Path(tablet): Path<u64>) -> Response {
    answer(view, Ask::Change(Change::CancelSplit { tablet: TabletId(tablet) })).await
}

async fn cancel_merge(State(view): State<NodeView>, Path(tablet): Path<u64>) -> Response {
    answer(view, Ask::Change(Change::CancelMerge { tablet: TabletId(tablet) })).await
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Into {
    into: Option<TabletId>,
}

async fn merge(State(view): State<NodeView>, Path(tablet): Path<u64>, body: Bytes) -> Response {
    match parsed::<Into>(&body) {
        Ok(Into { into }) => answer(view, Ask::Change(Change::Merge { tablet: TabletId(tablet), into })).await,
        Err(failure) => failed(&failure),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rate {
    rate_bytes: u64,
}

async fn scrub(State(view): State<NodeView>, body: Bytes) -> Response {
    match parsed::<Rate>(&body) {
        Ok(Rate { rate_bytes }) => answer(view, Ask::Scrub(ScrubOrder::Begin { rate_bytes })).await,
        Err(failure) => failed(&failure),
    }
}

async fn index_rate(State(view): State<NodeView>, body: Bytes) -> Response {
    match parsed::<Rate>(&body) {
        Ok(Rate { rate_bytes }) => answer(view, Ask::LimitIndexes { rate_bytes }).await,
        Err(failure) => failed(&failure),
    }
}

async fn compaction_rate(State(view): State<NodeView>, body: Bytes) -> Response {
    match parsed::<Rate>(&body) {
        Ok(Rate { rate_bytes }) => answer(view, Ask::Compaction(CompactionOrder::Limit { rate_bytes })).await,
        Err(failure) => failed(&failure),
    }
}

/// A token that is not limited otherwise is for one node and one hour.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WantedToken {
    lifetime_ms: u64,
    nodes: u32,
}

impl Default for WantedToken {
    fn default() -> Self {
        Self { lifetime_ms: 60 * 60 * 1_000, nodes: 1 }
    }
}

/// The answer has a secret, so it is stored nowhere.
async fn create_join_token(State(view): State<NodeView>, body: Bytes) -> Response {
    match parsed::<WantedToken>(&body) {
        Ok(WantedToken { lifetime_ms, nodes }) => {
            let answer = answer(view, Ask::Change(Change::CreateJoinToken { lifetime_ms, nodes })).await;
            ([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], answer).into_response()
        }
        Err(failure) => failed(&failure),
    }
}

async fn revoke_join_token(State(view): State<NodeView>, Path(id): Path<String>) -> Response {
    answer(view, Ask::Change(Change::RevokeJoinToken { id })).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Networks {
    cidrs: Vec<String>,
}

async fn set_cidr_group(State(view): State<NodeView>, Path(name): Path<String>, body: Bytes) -> Response {
    match object(&body) {
        Ok(Networks { cidrs }) => answer(view, Ask::Change(Change::SetCidrGroup { name, cidrs })).await,
        Err(failure) => failed(&failure),
    }
}

async fn drop_cidr_group(State(view): State<NodeView>, Path(name): Path<String>) -> Response {
    answer(view, Ask::Change(Change::DropCidrGroup { name })).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    required: bool,
}

async fn auth(State(view): State<NodeView>, body: Bytes) -> Response {
    match object(&body) {
        Ok(Auth { required }) => answer(view, Ask::Change(Change::RequireLogin { required })).await,
        Err(failure) => failed(&failure),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    copy_rate_bytes: Option<u64>,
    balancing_is_paused: Option<bool>,
    replace_after_ms: Option<u64>,
    preferred_leader_zones: Option<Vec<String>>,
    split_bytes: Option<u64>,
    split_operations_per_second: Option<u64>,
    merge_bytes: Option<u64>,
}

async fn settings(State(view): State<NodeView>, body: Bytes) -> Response {
    let settings: Settings = match parsed(&body) {
        Ok(settings) => settings,
        Err(failure) => return failed(&failure),
    };
    let changes = [
        settings.copy_rate_bytes.map(|bytes_per_second| Change::SetRate { bytes_per_second }),
        settings.balancing_is_paused.map(|is_paused| Change::SetBalancing { is_paused }),
        settings.replace_after_ms.map(|milliseconds| Change::SetReplaceAfter { milliseconds }),
        settings.preferred_leader_zones.map(|zones| Change::SetLeaderZones { zones }),
        settings.split_bytes.map(|bytes| Change::SetSplitSize { bytes }),
        settings
            .split_operations_per_second
            .map(|operations_per_second| Change::SetSplitLoad { operations_per_second }),
        settings.merge_bytes.map(|bytes| Change::SetMergeSize { bytes }),
    ];
    let mut done = Vec::new();
    for change in changes.into_iter().flatten() {
        match view.operator.ask(Ask::Change(change)).await {
            Ok(value) => done.push(value),
            Err(failure) => return failed(&besides(done.len(), failure)),
        }
    }
    Json(done).into_response()
}

/// A failure after other changes of the same request were made. It must not have the kind "not begun".
fn besides(made: usize, failure: Failure) -> Failure {
    if made == 0 {
        return failure;
    }
    let kind = if failure.kind == FailureKind::NotBegun { FailureKind::Unavailable } else { failure.kind };
    Failure::new(kind, format!("{made} of the settings were changed, the next was not: {}", failure.message))
}

pub(crate) fn parsed<T: DeserializeOwned + Default>(body: &Bytes) -> Result<T, Failure> {
    if body.is_empty() { Ok(T::default()) } else { object(body) }
}

fn object<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let invalid = |why: String| Failure::new(FailureKind::Invalid, format!("the body: {why}"));
    // A list would be taken for the values of the fields in their order.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(invalid("it has to be a JSON object".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_answers_only_questions_that_there_are() {
        let asked = |what: &str| no_question(Path(("1".to_owned(), what.to_owned())));
        assert_eq!(asked("nope").await.status(), StatusCode::NOT_FOUND);
        assert_eq!(asked("drain").await.status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn a_body_is_an_object() {
        let read = |body: &'static str| parsed::<Settings>(&Bytes::from_static(body.as_bytes()));
        let rate = |body| read(body).map(|settings| settings.copy_rate_bytes);
        assert_eq!(rate(""), Ok(None));
        assert_eq!(rate(" {\"copy_rate_bytes\": 7}"), Ok(Some(7)));
        for body in ["[70000]", "null", "7", " "] {
            let refused = Failure::new(FailureKind::Invalid, "the body: it has to be a JSON object");
            assert_eq!(rate(body), Err(refused), "{body}");
        }
    }

    #[test]
    fn a_failure_after_changes_says_that_they_were_made() {
        let failure = || Failure::new(FailureKind::NotBegun, "nobody leads the catalog");
        assert_eq!(besides(0, failure()), failure());
        let told = besides(2, failure());
        assert_eq!(told.kind, FailureKind::Unavailable);
        assert!(told.message.starts_with("2 of the settings were changed"), "{told}");
        assert_eq!(besides(1, Failure::new(FailureKind::Invalid, "no")).kind, FailureKind::Invalid);
    }
}
