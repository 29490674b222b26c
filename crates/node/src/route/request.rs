//! The work of requests, and the delivery of outcomes to their clients.

use diorite_base::mutation::Mutation;
use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use diorite_control::routing;
use diorite_query::kv::{Fetch, FetchRows, Fetched};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The memory of a request beside its keys and values.
const OVERHEAD_BYTES: usize = 256;

/// The work, with the receiver of the outcome.
#[allow(clippy::large_enum_variant, reason = "a read would need an allocation more")]
pub(super) enum Work {
    Fetch { fetch: Fetch, answer: oneshot::Sender<Result<Fetched, KvError>> },
    Write(Write),
}

/// A write, and the sink for its outcome.
pub(super) struct Write {
    pub(super) mutation: Mutation,
    pub(super) sink: Arc<dyn WriteSink>,
    /// Identifies the write in the sink.
    pub(super) tag: u64,
}

pub(super) type Request = routing::Request<Work>;
pub(super) type Sent = routing::Sent<Work>;

impl routing::Work for Work {
    fn is_read(&self) -> bool {
        matches!(self, Work::Fetch { .. })
    }

    fn size_bytes(&self) -> usize {
        let content = match self {
            Work::Fetch { fetch, .. } => {
                let header = fetch.header.as_ref().map_or(0, |(_, key)| key.len());
                let rows = match &fetch.rows {
                    FetchRows::Nothing => 0,
                    FetchRows::One(key) => key.len(),
                    FetchRows::Range(range) => range.start.len() + range.end.len(),
                    FetchRows::Several(several) => several.spans.len(),
                    FetchRows::Index(scan) => scan.start.len() + scan.end.len() + scan.spans.len(),
                };
                header
                    + fetch.static_row.as_ref().map_or(0, Vec::len)
                    + rows
                    + fetch.aggregate.as_ref().map_or(0, Vec::len)
            }
            Work::Write(write) => write.mutation.size_bytes(),
        };
        OVERHEAD_BYTES + content
    }
}

/// Outcomes to be delivered. Each sink is called once, with all its outcomes.
#[derive(Default)]
pub(super) struct Outcomes {
    writes: Vec<(Arc<dyn WriteSink>, Vec<Completion>)>,
}

impl Outcomes {
    /// Ends a request with an error.
    pub(super) fn fail(&mut self, work: Work, error: KvError) {
        match work {
            // If the receiver is gone, no client waits.
            Work::Fetch { answer, .. } => drop(answer.send(Err(error))),
            Work::Write(Write { sink, tag, .. }) => self.written(sink, tag, Err(error)),
        }
    }

    /// Ends a write.
    pub(super) fn written(&mut self, sink: Arc<dyn WriteSink>, tag: u64, outcome: Result<WriteReply, KvError>) {
        let address = Arc::as_ptr(&sink);
        // Outcomes of one connection are mostly adjacent.
        let known = self.writes.iter_mut().rev().find(|(known, _)| std::ptr::addr_eq(Arc::as_ptr(known), address));
        match known {
            Some((_, done)) => done.push((tag, outcome)),
            None => self.writes.push((sink, vec![(tag, outcome)])),
        }
    }

    /// Calls the sinks.
    pub(super) fn deliver(&mut self) {
        for (sink, mut done) in self.writes.drain(..) {
            sink.complete(&mut done);
        }
    }
}
