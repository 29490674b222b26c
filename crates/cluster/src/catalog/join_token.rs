//! Join tokens: which nodes become members of a cluster whose nodes have certificates.
//!
//! Always true: a token lets at most as many nodes join as it was made for, and none at a stamp of the log at or after its
//! end. So of two nodes that use a token for one node, the first one in the log becomes a member. A host that is a member
//! already uses no token: asking again after a lost answer neither fails nor costs a second one. It does not change
//! the address of the member either. A token that nobody can use any more is removed: a used or revoked one at once, an
//! expired one by the next command that makes, revokes or uses a token. The catalog has the digest of a secret, never the secret.
//!
//! Left out: certificates, which the asked node checks before it proposes anything.

use super::node::NodeDescription;
use super::operations;
use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use diorite_base::hex::Hex;
use diorite_base::limits;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

/// Names a join token. It is no secret.
pub type JoinTokenId = Hex<8>;

/// The SHA-256 of a token's secret.
pub type JoinTokenDigest = Hex<32>;

/// A join token, as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Of its secret.
    pub digest: JoinTokenDigest,
    /// Its end, milliseconds since 1970: nobody joins with it from then on.
    pub expires_ms: i64,
    /// How many nodes may join with it.
    pub nodes: u32,
}

/// What a node has shown that wants to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownToken {
    /// Which token.
    pub id: JoinTokenId,
    /// Of the secret that was shown.
    pub digest: JoinTokenDigest,
}

/// Why nobody joins with what was shown. For the members' logs: whoever has shown it is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidToken {
    /// There is no such token.
    #[error("there is no join token {0}: it was never made, is used up or was revoked, or has expired")]
    Unknown(JoinTokenId),
    /// The secret is another one.
    #[error("the secret that was shown is not that of join token {0}")]
    Wrong(JoinTokenId),
    /// It was valid before.
    #[error("join token {0} has expired")]
    Expired(JoinTokenId),
}

impl JoinToken {
    /// Whether it has come to its end.
    pub fn is_over(&self, now_ms: i64) -> bool {
        now_ms >= self.expires_ms
    }
}

impl Catalog {
    /// The join tokens, by id; expired ones may be among them.
    pub fn join_tokens(&self) -> impl Iterator<Item = (JoinTokenId, &JoinToken)> {
        self.join_tokens.iter().map(|(id, token)| (*id, &**token))
    }

    /// The token that a node has shown, if the node may join with it at this time.
    ///
    /// # Errors
    /// If there is no such token, if it has expired, or if the secret is another one.
    pub fn check_join_token(&self, shown: &ShownToken, now_ms: i64) -> Result<&JoinToken, InvalidToken> {
        let token = self.join_tokens.get(&shown.id).ok_or(InvalidToken::Unknown(shown.id))?;
        if !token.digest.is_same(&shown.digest) {
            return Err(InvalidToken::Wrong(shown.id));
        }
        if token.is_over(now_ms) {
            return Err(InvalidToken::Expired(shown.id));
        }
        Ok(token)
    }
}

fn remove_expired(catalog: &mut Catalog, now_ms: i64) {
    if catalog.join_tokens.values().any(|token| token.is_over(now_ms)) {
        Arc::make_mut(&mut catalog.join_tokens).retain(|_, token| !token.is_over(now_ms));
    }
}

pub(super) fn create(catalog: &mut Catalog, id: JoinTokenId, token: &JoinToken, now_ms: i64) -> Step {
    match catalog.join_tokens.get(&id) {
        Some(known) if **known == *token => return Ok(Done::Nothing),
        Some(_) => return Err(Rejected(Rejection::AlreadyExists, format!("there is a join token {id} already"))),
        None => {}
    }
    if token.nodes == 0 {
        return Err(Rejected(Rejection::Invalid, "a join token is for at least one node".to_owned()));
    }
    remove_expired(catalog, now_ms);
    limits::check(&limits::JOIN_TOKENS, catalog.join_tokens.len() + 1, || "a set of valid join tokens".to_owned())?;
    Arc::make_mut(&mut catalog.join_tokens).insert(id, Arc::new(token.clone()));
    Ok(Done::Changed)
}

pub(super) fn revoke(catalog: &mut Catalog, id: JoinTokenId, now_ms: i64) -> Step {
    if !catalog.join_tokens.contains_key(&id) {
        return Err(no_such_token(InvalidToken::Unknown(id)));
    }
    Arc::make_mut(&mut catalog.join_tokens).remove(&id);
    remove_expired(catalog, now_ms);
    Ok(Done::Changed)
}

pub(super) fn join(catalog: &mut Catalog, node: &NodeDescription, shown: &ShownToken, now_ms: i64) -> Step {
    if let Some(known) = catalog.node_by_host_id(node.host_id) {
        let (registered, asked) = (known.description.node_address().ip(), node.node_address().ip());
        if registered.to_canonical() != asked.to_canonical() {
            let message = format!("host id {} belongs to node {}, which is at another address", node.host_id, known.id);
            return Err(Rejected(Rejection::AlreadyExists, message));
        }
        return operations::register_node(catalog, node);
    }
    let token = catalog.check_join_token(shown, now_ms).map_err(no_such_token)?;
    let left = JoinToken { nodes: token.nodes.saturating_sub(1), ..token.clone() };
    let done = operations::register_node(catalog, node)?;
    let tokens = Arc::make_mut(&mut catalog.join_tokens);
    match left.nodes {
        0 => drop(tokens.remove(&shown.id)),
        _ => drop(tokens.insert(shown.id, Arc::new(left))),
    }
    remove_expired(catalog, now_ms);
    Ok(done)
}

fn no_such_token(why: InvalidToken) -> Rejected {
    Rejected(Rejection::NoSuchToken, why.to_string())
}
