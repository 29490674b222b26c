//! The options of a node.

use super::frame::Frame;
use super::listing::{self, Column};
use super::process::{choose, chosen};
use super::question::{Asked, ask_node, parameters};
use crate::NodeView;
use crate::api::{Failure, NodeQuestion};
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

/// An option and its value.
type Setting = (String, String);

pub(super) async fn config(State(view): State<NodeView>, asked: Asked) -> Response {
    Frame::new(&view, "/config").answer(content(&view, asked).await)
}

async fn content(view: &NodeView, asked: Asked) -> Result<Markup, Failure> {
    let parameters = parameters("/config", asked)?;
    let node = chosen(&parameters);
    let configuration: Value = ask_node(view, node, NodeQuestion::Configuration).await?;
    let settings: Vec<Setting> = match configuration {
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (option_of(&name), shown(&value))).collect(),
        other => vec![("configuration".to_owned(), shown(&other))],
    };
    let columns: Vec<Column<Setting>> = vec![
        Column::new("Option", |(name, _): &Setting| html! { span.mono { (name) } })
            .by("option", |(name, _)| name.clone()),
        Column::new("Value", |(_, value): &Setting| html! { span.mono { (value) } })
            .by("value", |(_, value)| value.clone()),
    ];
    let page = listing::select(&parameters, &columns, settings, |(name, value)| format!("{name} {value}"));
    Ok(html! {
        p.dim { "The options in force on the node, defaults included." }
        (listing::filter(&parameters, "option or value", choose(view, node).await))
        (listing::table(&parameters, &columns, &page, |_| ""))
    })
}

/// The name of the option on the command line.
fn option_of(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "–".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
