//! The files of a node are for its user only, whatever it inherited.

use crate::client::{Client, make_table};
use crate::server::{TIMEOUT, command, fresh_address, get};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Everything below a directory that others may read or write.
fn open_to_others(directory: &Path, found: &mut Vec<String>) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        // RocksDB removes files while they are looked at.
        let Ok((path, metadata)) = entry.and_then(|entry| Ok((entry.path(), fs::symlink_metadata(entry.path())?)))
        else {
            continue;
        };
        count += 1;
        if metadata.permissions().mode() & 0o077 != 0 {
            found.push(format!("{} {:o}", path.display(), metadata.permissions().mode()));
        }
        if metadata.is_dir() {
            count += open_to_others(&path, found);
        }
    }
    count
}

#[test]
fn files_are_for_the_user_of_the_node_only() {
    let home = tempfile::tempdir().unwrap();
    let (data, audit) = (home.path().join("data"), home.path().join("audit"));
    let address = fresh_address();
    let start = command(&address, &data, &["--audit", audit.to_str().unwrap()]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(start.get_program()).args(start.get_args());
    let mut process = shell.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while get(&address, "/health/ready").is_none() {
        assert!(process.try_wait().unwrap().is_none() && begun.elapsed() < TIMEOUT, "the server is not ready");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut client = Client::connect(&address).unwrap();
    make_table(&mut client);
    client.run("INSERT INTO ks.t (k, v) VALUES ('a', 0x01)");
    client.run("TRUNCATE ks.t");
    let mut found = Vec::new();
    let count = open_to_others(home.path(), &mut found);
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(found.is_empty() && count > 20, "{count} files: {found:#?}");
}
