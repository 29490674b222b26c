//! A data directory: its owner, its format, and the lock that lets one process at a time use it.
//!
//! Layout: `DIORITE` (the [`Identity`] as JSON), `DISKS` (the node's directories, see `companions`), `LOCK`, `RUNNING`
//! (present while the end of the log may not be durable: the machine's boot id), `log/` (the Raft log), `tablets/<id>/`
//! (one RocksDB each, and the note `WINDOWS` of a tablet with time windows), `tablets/<id>.<purpose>/` (copies under
//! way, and data that was set aside).
//!
//! Always true: nobody but its owner may enter it.

use crate::disks_file::{self, Companions};
use crate::error::StorageError;
use diorite_base::{FileLock, Hold, Level, Levels};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const MARKER: &str = "DIORITE";
/// The marker while it is written.
const FRESH_MARKER: &str = "DIORITE.new";
/// What an operator has decided about the next level.
const HELD: &str = "HELD";
/// Locked by the process that holds the directory.
const LOCK: &str = "LOCK";
/// Written and removed again to check whether the disk works.
const PROBE: &str = "PROBE";
/// The suffix of a tablet's former directory while a copy takes its place.
const OLD: &str = "old";
/// The suffix of a tablet's directory that could not be used, until the tablet's replica is complete again.
const ASIDE: &str = "aside";
/// The file which says that the end of the log may not be durable, and under which boot of the machine it was written.
const RUNNING: &str = "RUNNING";
/// The suffix of a tablet's directory while it is being removed.
const GONE: &str = "gone";
/// The suffix of a directory in which a copy is received.
const INCOMING: &str = "incoming";
/// How long a partly received copy is kept since it last grew, microseconds.
const STAGED_US: i64 = 86_400_000_000;
/// The host id of a node that has asked to join a cluster and may not have received the answer.
const JOINING: &str = "JOINING";

/// The owner of a data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The highest level of the cluster that the node has learned of: nothing below the directory is of a later one. A
    /// program that does not know it changes nothing here.
    #[serde(rename = "format")]
    pub level: Level,
    /// The cluster.
    pub cluster: Uuid,
    /// The node's id in the catalog.
    pub node: u64,
    /// The host id, which clients see.
    pub host: Uuid,
    /// The id of this disk.
    pub disk: Uuid,
}

/// Lets nobody but its owner into a directory, which earlier versions, or whoever made it, may have left open.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & 0o777 == 0o700 {
        return Ok(());
    }
    permissions.set_mode(0o700);
    fs::set_permissions(path, permissions)
}

/// A data directory held by this process.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    identity: Mutex<Option<Identity>>,
    hold: Mutex<Option<Hold>>,
    companions: Mutex<Option<Companions>>,
    _lock: FileLock,
}

impl DataDirectory {
    /// Locks `path`, and creates it if it is missing, and reads its owner.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let io = |action| move |source| StorageError::Io { action, path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(io("cannot create data directory"))?;
        let marker = path.join(MARKER);
        let marked = marker.try_exists().map_err(io("cannot read data directory"))?;
        if !marked {
            refuse_foreign(path)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))
            .map_err(io("cannot write to data directory"))?;
        let lock = FileLock::acquire(lock).map_err(io("cannot lock data directory"))?;
        let lock = lock.ok_or_else(|| StorageError::InUse(path.to_owned()))?;
        let identity = if marked { Some(read_identity(path, &marker)?) } else { None };
        let companions = Mutex::new(disks_file::read(path)?);
        let hold = fs::read_to_string(path.join(HELD)).ok().and_then(|text| text.parse().ok());
        // Only once it is certain whose it is: nothing of somebody else's is changed.
        make_private(path).map_err(io("cannot keep others out of data directory"))?;
        Ok(Self {
            path: path.to_owned(),
            identity: Mutex::new(identity),
            hold: Mutex::new(hold),
            companions,
            _lock: lock,
        })
    }

    /// The list of the node's directories in this directory.
    pub(crate) fn companions(&self) -> Option<Companions> {
        self.companions.lock().clone()
    }

    /// Notes that this list was written to the file.
    pub(crate) fn set_companions(&self, companions: Companions) {
        *self.companions.lock() = Some(companions);
    }

    /// The owner; `None` while the directory is new.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.lock().clone()
    }

    /// The host id with which this new directory asks to join a cluster: `fresh`, unless it has asked before. Durable
    /// when it returns, so that asking again after a crash does not make it another node.
    pub fn joining_host(&self, fresh: Uuid) -> Result<Uuid, StorageError> {
        let path = self.path.join(JOINING);
        let io = |source| StorageError::Io { action: "cannot write", path: path.clone(), source };
        if let Some(asked) = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()) {
            return Ok(asked);
        }
        let mut file = File::create(&path).map_err(io)?;
        file.write_all(fresh.to_string().as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        File::open(&self.path).and_then(|directory| directory.sync_all()).map_err(io)?;
        Ok(fresh)
    }

    /// Makes a new directory one of this node's, in a cluster of this level. Durable when it returns.
    pub fn claim(&mut self, cluster: Uuid, node: u64, host: Uuid, level: Level) -> Result<(), StorageError> {
        assert!(self.identity.lock().is_none(), "a directory is claimed once");
        let io =
            |source| StorageError::Io { action: "cannot write to data directory", path: self.path.clone(), source };
        let identity = Identity { level, cluster, node, host, disk: Uuid::from_u128(host.as_u128() ^ 1) };
        fs::create_dir_all(self.tablets()).map_err(io)?;
        self.write_identity(&identity).map_err(io)?;
        *self.identity.lock() = Some(identity);
        match fs::remove_file(self.path.join(JOINING)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(error)),
            _ => Ok(()),
        }
    }

    /// Notes the level of the cluster, unless the directory has it or a later one. Durable when it returns.
    pub fn raise(&self, level: Level) -> Result<(), StorageError> {
        let mut identity = self.identity.lock();
        let Some(raised) = identity.as_ref().filter(|found| found.level < level) else { return Ok(()) };
        let raised = Identity { level, ..raised.clone() };
        let io =
            |source| StorageError::Io { action: "cannot write to data directory", path: self.path.clone(), source };
        self.write_identity(&raised).map_err(io)?;
        *identity = Some(raised);
        Ok(())
    }

    fn write_identity(&self, identity: &Identity) -> std::io::Result<()> {
        let text = serde_json::to_vec_pretty(identity)?;
        replace(&self.path, FRESH_MARKER, MARKER, &text)
    }

    /// What an operator has decided about the next level, as far as this directory knows.
    pub fn hold(&self) -> Option<Hold> {
        *self.hold.lock()
    }

    /// Notes an operator's decision, unless the directory has one that overrules it. Durable when it returns.
    pub fn note_hold(&self, decided: Hold) -> Result<(), StorageError> {
        let mut hold = self.hold.lock();
        if hold.is_some_and(|hold| !decided.overrules(&hold)) {
            return Ok(());
        }
        let path = self.path.join(HELD);
        let io = |source| StorageError::Io { action: "cannot write", path, source };
        replace(&self.path, "HELD.new", HELD, decided.to_string().as_bytes()).map_err(io)?;
        *hold = Some(decided);
        Ok(())
    }

    /// Whether files of this file system can be read with direct I/O.
    pub fn reads_directly(&self) -> bool {
        let lock = self.path.join(LOCK);
        rustix::fs::open(lock, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).is_ok()
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the Raft log.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The path of all tablets.
    pub fn tablets(&self) -> PathBuf {
        self.path.join("tablets")
    }

    /// The path of one tablet.
    pub fn tablet(&self, id: u64) -> PathBuf {
        self.tablets().join(id.to_string())
    }

    /// The path of a copy of a tablet while it is sent to another node (`outgoing`) or received.
    pub fn staged(&self, id: u64, purpose: &str) -> PathBuf {
        self.tablets().join(format!("{id}.{purpose}"))
    }

    /// Replaces a tablet's directory by a received copy. The tablet must not be open. Durable when it returns; after a
    /// crash in between [`Self::tidy`] finishes or undoes it.
    pub fn install(&self, id: u64, received: &Path) -> Result<(), StorageError> {
        let (place, old) = (self.tablet(id), self.staged(id, OLD));
        let io = |source| StorageError::Io { action: "cannot install a copy in", path: self.tablet(id), source };
        if place.is_dir() {
            fs::rename(&place, &old).map_err(io)?;
        }
        fs::rename(received, &place).map_err(io)?;
        File::open(self.tablets()).and_then(|directory| directory.sync_all()).map_err(io)?;
        if old.is_dir() {
            fs::remove_dir_all(&old).map_err(io)?;
        }
        Ok(())
    }

    /// Removes copies that a crash has left half sent or half installed, and partly received copies that have not grown
    /// for a day, at `now_us` by the wall clock. Other received parts may still be completed.
    pub fn tidy(&self, now_us: i64) -> Result<(), StorageError> {
        let io = |source| StorageError::Io { action: "cannot tidy", path: self.tablets(), source };
        for entry in fs::read_dir(self.tablets()).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some((id, purpose)) = path.file_name().and_then(|name| name.to_str()?.split_once('.')) else {
                continue;
            };
            let place = self.tablets().join(id);
            if purpose == OLD && !place.is_dir() {
                fs::rename(&path, &place).map_err(io)?;
            } else if purpose != ASIDE && (purpose != INCOMING || age_us(&path, now_us).map_err(io)? > STAGED_US) {
                fs::remove_dir_all(&path).map_err(io)?;
            }
        }
        Ok(())
    }

    /// Sets the files of a tablet aside: they stay until [`Self::forget_aside`]. The tablet must not be open. Durable
    /// when it returns. Files that were set aside before are removed.
    pub fn set_aside(&self, id: u64) -> Result<(), StorageError> {
        let (place, aside) = (self.tablet(id), self.staged(id, ASIDE));
        let io = |source| StorageError::Io { action: "cannot set aside", path: place.clone(), source };
        if !place.is_dir() {
            return Ok(());
        }
        if aside.is_dir() {
            fs::remove_dir_all(&aside).map_err(io)?;
        }
        fs::rename(&place, &aside).map_err(io)?;
        File::open(self.tablets()).and_then(|directory| directory.sync_all()).map_err(io)
    }

    /// Removes the files of a tablet that were set aside.
    pub fn forget_aside(&self, id: u64) -> Result<(), StorageError> {
        let aside = self.staged(id, ASIDE);
        match fs::remove_dir_all(&aside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StorageError::Io { action: "cannot remove", path: aside, source: error })
            }
            _ => Ok(()),
        }
    }

    /// The tablets whose files were set aside here.
    pub fn aside_ids(&self) -> Result<Vec<u64>, StorageError> {
        self.staged_ids(ASIDE)
    }

    /// Whether the log may have lost its end: the process that used it last did not stop in order while the log was not
    /// fully durable, and that was under another boot of the machine than `boot`. A crash of the process alone loses
    /// nothing that was written.
    pub fn may_have_lost_writes(&self, boot: &str) -> Result<bool, StorageError> {
        let path = self.path.join(RUNNING);
        match fs::read_to_string(&path) {
            Ok(found) => Ok(boot.is_empty() || found.trim() != boot),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(true),
            Err(source) => Err(StorageError::Io { action: "cannot read", path, source }),
        }
    }

    /// Records that from now on the end of the log may not be durable. The record is durable when this returns.
    pub fn begin_run(&self, boot: &str) -> Result<(), StorageError> {
        let path = self.path.join(RUNNING);
        let io = |source| StorageError::Io { action: "cannot write", path: path.clone(), source };
        let mut file = File::create(&path).map_err(io)?;
        file.write_all(boot.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        File::open(&self.path).and_then(|directory| directory.sync_all()).map_err(io)
    }

    /// Records that the whole log is durable, and will stay so.
    pub fn end_run(&self) -> Result<(), StorageError> {
        let path = self.path.join(RUNNING);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StorageError::Io { action: "cannot remove", path, source: error })
            }
            _ => Ok(()),
        }
    }

    /// The tablets that have a copy here under this purpose.
    pub fn staged_ids(&self, purpose: &str) -> Result<Vec<u64>, StorageError> {
        let io = |source| StorageError::Io { action: "cannot list", path: self.tablets(), source };
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.tablets()).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('.'));
            ids.extend(parts.filter(|(_, found)| *found == purpose).and_then(|(id, _)| id.parse::<u64>().ok()));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// The tablets that have a directory here.
    pub fn tablet_ids(&self) -> Result<Vec<u64>, StorageError> {
        let io = |source| StorageError::Io { action: "cannot list", path: self.tablets(), source };
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.tablets()).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            ids.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Writes a small file and makes it durable, to check whether the disk works.
    pub fn probe(&self) -> Result<(), StorageError> {
        let path = self.path.join(PROBE);
        let written = File::create(&path).and_then(|mut file| file.write_all(b"probe").and_then(|()| file.sync_all()));
        let removed = written.and_then(|()| fs::remove_file(&path));
        removed.map_err(|source| StorageError::Io { action: "cannot write to", path, source })
    }

    /// Free and total bytes of the directory's disk, as an unprivileged user sees them.
    pub fn space_bytes(&self) -> Result<(u64, u64), StorageError> {
        let space = rustix::fs::statvfs(&self.path).map_err(|error| StorageError::Io {
            action: "cannot read the free space of",
            path: self.path.clone(),
            source: error.into(),
        })?;
        Ok((space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize))
    }
}

/// An id of this boot of the machine; empty if the system provides none.
pub fn machine_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|boot| boot.trim().to_owned()).unwrap_or_default()
}

/// Puts a file into a directory, in the place of the former one. Durable when it returns; a crash leaves one of the
/// two.
fn replace(directory: &Path, fresh: &str, name: &str, content: &[u8]) -> std::io::Result<()> {
    let staged = directory.join(fresh);
    let mut file = File::create(&staged)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&staged, directory.join(name))?;
    File::open(directory)?.sync_all()
}

/// Removes the directory of a tablet, which is not open any more. A crash leaves all of it or nothing.
pub(crate) fn remove_tablet(directory: &Path) -> std::io::Result<()> {
    let gone = directory.with_extension(GONE);
    if gone.is_dir() {
        fs::remove_dir_all(&gone)?;
    }
    fs::rename(directory, &gone)?;
    if let Some(tablets) = directory.parent() {
        File::open(tablets)?.sync_all()?;
    }
    fs::remove_dir_all(gone)
}

/// The time since an entry was added to or removed from a directory, microseconds.
fn age_us(directory: &Path, now_us: i64) -> std::io::Result<i64> {
    let changed = fs::metadata(directory)?.modified()?;
    let changed_us = changed.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Ok(now_us.saturating_sub(i64::try_from(changed_us).unwrap_or(i64::MAX)))
}

/// Refuses a directory without the marker unless it is empty, except for files of a first start that failed.
fn refuse_foreign(path: &Path) -> Result<(), StorageError> {
    let io = |source| StorageError::Io { action: "cannot list data directory", path: path.to_owned(), source };
    for entry in fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let ours =
            ["LOCK", FRESH_MARKER, disks_file::FILE, disks_file::FRESH, JOINING, "tablets", "log", PROBE, "lost+found"];
        if !ours.iter().any(|own| name == *own) {
            return Err(StorageError::Foreign {
                path: path.to_owned(),
                reason: format!("it holds {}, which is not diorite's; give an empty directory", name.display()),
            });
        }
    }
    Ok(())
}

fn read_identity(path: &Path, marker: &Path) -> Result<Identity, StorageError> {
    let foreign = |reason: String| StorageError::Foreign { path: path.to_owned(), reason };
    let text = fs::read(marker).map_err(|source| StorageError::Io {
        action: "cannot read",
        path: marker.to_owned(),
        source,
    })?;
    #[derive(Deserialize)]
    struct FormatOnly {
        format: u32,
    }
    let unreadable = |error: serde_json::Error| foreign(format!("its {MARKER} file is unreadable: {error}"));
    let format = serde_json::from_slice::<FormatOnly>(&text).map_err(unreadable)?.format;
    let level = Level(format);
    if !Levels::OWN.contains(level) {
        return Err(StorageError::OtherLevel { path: path.to_owned(), found: level, known: Levels::OWN });
    }
    serde_json::from_slice(&text).map_err(unreadable)
}
