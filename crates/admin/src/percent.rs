//! Percent-encoding of text in URLs: of the command line's requests, and of the pages' links.

/// Encodes all characters that are not unreserved (RFC 3986, 2.3).
pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_characters_stay() {
        assert_eq!(encoded("aZ09-._~"), "aZ09-._~");
        assert_eq!(encoded("a b&c/d?e=ü%"), "a%20b%26c%2Fd%3Fe%3D%C3%BC%25");
    }
}
