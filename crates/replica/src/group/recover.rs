//! Recovers a replica's state from its data and its log when it is opened.

use crate::group::split::SplitMark;
use diorite_base::{GroupId, TabletId};
use diorite_raft::{ConfState, LogPosition, LogReader, Recovered};
use diorite_storage::{AppliedState, Engine, Log, LogRecords, MEMBERS_KEY, SPLIT_KEY, StorageError, TabletData};
use protobuf::Message as _;
use std::sync::Arc;

/// Whether the data is ahead of the log, or the log has another entry at the applied index.
fn is_ahead_of_log<E: Engine>(
    recovered: &Recovered,
    applied: &AppliedState,
    reader: &<E::Log as Log>::Reader,
) -> Result<bool, StorageError> {
    if applied.index > recovered.last.index {
        return Ok(true);
    }
    if applied.index <= recovered.truncated.index {
        return Ok(false);
    }
    let entries = reader.entries(applied.index, applied.index + 1, u64::MAX)?;
    Ok(entries.first().is_none_or(|entry| entry.term != applied.term))
}

/// The split of the tablet, if its data records one; the data of a child tablet may still hold the record of its
/// parent's split.
pub(crate) fn split_mark<E: Engine>(
    tablet: TabletId,
    data: &Arc<E::Tablet>,
) -> Result<Option<SplitMark>, StorageError> {
    let mark = data.get(SPLIT_KEY)?.map(|mark| SplitMark::decode(&mark)).transpose();
    let mark = mark.map_err(|_| StorageError::Corrupt(format!("how {tablet} was split")))?;
    Ok(mark.filter(|mark| mark.parent == tablet))
}

/// The group's state according to the log, as far as that belongs to the data, which has applied everything up to
/// `applied`.
pub(crate) fn recover_log<E: Engine>(
    group_id: GroupId,
    data: &Arc<E::Tablet>,
    log: &E::Log,
    applied: &AppliedState,
) -> Result<Recovered, StorageError> {
    let mut recovered = log.recover(group_id)?;
    recovered.applied = applied.index;
    if recovered.hard_state.term < applied.term {
        // The data is a copy of another replica's; this replica has not voted in that replica's last term.
        recovered.hard_state.term = applied.term;
        recovered.hard_state.vote = 0;
    }
    // The members as of the applied index; before the first change they are the initial voters, which the log has.
    if let Some(members) = data.get(MEMBERS_KEY)? {
        recovered.conf_state = ConfState::parse_from_bytes(&members)
            .map_err(|error| StorageError::Corrupt(format!("members of {group_id}: {error}")))?;
    }
    if applied.index < recovered.truncated.index {
        let (applied, start) = (applied.index, recovered.truncated.index + 1);
        let gap = format!("{group_id}: its data ends with entry {applied}, and its log begins with entry {start}");
        return Err(StorageError::Corrupt(gap));
    }
    if is_ahead_of_log::<E>(&recovered, applied, &log.reader(group_id))? {
        // A copy of another replica's data has replaced the data that the log belonged to.
        let mut records = <E::Log as Log>::Records::default();
        records.restart_after(group_id, recovered.last.index, applied.index, applied.term)?;
        log.write(&mut records, true)?;
        recovered.truncated = LogPosition::new(applied.index, applied.term);
        recovered.last = recovered.truncated;
    }
    Ok(recovered)
}
