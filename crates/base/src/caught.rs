//! Panics as values, where a panic must end no more than one piece of work.
//!
//! Always true: the caller that catches a panic discards the state that the work has left half changed, and reports
//! what can no longer be trusted. No panic may leave a callback of C++, which would end the process.
//! Left out: everywhere else a panic ends the process or the request, because the state of half-done work is unknown.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic: its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic(String);

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What `work` returns, or its panic.
///
/// # Errors
/// If it panicked.
#[inline]
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| message(&*payload))
}

#[cold]
fn message(payload: &(dyn Any + Send)) -> Panic {
    let message = payload.downcast_ref::<String>().map(String::as_str);
    Panic(message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it is not known why").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_what_it_says() {
        assert_eq!(caught(|| 7), Ok(7));
        let panics = |of: &str| caught(|| panic!("row of {of}"));
        assert_eq!(panics("x"), Err::<(), _>(Panic("row of x".to_owned())));
        assert_eq!(caught(|| panic!("plain")), Err::<(), _>(Panic("plain".to_owned())));
        assert_eq!(caught(|| std::panic::panic_any(5)), Err::<(), _>(Panic("it is not known why".to_owned())));
    }
}
