//! What was put together of the whole cluster's last hour.

use serde_json::Value;

/// What was put together last, and when, nanoseconds on the monotonic clock.
pub(super) type Kept = tokio::sync::Mutex<Option<(u64, Value)>>;
