//! `SELECT` of tables with transactions: what needs it is read in a snapshot, which is taken again if it is lost.
//!
//! Always true: nothing was sent to the client when a read begins again; how often it does is bounded. Left out: taking
//! snapshots ([`crate::exec::snapshot`]).

use super::state::{QueryEngine, REPLANS};
use crate::exec::paging::{self, PagingState, Pins};
use crate::exec::read::{PageRequest, Read, tablet_of};
use crate::exec::snapshot::{Need, Snapshot};
use crate::exec::source::Source;
use crate::functions::Environment;
use crate::kv::Kv;
use crate::plan::index::IndexPlan;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use diorite_cql::protocol::error::ErrorCode;
use diorite_cql::protocol::{CqlError, Rows};
use diorite_model::key::token_of;
use diorite_model::row::now_seconds;
use diorite_model::schema::TabletRange;

/// How often a read begins again because what it met was prepared, or has changed, or its snapshot was lost.
const ROUNDS: usize = 8;
const PAUSE_NS: u64 = 1_000_000;

/// Why a page was not read.
#[derive(Debug)]
pub(super) enum NotRead {
    /// A tablet is still building the index: another one may serve the read.
    Unbuilt(CqlError),
    /// Anything else.
    Failed(CqlError),
}

impl From<CqlError> for NotRead {
    fn from(error: CqlError) -> Self {
        Self::Failed(error)
    }
}

impl NotRead {
    /// The error of a read of this source.
    pub(super) fn of<K: Kv>(error: CqlError, source: &Source<'_, K>) -> Self {
        // Another tablet may have refused its part for another reason, which no index changes.
        match source.met_unbuilt_index() && error.code() == ErrorCode::Invalid {
            true => Self::Unbuilt(error),
            false => Self::Failed(error),
        }
    }

    /// The client's error.
    pub(super) fn into_error(self) -> CqlError {
        match self {
            Self::Unbuilt(error) | Self::Failed(error) => error,
        }
    }
}

/// Keeps the snapshot of a page whose index is still being built: by another one, it is read at the moment of those
/// before it.
fn keep_if_unbuilt<K: Kv>(snapshot: &Snapshot<K>, page: PageRequest<'_>, outcome: &Result<Rows, NotRead>) {
    if page.state.is_some() && matches!(outcome, Err(NotRead::Unbuilt(_))) {
        snapshot.keep();
    }
}

/// Whether a read that has failed with this error might succeed if it found other rows.
fn depends_on_rows(error: &CqlError) -> bool {
    !matches!(
        error.code(),
        ErrorCode::Overloaded | ErrorCode::Unavailable | ErrorCode::ReadTimeout | ErrorCode::ReadFailure
    )
}

/// The rows with a paging state that names the snapshot in which the next page is to be read, if it has its first tablet.
fn with_snapshot_named<K: Kv>(mut rows: Rows, snapshot: &Snapshot<K>, tablets: &[TabletRange]) -> Rows {
    let has_next = |pins: &&Pins, state: &[u8]| {
        let token = PagingState::decode(state).ok().and_then(|state| token_of(&state.key).ok());
        token.is_some_and(|token| pins.contains_key(&tablet_of(tablets, token)))
    };
    if let Some(state) = &mut rows.paging_state
        && let Some(pins) = snapshot.pins().filter(|pins| has_next(pins, state))
        && let Some(with_pins) = paging::with_pins(state, pins)
    {
        snapshot.keep();
        *state = with_pins;
    }
    rows
}

/// Whether expiry was judged as of a second before the snapshot was taken. If so, the environment gets that second, for the
/// read to begin again: the snapshot may have what was written because a value had expired, and would show it beside that
/// value. `earlier`: how often that has happened in this read.
fn is_judged_before<K: Kv>(environment: &mut Environment<'_>, snapshot: &Snapshot<K>, earlier: u32) -> bool {
    let is_given = environment.now_s != now_seconds(environment.now_us);
    let Some(taken_us) = snapshot.taken_us().filter(|_| !is_given) else { return false };
    let is_before = now_seconds(taken_us) > environment.now_s;
    if is_before {
        // Where a snapshot takes seconds, the next one will be later still.
        environment.now_us = taken_us.saturating_add(i64::from(earlier) * 1_000_000);
        environment.now_s = now_seconds(environment.now_us);
    }
    is_before
}

/// Waits until the clock has reached the second as of which expiry was judged, for about this many seconds at most. An
/// answer before that would lack values that have not expired yet.
async fn until_judged<K: Kv>(kv: &K, environment: &Environment<'_>, seconds: u32) {
    const PAUSES_PER_S: u32 = (1_000_000_000 / PAUSE_NS) as u32;
    for _ in 0..seconds * PAUSES_PER_S {
        if now_seconds(kv.now_us()) >= environment.now_s {
            return;
        }
        kv.pause(PAUSE_NS).await;
    }
}

/// A `SELECT`.
pub(super) struct Selecting<'a> {
    pub(super) plan: &'a SelectPlan,
    pub(super) index: Option<&'a IndexPlan>,
    pub(super) bound: &'a Bound<'a>,
    pub(super) page: PageRequest<'a>,
    pub(super) needs_disk: bool,
    pub(super) staleness_ms: Option<u32>,
}

impl Selecting<'_> {
    /// The rows of a page.
    pub(super) async fn rows<K: Kv>(self, engine: &QueryEngine<K>) -> Result<Rows, NotRead> {
        let Selecting { plan, index, bound, page, needs_disk, mut staleness_ms } = self;
        let mut bound = *bound;
        let (mut replans, mut restarts, mut judged_before) = (0, 0, 0);
        let mut unpinned = None;
        let mut resumed = page.state.map(paging::pins_of).transpose()?.filter(|pins| !pins.is_empty());
        loop {
            let budget = bound.environment.budget;
            let entry = engine.entry(&plan.table)?;
            // Whoever accepts old data accepts rows of several moments.
            let need = match (staleness_ms, restarts) {
                (Some(_), _) => Need::Nothing,
                (None, 0) => Need::Several,
                (None, _) => Need::All,
            };
            let before = resumed.take().filter(|_| need == Need::Several);
            let resuming = before.and_then(|pins| Snapshot::resuming(&engine.kv, pins, &entry.tablets));
            let snapshot = resuming.unwrap_or_else(|| Snapshot::new(&engine.kv, need).trying(&engine.attempts));
            let source = Source::tablets(&*engine.kv, needs_disk, staleness_ms, budget);
            let source = source.judged_at(bound.environment.now_s).in_snapshot(&snapshot);
            let before_bytes = budget.meter().used_bytes();
            let read = Read { plan, index, bound: &bound, source: &source, tablets: &entry.tablets };
            let outcome = read.execute(page).await;
            let has_more = matches!(&outcome, Ok(Rows { paging_state: Some(_), .. }));
            // The next page needs a snapshot in which it can go on.
            let wants_snapshot = has_more && page.state.is_none();
            let is_of_rows = outcome.as_ref().err().is_none_or(depends_on_rows);
            // Other nodes are not asked for what decides nothing.
            let is_decided = snapshot.reads_elsewhere() && (wants_snapshot || !is_of_rows);
            let is_unchanged = if is_decided { Some(false) } else { snapshot.is_unchanged(budget.deadline()).await };
            let is_before = is_of_rows && is_judged_before(&mut bound.environment, &snapshot, judged_before);
            judged_before += u32::from(is_before);
            let begins_again = is_before
                || match is_unchanged {
                    None => snapshot.has_met_lock(),
                    Some(true) => snapshot.has_met_lock() || wants_snapshot,
                    Some(false) => snapshot.has_met_lock() || is_of_rows,
                };
            if is_unchanged.is_some() {
                engine.transaction_outcomes().note_read(!begins_again);
                if !is_decided {
                    snapshot.note_attempt(is_unchanged == Some(true));
                }
            }
            if begins_again && restarts < ROUNDS {
                if restarts > 0 {
                    engine.kv.pause(PAUSE_NS << restarts).await;
                }
                restarts += 1;
                staleness_ms = None;
                if is_unchanged == Some(true) && !is_before {
                    unpinned = outcome.ok();
                    continue;
                }
            } else if source.met_missing_tablet() && replans < REPLANS {
                replans += 1;
            } else {
                let outcome = outcome.map_err(|error| NotRead::of(error, &source));
                keep_if_unbuilt(&snapshot, page, &outcome);
                until_judged(&*engine.kv, &bound.environment, judged_before.saturating_sub(1)).await;
                // If there is no snapshot for the pages that follow, the page that was read without one stands.
                let named = outcome.map(|rows| with_snapshot_named(rows, &snapshot, &entry.tablets));
                return named.or_else(|error| unpinned.ok_or(error));
            }
            // The rows that were read are dropped: their memory is given back.
            drop(outcome);
            budget.give(budget.meter().used_bytes().saturating_sub(before_bytes));
        }
    }
}
