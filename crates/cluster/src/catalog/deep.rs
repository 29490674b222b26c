//! Stored definitions that are nested more deeply than the JSON reader accepts: types within types, made by earlier
//! versions, which did not limit them.
//!
//! Such a definition would keep every node from starting. Values of a type within a frozen type are stored as bytes
//! with their length, whatever the type is. So a type that lies too deep is read as `blob`, and stored values stay
//! readable. The definition is stored in its new form when it is next changed.
//!
//! Always true: the definition that is read is less deep than the limit, and the same on every node. Left out:
//! definitions that are too deep in another way; they stay damaged.

use diorite_base::limits::MAX_CATALOG_DEPTH;

/// Types that begin this deep are read as `blob`: a level of user-defined types takes five.
const CUT_DEPTH: usize = MAX_CATALOG_DEPTH - 20;

/// The JSON of types that contain types begins with one of these.
const NESTING: [&[u8]; 6] =
    [b"{\"list\":", b"{\"set\":", b"{\"map\":", b"{\"tuple\":", b"{\"user_defined\":", b"{\"vector\":"];

/// Replaces a type that lies too deep.
const SHALLOW: &[u8] = b"\"blob\"";

/// Steps through JSON and tracks the depth.
#[derive(Default)]
struct Walk {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Walk {
    fn step(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.in_string => self.is_escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// The greatest depth of nested objects and arrays.
pub(super) fn json_depth(json: &[u8]) -> usize {
    let (mut walk, mut deepest) = (Walk::default(), 0);
    for byte in json {
        walk.step(*byte);
        deepest = deepest.max(walk.depth);
    }
    deepest
}

/// Whether a stored definition is deeper than the limit, so that its innermost types are read as `blob`.
pub fn is_too_deep(json: &[u8]) -> bool {
    json_depth(json) > MAX_CATALOG_DEPTH
}

/// The definition to read in place of one that is deeper than the limit; `None` if it is not.
pub(super) fn made_shallow(json: &[u8]) -> Option<Vec<u8>> {
    if !is_too_deep(json) {
        return None;
    }
    let (mut out, mut walk, mut at) = (Vec::with_capacity(json.len()), Walk::default(), 0);
    while at < json.len() {
        let is_type = || NESTING.iter().any(|nesting| json[at..].starts_with(nesting));
        if !walk.in_string && walk.depth >= CUT_DEPTH && is_type() {
            out.extend_from_slice(SHALLOW);
            at += object_len(&json[at..]);
            continue;
        }
        walk.step(json[at]);
        out.push(json[at]);
        at += 1;
    }
    Some(out)
}

/// The length of the object at the beginning of `json`, bytes.
fn object_len(json: &[u8]) -> usize {
    let mut walk = Walk::default();
    for (at, byte) in json.iter().enumerate() {
        walk.step(*byte);
        if walk.depth == 0 {
            return at + 1;
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_what_is_open_outside_strings() {
        assert_eq!(json_depth(b"1"), 0);
        assert_eq!(json_depth(br#"{"a[[[":[1,{"b":"\"[[["}],"c":[]}"#), 3);
        assert_eq!(json_depth(br#"["\\",[["x"]]]"#), 3);
    }

    /// The stored form of lists within lists of `int`, this many levels deep.
    fn lists(levels: usize) -> String {
        (0..levels).fold("\"int\"".to_owned(), |inner, _| format!("{{\"list\":[{inner},\"yes\"]}}"))
    }

    #[test]
    fn what_lies_too_deep_is_read_as_blob_and_nothing_else_is_changed() {
        let limit = MAX_CATALOG_DEPTH / 2;
        assert_eq!(made_shallow(lists(limit).as_bytes()), None);
        let shallow = String::from_utf8(made_shallow(lists(400).as_bytes()).expect("too deep")).expect("text");
        let expected = lists(CUT_DEPTH / 2).replace("\"int\"", "\"blob\"");
        assert_eq!(shallow, expected);
        // Tests names that look like types, and text after a type that lies too deep.
        let name = r#""a{\"list\":[""#;
        let json = format!("[{name},{},{name}]", lists(100));
        let shallow = String::from_utf8(made_shallow(json.as_bytes()).expect("too deep")).expect("text");
        assert!(shallow.starts_with(&format!("[{name},")) && shallow.ends_with(&format!("]}},{name}]")), "{shallow}");
        assert!(json_depth(shallow.as_bytes()) <= MAX_CATALOG_DEPTH);
        assert!(serde_json::from_str::<serde_json::Value>(&shallow).is_ok());
    }
}
