//! Reading and changing parts of documents.
//!
//! Always true: an impossible change leaves the document as it was and returns the reason; a changed document can be read again. A missing document
//! is changed as if it were `{}`. Members are found by binary search, so that many edits of one large document cost a logarithm each. Left out:
//! removing parts.

use super::definition::{Impossible, PathStep};
use crate::steps;
use diorite_model::json::{Json, MAX_DEPTH};
use std::collections::BTreeMap;

/// A document; the members of its objects are in order.
pub(super) struct Document(Json);

fn parse(text: &[u8]) -> Result<Json, Impossible> {
    let text = std::str::from_utf8(text).map_err(|_| Impossible("a document is not text".to_owned()))?;
    Ok(Json::parse(text)?.sorted())
}

impl Document {
    /// Reads its text.
    pub fn parse(text: &[u8]) -> Result<Self, Impossible> {
        parse(text).map(Document)
    }

    /// The value at a path, as text or as a document.
    pub fn find(&self, path: &[PathStep], as_text: bool) -> Option<Vec<u8>> {
        let found = path.iter().try_fold(&self.0, |found, step| match (step, found) {
            (PathStep::Member(name), Json::Object(members)) => {
                let at = members.binary_search_by(|(known, _)| {
                    steps::count(1);
                    known.cmp(name)
                });
                at.ok().map(|at| &members[at].1)
            }
            (PathStep::Element(index), found) => found.element(i64::from(*index)),
            (PathStep::Member(_), _) => None,
        });
        Some(match found? {
            Json::String(text) if as_text => text.clone().into_bytes(),
            other => other.text().into_bytes(),
        })
    }
}

/// The text of a document with other values at these places.
pub(super) fn edit(document: Option<&Document>, edits: &[(Vec<PathStep>, Vec<u8>)]) -> Result<Vec<u8>, Impossible> {
    let mut edited = document.map_or_else(|| Node::Object(BTreeMap::new()), |document| Node::of(document.0.clone()));
    for (path, value) in edits {
        edited.replace(path, parse(value)?, MAX_DEPTH)?;
    }
    Ok(edited.into_json().text().into_bytes())
}

/// A document under change.
enum Node {
    /// No array and no object.
    Plain(Json),
    Array(Vec<Node>),
    Object(BTreeMap<String, Node>),
}

impl Node {
    fn of(json: Json) -> Self {
        match json {
            Json::Array(elements) => Node::Array(elements.into_iter().map(Node::of).collect()),
            Json::Object(members) => {
                Node::Object(members.into_iter().map(|(name, value)| (name, Node::of(value))).collect())
            }
            plain => Node::Plain(plain),
        }
    }

    fn into_json(self) -> Json {
        match self {
            Node::Plain(json) => json,
            Node::Array(elements) => Json::Array(elements.into_iter().map(Node::into_json).collect()),
            Node::Object(members) => {
                Json::Object(members.into_iter().map(|(name, value)| (name, value.into_json())).collect())
            }
        }
    }

    /// `depth`: how deep the new value may be nested.
    fn replace(&mut self, path: &[PathStep], value: Json, depth: usize) -> Result<(), Impossible> {
        steps::count(1);
        let Some((step, rest)) = path.split_first() else {
            if value.depth() > depth {
                return Err(Impossible(format!("the document would be nested deeper than {MAX_DEPTH} levels")));
            }
            *self = Node::of(value);
            return Ok(());
        };
        let inner = depth.saturating_sub(1);
        match (step, self) {
            (PathStep::Member(name), Node::Object(members)) => match members.get_mut(name) {
                Some(member) => member.replace(rest, value, inner),
                None if rest.is_empty() => {
                    let mut member = Node::Plain(Json::Null);
                    member.replace(rest, value, inner)?;
                    members.insert(name.clone(), member);
                    Ok(())
                }
                None => Err(Impossible(format!("the document has no member '{name}'"))),
            },
            (PathStep::Element(index), Node::Array(elements)) => {
                let count = elements.len();
                let element = usize::try_from(*index).ok().and_then(|at| elements.get_mut(at));
                let element = element.ok_or_else(|| {
                    Impossible(format!("index {index} is out of bound, the array has {count} elements"))
                })?;
                element.replace(rest, value, inner)
            }
            (PathStep::Member(name), _) => {
                Err(Impossible(format!("the path names the member '{name}' of a value that is not an object")))
            }
            (PathStep::Element(index), _) => {
                Err(Impossible(format!("the path names the element {index} of a value that is not an array")))
            }
        }
    }
}
