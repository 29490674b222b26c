//! The two queues of files of a Raft log, and the names of the files.

use std::path::Path;

/// The engine's two queues of files: appended records, and records rewritten when old files were freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    Append,
    Rewrite,
}

/// Queue and number of a file, from the engine's name for it.
pub(crate) fn numbered(path: &Path) -> Option<(Queue, u64)> {
    let name = path.file_name()?.to_str()?;
    let (number, kind) = name.split_once('.')?;
    let queue = match kind {
        "raftlog" => Queue::Append,
        "rewrite" => Queue::Rewrite,
        _ => return None,
    };
    Some((queue, number.parse().ok()?))
}
