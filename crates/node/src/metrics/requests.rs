//! Requests of clients, and requests between nodes.

use super::source::{Source, read};
use super::writer::Writer;
use diorite_query::Operation;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::atomic::Ordering;

impl Source {
    pub(super) fn requests(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let counters = &self.shared.counters;
        let kinds = [
            ("execute", counters.executes.get()),
            ("query", counters.queries.get()),
            ("prepare", counters.prepares.get()),
            ("batch", counters.batches.get()),
        ];
        out.counters("cql_requests", "CQL requests by kind", None, "kind", &kinds)?;
        let times = Operation::ALL.into_iter().map(|operation| (operation.name(), self.shared.latencies.of(operation)));
        let help = "Time from reading a client's request until its answer was ready";
        out.histograms("cql_request_duration", help, "operation", times)?;
        let waiting = counters.executes_waiting.get();
        out.counter("cql_executes_waiting", "Executions that could not be answered at once", None, waiting)?;
        out.counter("cql_protocol_errors", "Malformed or misplaced messages", None, read(&counters.protocol_errors))?;
        out.gauge(
            "cql_connections",
            "Open CQL connections",
            None,
            self.shared.connections.load(Ordering::Relaxed) as u64,
        )?;
        let account = &self.shared.account;
        let help = "Memory that requests of clients and the buffers of their connections hold";
        out.gauge("cql_request_memory", help, Some(&Unit::Bytes), account.used_bytes() as u64)?;
        let help = "The most memory that requests of clients and the buffers of their connections may hold";
        out.gauge("cql_request_memory_limit", help, Some(&Unit::Bytes), account.limit_bytes() as u64)?;
        let prepared = self.shared.engine.prepared_statements() as u64;
        out.gauge("cql_prepared_statements", "Prepared statements", None, prepared)?;
        let traces = self.shared.engine.traces();
        out.gauge("traces_kept", "Traces of requests that are kept in memory", None, traces.count() as u64)?;
        let help = "Memory that the kept traces of requests take";
        out.gauge("traces_kept", help, Some(&Unit::Bytes), traces.bytes() as u64)?;
        let refused = read(&counters.connections_refused);
        out.counter("cql_connections_refused", "Connections refused because of the limit", None, refused)?;
        self.logins(out)?;
        let overloaded = read(&counters.overloaded);
        out.counter("cql_overloaded", "Requests refused because there was no memory for them", None, overloaded)?;
        let help = "Requests of clients that failed because a row that they read is malformed";
        out.counter("cql_malformed_rows", help, None, self.shared.kv.router.counters().malformed_rows.met())?;
        let (waiting, refused) = self.shared.kv.store.queue_state();
        out.gauge("writes_queued", "Writes waiting for a store thread", None, waiting as u64)?;
        out.counter("writes_refused", "Writes refused because a queue was full", None, refused)
    }

    fn logins(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let access = &self.shared.access;
        let counters = &access.passwords.counters;
        let outcomes = [
            ("accepted", counters.accepted.get()),
            ("wrong", counters.wrong.get()),
            ("forbidden", counters.forbidden.get()),
            ("busy", counters.busy.get()),
        ];
        let help = "Logins by outcome: accepted (CQL only), wrong password or role, role that may not connect, and not checked because too many were wrong or wait";
        out.counters("logins", help, None, "outcome", &outcomes)?;
        if let Some(audit) = &access.passwords.audit {
            let counters = audit.counters();
            out.counter("audit_entries", "Entries of the audit log that were written", None, read(&counters.written))?;
            let dropped = [("other", read(&counters.dropped)), ("refused", read(&counters.dropped_refused))];
            let help = "Entries of the audit log that were dropped: failed logins and refused operations beyond their rate, others for want of space or because the log cannot be written";
            out.counters("audit_dropped", help, None, "kind", &dropped)?;
        }
        let help =
            "CQL connections that were ended because their role may not connect any more, or logins are required now";
        out.counter("cql_connections_ended", help, None, access.entrance.ended())
    }

    pub(super) fn routing(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let router = &self.shared.kv.router;
        let counters = router.counters();
        let by_place = [
            ("here", read(&counters.local)),
            ("elsewhere", read(&counters.forwarded)),
            ("elsewhere, answered here", read(&counters.followed)),
        ];
        let help = "Reads and writes of tablets for this node's clients, by where the tablet is led";
        out.counters("routed_requests", help, None, "led", &by_place)?;
        let frames = [("requests", read(&counters.frames_sent)), ("answers", read(&counters.answer_frames))];
        out.counters("routed_frames", "Frames of requests and answers for other nodes", None, "kind", &frames)?;
        let sent = read(&counters.sent_bytes);
        out.counter("routed_sent", "Bytes of requests and answers sent to other nodes", Some(&Unit::Bytes), sent)?;
        let aggregates = read(&counters.aggregates);
        out.counter("routed_aggregates", "Partial aggregates computed here for other nodes", None, aggregates)?;
        let help = "The former name of diorite_routed_aggregates_total, for one release";
        out.counter("routed_folded", help, None, aggregates)?;
        let long = read(&counters.long_reads);
        out.counter("routed_long_reads", "Reads of large values, by threads of lower priority", None, long)?;
        let disk = router.disk_reads();
        out.counter("disk_reads", "Reads from disk", None, disk.done)?;
        let reads = [("running", disk.running as u64), ("waiting", disk.waiting as u64)];
        out.gauges(
            "disk_reads_in_progress",
            "Reads from disk that run, and that wait for a thread",
            None,
            "state",
            &reads,
        )?;
        out.gauge("disk_read_threads", "Threads that read from disks", None, disk.threads as u64)?;
        let received = read(&counters.received);
        out.counter("routed_received", "Requests that other nodes sent here", None, received)?;
        let refused = read(&counters.refused_not_leader);
        out.counter(
            "routed_refused",
            "Requests of other nodes refused because another node leads the tablet",
            None,
            refused,
        )?;
        out.counter("routed_retried", "Requests that were sent again", None, read(&counters.retried))?;
        out.counter("routed_timed_out", "Requests not answered in time", None, read(&counters.timed_out))?;
        let overloaded = read(&counters.overloaded);
        out.counter("routed_overloaded", "Requests refused because too many wait for other nodes", None, overloaded)?;
        let malformed = read(&counters.malformed);
        out.counter("routed_malformed", "Frames that could not be decoded", None, malformed)?;
        let (answers, leaders) = router.waiting();
        let waiting = [("answer", answers as u64), ("leader", leaders as u64)];
        out.gauges("routed_waiting", "Requests that wait for an answer or for a leader", None, "for", &waiting)
    }
}
