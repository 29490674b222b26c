//! The two queues of files of a Raft log, and the names of the files.

use std::path::Path;

/// The engine's two queues of files: what is appended, and what was written anew when old files were given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    Append,
    Rewrite,
}

/// A queue and the number of a file in it, by the name that the engine gives it.
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
