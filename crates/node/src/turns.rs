//! Fair queueing: a limited number of works run at a time, and the clients whose works wait take turns, round robin by client
//! and then by connection.
//!
//! A client is an address (`Source`), not a role: a program has one address and may open many connections. Each other node is a
//! client as well, and so is this node.
//!
//! Always true: the client that had the last turn comes after all others that wait, so a client waits for at most one turn of
//! each other client, however much these have queued. The queue is bounded: when it is full, a client that has fewer works in
//! it takes the place of the newest work of the client that has most, and that work is refused. A work whose request has ended
//! leaves the queue at once. Left out: the works themselves, and how long they take.

use diorite_base::NodeId;
use diorite_base::connections::Source;
use diorite_base::write::KvError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A client, for its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// A client that is connected from this address.
    At(Source),
    /// Another node, on behalf of its clients.
    Node(NodeId),
    /// This node itself.
    Own,
}

/// A client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    /// Differs between the connections of a client.
    pub(crate) connection: u64,
}

tokio::task_local! {
    static CALLER: Caller;
}

impl From<SocketAddr> for Caller {
    fn from(address: SocketAddr) -> Self {
        Self { client: Client::At(Source::from(address.ip())), connection: address.port().into() }
    }
}

impl Caller {
    /// This node, for no connection.
    pub(crate) const OWN: Self = Self { client: Client::Own, connection: 0 };

    /// What `work` does is done for this one.
    pub(crate) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CALLER.scope(self, work)
    }

    /// For whom this task works.
    pub(crate) fn current() -> Self {
        CALLER.try_with(|caller| *caller).unwrap_or(Self::OWN)
    }
}

/// Called with the turn, or without one if the work is refused to make room. It returns a turn that nobody takes.
type Then = Box<dyn FnOnce(Option<Turn>) -> Option<Turn> + Send>;

struct Waiting {
    number: u64,
    /// It is never refused to make room.
    stays: bool,
    then: Then,
}

/// Queues that take turns, in the order of their next turns; none is empty.
struct Round<K, L>(VecDeque<(K, L)>);

impl<K, L> Default for Round<K, L> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: PartialEq + Copy, L: Default> Round<K, L> {
    /// The line of `key`, which may be new.
    fn line(&mut self, key: K) -> &mut L {
        let at = self.0.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            self.0.push_back((key, L::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// Takes out the line whose turn it is: the first one that has not had the last turn, if there is one.
    fn next(&mut self, last: Option<K>) -> Option<(K, L)> {
        let has_had_last = self.0.front().is_some_and(|(key, _)| Some(*key) == last);
        let at = usize::from(has_had_last && self.0.len() > 1);
        self.0.remove(at)
    }

    /// Puts the line back behind all others, unless it is empty.
    fn put_back(&mut self, key: K, line: L, is_empty: bool) {
        if !is_empty {
            self.0.push_back((key, line));
        }
    }
}

/// What waits for a connection, in order.
type Line = VecDeque<Waiting>;

/// What waits for a client.
#[derive(Default)]
struct OfClient {
    connections: Round<u64, Line>,
    waiting: usize,
}

struct State {
    free: usize,
    waiting: usize,
    numbers: u64,
    clients: Round<Client, OfClient>,
    /// Who had the last turn.
    last: Option<Caller>,
}

impl State {
    fn push(&mut self, caller: Caller, stays: bool, then: Then) -> u64 {
        self.numbers += 1;
        self.waiting += 1;
        let client = self.clients.line(caller.client);
        client.waiting += 1;
        client.connections.line(caller.connection).push_back(Waiting { number: self.numbers, stays, then });
        self.numbers
    }

    /// Takes out who is next.
    fn pop(&mut self) -> Option<Then> {
        let (client, mut line) = self.clients.next(self.last.map(|last| last.client))?;
        let last = self.last.filter(|last| last.client == client).map(|last| last.connection);
        let (connection, mut waiting) = line.connections.next(last)?;
        let next = waiting.pop_front()?;
        let is_empty = waiting.is_empty();
        line.connections.put_back(connection, waiting, is_empty);
        line.waiting -= 1;
        let is_empty = line.waiting == 0;
        self.clients.put_back(client, line, is_empty);
        self.waiting -= 1;
        self.last = Some(Caller { client, connection });
        Some(next.then)
    }

    /// Takes out what waits no longer, if it still does.
    fn remove(&mut self, caller: Caller, number: u64) -> Option<Then> {
        let client = self.clients.0.iter().position(|(client, _)| *client == caller.client)?;
        let line = &mut self.clients.0[client].1;
        let connection = line.connections.0.iter().position(|(connection, _)| *connection == caller.connection)?;
        let waiting = &mut line.connections.0[connection].1;
        let at = waiting.iter().position(|waiting| waiting.number == number)?;
        let removed = waiting.remove(at)?;
        if waiting.is_empty() {
            line.connections.0.remove(connection);
        }
        line.waiting -= 1;
        if line.waiting == 0 {
            self.clients.0.remove(client);
        }
        self.waiting -= 1;
        Some(removed.then)
    }

    /// Takes out the newest of the client that waits for most turns, if these are more than `client` would then wait for.
    fn make_place(&mut self, client: Client) -> Option<Then> {
        let own = self.clients.0.iter().find(|(known, _)| *known == client).map_or(0, |(_, line)| line.waiting);
        let (most, line) = self.clients.0.iter().max_by_key(|(_, line)| line.waiting)?;
        if line.waiting <= own + 1 {
            return None;
        }
        let newest_of = |line: &Line| line.iter().rev().find(|waiting| !waiting.stays).map(|waiting| waiting.number);
        let newest = line.connections.0.iter().filter_map(|(connection, line)| Some((newest_of(line)?, *connection)));
        let (number, connection) = newest.max()?;
        let caller = Caller { client: *most, connection };
        self.remove(caller, number)
    }
}

/// Turns, of which so many may be taken at a time.
pub(crate) struct Turns {
    state: Mutex<State>,
    max_waiting: usize,
    /// What is said to those that do not fit.
    refusal: &'static str,
}

/// A turn; over when it is dropped.
pub(crate) struct Turn(Option<Arc<Turns>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

/// Leaves, if it still waits.
struct Leaving<'a> {
    turns: &'a Turns,
    caller: Caller,
    number: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let removed = self.turns.state.lock().remove(self.caller, self.number);
        drop(removed);
    }
}

/// What became of a wish for a turn.
enum Wish {
    Granted(Turn, Then),
    Waits(u64),
    Refused,
}

impl Turns {
    /// So many at a time; at most `max_waiting` wait, and what does not fit is refused with the reason `refusal`.
    pub(crate) fn new(at_a_time: usize, max_waiting: usize, refusal: &'static str) -> Arc<Self> {
        let state = State { free: at_a_time, waiting: 0, numbers: 0, clients: Round::default(), last: None };
        Arc::new(Self { state: Mutex::new(state), max_waiting, refusal })
    }

    /// Takes a turn, when it is the caller's. Whoever drops this waits no longer.
    pub(crate) async fn take(self: &Arc<Self>, caller: Caller) -> Result<Turn, KvError> {
        self.wait(caller, false).await.ok_or(KvError::Overloaded(self.refusal))
    }

    /// The same, and it is never refused, so that there is always a turn. For what must be done and of which each connection has one at a time.
    pub(crate) async fn take_always(self: &Arc<Self>, caller: Caller) -> Option<Turn> {
        self.wait(caller, true).await
    }

    async fn wait(self: &Arc<Self>, caller: Caller, stays: bool) -> Option<Turn> {
        let (sender, receiver) = oneshot::channel();
        match self.wish(caller, stays, Box::new(move |turn| sender.send(turn).err().flatten())) {
            Wish::Granted(turn, _) => Some(turn),
            Wish::Refused => None,
            Wish::Waits(number) => {
                // Dropped before the receiver, so that a turn that comes in between is passed on with that.
                let leaving = Leaving { turns: self, caller, number };
                let turn = receiver.await;
                drop(leaving);
                turn.ok().flatten()
            }
        }
    }

    /// Begins `work` when it is the caller's turn: here, or where the turn before ends. It must be brief, and gets no turn if it has to make place.
    ///
    /// # Errors
    /// If it is refused at once; then it is dropped.
    pub(crate) fn when_due(
        self: &Arc<Self>,
        caller: Caller,
        work: impl FnOnce(Result<Turn, KvError>) + Send + 'static,
    ) -> Result<(), KvError> {
        let refusal = KvError::Overloaded(self.refusal);
        let refused = refusal.clone();
        let then = move |turn: Option<Turn>| {
            work(turn.ok_or(refused));
            None
        };
        match self.wish(caller, false, Box::new(then)) {
            Wish::Granted(turn, then) => drop(then(Some(turn))),
            Wish::Waits(_) => {}
            Wish::Refused => return Err(refusal),
        }
        Ok(())
    }

    fn wish(self: &Arc<Self>, caller: Caller, stays: bool, then: Then) -> Wish {
        let mut state = self.state.lock();
        if state.free > 0 {
            state.free -= 1;
            state.last = Some(caller);
            return Wish::Granted(Turn(Some(Arc::clone(self))), then);
        }
        let mut refused = None;
        if !stays && state.waiting >= self.max_waiting {
            refused = state.make_place(caller.client);
            if refused.is_none() {
                return Wish::Refused;
            }
        }
        let number = state.push(caller, stays, then);
        drop(state);
        if let Some(refused) = refused {
            // There was no turn that it could return.
            drop(refused(None));
        }
        Wish::Waits(number)
    }

    /// A turn is over: it is the next one's.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let Some(then) = state.pop() else {
                state.free += 1;
                return;
            };
            drop(state);
            let Some(mut unwanted) = then(Some(Turn(Some(Arc::clone(self))))) else { return };
            unwanted.0 = None;
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use futures::FutureExt;
    use futures::future::BoxFuture;

    type Taking = BoxFuture<'static, Result<Turn, KvError>>;

    fn caller(address: u8, connection: u64) -> Caller {
        Caller { connection, ..Caller::from(SocketAddr::from(([127, 0, 0, address], 0))) }
    }

    /// Takes a turn, for which it may have to wait; what it gives by now.
    fn taking(turns: &Arc<Turns>, caller: Caller) -> (Taking, Option<Result<Turn, KvError>>) {
        let turns = Arc::clone(turns);
        let mut taking = async move { turns.take(caller).await }.boxed();
        let now = (&mut taking).now_or_never();
        (taking, now)
    }

    /// One for each of these that waits.
    fn waiting(turns: &Arc<Turns>, callers: impl IntoIterator<Item = Caller>) -> Vec<(Caller, Taking)> {
        let wait = |caller| {
            let (taking, now) = taking(turns, caller);
            assert!(now.is_none());
            (caller, taking)
        };
        callers.into_iter().map(wait).collect()
    }

    /// The order in which those get their turns that wait, one at a time.
    fn order(first: Turn, mut waiting: Vec<(Caller, Taking)>) -> Vec<Caller> {
        let (mut turn, mut order) = (first, Vec::new());
        while !waiting.is_empty() {
            drop(turn);
            let next = waiting.iter_mut().enumerate().find_map(|(at, (_, taking))| Some((at, taking.now_or_never()?)));
            let (at, taken) = next.unwrap();
            order.push(waiting.remove(at).0);
            turn = taken.unwrap();
        }
        order
    }

    #[test]
    fn who_has_much_to_do_lets_others_begin_second() {
        let turns = Turns::new(1, 100, "full");
        let first = taking(&turns, caller(1, 0)).1.unwrap().unwrap();
        let mut all = waiting(&turns, (1..64).map(|connection| caller(1, connection)));
        all.extend(waiting(&turns, [caller(2, 7)]));
        let order = order(first, all);
        assert_eq!(order[0], caller(2, 7));
        assert_eq!(order[1..], (1..64).map(|connection| caller(1, connection)).collect::<Vec<_>>());
        assert_eq!(turns.waiting(), 0);
        assert!(taking(&turns, caller(1, 0)).1.is_some(), "the turn was given back");
    }

    #[test]
    fn turns_go_round_by_client_and_then_by_connection() {
        let turns = Turns::new(1, 100, "full");
        let first = taking(&turns, caller(1, 1)).1.unwrap().unwrap();
        let (busy, single, other) = ([caller(1, 1); 3], [caller(1, 2)], [caller(2, 1); 2]);
        let all = waiting(&turns, busy.into_iter().chain(single).chain(other));
        let expected = [caller(2, 1), caller(1, 1), caller(2, 1), caller(1, 2), caller(1, 1), caller(1, 1)];
        assert_eq!(order(first, all), expected);
        let first = taking(&turns, caller(1, 1)).1.unwrap().unwrap();
        let all = waiting(&turns, busy.into_iter().chain(single));
        assert_eq!(order(first, all), [caller(1, 2), caller(1, 1), caller(1, 1), caller(1, 1)]);
    }

    #[test]
    fn who_waits_no_longer_leaves_at_once_and_a_turn_that_nobody_takes_goes_on() {
        let turns = Turns::new(1, 100, "full");
        let first = taking(&turns, caller(1, 1)).1.unwrap().unwrap();
        let mut all = waiting(&turns, [caller(1, 1), caller(2, 1), caller(2, 2), caller(3, 1)]);
        drop(all.remove(1));
        assert_eq!(turns.waiting(), 3);
        drop(first);
        // The second client's other connection has the turn, and does not know it.
        assert_eq!(turns.waiting(), 2);
        drop(all.remove(1));
        assert_eq!(turns.waiting(), 1);
        let passed_on = all.remove(0).1.now_or_never().unwrap().unwrap();
        assert!((&mut all[0].1).now_or_never().is_none());
        drop(passed_on);
        assert!(all.remove(0).1.now_or_never().unwrap().is_ok());
    }

    #[test]
    fn what_does_not_fit_is_refused_and_who_has_most_makes_place() {
        let turns = Turns::new(1, 4, "full");
        let first = taking(&turns, caller(1, 1)).1.unwrap().unwrap();
        let mut all = waiting(&turns, (1..5).map(|connection| caller(1, connection)));
        assert!(matches!(taking(&turns, caller(1, 9)).1, Some(Err(KvError::Overloaded("full")))));
        all.extend(waiting(&turns, [caller(2, 1), caller(2, 2)]));
        assert_eq!(turns.waiting(), 4);
        for connection in [4, 3] {
            let (made_place, taking) = all.remove(connection - 1);
            assert_eq!(made_place, caller(1, connection as u64), "the newest");
            assert!(matches!(taking.now_or_never(), Some(Err(KvError::Overloaded("full")))));
        }
        assert!(matches!(taking(&turns, caller(2, 3)).1, Some(Err(_))), "both have two now");
        let order = order(first, all);
        assert_eq!(order, [caller(2, 1), caller(1, 1), caller(2, 2), caller(1, 2)]);
    }

    #[test]
    fn what_must_be_done_is_never_refused_and_makes_no_place() {
        let turns = Turns::new(1, 1, "full");
        let first = taking(&turns, caller(1, 1)).1.unwrap().unwrap();
        let must = |connection| {
            let turns = Arc::clone(&turns);
            async move { turns.take_always(caller(1, connection)).await }.boxed()
        };
        let mut waiting = [must(1), must(2), must(3)];
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        assert!(matches!(taking(&turns, caller(2, 1)).1, Some(Err(_))));
        let mut turn = Some(first);
        // The connection that has had the last turn comes after the next one.
        for at in [1, 0, 2] {
            drop(turn.take());
            turn = (&mut waiting[at]).now_or_never().unwrap();
            assert!(turn.is_some());
        }
    }

    #[test]
    fn work_begins_when_it_is_due_or_learns_that_it_is_not() {
        let turns = Turns::new(1, 2, "full");
        let (sender, begun) = std::sync::mpsc::sync_channel(8);
        let begin = |address: u8| {
            let sender = sender.clone();
            turns.when_due(caller(address, 1), move |turn| sender.send((address, turn)).unwrap())
        };
        begin(1).unwrap();
        let (address, first) = begun.try_recv().unwrap();
        assert_eq!((address, first.is_ok()), (1, true));
        begin(1).unwrap();
        begin(1).unwrap();
        assert!(matches!(begin(1), Err(KvError::Overloaded("full"))));
        begin(2).unwrap();
        assert!(matches!(begun.try_recv(), Ok((1, Err(KvError::Overloaded("full"))))));
        drop(first);
        assert!(matches!(begun.try_recv(), Ok((2, Ok(_)))));
        // Received and dropped: it was the next one's turn.
        assert!(matches!(begun.try_recv(), Ok((1, Ok(_)))));
        assert_eq!(turns.waiting(), 0);
    }
}
