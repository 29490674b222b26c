//! Looking at, and changing, places in documents.
//!
//! Always true: a change that cannot be made leaves the document as it was and says why. A document that is not there is changed as if it
//! were `{}`. Left out: removing places.

use super::PathStep;
use diorite_model::json::Json;

fn parse(text: &[u8]) -> Result<Json, String> {
    let text = std::str::from_utf8(text).map_err(|_| "a document is not text".to_owned())?;
    Json::parse(text).map_err(|error| error.0)
}

/// What stands at a place, as text or as a document.
pub fn find(document: &[u8], path: &[PathStep], as_text: bool) -> Result<Option<Vec<u8>>, String> {
    let document = parse(document)?;
    let mut found = &document;
    for step in path {
        let next = match step {
            PathStep::Member(name) => found.member(name),
            PathStep::Element(index) => found.element(i64::from(*index)),
        };
        match next {
            Some(next) => found = next,
            None => return Ok(None),
        }
    }
    Ok(Some(match found {
        Json::String(text) if as_text => text.clone().into_bytes(),
        other => other.text().into_bytes(),
    }))
}

/// The document with other values at these places.
pub fn edit(document: Option<&[u8]>, edits: &[(Vec<PathStep>, Vec<u8>)]) -> Result<Vec<u8>, String> {
    let mut edited = match document {
        Some(document) => parse(document)?,
        None => Json::Object(Vec::new()),
    };
    for (path, value) in edits {
        replace(&mut edited, path, parse(value)?)?;
    }
    Ok(edited.sorted().text().into_bytes())
}

fn replace(document: &mut Json, path: &[PathStep], value: Json) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *document = value;
        return Ok(());
    };
    match (step, document) {
        (PathStep::Member(name), Json::Object(members)) => match members.iter().rposition(|(known, _)| known == name) {
            Some(at) => replace(&mut members[at].1, rest, value),
            None if rest.is_empty() => {
                members.push((name.clone(), value));
                Ok(())
            }
            None => Err(format!("the document has no member '{name}'")),
        },
        (PathStep::Element(index), Json::Array(elements)) => {
            let count = elements.len();
            let element = usize::try_from(*index).ok().and_then(|at| elements.get_mut(at));
            let element =
                element.ok_or_else(|| format!("index {index} is out of bound, the array has {count} elements"))?;
            replace(element, rest, value)
        }
        (PathStep::Member(name), _) => Err(format!("'{name}' is looked for in what is no object")),
        (PathStep::Element(index), _) => Err(format!("index {index} is looked for in what is no array")),
    }
}
