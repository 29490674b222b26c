//! Where the audit log is written: a file that is rotated by its size, or the system's journal.
//!
//! Always true: files are for their owner only; an entry that cannot be written is counted, and the log of the node
//! says so once a minute. The newest [`FILES`] files are kept. A journal that is not there, or does not read, loses
//! entries and holds up nothing else; entries reach it again as soon as it is back. Left out: moving files elsewhere.

use super::counters::AuditCounters;
use super::queue::Queue;
use diorite_base::Clock;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Files that are kept, the current one included.
const FILES: u32 = 8;
/// The journal of the system.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// How long an entry waits for a journal that does not read.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the log says that the audit log cannot be written.
const SAY_AGAIN_NS: u64 = 60_000_000_000;

/// A file and its size.
pub(super) struct Rotated {
    path: PathBuf,
    file: File,
    bytes: u64,
    limit_bytes: u64,
}

/// See the top of this module.
pub(super) enum Output {
    File(Rotated),
    Journal(Journal),
}

/// The socket of a journal.
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(path)
}

impl Output {
    pub(super) fn file(path: &Path, limit_bytes: u64) -> io::Result<Self> {
        let file = append_to(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self::File(Rotated { path: path.to_owned(), file, bytes, limit_bytes }))
    }

    pub(super) fn journal() -> io::Result<Self> {
        Self::journal_at(Path::new(JOURNAL))
    }

    /// The journal need not be there yet.
    pub(super) fn journal_at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A journal that does not read leaves no room in the socket.
        socket.set_write_timeout(Some(JOURNAL_TIMEOUT))?;
        Ok(Self::Journal(Journal { socket, path: path.to_owned() }))
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::File(rotated) => rotated.write(line),
            Self::Journal(Journal { socket, path }) => {
                // A line of JSON has no line feed, so each field is one line of the journal's protocol.
                let message = format!("MESSAGE={line}\nSYSLOG_IDENTIFIER=diorite-audit\nPRIORITY=5\n");
                // By its path each time: a journal that was started again has another socket there.
                socket.send_to(message.as_bytes(), path).map(drop)
            }
        }
    }
}

impl Rotated {
    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 >= self.limit_bytes {
            self.rotate()?;
        }
        // One system call for a line: a reader sees whole lines.
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.bytes += line.len() as u64 + 1;
        Ok(())
    }

    /// Numbers the older files one higher, the oldest of which goes.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..FILES).rev() {
            let from = if number == 1 { self.path.clone() } else { numbered(&self.path, number - 1) };
            match fs::rename(from, numbered(&self.path, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = append_to(&self.path)?;
        self.bytes = self.file.metadata()?.len();
        Ok(())
    }
}

/// The work of the log's thread.
pub(super) struct Writing {
    pub(super) queue: Arc<Queue>,
    pub(super) output: Output,
    pub(super) counters: Arc<AuditCounters>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Writing {
    /// Writes until the queue is closed.
    pub(super) fn run(mut self) {
        let mut said_ns: Option<u64> = None;
        loop {
            let lines = self.queue.take();
            if lines.is_empty() {
                return;
            }
            for line in lines {
                match self.output.write(&line) {
                    Ok(()) => self.counters.written.fetch_add(1, Ordering::Relaxed),
                    Err(error) => {
                        let now_ns = self.clock.monotonic_ns();
                        if said_ns.is_none_or(|said_ns| now_ns >= said_ns + SAY_AGAIN_NS) {
                            said_ns = Some(now_ns);
                            tracing::error!(event = "audit", %error, "the audit log cannot be written: entries are lost");
                        }
                        self.counters.dropped.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_rotated_by_size_and_for_their_owner_only() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("audit");
        let mut output = Output::file(&path, 120).unwrap();
        for number in 0..50 {
            output.write(&format!("{{\"number\":{number:>40}}}")).unwrap();
        }
        let names: Vec<PathBuf> = (1..FILES).map(|number| numbered(&path, number)).chain([path.clone()]).collect();
        for name in &names {
            let metadata = fs::metadata(name).unwrap();
            assert!(metadata.len() <= 120 && metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), FILES as usize);
        assert!(fs::read_to_string(&path).unwrap().contains("49"));
        assert!(fs::read_to_string(numbered(&path, 1)).unwrap().contains("47"));
        // A node that starts again continues.
        let mut output = Output::file(&path, 1 << 20).unwrap();
        output.write("{}").unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("49"));
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_an_error() {
        assert!(Output::file(Path::new("/nowhere/audit"), 100).is_err());
    }
}
