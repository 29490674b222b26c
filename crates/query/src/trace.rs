//! Traces of requests, for clients that set the tracing flag of a message, and for `TRACING ON` of cqlsh.
//!
//! A [`Tracing`] goes with its request, as a part of the budget, and takes down what this node does for it. When the
//! request can be answered it becomes a [`Trace`], and [`Traces`] keeps that in memory, for `system_traces`.
//!
//! Always true: a request that does not ask for a trace costs nothing here; a trace is visible only when it has ended,
//! and before its request is answered, so that a client finds it at once; it has names of the schema and texts without
//! constants, never values; the memory of a trace, and of all that are kept, is bounded, and the oldest are dropped
//! first; a tracing id names the node that keeps the trace. Left out: what other nodes do for the request, of which
//! only the answers are known here; traces outlast neither the process nor [`MAX_TRACES`] others.

use diorite_base::write::KvError;
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cql::protocol::{QueryParameters, Request};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use uuid::{Builder, Uuid};

/// The most traces that are kept.
pub const MAX_TRACES: usize = 1_000;
/// About the most memory that they take, bytes.
pub const MAX_TRACES_BYTES: usize = 4 << 20;
/// About the most memory that one takes, bytes.
pub const MAX_TRACE_BYTES: usize = 48 << 10;

/// The most events of one.
const MAX_EVENTS: usize = 100;
/// The most bytes of the text of an event, and of a statement.
const MAX_ACTIVITY_BYTES: usize = 300;
const MAX_STATEMENT_BYTES: usize = 4_000;

/// Ticks of 100 ns between the start of the Gregorian calendar (what UUIDs count from) and 1970.
const GREGORIAN_OFFSET: u64 = 0x01B2_1DD2_1381_4000;
/// The first byte of the node in a tracing id. The multicast bit shows that it is no hardware address.
const NODE_MARK: u8 = 0xD1;
/// The parameter with the statement.
const STATEMENT: &str = "query";

/// Something that was done for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// What.
    pub activity: String,
    /// How long after the request had arrived, nanoseconds.
    pub elapsed_ns: u64,
    /// The name of the thread.
    pub thread: String,
}

/// What a request was, and what was done for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The tracing id.
    pub id: Uuid,
    /// The node that the client has asked.
    pub node: NodeId,
    /// The client.
    pub client: Option<IpAddr>,
    /// Its kind, in Cassandra's words.
    pub request: String,
    /// The statement, without constants, and what the request asked for.
    pub parameters: BTreeMap<String, String>,
    /// When it arrived, microseconds since 1970.
    pub started_us: i64,
    /// How long it took until it could be answered, microseconds; not 0.
    pub duration_us: u64,
    /// What was done, in order of time.
    pub events: Vec<TraceEvent>,
}

/// Ticks of 100 ns since the start of the Gregorian calendar.
fn ticks_of(us: i64) -> u64 {
    GREGORIAN_OFFSET.saturating_add_signed(us.saturating_mul(10))
}

/// A node as the node of a UUID.
fn node_part(node: NodeId) -> [u8; 6] {
    let [_, _, _, a, b, c, d, e] = node.0.to_be_bytes();
    [NODE_MARK, a, b, c, d, e]
}

/// The node that keeps the trace with this id, if it is a tracing id.
pub fn node_of(id: Uuid) -> Option<NodeId> {
    let bytes = id.as_bytes();
    if id.get_version_num() != 1 || bytes[10] != NODE_MARK {
        return None;
    }
    let mut node = [0; 8];
    node[3..].copy_from_slice(&bytes[11..]);
    Some(NodeId(u64::from_be_bytes(node)))
}

/// A copy without memory in reserve: a trace is kept long after what was cut off.
fn shortened(text: &str, most_bytes: usize) -> String {
    if text.len() <= most_bytes {
        return text.to_owned();
    }
    let end = (0..=most_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    [&text[..end], "…"].concat()
}

fn event(activity: &str, elapsed_ns: u64) -> TraceEvent {
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    TraceEvent { activity: shortened(activity, MAX_ACTIVITY_BYTES), elapsed_ns, thread }
}

impl Trace {
    /// The ids of its events, which are in order of time, too.
    pub fn event_ids(&self) -> Vec<Uuid> {
        let started = ticks_of(self.started_us);
        let bytes = self.id.as_bytes();
        let counter = u16::from_be_bytes([bytes[8], bytes[9]]) & 0x3FFF;
        let mut last = 0;
        let mut next = |event: &TraceEvent| {
            last = started.saturating_add(event.elapsed_ns / 100).max(last + 1);
            Builder::from_gregorian_timestamp(last, counter, &node_part(self.node)).into_uuid()
        };
        self.events.iter().map(&mut next).collect()
    }

    /// About the memory that it takes.
    pub(crate) fn size_bytes(&self) -> usize {
        let parameters = self.parameters.iter().map(|(name, value)| name.len() + value.len() + 64);
        let events =
            self.events.iter().map(|event| event.activity.len() + event.thread.len() + size_of::<TraceEvent>());
        size_of::<Self>() + self.request.len() + parameters.sum::<usize>() + events.sum::<usize>()
    }
}

/// The trace of a request that is being carried out.
pub struct Tracing {
    id: Uuid,
    node: NodeId,
    clock: Arc<dyn Clock>,
    arrived_ns: u64,
    noted: Mutex<Noted>,
}

struct Noted {
    /// `None` once it has ended.
    trace: Option<Trace>,
    /// Events for which there was no space.
    left_out: usize,
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Tracing {
    /// The tracing id.
    pub fn id(&self) -> Uuid {
        self.id
    }

    fn elapsed_ns(&self) -> u64 {
        self.clock.monotonic_ns().saturating_sub(self.arrived_ns)
    }

    /// Adds what was just done, or is about to be done. It must have no value of the request.
    pub fn note(&self, activity: impl Into<String>) {
        let mut noted = self.noted.lock();
        let Noted { trace, left_out } = &mut *noted;
        let Some(trace) = trace else { return };
        // The last one says how the request has ended.
        if trace.events.len() + 1 >= MAX_EVENTS {
            *left_out += 1;
            return;
        }
        let activity: String = activity.into();
        trace.events.push(event(&activity, self.elapsed_ns()));
    }

    /// Sets the statement, which must have no constants.
    pub fn name(&self, statement: &str) {
        if let Some(trace) = &mut self.noted.lock().trace {
            trace.parameters.insert(STATEMENT.to_owned(), shortened(statement, MAX_STATEMENT_BYTES));
        }
    }

    /// Where something is done that the leader of a tablet does.
    pub fn place(&self, leader: Option<NodeId>) -> String {
        match leader {
            Some(node) if node == self.node => "here".to_owned(),
            Some(node) => format!("at node {}", node.0),
            None => "at its leader, which is not known now".to_owned(),
        }
    }

    /// The trace; `None` if it has ended before.
    fn finish(&self, ending: String) -> Option<Trace> {
        let mut noted = self.noted.lock();
        let mut trace = noted.trace.take()?;
        let ending = match noted.left_out {
            0 => ending,
            count => format!("{ending} ({count} events are left out)"),
        };
        let elapsed_ns = self.elapsed_ns();
        trace.events.push(event(&ending, elapsed_ns));
        trace.events.shrink_to_fit();
        // Drivers take 0 for a trace that has not ended.
        trace.duration_us = (elapsed_ns / 1_000).max(1);
        Some(trace)
    }
}

/// The traces that a node keeps.
#[derive(Debug)]
pub struct Traces {
    node: NodeId,
    /// Differs from one run of the process to the next, so that ids do.
    counter: u16,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first, each with its size in bytes.
    traces: VecDeque<(Arc<Trace>, usize)>,
    bytes: usize,
    /// The time in the last tracing id.
    last_ticks: u64,
}

/// The kind of a request, in Cassandra's words.
fn kind_of(request: &Request<'_>) -> &'static str {
    match request {
        Request::Query(_) => "Execute CQL3 query",
        Request::Execute(_) => "Execute CQL3 prepared query",
        Request::Batch(_) => "Execute batch of CQL3 queries",
        Request::Prepare(_) => "Preparing CQL3 query",
        _ => "Other request",
    }
}

/// What a request asks for, by Cassandra's names.
fn parameters_of(request: &Request<'_>) -> BTreeMap<String, String> {
    let of = |parameters: &QueryParameters<'_>| {
        (Some(parameters.consistency), parameters.serial_consistency, parameters.page_size)
    };
    let (consistency, serial_consistency, page_size) = match request {
        Request::Query(query) => of(&query.parameters),
        Request::Execute(execute) => of(&execute.parameters),
        Request::Batch(batch) => (Some(batch.consistency), batch.serial_consistency, None),
        _ => (None, None, None),
    };
    let given = [
        ("consistency_level", consistency.map(|level| level.name().to_owned())),
        ("serial_consistency_level", serial_consistency.map(|level| level.name().to_owned())),
        ("page_size", page_size.map(|rows| rows.to_string())),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

impl Traces {
    /// Those of this node. The low bits of `random` distinguish runs of its process.
    pub fn new(node: NodeId, random: u64) -> Self {
        Self { node, counter: (random & 0x3FFF) as u16, kept: Mutex::default() }
    }

    /// Begins the trace of a request that arrived at `arrived_ns` of the clock.
    pub fn begin(
        &self,
        request: &Request<'_>,
        client: Option<SocketAddr>,
        arrived_ns: u64,
        clock: Arc<dyn Clock>,
    ) -> Tracing {
        let since_ns = clock.monotonic_ns().saturating_sub(arrived_ns);
        let started_us = clock.wall_us().saturating_sub_unsigned(since_ns / 1_000);
        let mut kept = self.kept.lock();
        let ticks = ticks_of(started_us).max(kept.last_ticks.saturating_add(1));
        kept.last_ticks = ticks;
        drop(kept);
        let id = Builder::from_gregorian_timestamp(ticks, self.counter, &node_part(self.node)).into_uuid();
        let trace = Trace {
            id,
            node: self.node,
            client: client.map(|client| client.ip()),
            request: kind_of(request).to_owned(),
            parameters: parameters_of(request),
            started_us,
            duration_us: 0,
            events: Vec::new(),
        };
        let noted = Mutex::new(Noted { trace: Some(trace), left_out: 0 });
        Tracing { id, node: self.node, clock, arrived_ns, noted }
    }

    /// Ends a trace and keeps it; `ending` says how the request has ended.
    pub fn finish(&self, tracing: &Tracing, ending: String) {
        let Some(trace) = tracing.finish(ending) else { return };
        let bytes = trace.size_bytes();
        let mut kept = self.kept.lock();
        kept.bytes += bytes;
        kept.traces.push_back((Arc::new(trace), bytes));
        while kept.traces.len() > MAX_TRACES || kept.bytes > MAX_TRACES_BYTES {
            let Some((_, bytes)) = kept.traces.pop_front() else { break };
            kept.bytes -= bytes;
        }
    }

    /// The trace with this id, if it is kept here.
    pub fn find(&self, id: Uuid) -> Option<Arc<Trace>> {
        let kept = self.kept.lock();
        // Clients ask for the newest ones.
        kept.traces.iter().rev().find(|(trace, _)| trace.id == id).map(|(trace, _)| Arc::clone(trace))
    }

    /// How many are kept here.
    pub fn count(&self) -> usize {
        self.kept.lock().traces.len()
    }

    /// About the memory that they take; at most [`MAX_TRACES_BYTES`].
    pub fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// All that are kept here, oldest first.
    pub fn all(&self) -> Vec<Arc<Trace>> {
        self.kept.lock().traces.iter().map(|(trace, _)| Arc::clone(trace)).collect()
    }
}

/// What is known of a read or a write (`what`) that a tablet has not carried out. The text of the error may have values.
pub(crate) fn not_carried_out(what: &str, TabletId(tablet): TabletId, error: &KvError) -> String {
    match error {
        KvError::Unavailable(_) | KvError::NotLeader { .. } => {
            format!("Nobody has taken the {what} of tablet {tablet}")
        }
        KvError::Timeout(_) | KvError::Storage(_) => {
            format!("The outcome of the {what} of tablet {tablet} is not known")
        }
        KvError::Overloaded(_)
        | KvError::NoSuchTablet(_)
        | KvError::DiskFull(_)
        | KvError::TooLarge(_)
        | KvError::Locked(_)
        | KvError::IndexBeingBuilt
        | KvError::Unmaintained => format!("The {what} of tablet {tablet} was refused"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that a test moves; the wall clock goes with it.
    #[derive(Default)]
    struct Moved(AtomicU64);

    impl Clock for Moved {
        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn wall_us(&self) -> i64 {
            1_795_302_605_000_000 + (self.monotonic_ns() / 1_000) as i64
        }
    }

    fn begun(traces: &Traces, clock: &Arc<Moved>) -> Tracing {
        let arrived_ns = clock.monotonic_ns();
        traces.begin(&Request::Options, None, arrived_ns, Arc::clone(clock) as Arc<dyn Clock>)
    }

    #[test]
    fn a_trace_is_found_once_it_has_ended_and_has_the_times_of_its_events() {
        let (traces, clock) = (Traces::new(NodeId(3), 7), Arc::new(Moved::default()));
        let tracing = begun(&traces, &clock);
        tracing.name("SELECT v FROM t WHERE k = ?");
        clock.0.store(2_500, Ordering::Relaxed);
        tracing.note("first");
        tracing.note("second");
        assert_eq!(traces.find(tracing.id()), None, "not before its end");
        clock.0.store(9_000_000, Ordering::Relaxed);
        traces.finish(&tracing, "done".to_owned());
        traces.finish(&tracing, "again".to_owned());
        tracing.note("too late");
        let [trace] = <[Arc<Trace>; 1]>::try_from(traces.all()).unwrap();
        assert_eq!(traces.find(tracing.id()), Some(Arc::clone(&trace)));
        assert_eq!((trace.started_us, trace.duration_us), (1_795_302_605_000_000, 9_000));
        assert_eq!(trace.parameters[STATEMENT], "SELECT v FROM t WHERE k = ?");
        let shown: Vec<_> = trace.events.iter().map(|event| (event.activity.as_str(), event.elapsed_ns)).collect();
        assert_eq!(shown, [("first", 2_500), ("second", 2_500), ("done", 9_000_000)]);
        let ids = trace.event_ids();
        assert!(ids.iter().all(|id| id.get_version_num() == 1));
        let ticks: Vec<u64> = ids.iter().map(|id| id.get_timestamp().unwrap().to_gregorian().0).collect();
        let started = ticks_of(trace.started_us);
        assert_eq!(ticks, [started + 25, started + 26, started + 90_000], "each has its own");
        let sent = serde_json::to_value(&*trace).unwrap();
        assert_eq!(serde_json::from_value::<Trace>(sent).unwrap(), *trace);
    }

    #[test]
    fn an_id_is_new_and_names_its_node() {
        let (traces, clock) = (Traces::new(NodeId(0x01_0203_0405), 7), Arc::new(Moved::default()));
        let ids = [begun(&traces, &clock).id(), begun(&traces, &clock).id()];
        assert_ne!(ids[0], ids[1], "although the clock stands");
        assert_eq!(ids.map(node_of), [Some(NodeId(0x01_0203_0405)); 2]);
        assert_eq!(node_of(Uuid::from_u128(7)), None);
        assert_eq!(node_of(Builder::from_gregorian_timestamp(1, 2, &[1, 2, 3, 4, 5, 6]).into_uuid()), None);
    }

    #[test]
    fn no_more_traces_are_kept_than_the_limits_allow() {
        let (traces, clock) = (Traces::new(NodeId(1), 7), Arc::new(Moved::default()));
        let mut ids = Vec::new();
        for number in 0..=MAX_TRACES {
            let tracing = begun(&traces, &clock);
            ids.push(tracing.id());
            traces.finish(&tracing, number.to_string());
        }
        assert_eq!(traces.all().len(), MAX_TRACES);
        assert_eq!((traces.find(ids[0]), traces.find(ids[1]).is_some()), (None, true), "the oldest is dropped");
        for _ in 0..MAX_TRACES {
            let tracing = begun(&traces, &clock);
            tracing.name(&"x".repeat(2 * MAX_STATEMENT_BYTES));
            (0..2 * MAX_EVENTS).for_each(|_| tracing.note("ü".repeat(MAX_ACTIVITY_BYTES)));
            traces.finish(&tracing, "done".to_owned());
        }
        let all = traces.all();
        let bytes: usize = all.iter().map(|trace| trace.size_bytes()).sum();
        assert!(bytes <= MAX_TRACES_BYTES && bytes > MAX_TRACES_BYTES - MAX_TRACE_BYTES, "{bytes}");
        assert_eq!((traces.count(), traces.bytes()), (all.len(), bytes), "what is shown is what they take");
        let newest = all.last().unwrap();
        assert!(newest.size_bytes() <= MAX_TRACE_BYTES && newest.events.len() == MAX_EVENTS);
        let left_out = MAX_EVENTS + 1;
        assert_eq!(newest.events.last().unwrap().activity, format!("done ({left_out} events are left out)"));
    }

    #[test]
    fn a_trace_keeps_no_memory_of_what_is_cut_off() {
        let (traces, clock) = (Traces::new(NodeId(1), 7), Arc::new(Moved::default()));
        assert_eq!((traces.count(), traces.bytes()), (0, 0));
        let tracing = begun(&traces, &clock);
        tracing.name(&"x".repeat(1 << 20));
        for activity in ["read", &"ü".repeat(1 << 20)] {
            let mut reserving = String::with_capacity(4 << 20);
            reserving.push_str(activity);
            tracing.note(reserving);
        }
        traces.finish(&tracing, "done".to_owned());
        let trace = traces.find(tracing.id()).unwrap();
        let activities: usize = trace.events.iter().map(|event| event.activity.capacity()).sum();
        let taken = trace.parameters[STATEMENT].capacity() + activities;
        assert!(taken <= trace.size_bytes() && trace.size_bytes() <= MAX_TRACE_BYTES, "{taken}");
        assert!(traces.bytes() == trace.size_bytes() && traces.count() == 1);
    }

    #[test]
    fn a_place_is_named_by_its_node() {
        let (traces, clock) = (Traces::new(NodeId(1), 7), Arc::new(Moved::default()));
        let tracing = begun(&traces, &clock);
        let shown = [Some(NodeId(1)), Some(NodeId(2)), None].map(|leader| tracing.place(leader));
        assert_eq!(shown, ["here", "at node 2", "at its leader, which is not known now"]);
    }
}
