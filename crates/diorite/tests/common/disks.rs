//! Disks that hang and that lose power: file systems in files, on a file system in a file.
//!
//! A [`Disk`] is an ext4 in a file on a [`Medium`], and the medium an ext4 in a file of its own. While the medium is frozen no write reaches a disk's
//! file: writes of a program go to the kernel's cache as ever, and an fsync hangs until the medium thaws. And what a disk's file holds at that moment, everywhere at
//! once, is what a loss of power would leave: nothing that the kernel had not written yet.
//!
//! Left out: a disk's own cache that reorders what it was given; and disks that answer a sync before they have it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Says that a test cannot be made here. Where everything must pass that is a failure: a test that is skipped in silence tests nothing.
pub fn skip(why: &str) {
    assert!(std::env::var_os("DIORITE_CI").is_none(), "not tested: {why}");
    eprintln!("skipped: {why}");
}

fn run(command: &str, arguments: &[&str], paths: &[&Path]) -> bool {
    let output = Command::new(command).args(arguments).args(paths).output();
    output.is_ok_and(|output| output.status.success())
}

/// A file system in a file; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        run("mount", &["-o", "loop,noinit_itable"], &[image, at]).then(|| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !run("umount", &[], &[&self.0]) {
            run("umount", &["--lazy"], &[&self.0]);
        }
    }
}

/// `None` where that takes rights that the test does not have.
fn make(image: &Path, at: &Path, megabytes: u64) -> Option<Mounted> {
    std::fs::File::create(image).unwrap().set_len(megabytes << 20).unwrap();
    run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=1,lazy_journal_init=1"], &[image])
        .then(|| Mounted::new(image, at))?
}

/// What the images of some disks are stored on.
pub struct Medium {
    home: PathBuf,
    name: String,
    mounted: Mounted,
}

/// A medium that takes no writes; it thaws when this is dropped.
pub struct Frozen<'a>(&'a Medium);

impl Medium {
    /// `None` where that takes rights that the test does not have.
    pub fn new(home: &Path, name: &str, megabytes: u64) -> Option<Self> {
        let mounted = make(&home.join(format!("{name}.medium")), &home.join(name), megabytes)?;
        Some(Self { home: home.to_owned(), name: name.to_owned(), mounted })
    }

    /// A disk on it.
    pub fn disk(&self, name: &str, megabytes: u64) -> Option<Disk> {
        let (image, path) = (self.mounted.0.join(name), self.home.join(format!("{}-{name}", self.name)));
        let mounted = make(&image, &path, megabytes)?;
        Some(Disk { image, path, mounted: Some(mounted) })
    }

    /// No write reaches it any more.
    pub fn freeze(&self) -> Frozen<'_> {
        assert!(run("fsfreeze", &["--freeze"], &[&self.mounted.0]), "a medium can be frozen");
        Frozen(self)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let is_thawed = run("fsfreeze", &["--unfreeze"], &[&self.0.mounted.0]);
        assert!(is_thawed || std::thread::panicking(), "a medium can be thawed");
    }
}

/// A disk; unmounted when dropped, which has to be before its medium is.
pub struct Disk {
    image: PathBuf,
    path: PathBuf,
    mounted: Option<Mounted>,
}

impl Disk {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Copies what has been written to it so far: of one moment, as its medium is frozen.
    pub fn copy(&self, _: &Frozen<'_>, to: &Path) {
        assert!(run("cp", &["--sparse=always"], &[&self.image, to]), "a disk can be copied");
    }

    /// Goes back to what a copy holds, as after a loss of power. Nobody may use it.
    pub fn restore(&mut self, copy: &Path) {
        self.mounted = None;
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let is_mounted = mounts.lines().any(|line| line.split(' ').nth(1) == self.path.to_str());
        assert!(!is_mounted, "nobody uses the disk");
        std::fs::remove_file(&self.image).unwrap();
        assert!(run("cp", &["--sparse=always"], &[copy, &self.image]), "a copy can be put back");
        self.mounted = Some(Mounted::new(&self.image, &self.path).expect("it was mounted before"));
    }
}

#[test]
fn what_was_not_synced_is_gone_and_a_sync_hangs_while_the_medium_is_frozen() {
    use std::io::Write;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    let home = tempfile::tempdir().unwrap();
    let (medium, copy) = (Medium::new(home.path(), "medium", 128), home.path().join("copy"));
    let Some((medium, mut disk)) = medium.and_then(|medium| medium.disk("disk", 64).map(|disk| (medium, disk))) else {
        skip("a disk that hangs needs root and loop devices");
        return;
    };
    let mut synced = std::fs::File::create(disk.path().join("synced")).unwrap();
    synced.write_all(b"synced").unwrap();
    synced.sync_all().unwrap();
    std::fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    synced.write_all(b", not synced").unwrap();
    let frozen = medium.freeze();
    std::fs::write(disk.path().join("later"), "later").expect("a write goes to the cache");
    let (ended, ends) = channel();
    let syncing = std::thread::spawn(move || {
        synced.sync_all().unwrap();
        ended.send(()).unwrap();
    });
    assert!(ends.recv_timeout(Duration::from_millis(300)).is_err(), "the sync hangs");
    disk.copy(&frozen, &copy);
    drop(frozen);
    ends.recv_timeout(Duration::from_secs(180)).expect("the sync goes on");
    syncing.join().unwrap();
    assert_eq!(std::fs::read(disk.path().join("synced")).unwrap(), b"synced, not synced");
    disk.restore(&copy);
    assert_eq!(std::fs::read(disk.path().join("synced")).unwrap(), b"synced");
    assert!(!disk.path().join("later").exists());
}
