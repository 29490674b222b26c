//! The seam below the query layer: tablets that can be read and written, and the catalog.
//!
//! Always true: keys and values are bytes whose meaning is the `model` crate's; every read through this seam is linearizable (the
//! implementation serves it at the tablet's leader under a lease) unless it says that it need not be; a write is answered after it is durable and applied; any tablet may be led
//! by another node, which costs one hop for whatever one call asks.
//! Left out: how any of it is replicated, stored or forwarded.

mod chunk;
pub mod several;

pub use chunk::ScanChunk;

use crate::trace::Trace;
use diorite_base::account::Charge;
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::mutation::Mutation;
pub use diorite_base::write::{Completion, KvError, WriteReply, WriteSink};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Command};
use diorite_transact::TransactionId;
use diorite_transact::version::DataVersion;
use diorite_transact::wire::PinId;
use several::Several;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

/// The outcome of a read that must not wait.
#[derive(Debug)]
pub enum Now<T> {
    /// Answered.
    Ready(T),
    /// It would have to wait (for the disk or for another node): use the asynchronous call.
    WouldBlock,
}

/// A bounded piece of a key range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRequest {
    /// The first key, inclusive.
    pub start: Vec<u8>,
    /// The end of the range, exclusive.
    pub end: Vec<u8>,
    /// From the end towards the start.
    pub reverse: bool,
    /// Stop after this many entries.
    pub max_entries: usize,
    /// Stop once this many bytes of keys and values are gathered (at least one entry is returned).
    pub max_bytes: usize,
}

/// A read of one tablet. The node that leads it reads the parts one after the other, in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetch {
    /// A key that is read only if the tablet has any of these flags (see `TabletChanges::raise_flags`). Flags of a tablet that is led
    /// elsewhere are not known here, so the question travels with the request.
    pub header: Option<(u64, Vec<u8>)>,
    /// A key.
    pub static_row: Option<Vec<u8>>,
    /// The rows.
    pub rows: FetchRows,
    /// Memory is known to lack some of it: the read goes to the disk at once.
    pub needs_disk: bool,
    /// How old the data may be, milliseconds; any replica may answer. `None`: the read is linearizable.
    pub staleness_ms: Option<u32>,
    /// When the request ends, on the monotonic clock of this node; the read ends then, too, on whichever node.
    pub deadline_ns: Option<u64>,
    /// The rows are not returned but aggregated on the node that reads them, by this encoded task ([`crate::exec::pushdown`]).
    pub aggregate: Option<Vec<u8>>,
    /// The rows are read in a snapshot that the tablet's leader keeps ([`diorite_transact::wire`]). If it does not keep it any
    /// more, the read fails with [`KvError::Locked`], as a read without a snapshot does that meets a row which a
    /// transaction has prepared.
    pub pinned: Option<PinnedRead>,
    /// The answer is to say the version of the data.
    pub wants_version: bool,
    /// The second as of which the reader judges expiry: ranges need not contain rows that have expired by then. `None`:
    /// they contain what may be live for any reader.
    pub judged_s: Option<u32>,
}

/// A read in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRead {
    /// The snapshot.
    pub pin: PinId,
    /// The transactions whose prepares in the snapshot are to be read as committed.
    pub committed: Arc<[CommittedIn]>,
}

/// A prepare in a snapshot, and what has become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedIn {
    /// The transaction.
    pub id: TransactionId,
    /// The stamp of the prepare, microseconds.
    pub prepared_us: i64,
    /// The stamp of the commit, microseconds.
    pub committed_us: i64,
}

impl CommittedIn {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.extend_from_slice(&self.prepared_us.to_le_bytes());
        out.extend_from_slice(&self.committed_us.to_le_bytes());
    }

    /// Decodes what [`Self::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { id: TransactionId::decode(reader)?, prepared_us: reader.i64()?, committed_us: reader.i64()? })
    }
}

/// The rows of a [`Fetch`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FetchRows {
    /// None.
    #[default]
    Nothing,
    /// The row with this key.
    One(Vec<u8>),
    /// A piece of a range.
    Range(ScanRequest),
    /// Several keys and ranges. Their entries come in one chunk, which is not exhausted unless it covers all of them.
    Several(Several),
    /// The rows of a range that an index names ([`crate::index`]). They come in one chunk, among them rows that do not
    /// have the value.
    Index(IndexScan),
}

/// A bounded piece of the rows that an index names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexScan {
    /// The index.
    pub index: u64,
    /// The forms of the values ([`several::encode`]): one value is a key, a range of values a range.
    pub spans: Vec<u8>,
    /// The first key of a row, inclusive.
    pub start: Vec<u8>,
    /// The end of the range of rows, exclusive. No row's key is the beginning of it, unless `FF` follows.
    pub end: Vec<u8>,
    /// The length of the partition part of `start`, if it is within a partition; otherwise 0.
    pub partition_len: usize,
    /// Stop after this many entries.
    pub max_entries: usize,
    /// Stop once this many bytes of keys and values are gathered.
    pub max_bytes: usize,
    /// Static rows come before the rows of their partitions.
    pub with_statics: bool,
    /// The index is of a static column: all rows of a partition are meant.
    pub whole_partitions: bool,
    /// A tablet whose index is not complete may be read row by row.
    pub may_scan: bool,
}

impl IndexScan {
    /// Whether it is about one value.
    pub fn is_one_value(&self) -> bool {
        let mut spans = several::decode(&self.spans);
        matches!((spans.next(), spans.next()), (Some(Ok(several::Span { end: None, .. })), None))
    }
}

/// The answer to a [`Fetch`]. Parts that were not asked for, or do not exist, are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The value of the header's key.
    pub header: Option<Vec<u8>>,
    /// The value of the static row's key.
    pub static_row: Option<Vec<u8>>,
    /// The value of the one row.
    pub row: Option<Vec<u8>>,
    /// The piece of the range.
    pub chunk: ScanChunk,
    /// The partial aggregate, in place of all else: an encoded reply ([`crate::exec::pushdown`]).
    pub partial: Option<Vec<u8>>,
    /// The version of the tablet's data, if it was asked for and has not changed during the read.
    pub version: Option<DataVersion>,
    /// The charge for its memory until the caller charges it to the request.
    pub kept: Kept,
}

/// A charge that travels with the value it is for. It does not affect equality, and a copy has none.
#[derive(Debug, Default)]
pub struct Kept(pub Option<Charge>);

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl PartialEq for Kept {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Kept {}

impl Fetched {
    /// The bytes that the caller has to charge from now on.
    pub fn to_be_charged(&mut self) -> usize {
        self.kept = Kept::default();
        self.size_bytes()
    }

    /// Memory that it takes.
    pub fn size_bytes(&self) -> usize {
        let values = [&self.header, &self.static_row, &self.row, &self.partial];
        values.into_iter().flatten().map(Vec::capacity).sum::<usize>() + self.chunk.size_bytes()
    }
}

/// The replicas of a tablet, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// How many have to be up for the tablet to be served: a majority of its voters.
    pub required: u32,
    /// How many are, as far as this node knows.
    pub alive: u32,
}

/// Facts about a node for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its id.
    pub node: NodeId,
    /// `host_id` of `system.local` and `system.peers`.
    pub host_id: uuid::Uuid,
    /// The address CQL is served on.
    pub address: std::net::IpAddr,
    /// The CQL port.
    pub cql_port: u16,
    /// Data centre, as drivers see it.
    pub data_center: String,
    /// Rack (the zone).
    pub rack: String,
    /// The tokens shown to drivers, so that their token maps cover the ring.
    pub tokens: Vec<i64>,
}

/// Tablets and catalog, as the query layer sees them.
pub trait Kv: Send + Sync + 'static {
    /// A value that stays readable for as long as this is held.
    type Pinned: Deref<Target = [u8]> + Send;

    /// Reads one key if that needs no waiting.
    fn get_now(&self, tablet: TabletId, key: &[u8]) -> Result<Now<Option<Self::Pinned>>, KvError>;

    /// Reads one key of a tablet that this node leads, from disk if necessary. `None`: it is led elsewhere, or not
    /// known to be led here. A read that would wait beyond `deadline_ns`, if that is given, need not begin.
    fn get(
        &self,
        _tablet: TabletId,
        _key: Vec<u8>,
        _deadline_ns: Option<u64>,
    ) -> impl Future<Output = Result<Option<Option<Self::Pinned>>, KvError>> + Send {
        async { Ok(None) }
    }

    /// Reads if this node leads the tablet, and no waiting is needed. It does not take long either.
    fn fetch_now(&self, _tablet: TabletId, _request: &Fetch) -> Result<Now<Fetched>, KvError> {
        Ok(Now::WouldBlock)
    }

    /// Reads, wherever the tablet is led and from disk if need be. Requests for other nodes leave together at the next [`Kv::kick`].
    fn fetch(&self, tablet: TabletId, request: Fetch) -> impl Future<Output = Result<Fetched, KvError>> + Send;

    /// The flags of a tablet that [`Kv::get_now`] just answered for (see `TabletChanges::raise_flags`).
    fn flags(&self, tablet: TabletId) -> Result<u64, KvError>;

    /// The version of a tablet's data, if this node leads it and no change is being made at this moment.
    fn version(&self, _tablet: TabletId) -> Option<DataVersion> {
        None
    }

    /// Submits a write and returns at once; the outcome goes to `sink` with `token`. A full queue is an error. The write may wait for others until
    /// [`Kv::kick`].
    fn submit(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        sink: &Arc<dyn WriteSink>,
        token: u64,
    ) -> Result<(), KvError>;

    /// Whether [`Kv::submit`] takes the requests of transactions as well.
    fn submits_requests(&self) -> bool {
        false
    }

    /// Sends the gathered requests. Called after each burst of requests and before the caller waits. Cheap if there are
    /// none.
    fn kick(&self);

    /// As [`Kv::kick`], for a caller that others may follow in a moment: what goes to other nodes leaves with theirs.
    fn kick_soon(&self) {
        self.kick();
    }

    /// Writes and waits. Like [`Kv::fetch`], it may need a [`Kv::kick`] once it has been polled. `deadline_ns` is when the request ends, on the monotonic
    /// clock of this node: a write that has not begun by then is not carried out.
    fn write(
        &self,
        tablet: TabletId,
        mutation: Mutation,
        deadline_ns: Option<u64>,
    ) -> impl Future<Output = Result<WriteReply, KvError>> + Send;

    /// The node that leads a tablet, as far as this node knows.
    fn leader(&self, tablet: TabletId) -> Option<NodeId>;

    /// The replicas of a tablet. Asked for when something failed.
    fn replicas(&self, _tablet: TabletId) -> Replicas {
        Replicas { required: 1, alive: 0 }
    }

    /// The newest catalog this node has. Cheap: a reference count.
    fn catalog(&self) -> Arc<Catalog>;

    /// The version of the newest catalog. Called for every request: implementations should not touch a reference count.
    fn catalog_version(&self) -> u64 {
        self.catalog().version()
    }

    /// Waits until this node has a later version of the catalog than this one. An implementation that does not know when that
    /// happens waits for ever: whoever waits has a timeout.
    fn catalog_after(&self, _version: u64) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Proposes a command to the catalog's Raft group, if it is within the limits; returns the encoded `catalog::Outcome` once the change is applied
    /// and this node serves it (new tablets are open). `deadline_ns`, on the monotonic clock of this node: it is an error if this node does not
    /// know by then that the change is applied.
    fn change_catalog(
        &self,
        command: &Command,
        deadline_ns: Option<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, KvError>> + Send;

    /// This node.
    fn local_node(&self) -> NodeInfo;

    /// The other nodes that are members, up or not.
    fn peers(&self) -> Vec<NodeInfo>;

    /// The version of the schema that a member serves, as clients compare it: a node that has yet to take in a change differs until it has. A node
    /// that is down, and cannot be asked anything, should not differ, or clients would wait for it.
    fn served_schema(&self, _node: NodeId) -> uuid::Uuid {
        self.catalog().schema_version()
    }

    /// A statement has ended because a row that was read is malformed, of this table and tablet: to be counted and logged.
    fn note_malformed(&self, _table: &str, _tablet: TabletId) {}

    /// The trace of a request that another node has coordinated, if that node keeps it and answers soon.
    fn trace(&self, _node: NodeId, _id: uuid::Uuid) -> impl Future<Output = Option<Trace>> + Send {
        async { None }
    }

    /// Does long work without delaying other requests: on a thread for such work, when it is the turn of whoever has sent the request. If too much waits, it is refused
    /// (`KvError::Overloaded`) and not done.
    fn run_long<T: Send>(&self, work: impl FnOnce() -> T + Send) -> impl Future<Output = Result<T, KvError>> + Send {
        async move { Ok(work()) }
    }

    /// The same, for the end of a request that has had an effect: it is never refused.
    fn finish_long<T: Send>(&self, work: impl FnOnce() -> T + Send) -> impl Future<Output = T> + Send {
        async move { work() }
    }

    /// Drops a large value without delaying other requests. Its drop releases its charge.
    fn discard(&self, garbage: Box<dyn Send>) {
        drop(garbage);
    }

    /// Carries out work that outlives the request which has begun it. Whoever spawns has to be content if it is dropped before its end: a node bounds
    /// how much of it there is.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(work);
    }

    /// Waits before something is tried again, for half of this time at least and the whole of it at most: those who have collided should not do so
    /// again.
    fn pause(&self, duration_ns: u64) -> impl Future<Output = ()> + Send;

    /// Hashes or checks a password, which takes tens of milliseconds and megabytes; the node limits how many run at a time.
    fn hash<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, KvError>> + Send {
        async move { Ok(work()) }
    }

    /// Wall-clock microseconds since the epoch (for TTLs and `now()`).
    fn now_us(&self) -> i64;

    /// The monotonic clock, by which requests and waits end: it advances in a [`Kv::pause`].
    fn monotonic_ns(&self) -> u64;
}
