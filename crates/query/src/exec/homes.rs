//! Which tablet answers for a key, or for the home of a transaction, by the newest catalog; and what becomes of calls
//! between the leaders of tablets.
//!
//! Always true: that a transaction was aborted is believed of a tablet that has taken the place of its home only once
//! its coordinator can no longer have reported a commit. Left out: who leads a tablet (the [`crate::kv::Kv`] seam).

use diorite_base::{TableId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_model::key;
use diorite_model::schema::TabletRange;
use diorite_transact::Home;
use diorite_transact::message::{Reply, Request, Status};
use diorite_transact::peer::{PeerCall, PeerResult};
use diorite_transact::timing::Timing;

/// The tablet that holds a token.
pub fn tablet_of(tablets: &[TabletRange], token: i64) -> TabletId {
    let after = tablets.partition_point(|range| range.first_token <= token);
    tablets[after.saturating_sub(1)].tablet
}

/// The tablet of a key; none if its table was dropped.
pub fn tablet_at(catalog: &Catalog, table: TableId, key: &[u8]) -> Option<TabletId> {
    let entry = catalog.table_by_id(table)?;
    Some(tablet_of(&entry.tablets, key::token_of(key).ok()?))
}

/// The tablet itself, or the one that has its key now, if it was split or merged; none if its table was dropped, or
/// truncated and dropped.
pub fn tablet_now(catalog: &Catalog, tablet: TabletId, table: TableId, key: &[u8]) -> Option<TabletId> {
    match catalog.placement(tablet) {
        Some(placement) if !placement.split.is_some_and(|split| split.is_served) => Some(tablet),
        _ => tablet_at(catalog, table, key),
    }
}

/// The tablet that answers for a home: that of the transaction's id as long as it exists, then the one that has its key.
pub fn tablet_of_home(catalog: &Catalog, tablet: TabletId, home: &Home) -> Option<TabletId> {
    tablet_now(catalog, tablet, home.table, &home.key)
}

/// Whether the tablet once was, and is no more.
fn is_dropped(catalog: &Catalog, tablet: TabletId) -> bool {
    catalog.identity().has_numbered(tablet) && catalog.placement(tablet).is_none()
}

/// Whether nothing more is expected of the coordinator of a prepare whose home was dropped or truncated, and with it the
/// record of a commit, if there was one. Before that, a coordinator may still report that it is committed. A prepare with
/// a stamp far ahead of this node's clock counts as old: its rows must not stay locked until the clock gets there.
fn is_old(prepared_us: i64, now_us: i64) -> bool {
    prepared_us.abs_diff(now_us) >= Timing::default().keep_record_ns / 1_000
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sending {
    /// This is sent to this tablet; [`result_of`] says what the answer means.
    To(TabletId, Request),
    /// There is nobody to ask, and this is true.
    Result(PeerResult),
    /// Nothing for now.
    Nothing,
}

/// What becomes of a call of the leader of `from`.
pub fn sending(catalog: &Catalog, from: TabletId, call: &PeerCall, now_us: i64) -> Sending {
    match call {
        PeerCall::Ask { home, id, prepared_us } => match tablet_of_home(catalog, id.tablet, home) {
            Some(to) => Sending::To(to, Request::Status { id: *id, of: Some((from, *prepared_us)), at_us: None }),
            None if is_dropped(catalog, id.tablet) && is_old(*prepared_us, now_us) => {
                Sending::Result(PeerResult::Learned(*id, *prepared_us, Status::Aborted))
            }
            None => Sending::Nothing,
        },
        PeerCall::Finish { participant, id, ending } => {
            match tablet_now(catalog, participant.tablet, participant.table, &participant.key) {
                Some(to) => Sending::To(to, Request::Finish { id: *id, ending: *ending }),
                None if is_dropped(catalog, participant.tablet) => {
                    Sending::Result(PeerResult::Finished(*id, participant.tablet))
                }
                None => Sending::Nothing,
            }
        }
    }
}

/// What the answer of this tablet to a call means, if anything.
pub fn result_of(to: TabletId, call: &PeerCall, reply: &Reply, now_us: i64) -> Option<PeerResult> {
    match (call, reply) {
        // It never knew the transaction.
        (PeerCall::Ask { id, prepared_us, .. }, Reply::Status { status: Status::Aborted, .. })
            if to != id.tablet && !is_old(*prepared_us, now_us) =>
        {
            None
        }
        (PeerCall::Ask { id, prepared_us, .. }, Reply::Status { status, .. }) => {
            Some(PeerResult::Learned(*id, *prepared_us, *status))
        }
        (PeerCall::Finish { id, participant, .. }, Reply::Finished(_)) => {
            Some(PeerResult::Finished(*id, participant.tablet))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_has_ten_seconds_whatever_the_clocks_say() {
        let now_us = 1_700_000_000_000_000;
        for (prepared_us, expected) in [
            (now_us, false),
            (now_us - 9_999_999, false),
            (now_us - 10_000_000, true),
            (now_us + 1_000_000, false),
            (now_us + 86_400_000_000, true),
            (i64::MIN, true),
            (i64::MAX, true),
        ] {
            assert_eq!(is_old(prepared_us, now_us), expected, "{prepared_us}");
        }
    }
}
