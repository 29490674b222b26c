//! The tablets as the query layer sees them: its reads and writes wait here until the simulation has carried them to a
//! node and back.
//!
//! Always true: one event polls one statement; only the answers that it waits for wake it.

use crate::clock::TrueTime;
use diorite_base::mutation::Mutation;
use diorite_base::{Clock, Levels, NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription};
use diorite_query::exec::source::scan_entries;
use diorite_query::index;
use diorite_query::kv::{
    Fetch, FetchRows, Fetched, Kv, KvError, NodeInfo, Now, ScanChunk, WriteReply, WriteSink, several,
};
use diorite_storage::{MemoryTablet, ScanRange, StorageError, TabletData};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};
use uuid::Uuid;

/// A statement's request to a tablet.
#[derive(Clone, Debug)]
pub enum Asked {
    /// To write.
    Write(Mutation),
    /// To read.
    Fetch(Fetch),
}

/// The outcome of a request.
pub type Answered = Result<Given, KvError>;

/// A tablet's answer.
#[derive(Clone, Debug)]
pub enum Given {
    /// The answer to a write.
    Written(WriteReply),
    /// The entries read.
    Fetched(Fetched),
}

#[derive(Default)]
struct Calls {
    next: u64,
    /// Asked since this was last taken.
    new: Vec<(u64, TabletId, Asked)>,
    answers: BTreeMap<u64, Answered>,
    /// Who waits for which answer: parts of a statement are polled only once they are woken.
    waiting: BTreeMap<u64, Waker>,
}

/// See the top of this module.
pub struct SimKv {
    catalog: Mutex<Arc<Catalog>>,
    time: TrueTime,
    calls: Mutex<Calls>,
    /// The changes of the catalog that were asked for.
    definitions: Mutex<Vec<Command>>,
}

impl SimKv {
    /// A cluster of one node, as far as this snapshot knows: statements need tables and tablets of it only.
    pub fn new(time: TrueTime) -> Self {
        let node = NodeDescription {
            host_id: Uuid::from_u128(1),
            address: std::net::IpAddr::from([127, 0, 0, 1]),
            cql_port: 9042,
            rpc_port: 7100,
            http_port: 7000,
            data_center: "datacenter1".to_owned(),
            zone: "rack1".to_owned(),
            node_address: None,
            levels: Some(Levels::OWN),
        };
        let bootstrap = Command::Bootstrap {
            cluster_id: Uuid::from_u128(2),
            name: "sim".to_owned(),
            replication_factor: 1,
            requires_login: None,
            level: Levels::OWN.greatest,
        };
        let (catalog, ..) = Catalog::default().apply(&bootstrap);
        let (catalog, ..) = catalog.apply(&Command::RegisterNode { node });
        Self { catalog: Mutex::new(Arc::new(catalog)), time, calls: Mutex::default(), definitions: Mutex::default() }
    }

    /// The changes of the catalog that were asked for: with these the cluster itself has the same tables, and tablets of the same numbers.
    pub fn definitions(&self) -> Vec<Command> {
        self.definitions.lock().clone()
    }

    /// The requests since the last call: number, tablet and request.
    pub fn take_new(&self) -> Vec<(u64, TabletId, Asked)> {
        std::mem::take(&mut self.calls.lock().new)
    }

    /// Answers a request.
    pub fn answer(&self, call: u64, answer: Answered) {
        let mut calls = self.calls.lock();
        calls.answers.insert(call, answer);
        let waker = calls.waiting.remove(&call);
        drop(calls);
        waker.into_iter().for_each(Waker::wake);
    }

    async fn call(&self, tablet: TabletId, asked: Asked) -> Answered {
        let call = {
            let mut calls = self.calls.lock();
            calls.next += 1;
            let call = calls.next;
            calls.new.push((call, tablet, asked));
            call
        };
        std::future::poll_fn(|context| {
            let mut calls = self.calls.lock();
            if let Some(answer) = calls.answers.remove(&call) {
                return Poll::Ready(answer);
            }
            calls.waiting.insert(call, context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Kv for SimKv {
    type Pinned = Vec<u8>;

    fn get_now(&self, _: TabletId, _: &[u8]) -> Result<Now<Option<Vec<u8>>>, KvError> {
        Ok(Now::WouldBlock)
    }

    async fn fetch(&self, tablet: TabletId, request: Fetch) -> Result<Fetched, KvError> {
        match self.call(tablet, Asked::Fetch(request)).await? {
            Given::Fetched(fetched) => Ok(fetched),
            Given::Written(_) => unreachable!("a read is answered with what was read"),
        }
    }

    fn flags(&self, tablet: TabletId) -> Result<u64, KvError> {
        // Asked only after a read that did not wait; none does that.
        Err(KvError::Unavailable(tablet))
    }

    fn submit(&self, tablet: TabletId, _: Mutation, _: &Arc<dyn WriteSink>, _: u64) -> Result<(), KvError> {
        // Statements go the general way.
        Err(KvError::Unavailable(tablet))
    }

    fn kick(&self) {}

    async fn write(&self, tablet: TabletId, mutation: Mutation, _: Option<u64>) -> Result<WriteReply, KvError> {
        match self.call(tablet, Asked::Write(mutation)).await? {
            Given::Written(reply) => Ok(reply),
            Given::Fetched(_) => unreachable!("a write is answered with its reply"),
        }
    }

    fn leader(&self, _: TabletId) -> Option<NodeId> {
        None
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock())
    }

    async fn change_catalog(&self, command: &Command) -> Result<Vec<u8>, KvError> {
        command.proven_at(self.catalog.lock().level())?;
        self.definitions.lock().push(command.clone());
        let mut catalog = self.catalog.lock();
        let (changed, outcome) = catalog.apply(command);
        *catalog = Arc::new(changed);
        Ok(outcome.encode())
    }

    fn local_node(&self) -> NodeInfo {
        NodeInfo {
            node: NodeId(1),
            host_id: Uuid::from_u128(1),
            address: std::net::IpAddr::from([127, 0, 0, 1]),
            cql_port: 9042,
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens: vec![0],
        }
    }

    fn peers(&self) -> Vec<NodeInfo> {
        Vec::new()
    }

    fn now_us(&self) -> i64 {
        self.time.wall_us()
    }
}

/// Answers a read from a tablet's data at one moment. `flags` are the tablet's.
pub fn read(data: &Arc<MemoryTablet>, flags: u64, request: &Fetch) -> Fetched {
    let get = |key: &Vec<u8>| data.get(key).expect("memory can be read").map(|value| value.to_vec());
    let entries_of = |start: &[u8], end: &[u8]| {
        let mut entries = Vec::new();
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        let scanned = data.scan(&range, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            true
        });
        assert!(scanned.is_ok(), "memory can be read");
        entries
    };
    let header = request.header.as_ref().filter(|(asked, _)| asked & flags != 0);
    let mut fetched = Fetched {
        header: header.and_then(|(_, key)| get(key)),
        static_row: request.static_row.as_ref().and_then(get),
        ..Fetched::default()
    };
    match &request.rows {
        FetchRows::Nothing => {}
        FetchRows::One(key) => fetched.row = get(key),
        FetchRows::Range(range) => fetched.chunk = scan_entries(&entries_of(&range.start, &range.end), range),
        FetchRows::Several(several) => {
            let mut chunk = ScanChunk { exhausted: true, ..ScanChunk::default() };
            for span in several::decode(&several.spans).map_while(Result::ok) {
                let is_meant = span.if_flags == 0 || span.if_flags & flags != 0;
                let mut entries = match &span.end {
                    _ if !is_meant => Vec::new(),
                    Some(end) => entries_of(&span.start, end),
                    None => get(&span.start).map(|value| (span.start.clone(), value)).into_iter().collect(),
                };
                if several.reverse {
                    entries.reverse();
                }
                entries.iter().for_each(|(key, value)| chunk.push(key, value));
            }
            fetched.chunk = chunk;
        }
        FetchRows::Index(scan) => {
            let moment = Moment { data, flags };
            match index::read(&moment, scan) {
                Ok(found) => fetched.chunk = found.chunk,
                Err(error) => panic!("memory can be read, and indexes are complete: {error:?}"),
            }
        }
    }
    fetched
}

/// A tablet's data in memory, which does not change while it is read.
struct Moment<'d> {
    data: &'d Arc<MemoryTablet>,
    flags: u64,
}

impl index::Moment for Moment<'_> {
    type Error = StorageError;
    type Value = Vec<u8>;

    fn flags(&self) -> u64 {
        self.flags
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.data.get(key)?.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        self.data.scan(&ScanRange { start, end, reverse: false, expected_entries: 0 }, visit)
    }

    fn hold(&self, _: usize) -> Result<(), StorageError> {
        Ok(())
    }
}
