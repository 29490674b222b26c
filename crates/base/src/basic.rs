//! A role and its password as HTTP carries them: basic authentication (RFC 7617), in UTF-8.
//!
//! Always true: decoding an encoded value gives the same value; `Debug` does not show a password. Left out: whether the
//! password is right.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;

/// A role and its password as a client gives them, not yet verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The role's name, which contains no colon.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// The value of the header `Authorization`.
    pub fn header(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }

    /// Parses the value of the header `Authorization`; `None` if it has another scheme or is malformed.
    pub fn parse(header: &str) -> Option<Self> {
        let (scheme, encoded) = header.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
        let (user, password) = text.split_once(':')?;
        Some(Self { user: user.to_owned(), password: password.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        for (user, password) in [("ann", "sesame"), ("ann", ""), ("", ""), ("Änne", "a:b:ß")] {
            let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
            assert_eq!(Credentials::parse(&credentials.header()), Some(credentials));
        }
        // The example of RFC 7617.
        let known = Credentials::parse("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(known, Some(Credentials { user: "Aladdin".to_owned(), password: "open sesame".to_owned() }));
    }

    #[test]
    fn what_is_something_else_is_not_taken() {
        for header in
            ["", "Basic", "Basic ", "Basic QWxh", "Basic ####", "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic /zo="]
        {
            assert_eq!(Credentials::parse(header), None, "{header}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let credentials = Credentials { user: "ann".to_owned(), password: "sesame".to_owned() };
        assert!(!format!("{credentials:?}").contains("sesame"));
    }
}
