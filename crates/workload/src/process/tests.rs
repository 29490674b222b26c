//! `/proc` files as Linux writes them, with the traps.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;

#[test]
fn only_the_wanted_devices_count() {
    let text =
        " 259 0 nvme0n1 100 0 800 5 200 0 1600 9 0 10 14 0 0 0 0 3 1\n 259 1 nvme0n1p1 60 0 1 1 70 0 1 1 0 0 0\n";
    let usage = |reads, read_bytes, writes, write_bytes| DeviceUsage { reads, read_bytes, writes, write_bytes };
    assert_eq!(parse_diskstats(text, &[(259, 1)]), usage(60, 512, 70, 512));
    assert_eq!(parse_diskstats(text, &[(259, 0), (259, 1)]), usage(160, 801 * 512, 270, 1_601 * 512));
    assert_eq!(parse_diskstats("broken line\n", &[(8, 0)]), DeviceUsage::default());
}

#[test]
fn memory_is_in_bytes() {
    assert_eq!(parse_meminfo_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_384 * 1_024));
}

#[test]
fn this_process_has_used_memory_and_its_files_are_counted_by_extension() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("tablet");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("000012.sst"), vec![0; 1_000]).unwrap();
    std::fs::write(inner.join("000013.log"), vec![0; 500]).unwrap();
    assert_eq!(bytes_of(directory.path(), Some("sst")), 1_000);
    assert_eq!(bytes_of(directory.path(), None), 1_500);
    let usage = Sampler::new(&[std::process::id()], &[directory.path().to_path_buf()]).sample();
    assert!(usage.resident_bytes.unwrap() > 1 << 20);
    assert!(usage.cpu_seconds.is_some());
    assert_eq!(usage.sst_bytes, Some(1_000));
}

#[test]
fn what_is_not_known_is_absent() {
    assert_eq!(Sampler::default().sample(), Usage::default());
    let gone = Sampler::new(&[std::process::id(), u32::MAX], &[]);
    assert_eq!(gone.sample().cpu_seconds, None);
}

#[test]
fn what_a_dead_process_has_used_stays_and_a_namesake_does_not_count() {
    let stat = |start_ticks, cpu_seconds| {
        Some(ProcessStat { state: 'S', cpu_seconds, resident_bytes: 4_096, threads: 1, start_ticks })
    };
    let mut process = Process::new(7);
    assert!(process.take(None).is_none(), "it was never seen");
    assert_eq!(process.take(stat(100, 2.0)).unwrap().cpu_seconds, 2.0);
    // Its end, and another process that has been given its number.
    for stat in [None, stat(200, 0.1)] {
        let seen = process.take(stat).unwrap();
        assert_eq!((seen.cpu_seconds, seen.resident_bytes), (2.0, 0));
    }
}

/// A process that is idle, so that its memory stays the same: it has answered, and runs its own program, not a fork of this one.
fn idle_process() -> std::process::Child {
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

#[test]
fn processes_come_and_go_while_differences_grow() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("1.sst"), vec![0; 1_000]).unwrap();
    let (mut first, mut child) = (idle_process(), idle_process());
    let sampler = Sampler::new(&[first.id()], &[]);
    let shared = sampler.clone();
    let before = sampler.sample();
    shared.add(child.id(), directory.path().to_path_buf());
    let both = sampler.sample();
    assert!(both.resident_bytes > before.resident_bytes && both.cpu_seconds >= before.cpu_seconds);
    assert_eq!(both.sst_bytes, Some(1_000), "copies share what they watch");
    child.kill().unwrap();
    child.wait().unwrap();
    shared.forget_directory(directory.path());
    let after = sampler.sample();
    assert!(after.cpu_seconds >= both.cpu_seconds && after.resident_bytes.is_some());
    assert_eq!(after.sst_bytes, None);
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn the_environment_names_the_machine() {
    let environment = Environment::current();
    assert!(environment.cores > 0 && environment.memory_bytes > 0);
    assert!(environment.kernel.starts_with("Linux "));
}
