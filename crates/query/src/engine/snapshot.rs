//! `SELECT` of tables with transactions: what needs it is read in a snapshot, which is taken again if it is lost.
//!
//! Always true: nothing was sent to the client when a read begins again; how often it does is bounded. Left out: taking
//! snapshots ([`crate::exec::snapshot`]).

use super::state::{QueryEngine, REPLANS};
use crate::exec::read::{PageRequest, Read};
use crate::exec::snapshot::{Need, Snapshot};
use crate::exec::source::Source;
use crate::kv::Kv;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bound;
use diorite_cql::protocol::{CqlError, Rows};

/// How often a read begins again because what it met was prepared, or its snapshot was lost.
const ROUNDS: usize = 8;
const PAUSE_NS: u64 = 1_000_000;

/// A `SELECT`.
pub(super) struct Selecting<'a> {
    pub(super) plan: &'a SelectPlan,
    pub(super) bound: &'a Bound<'a>,
    pub(super) page: PageRequest<'a>,
    pub(super) needs_disk: bool,
    pub(super) staleness_ms: Option<u32>,
}

impl Selecting<'_> {
    /// The rows of a page.
    pub(super) async fn rows<K: Kv>(self, engine: &QueryEngine<K>) -> Result<Rows, CqlError> {
        let Selecting { plan, bound, page, needs_disk, mut staleness_ms } = self;
        let (mut replans, mut locks) = (0, 0);
        loop {
            let budget = bound.environment.budget;
            let entry = engine.entry(&plan.table)?;
            // Whoever accepts old data accepts rows of several moments.
            let need = match (staleness_ms, locks) {
                (Some(_), _) => Need::Nothing,
                (None, 0) => Need::Several,
                (None, _) => Need::All,
            };
            let snapshot = Snapshot::new(&engine.kv, need);
            let source = Source::tablets(&*engine.kv, needs_disk, staleness_ms, budget).in_snapshot(&snapshot);
            let outcome = Read { plan, bound, source: &source, tablets: &entry.tablets }.execute(page).await;
            if snapshot.has_met_lock() && locks < ROUNDS {
                if locks > 0 {
                    engine.kv.pause(PAUSE_NS << locks).await;
                }
                locks += 1;
                staleness_ms = None;
            } else if source.met_missing_tablet() && replans < REPLANS {
                replans += 1;
            } else {
                return outcome;
            }
        }
    }
}
