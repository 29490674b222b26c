//! Join tokens, as an operator passes them to a node: `ID.SECRET`, both in hexadecimal digits.
//!
//! Always true: a token is shown to the operator who makes it, and to no one else. A node that joins shows it to one member; the
//! catalog and the logs have its id, the catalog the digest of its secret besides. Left out: which tokens are valid
//! (`diorite_cluster::catalog`).

use crate::error::TokenError;
use diorite_base::hex::Hex;
use diorite_base::random;
use diorite_cluster::catalog::{JoinTokenDigest, JoinTokenId, ShownToken};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// The environment variable that holds a token. No option has its value: everybody on the machine reads arguments.
const VARIABLE: &str = "DIORITE_START_JOIN_TOKEN";

/// A join token with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct JoinToken(String);

impl JoinToken {
    /// A new token.
    pub(crate) fn random() -> Self {
        let (id, secret): (JoinTokenId, _) = (Hex(random::secret()), Hex(random::secret::<32>()));
        Self(format!("{id}.{secret}"))
    }

    /// The token for a node that is to join: the first line of the file, or else that of the environment.
    pub(crate) fn given(file: Option<&Path>) -> Result<Option<Self>, TokenError> {
        let (text, place) = match (file, std::env::var(VARIABLE)) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
                (text, path.display().to_string())
            }
            (None, Ok(text)) => (text, VARIABLE.to_owned()),
            (None, Err(_)) => return Ok(None),
        };
        let token = Self(text.lines().next().unwrap_or_default().trim().to_owned());
        token.shown().map_or(Err(TokenError::NotForJoining(place)), |_| Ok(Some(token)))
    }

    /// What the catalog can check; `None` if this is no token at all.
    pub(crate) fn shown(&self) -> Option<ShownToken> {
        let (id, secret) = self.0.split_once('.')?;
        let secret: Hex<32> = secret.parse().ok()?;
        let mut digest_of = [0; 32];
        digest_of.copy_from_slice(digest(&SHA256, &secret.0).as_ref());
        let digest: JoinTokenDigest = Hex(digest_of);
        Some(ShownToken { id: id.parse().ok()?, digest })
    }

    /// The text for the operator.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn a_token_is_shown_by_the_digest_of_its_secret() {
        let token = JoinToken::random();
        let shown = token.shown().unwrap();
        assert_eq!(token.reveal().split_once('.').unwrap().0, shown.id.to_string());
        assert!(!token.reveal().contains(&shown.digest.to_string()));
        assert_ne!(JoinToken::random().shown(), Some(shown));
        let known = JoinToken(format!("{}.{}", "01".repeat(8), "61".repeat(32)));
        let digest = "3ba3f5f43b92602683c19aee62a20342b084dd5971ddd33808d81a328879a547";
        assert_eq!(known.shown().unwrap().digest.to_string(), digest, "SHA-256 of 32 times the letter a");
        assert_eq!(format!("{token:?}"), "JoinToken(..)", "logs do not show it");
        let text = token.reveal();
        for wrong in ["", ".", &text[1..], &text[..80], &text.replace('.', ""), &format!("{text}0")] {
            assert_eq!(JoinToken(wrong.to_owned()).shown(), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_line_of_a_file_is_the_token() {
        let home = tempfile::tempdir().unwrap();
        let (path, token) = (home.path().join("token"), JoinToken::random());
        std::fs::write(&path, format!("{} \nother\n", token.reveal())).unwrap();
        assert_eq!(JoinToken::given(Some(&path)).unwrap(), Some(token));
        std::fs::write(&path, "sesame\n").unwrap();
        let refused = JoinToken::given(Some(&path)).unwrap_err().to_string();
        assert!(refused.contains("no join token") && !refused.contains("sesame"), "{refused}");
        assert!(JoinToken::given(Some(&home.path().join("none"))).is_err());
    }
}
