//! A request for a tablet that is led elsewhere, as the asking node keeps it until it is answered.

use diorite_base::mutation::Mutation;
use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use diorite_base::{NodeId, TabletId};
use diorite_query::kv::{Fetch, FetchRows, Fetched};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a request costs beside its keys and values.
const OVERHEAD_BYTES: usize = 256;

/// What is asked, and who waits.
pub(super) enum Work {
    Fetch { fetch: Fetch, answer: oneshot::Sender<Result<Fetched, KvError>> },
    Write { mutation: Mutation, sink: Arc<dyn WriteSink>, token: u64 },
}

/// See the top of this module. Boxed, as it moves from table to table.
pub(super) type Request = Box<Asked>;

/// What a [`Request`] holds.
pub(super) struct Asked {
    pub(super) tablet: TabletId,
    pub(super) work: Work,
    pub(super) deadline_ns: u64,
    /// How much longer it might take when it was asked, milliseconds, where that was less than reads or writes usually may.
    pub(super) left_ms: Option<u64>,
    /// A read that is not answered by then is sent once more.
    pub(super) resend_ns: u64,
    /// Nodes asked since it last waited.
    pub(super) attempts: usize,
    /// Times it waited for a leader.
    pub(super) rounds: usize,
    /// Who was asked last and does not lead.
    pub(super) refused_by: Option<NodeId>,
    /// The node it goes to was not known to lead: a success is worth remembering.
    pub(super) is_probe: bool,
    /// Since when the tablet has been said not to exist.
    pub(super) missing_since_ns: Option<u64>,
}

impl Asked {
    pub(super) fn new(tablet: TabletId, work: Work, now_ns: u64, patience_ns: u64) -> Request {
        Box::new(Self {
            tablet,
            work,
            deadline_ns: now_ns + patience_ns,
            left_ms: None,
            resend_ns: now_ns + patience_ns / 2,
            attempts: 0,
            rounds: 0,
            refused_by: None,
            is_probe: false,
            missing_since_ns: None,
        })
    }

    /// As [`Self::new`], if it is to end before `limit_ns` are over: at `until_ns`, and wherever it is carried out.
    pub(super) fn new_until(
        tablet: TabletId,
        work: Work,
        now_ns: u64,
        limit_ns: u64,
        until_ns: Option<u64>,
    ) -> Request {
        let left_ns = until_ns.map(|until_ns| until_ns.saturating_sub(now_ns)).filter(|left_ns| *left_ns < limit_ns);
        let mut request = Self::new(tablet, work, now_ns, left_ns.unwrap_or(limit_ns));
        request.left_ms = left_ns.map(|left_ns| left_ns.div_ceil(1_000_000));
        request
    }

    /// It is about to be sent, and may have waited: says how much time is left, where that is said.
    pub(super) fn tell_time_left(&mut self, now_ns: impl FnOnce() -> u64) {
        if let Some(left_ms) = &mut self.left_ms {
            *left_ms = self.deadline_ns.saturating_sub(now_ns()).div_ceil(1_000_000);
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        let content = match &self.work {
            Work::Fetch { fetch, .. } => {
                let header = fetch.header.as_ref().map_or(0, |(_, key)| key.len());
                let rows = match &fetch.rows {
                    FetchRows::Nothing => 0,
                    FetchRows::One(key) => key.len(),
                    FetchRows::Range(range) => range.start.len() + range.end.len(),
                    FetchRows::Several(several) => several.spans.len(),
                };
                header + fetch.static_row.as_ref().map_or(0, Vec::len) + rows + fetch.fold.as_ref().map_or(0, Vec::len)
            }
            Work::Write { mutation, .. } => mutation.size_bytes(),
        };
        OVERHEAD_BYTES + content
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.work, Work::Fetch { .. })
    }

    /// The node that refused it last, and that it was refused.
    pub(super) fn refused(&mut self, by: NodeId) {
        self.attempts += 1;
        self.refused_by = Some(by);
    }
}

/// Outcomes on their way to those who wait: each sink is told once, whatever the number of its outcomes.
#[derive(Default)]
pub(super) struct Outcomes {
    writes: Vec<(Arc<dyn WriteSink>, Vec<Completion>)>,
}

impl Outcomes {
    /// Ends a request with an error.
    pub(super) fn fail(&mut self, request: Request, error: KvError) {
        match request.work {
            // Who asked may be gone: then nobody has to be told.
            Work::Fetch { answer, .. } => drop(answer.send(Err(error))),
            Work::Write { sink, token, .. } => self.written(sink, token, Err(error)),
        }
    }

    /// Ends a write.
    pub(super) fn written(&mut self, sink: Arc<dyn WriteSink>, token: u64, outcome: Result<WriteReply, KvError>) {
        let address = Arc::as_ptr(&sink);
        // Outcomes of one connection tend to follow each other.
        let known = self.writes.iter_mut().rev().find(|(known, _)| std::ptr::addr_eq(Arc::as_ptr(known), address));
        match known {
            Some((_, done)) => done.push((token, outcome)),
            None => self.writes.push((sink, vec![(token, outcome)])),
        }
    }

    /// Tells the sinks.
    pub(super) fn deliver(&mut self) {
        for (sink, mut done) in self.writes.drain(..) {
            sink.complete(&mut done);
        }
    }
}
