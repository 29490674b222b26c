//! Percent-encoding of what is put into a URL: by the command line into its requests, by the pages into their links.

/// Percent-encoding of all that is not plain (RFC 3986, 2.3).
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
