//! Long work runs on other threads, and its memory is freed there, so that it does not delay the other connections of a
//! thread.
//!
//! Always true: the length of work is estimated from its size before it begins; a short statement costs one comparison.
//! Left out: the threads, and how many of them work at a time ([`Kv::run_long`]).

use crate::budget::Budget;
use crate::kv::Kv;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Poll;

/// Statements and values up to this size are processed on the connection's thread: this takes a fraction of a millisecond.
pub(crate) const LONG_BYTES: usize = 32 << 10;
/// Texts up to this size are short, whatever they contain.
const SHORT_TEXT_BYTES: usize = 4 << 10;
/// The syntax tree of a text may be this many times [`LONG_BYTES`]: about 1,300 tokens.
const TREE_TO_WORK: usize = 8;

/// Memory of a syntax tree for each token of the statement.
const NODE_BYTES: usize = 192;

/// About how much memory the syntax tree of a statement takes: [`NODE_BYTES`] for each token, and the text, as constants are copied.
pub(crate) fn parsed_bytes(text: &str) -> usize {
    let (mut nodes, mut is_word, mut quoted) = (0usize, false, None);
    for byte in text.bytes() {
        match quoted {
            Some(quote) => {
                quoted = Some(quote).filter(|quote| *quote != byte);
                continue;
            }
            None if byte == b'\'' || byte == b'"' => quoted = Some(byte),
            None => {}
        }
        let goes_on = byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.' || !byte.is_ascii();
        nodes += usize::from(!(byte.is_ascii_whitespace() || goes_on && is_word));
        is_word = goes_on;
    }
    text.len() + nodes.saturating_mul(NODE_BYTES)
}

/// The work of planning a text, in the measure of [`LONG_BYTES`]: constants are copied, tokens are processed one by one.
pub(crate) fn planning_work(text: &str) -> usize {
    if text.len() <= SHORT_TEXT_BYTES {
        return text.len();
    }
    text.len().max(parsed_bytes(text) / TREE_TO_WORK)
}

/// Lets the other tasks of the thread run.
pub(super) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// The plans of a statement. Freeing those of a long statement takes as long as making them, so another thread does it;
/// they stay charged to the request until then.
pub(super) struct Discarded<'a, K: Kv, T: Send + 'static> {
    kv: &'a K,
    /// `Some` until it is dropped.
    made: Option<T>,
    budget: &'a Arc<Budget>,
    is_long: bool,
}

impl<'a, K: Kv, T: Send + 'static> Discarded<'a, K, T> {
    /// `made` from a statement of that much work.
    pub(super) fn new(kv: &'a K, made: T, work: usize, budget: &'a Arc<Budget>) -> Self {
        Self { kv, made: Some(made), budget, is_long: work > LONG_BYTES }
    }
}

impl<K: Kv, T: Send + 'static> Deref for Discarded<'_, K, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.made.as_ref().expect("it is there until it is dropped")
    }
}

impl<K: Kv, T: Send + 'static> DerefMut for Discarded<'_, K, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.made.as_mut().expect("it is there until it is dropped")
    }
}

impl<K: Kv, T: Send + 'static> Drop for Discarded<'_, K, T> {
    fn drop(&mut self) {
        if self.is_long {
            let garbage = (self.made.take(), Arc::clone(self.budget));
            self.kv.discard(Box::new(garbage));
        }
    }
}
