//! The golden bytes of what a data directory holds beside rows: records of the Raft log, the applied state, small
//! files.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use crate::ages::{set_written_s, written_s};
use crate::applied::AppliedState;
use crate::directory::DataDirectory;
use crate::disks_file::{self, Companion, Companions};
use crate::engine::LogRecords as _;
use crate::keys::{META_KEY, absorbed_key, staged_key};
use crate::log_audit::{Verdict, fence, fence_value};
use crate::log_damage::Folder;
use crate::log_files::Durable;
use crate::log_freed::{Freed, FreedRecord};
use crate::log_queue::Queue;
use crate::raft_log::{LogBatch, RaftLog};
use crate::recorded::RecordedEntry;
use crate::ttls::Ttls;
use crate::{MEMBERS_KEY, SPLIT_KEY};
use diorite_base::{GroupId, Hold, Horizon, Level, Levels};
use diorite_golden::{Decoded, Golden, kinds};
use diorite_raft::{ConfState, Entry, HardState, LogPosition, UNKNOWN_FLOOR};
use protobuf::Message as _;
use std::fs;
use std::path::Path;
use uuid::Uuid;

kinds!(VERDICTS, verdict_of(Verdict): Whole, Doubt, Damaged);

fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}

fn entry(index: u64) -> Entry {
    Entry { term: 3, index, data: vec![1, 7].into(), context: b"split".to_vec().into(), ..Entry::default() }
}

#[test]
fn entries_of_the_log_have_their_bytes() {
    let written = [("with a commit index", 299), ("without", 0)];
    let written =
        written.map(|(name, commit)| (name, RecordedEntry { entry: entry(300), commit }.write_to_bytes().unwrap()));
    golden("log-entries", &[]).check(&written, |_, bytes| {
        let recorded = RecordedEntry::parse_from_bytes(bytes).unwrap();
        let encoded = Some(recorded.write_to_bytes().unwrap());
        Decoded { kinds: vec![], shown: format!("{recorded:?}"), encoded }
    });
}

/// Writes each kind of record of a group.
fn write_log(path: &Path) {
    let log = RaftLog::open(path, 64 << 20, &[]).unwrap();
    let mut batch = LogBatch::default();
    let hard_state = HardState { term: 3, vote: 2, commit: 299, ..HardState::default() };
    let mut members = ConfState::default();
    members.set_voters(vec![1, 2, 3]);
    members.set_learners(vec![4]);
    let (whole, left, removed) = (GroupId(1_000), GroupId(1_001), GroupId(1_002));
    for group in [whole, left] {
        batch.set_hard_state(group, &hard_state).unwrap();
        batch.set_conf_state(group, &members).unwrap();
        batch.append(group, &[entry(1), entry(2), entry(3)], 2).unwrap();
    }
    log.write(&mut batch, true).unwrap();
    batch.truncate_to(left, 1, 3, false).unwrap();
    batch.set_floor(left, LogPosition::new(9, 4)).unwrap();
    batch.append(removed, &[entry(1)], 0).unwrap();
    log.write(&mut batch, true).unwrap();
    batch.retire(removed, &hard_state, UNKNOWN_FLOOR).unwrap();
    log.write(&mut batch, true).unwrap();
    let mut batch = LogBatch::default();
    batch.set_damage(GroupId(1_003), "its files are missing").unwrap();
    log.write(&mut batch, true).unwrap();
}

/// The one file of a log, without the zeros after its end.
fn log_file(path: &Path) -> (String, Vec<u8>) {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = names.filter(|name| name.ends_with(".raftlog")).collect();
    let name = files.pop().unwrap();
    assert!(files.is_empty(), "{files:?}");
    let mut bytes = fs::read(path.join(&name)).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(end);
    (name, bytes)
}

#[test]
fn the_file_of_a_log_has_its_bytes() {
    let home = tempfile::tempdir().unwrap();
    write_log(home.path());
    let (name, bytes) = log_file(home.path());
    golden("log", &[]).check(&[("log", bytes)], |_, bytes| {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(&name), bytes).unwrap();
        let log = RaftLog::open(home.path(), 64 << 20, &[]).unwrap();
        let mut shown = Vec::new();
        for group in (1_000..1_004).map(GroupId) {
            let recovered = log.recover(group).unwrap();
            shown.push(format!("{group}: {recovered:?}, damage {:?}", log.damage(group)));
        }
        Decoded { kinds: vec![], shown: shown.join("\n"), encoded: None }
    });
}

#[test]
fn applied_states_have_their_bytes() {
    let state = AppliedState {
        index: 300,
        term: 3,
        newest_explicit_us: -5,
        newest_stamp_us: 1_700_000_000_000_000,
        flags: 1 << 63 | 1,
        horizon: Horizon { now_s: 1_700_000_000, rows_s: 1_699_136_000, ranges_s: 7 },
        gc_grace_s: 864_000,
    };
    let written = [
        ("new", AppliedState::default().encode().to_vec()),
        ("applied", state.encode().to_vec()),
        ("of an earlier version", state.encode()[..40].to_vec()),
    ];
    golden("applied-state", &[]).check(&written, |_, bytes| {
        let state = AppliedState::decode(bytes).unwrap();
        let encoded = Some(state.encode().to_vec()).filter(|encoded| encoded.len() == bytes.len());
        Decoded { kinds: vec![], shown: format!("{state:?}"), encoded }
    });
}

#[test]
fn keys_about_tablets_have_their_bytes() {
    let written = [
        ("applied state", META_KEY.to_vec()),
        ("members", MEMBERS_KEY.to_vec()),
        ("split", SPLIT_KEY.to_vec()),
        ("merge of tablet 1001", absorbed_key(1_001).to_vec()),
        ("piece 300", staged_key(300).to_vec()),
    ];
    golden("tablet-keys", &[]).check(&written, |name, bytes| {
        assert!(crate::keys::is_about_the_tablet(bytes), "{name}");
        Decoded { kinds: vec![], shown: name.to_owned(), encoded: None }
    });
}

#[test]
fn files_beside_the_log_have_their_bytes() {
    let durable = Durable { append: (3, 300), rewrite: (2, 1 << 40) };
    golden("log-durable", &[]).check(&[("record", fence_value(durable))], |_, bytes| {
        let durable = fence(bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{durable:?}"), encoded: Some(fence_value(durable)) }
    });
    let home = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read(home.path().join(name)).unwrap();
    Folder(home.path()).note_durable(durable).unwrap();
    golden("log-durable-file", &[]).check(&[("DURABLE", read("DURABLE"))], |_, bytes| {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("DURABLE"), bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{:?}", Folder(home.path()).durable()), encoded: None }
    });
    let record = FreedRecord::open(home.path(), Freed::default()).unwrap();
    record.advance(Queue::Append, 300).unwrap();
    record.advance(Queue::Rewrite, 7).unwrap();
    golden("log-freed-file", &[]).check(&[("FREED", read("FREED"))], |_, bytes| {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("FREED"), bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{:?}", Freed::read(home.path()).unwrap()), encoded: None }
    });
}

#[test]
fn findings_about_a_log_have_their_bytes() {
    let noted = |verdict: &Verdict| {
        let home = tempfile::tempdir().unwrap();
        Folder(home.path()).note_found(verdict).unwrap();
        fs::read(home.path().join("DAMAGE")).unwrap()
    };
    let reason = || "a block is unreadable".to_owned();
    let groups = Some([1_000, 1_001].into());
    let written = [
        ("doubt", noted(&Verdict::Doubt(reason()))),
        ("damage", noted(&Verdict::Damaged { reason: reason(), groups })),
        ("damage of all", noted(&Verdict::Damaged { reason: reason(), groups: None })),
    ];
    // Nothing is noted of a log that is whole.
    golden("log-findings", &[&VERDICTS[1..]]).check(&written, |_, bytes| {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("DAMAGE"), bytes).unwrap();
        let verdict = Folder(home.path()).found();
        let encoded = Some(noted(&verdict));
        Decoded { kinds: vec![verdict_of(&verdict)], shown: format!("{verdict:?}"), encoded }
    });
}

#[test]
fn lists_of_disks_have_their_bytes() {
    let id = Uuid::from_u128;
    let disks = [(2, "/one"), (3, "/two")].map(|(disk, path)| Companion { id: id(disk), path: path.into() }).to_vec();
    let companions = Companions { version: 7, own: id(2), disks };
    let stored = |companions: &Companions| {
        let home = tempfile::tempdir().unwrap();
        disks_file::write(home.path(), companions).unwrap();
        fs::read(home.path().join(disks_file::FILE)).unwrap()
    };
    golden("disks-file", &[]).check(&[("DISKS", stored(&companions))], |_, bytes| {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(disks_file::FILE), bytes).unwrap();
        let companions = disks_file::read(home.path()).unwrap().unwrap();
        Decoded { kinds: vec![], shown: format!("{companions:?}"), encoded: Some(stored(&companions)) }
    });
}

#[test]
fn notes_about_time_windows_have_their_bytes() {
    let ttls = Ttls::default();
    ttls.note(90, 10);
    let home = tempfile::tempdir().unwrap();
    let note = || fs::read(home.path().join("WINDOWS")).unwrap();
    ttls.remember(home.path());
    let own = note();
    let file = home.path().join("000012.sst");
    fs::write(&file, b"x").unwrap();
    set_written_s(&file, 1_700_000_000);
    ttls.remember_copy(home.path());
    golden("windows-file", &[]).check(&[("of a tablet", own), ("of a copy", note())], |_, bytes| {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("000012.sst");
        fs::write(&file, b"x").unwrap();
        set_written_s(&file, 0);
        fs::write(home.path().join("WINDOWS"), bytes).unwrap();
        let usual_s = Ttls::recall(home.path()).usual_s();
        Decoded { kinds: vec![], shown: format!("{usual_s} s, file of {}", written_s(&file)), encoded: None }
    });
}

/// The small files of a data directory.
#[test]
fn files_of_a_directory_have_their_bytes() {
    let home = tempfile::tempdir().unwrap();
    let mut directory = DataDirectory::open(home.path()).unwrap();
    directory.claim(Uuid::from_u128(1), 1, Uuid::from_u128(2), Level::FIRST).unwrap();
    let mut written = Vec::new();
    for (name, number, is_held) in [("held", 7, true), ("resumed", 8, false)] {
        directory.note_hold(Hold { level: Level(300), number, is_held }).unwrap();
        written.push((name, fs::read(home.path().join("HELD")).unwrap()));
    }
    drop(directory);
    golden("held-file", &[]).check(&written, |_, bytes| {
        fs::write(home.path().join("HELD"), bytes).unwrap();
        let hold = DataDirectory::open(home.path()).unwrap().hold();
        Decoded { kinds: vec![], shown: format!("{hold:?}"), encoded: hold.map(|hold| hold.to_string().into_bytes()) }
    });
}
