//! Who looks at a page: for the page, which is made by code that does not see the request.
//!
//! Left out: whether the visitor may ([`crate::login`]).

use std::future::Future;

/// A role that has logged in by the login page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// The role.
    pub user: String,
    /// What its requests have to name to change something.
    pub token: String,
}

tokio::task_local! {
    static VISITOR: Visitor;
}

/// Answers a request of a visitor.
pub(crate) async fn answering<F: Future>(visitor: Option<Visitor>, answer: F) -> F::Output {
    match visitor {
        Some(visitor) => VISITOR.scope(visitor, answer).await,
        None => answer.await,
    }
}

/// The visitor whose request is being answered, if it is one's.
pub(crate) fn current() -> Option<Visitor> {
    VISITOR.try_with(Clone::clone).ok()
}
