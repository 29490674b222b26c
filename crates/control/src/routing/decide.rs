//! The decisions of routing: where a request goes at first and after a refusal, and which parked requests continue.

use super::flight::Limits;
use super::leaders::Leaders;
use super::parked::{Parked, Release};
use super::request::{Asked, Request, Sent, Timeouts, Work};
use super::step::{Step, Target, Way};
use super::view::{Local, View};
use crate::planted::Planted;
use diorite_base::write::{KvError, Waited};
use diorite_base::{NodeId, TabletId};

/// How many refusals in a row, by the tablet's nodes and by one more that a refusal named, a request gets before it is
/// parked.
const MAX_ATTEMPTS: usize = 4;
/// How many tablets may follow each other before a request is planned again.
const MAX_SUCCESSORS: usize = 8;

const TOO_MANY: &str = "too many requests wait for other nodes";

/// The known leaders, and the requests that wait for one. See the top of [this folder](super).
#[derive(Debug)]
pub struct Routing<W> {
    node: NodeId,
    timeouts: Timeouts,
    leaders: Leaders,
    parked: Parked<W>,
    planted: Planted,
}

impl<W: Work> Routing<W> {
    /// The routing of node `node`. `limits` bound the parked requests.
    pub fn new(node: NodeId, limits: Limits, timeouts: Timeouts) -> Self {
        let (leaders, parked) = (Leaders::default(), Parked::new(limits));
        Self { node, timeouts, leaders, parked, planted: Planted::default() }
    }

    /// Plants these bugs, in builds that can.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted.allowed();
    }

    /// How long requests wait.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Parked requests.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// The tablet's leader, according to answers.
    pub fn learned(&self, tablet: TabletId) -> Option<NodeId> {
        self.leaders.get(tablet).map(|learned| learned.node)
    }

    /// Where a request goes after `attempts` refusals in a row, the last one by `refused_by`.
    ///
    /// # Errors
    ///
    /// [`KvError::NoSuchTablet`] if the catalog does not know the tablet.
    pub fn way(
        &self,
        tablet: TabletId,
        attempts: usize,
        refused_by: Option<NodeId>,
        view: &impl View<W>,
        now_ns: u64,
    ) -> Result<Way, KvError> {
        let local = view.local(tablet);
        let told = match local {
            Local::Leads => return Ok(Way::Here),
            Local::Follows(leader) => leader,
            Local::Absent => None,
        };
        let may_ask = |node: NodeId| Some(node) != refused_by && self.may_ask(node, view);
        let learned = self.leaders.get(tablet);
        let fresh = learned.filter(|learned| learned.is_fresh(now_ns));
        let known = [fresh.map(|learned| learned.node), told, learned.map(|learned| learned.node)];
        if let Some(node) = known.into_iter().flatten().find(|node| may_ask(*node)) {
            return Ok(Way::Node(Target { node, is_known: true }));
        }
        let mut holders = view.holders(tablet).ok_or(KvError::NoSuchTablet(tablet))?;
        holders.retain(|node| self.may_ask(*node, view));
        // Round robin, so that as many attempts as there are holders ask all of them.
        let first = attempts % holders.len().max(1);
        let (before, after) = holders.split_at(first);
        Ok(match after.iter().chain(before).find(|node| Some(**node) != refused_by) {
            Some(node) => Way::Node(Target { node: *node, is_known: false }),
            None => Way::Nobody,
        })
    }

    /// Where a new request goes without waiting; `None` if it has to be [parked](Self::park).
    ///
    /// # Errors
    ///
    /// [`KvError::NoSuchTablet`] if the catalog does not know the tablet.
    pub fn direct(&self, tablet: TabletId, view: &impl View<W>, now_ns: u64) -> Result<Option<Target>, KvError> {
        Ok(match self.way(tablet, 0, None, view, now_ns)? {
            Way::Node(target) => {
                let must_wait = self.parked.must_wait(tablet, target.is_known.then_some(target.node));
                Some(target).filter(|_| !must_wait)
            }
            // Its replica has just refused the request, or began to lead a moment ago.
            Way::Here | Way::Nobody => None,
        })
    }

    /// Parks a request until a leader is known.
    pub fn park(&mut self, request: Request<W>) -> Step<W> {
        match self.parked.add(request) {
            Ok(()) => Step::Parked,
            Err(request) => Self::overloaded(request.work),
        }
    }

    /// Ends a request because too many are parked.
    pub fn overloaded(work: W) -> Step<W> {
        Step::Overloaded(work, KvError::Overloaded(TOO_MANY))
    }

    /// Sends a request again that is certainly not carried out, or is a read. `named` leads, according to the last
    /// refusal.
    pub fn again(
        &mut self,
        mut request: Request<W>,
        mut named: Option<NodeId>,
        view: &impl View<W>,
        now_ns: u64,
    ) -> Step<W> {
        if request.deadline_ns <= now_ns {
            let error = KvError::Unavailable(request.tablet);
            return Step::TimedOut(request.work, error);
        }
        for _ in 0..MAX_SUCCESSORS {
            let error = match self.way_again(&request, named.take(), view, now_ns) {
                // Not at once to a store that has just refused it.
                Ok(Way::Here) if request.refused_by != Some(self.node) => return Step::Serve(request),
                Ok(Way::Node(target)) => return Self::send(request, target, now_ns),
                Ok(Way::Here | Way::Nobody) => return self.park(request),
                Err(error) => error,
            };
            match view.successor(request.tablet, &request.work).filter(|successor| *successor != request.tablet) {
                Some(successor) => request.moves_to(successor),
                None => return Step::Fail(request.work, error),
            }
        }
        let error = KvError::NoSuchTablet(request.tablet);
        Step::Fail(request.work, error)
    }

    fn way_again(
        &self,
        request: &Asked<W>,
        named: Option<NodeId>,
        view: &impl View<W>,
        now_ns: u64,
    ) -> Result<Way, KvError> {
        let tablet = request.tablet;
        if view.is_split(tablet) {
            return Err(KvError::NoSuchTablet(tablet));
        }
        if request.attempts >= MAX_ATTEMPTS {
            return Ok(Way::Nobody);
        }
        match named.filter(|node| Some(*node) != request.refused_by && self.may_ask(*node, view)) {
            Some(node) => Ok(Way::Node(Target { node, is_known: true })),
            None => self.way(tablet, request.attempts + request.rounds, request.refused_by, view, now_ns),
        }
    }

    fn may_ask(&self, node: NodeId, view: &impl View<W>) -> bool {
        node != self.node && view.is_up(node)
    }

    fn send(mut request: Request<W>, target: Target, now_ns: u64) -> Step<W> {
        request.update_time_left(now_ns);
        Step::Send(target.node, target.mark(request))
    }

    /// A node has answered a [probe](Sent::is_probe): it leads the tablet. Returns the requests that were parked for
    /// that, each to be sent [again](Self::again).
    pub fn answered(&mut self, from: NodeId, tablet: TabletId, now_ns: u64) -> Vec<Request<W>> {
        self.leaders.learn(tablet, from, now_ns);
        self.release(tablet, Release::All)
    }

    /// A node has refused a request, or failed to carry it out.
    pub fn failed(&mut self, from: NodeId, sent: Sent<W>, error: KvError, view: &impl View<W>, now_ns: u64) -> Step<W> {
        let tablet = sent.asked().tablet;
        let named = match error {
            KvError::NotLeader { leader, .. } => {
                match leader.filter(|leader| *leader != from) {
                    Some(leader) if leader != self.node => self.leaders.learn(tablet, leader, now_ns),
                    _ => self.leaders.forget(tablet, from),
                }
                leader
            }
            KvError::NoSuchTablet(_) => {
                self.leaders.forget(tablet, from);
                None
            }
            // Its leader lost leadership before the entry was committed, and the log proves that it never will be.
            KvError::Unavailable(_) => None,
            KvError::Timeout(_) if self.planted.resend_unknown => {
                return self.again(sent.never_left(), None, view, now_ns);
            }
            error => return Step::Fail(sent.into_work(), error),
        };
        let mut request = match sent.refused(from, &error) {
            Ok(request) => request,
            Err(sent) => return Step::Fail(sent.into_work(), error),
        };
        if matches!(error, KvError::NoSuchTablet(_)) {
            let missing_ns = now_ns.saturating_sub(request.missing_since(now_ns));
            if missing_ns >= self.timeouts.missing.as_nanos() as u64 && !view.is_new_child(tablet) {
                return Step::Fail(request.work, error);
            }
        }
        self.again(request, named, view, now_ns)
    }

    /// This node's replica has refused a request and named the leader, if it knows it.
    pub fn refused_here(
        &mut self,
        mut request: Request<W>,
        leader: Option<NodeId>,
        view: &impl View<W>,
        now_ns: u64,
    ) -> Step<W> {
        request.refused(self.node);
        self.again(request, leader, view, now_ns)
    }

    /// This node is to carry out a request, but its replica of the tablet is not open: it is being opened, or moved
    /// between two disks.
    pub fn not_open_here(&mut self, request: Request<W>, view: &impl View<W>) -> Step<W> {
        if view.holders(request.tablet).is_some() {
            return self.park(request);
        }
        let error = KvError::NoSuchTablet(request.tablet);
        Step::Fail(request.work, error)
    }

    /// The frame of a request was not sent at all, because the node is down or too much waits for it.
    pub fn not_sent(&mut self, request: Request<W>, is_down: bool) -> Step<W> {
        if is_down { self.park(request) } else { Self::overloaded(request.work) }
    }

    /// A request was not answered in time: its outcome is unknown.
    pub fn unanswered(&self, sent: Sent<W>) -> Step<W> {
        let after_ms = self.timeouts.of(&sent.asked().work).as_millis() as u64;
        Step::TimedOut(sent.into_work(), KvError::Timeout(Waited::in_vain(after_ms)))
    }

    /// A request's node, or a connection with it, has ended without an answer: its outcome is unknown.
    pub fn lost(sent: Sent<W>) -> Step<W> {
        Step::TimedOut(sent.into_work(), KvError::Timeout(Waited::ended()))
    }

    /// Ends parked requests whose deadline has passed.
    pub fn expire(&mut self, now_ns: u64) -> Vec<Step<W>> {
        let expired = self.parked.take_expired(now_ns).into_iter();
        expired.map(|request| Step::TimedOut(request.work, KvError::Unavailable(request.tablet))).collect()
    }

    /// The tablets with parked requests; [`Self::look`] is to be called for each from time to time, and when a node
    /// comes up.
    pub fn parked_tablets(&self) -> Vec<TabletId> {
        self.parked.tablets()
    }

    /// Releases the parked requests of a tablet if its leader is known by now, otherwise one of them as a probe. Each
    /// is to be sent [again](Self::again).
    pub fn look(&mut self, tablet: TabletId, view: &impl View<W>, now_ns: u64) -> Vec<Request<W>> {
        let Some(refused_by) = self.parked.refused_by(tablet) else { return Vec::new() };
        let release = match self.way(tablet, 0, None, view, now_ns) {
            _ if view.is_split(tablet) => Release::All,
            Ok(Way::Here) | Err(_) => Release::All,
            Ok(Way::Node(Target { node, is_known: true })) if Some(node) != refused_by => Release::All,
            Ok(Way::Node(_)) => Release::One,
            Ok(Way::Nobody) => return Vec::new(),
        };
        self.release(tablet, release)
    }

    fn release(&mut self, tablet: TabletId, release: Release) -> Vec<Request<W>> {
        if self.planted.parked_never_woken && release == Release::All {
            return Vec::new();
        }
        self.parked.release(tablet, release)
    }

    /// A node is down: it leads no tablet. The reads that it was sent are to be [taken](super::InFlight::take_reads)
    /// and sent again.
    pub fn node_down(&mut self, node: NodeId) {
        self.leaders.forget_node(node);
    }
}
