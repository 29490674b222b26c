//! The parameters of a page, and its questions to the operator interface.

use super::listing::Parameters;
use crate::NodeView;
use crate::api::{Ask, Failure, FailureKind, NodeQuestion, NodeStatus};
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use diorite_base::NodeId;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The query parameters of a page's address.
pub(super) type Asked = Result<Query<BTreeMap<String, String>>, QueryRejection>;

/// The parsed parameters, or the error in them.
pub(super) fn parameters(path: &str, asked: Asked) -> Result<Parameters, Failure> {
    match asked {
        Ok(Query(given)) => Ok(Parameters::new(path, given)),
        Err(error) => Err(Failure::new(FailureKind::Invalid, error.to_string())),
    }
}

/// Asks the operator interface.
pub(super) async fn ask<T: DeserializeOwned>(view: &NodeView, ask: Ask) -> Result<T, Failure> {
    let answer = view.operator.ask(ask).await?;
    serde_json::from_value(answer).map_err(|error| Failure::new(FailureKind::Unavailable, error.to_string()))
}

/// Asks a node about itself; `None`: this one.
pub(super) async fn ask_node<T: DeserializeOwned>(
    view: &NodeView,
    node: Option<NodeId>,
    question: NodeQuestion,
) -> Result<T, Failure> {
    ask(view, Ask::Node { node, question }).await
}

/// The nodes, for pages on which one of them is chosen.
pub(super) async fn all_nodes(view: &NodeView) -> Result<Vec<NodeStatus>, Failure> {
    ask(view, Ask::Nodes).await
}
