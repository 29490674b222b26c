//! Join tokens: which nodes become members of a cluster whose nodes have certificates.
//!
//! Always true: a token lets at most as many nodes join as it was made for, and none at a stamp of the log at or after its
//! end. So of two nodes that use a token for one node, the first one in the log becomes a member. A host that is a member
//! already uses no token: asking again after a lost answer neither fails nor costs a second one. It does not change
//! the address of the member either. A token that nobody can use any more is removed: a used or revoked one at once, an
//! expired one by the next command that makes, revokes or uses a token.
//!
//! Left out: certificates, which the asked node checks before it proposes anything.

use super::join_token::{InvalidToken, JoinToken, JoinTokenId, ShownToken};
use super::node::NodeDescription;
use super::operations;
use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use diorite_base::limits;
use std::sync::Arc;

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
