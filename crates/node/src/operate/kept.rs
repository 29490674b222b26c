//! The last merged history of the cluster.

use serde_json::Value;

/// The last merged history, and its time, nanoseconds on the monotonic clock.
pub(super) type Kept = tokio::sync::Mutex<Option<(u64, Value)>>;
