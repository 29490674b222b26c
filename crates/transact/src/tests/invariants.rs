//! The invariants of the protocol, with what they need to know of the past.
//!
//! 1. A row is prepared by one transaction at a time, and nothing else writes it meanwhile.
//! 2. A commit is stamped above its prepares; the writes of a row have growing stamps.
//! 3. A transaction is committed once, by its home, while all prepares that the commit names are in force; what was
//!    reported as aborted is never committed; nobody finishes as committed what is not, or as aborted what is.
//! 4. An outcome is forgotten only when every prepare that it names is finished.
//! 5. Rows hold what the transactions and writes give that are committed, one after the other in the order of their
//!    stamps: nothing is lost, applied twice, or evaluated on rows that change.
//! 6. The client is told the truth, and at most one attempt of its transaction is committed. Where readers
//!    do not ask what has become of what is prepared, its rows are written when it is told so.
//! 7. A read of several tablets shows all of a committed transaction or nothing, and nothing that is stamped later. A
//!    read returns no less than what was acknowledged, or read, before it began; a transaction that was seen in one
//!    row is seen in all.

use super::snapshots::KEY;
use super::tablet::{Tablet, increment};
use super::world::World;
use crate::coordinator::{Outcome, Plan};
use crate::ids::TransactionId;
use crate::message::{Reply, Status};
use crate::records::{Effect, Records};
use crate::step::{Commit, Ending, Step};
use diorite_base::TabletId;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decided {
    pub stamp_us: i64,
    pub prepared: Vec<(TabletId, i64)>,
    pub is_forgotten: bool,
}

/// What has happened, as far as invariants depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Past {
    decided: BTreeMap<TransactionId, Decided>,
    /// Not committed when a home said that they never will be.
    aborted: BTreeSet<TransactionId>,
    /// Whose transaction an id is.
    clients: BTreeMap<TransactionId, usize>,
    /// Clients that were told that nothing was done.
    not_done: BTreeSet<usize>,
    /// Which tablets have written the rows of which transactions.
    written: BTreeSet<(TransactionId, usize)>,
    /// What the rows have to hold.
    values: BTreeMap<(usize, u8), i8>,
    /// The stamps below which no later read may return.
    seen_us: BTreeMap<(usize, u8), i64>,
    has_snapshots: bool,
}

/// The versions that a read shows: those of the snapshots, and staged rows over them.
pub fn version_after(
    mut rows_us: BTreeMap<usize, i64>,
    staged: impl Iterator<Item = (usize, i64)>,
) -> BTreeMap<usize, i64> {
    for (tablet, stamp_us) in staged {
        let version_us = rows_us.entry(tablet).or_insert(stamp_us);
        *version_us = stamp_us.max(*version_us);
    }
    rows_us
}

impl Past {
    pub fn issued(&mut self, id: TransactionId, client: usize) -> Result<(), String> {
        match self.clients.insert(id, client) {
            Some(other) if other != client => Err(format!("{id} is issued for clients {other} and {client}")),
            _ => Ok(()),
        }
    }

    pub fn replied(&mut self, from: usize, reply: &Reply) -> Result<(), String> {
        if let Reply::Lost(id) | Reply::Status { id, status: Status::Aborted } = reply
            && !self.decided.contains_key(id)
        {
            self.aborted.insert(*id);
        }
        match reply {
            Reply::Committed { id, committed_us, .. }
            | Reply::Status { id, status: Status::Committed(committed_us) }
                if self.decided.get(id).is_none_or(|decided| decided.stamp_us != *committed_us) =>
            {
                Err(format!("tablet {from} reports {id} as committed at {committed_us}, which it is not"))
            }
            _ => Ok(()),
        }
    }

    pub fn write_applied(&mut self, tablet: usize, key: u8, value: i8, stamp_us: i64) {
        self.values.insert((tablet, key), value);
        self.see(tablet, key, stamp_us);
    }

    pub fn see(&mut self, tablet: usize, key: u8, stamp_us: i64) {
        let seen_us = self.seen_us.entry((tablet, key)).or_insert(i64::MIN);
        *seen_us = stamp_us.max(*seen_us);
    }

    pub fn seen_us(&self, tablet: usize, key: u8) -> i64 {
        self.seen_us.get(&(tablet, key)).copied().unwrap_or(i64::MIN)
    }

    /// Whether a read of several tablets has shown a transaction.
    pub fn has_snapshots(&self) -> bool {
        self.has_snapshots
    }

    pub fn is_decided(&self, client: usize) -> Option<i64> {
        let ids = self.decided.iter().filter(|(id, _)| self.clients.get(id) == Some(&client));
        ids.map(|(_, decided)| decided.stamp_us).next()
    }

    /// The transaction that is committed at this stamp, if there is one.
    fn at(&self, stamp_us: i64) -> Option<usize> {
        let id = self.decided.iter().find(|(_, decided)| decided.stamp_us == stamp_us)?.0;
        self.clients.get(id).copied()
    }

    fn commit(&mut self, commit: &Commit, stamp_us: i64) -> Result<(), String> {
        let id = commit.id;
        let client = self.clients[&id];
        if self.aborted.contains(&id) {
            return Err(format!("{id} is committed after it was reported as aborted"));
        }
        if self.not_done.contains(&client) {
            return Err(format!("{id} is committed after client {client} was told that nothing was done"));
        }
        if self.is_decided(client).is_some() {
            return Err(format!("{id} is the second commit of client {client}"));
        }
        let prepared: Vec<_> = commit.prepared.iter().map(|it| (it.participant.tablet, it.stamp_us)).collect();
        if let Some((tablet, prepared_us)) = prepared.iter().find(|(_, prepared_us)| *prepared_us >= stamp_us) {
            return Err(format!("{id} is committed at {stamp_us}, and prepared in {tablet} at {prepared_us}"));
        }
        self.decided.insert(id, Decided { stamp_us, prepared, is_forgotten: false });
        Ok(())
    }
}

fn is_in_force(tablets: &[Rc<Tablet>], id: &TransactionId, at: TabletId, stamp_us: i64) -> bool {
    let tablet = tablets.iter().find(|tablet| tablet.id == at);
    tablet.and_then(|tablet| tablet.records.prepared(id)).is_some_and(|record| record.stamp_us == stamp_us)
}

impl World {
    /// A step was applied: checks it against the past, and carries its effects on rows out.
    pub fn apply_effects(
        &mut self,
        at: usize,
        stamp_us: i64,
        step: &Step,
        effects: Vec<Effect>,
        before: &Records,
    ) -> Result<(), String> {
        let tablet = self.tablets[at].id;
        match step {
            _ if effects.is_empty() => return Ok(()),
            Step::Prepare(_) => return self.check_prepared(at),
            Step::Commit(commit) => {
                for it in &commit.prepared {
                    if !is_in_force(&self.tablets, &commit.id, it.participant.tablet, it.stamp_us) {
                        return Err(format!("{} is committed without its prepare in {it:?}", commit.id));
                    }
                }
                self.past_mut().commit(commit, stamp_us)?;
            }
            Step::Finish { id, ending } => {
                let prepared_us = before.prepared(id).expect("it has had an effect").stamp_us;
                let decided = self.past.decided.get(id).filter(|it| it.prepared.contains(&(tablet, prepared_us)));
                match (ending, decided) {
                    (Ending::Aborted, Some(_)) => return Err(format!("{id} is committed, and aborted in {tablet}")),
                    (Ending::Committed { committed_us, .. }, decided)
                        if decided.is_none_or(|it| it.stamp_us != *committed_us) =>
                    {
                        return Err(format!("the prepare of {id} in {tablet} is finished as if a commit covered it"));
                    }
                    _ => {}
                }
            }
            Step::Forget(ids) => ids.iter().try_for_each(|id| self.forget(id))?,
        }
        for effect in effects {
            if let (Effect::Write { stamp_us, operations }, Step::Commit(Commit { id, .. }) | Step::Finish { id, .. }) =
                (effect, step)
            {
                for operation in operations.iter() {
                    self.write_of(*id, at, operation.key[0], operation.program[0].cast_signed(), stamp_us)?;
                }
            }
        }
        Ok(())
    }

    fn check_prepared(&self, at: usize) -> Result<(), String> {
        let locked: Vec<_> = self.tablets[at].records.locked().collect();
        for (place, (id, targets)) in locked.iter().enumerate() {
            if let Some((other, _)) = locked[..place].iter().find(|(_, other)| other.overlap(targets)) {
                return Err(format!("{id} and {other} have prepared the same row"));
            }
        }
        Ok(())
    }

    fn forget(&mut self, id: &TransactionId) -> Result<(), String> {
        let Some(decided) = self.past.decided.get(id) else { return Ok(()) };
        for (tablet, stamp_us) in &decided.prepared {
            if is_in_force(&self.tablets, id, *tablet, *stamp_us) {
                return Err(format!("{id} is forgotten while it is prepared in {tablet}"));
            }
        }
        if let Some(decided) = self.past_mut().decided.get_mut(id) {
            decided.is_forgotten = true;
        }
        Ok(())
    }

    /// A transaction writes a row: once, and what its increment makes of the row's value.
    fn write_of(&mut self, id: TransactionId, at: usize, key: u8, value: i8, stamp_us: i64) -> Result<(), String> {
        self.write_row(at, key, value, stamp_us, Some(id))?;
        let client = self.past.clients[&id];
        let tablet = self.tablets[at].id;
        let plan = &self.clients[client].plan;
        let part = plan.parts.iter().find(|part| part.participant.tablet == tablet).expect("a tablet of the plan");
        let (of_key, by) = increment(&part.program);
        let least = part.program.0[2].cast_signed();
        let earlier = self.past.values.get(&(at, key)).copied().unwrap_or(0);
        if (of_key, earlier.wrapping_add(by)) != (key, value) || earlier < least {
            return Err(format!("{id} makes {value} of row {key} in {tablet}, which was {earlier}"));
        }
        let past = self.past_mut();
        past.values.insert((at, key), value);
        if !past.written.insert((id, at)) {
            return Err(format!("{id} writes its rows in {tablet} twice"));
        }
        Ok(())
    }

    /// The client is answered.
    pub fn answered(&mut self, client: usize, outcome: Outcome) -> Result<(), String> {
        let decided = self.past.is_decided(client);
        match outcome {
            Outcome::Applied(stamp_us) => {
                if decided != Some(stamp_us) {
                    return Err(format!("client {client} is told {outcome:?}, and committed is {decided:?}"));
                }
                self.check_visible(client)?;
                self.see_all(client, stamp_us);
            }
            Outcome::Unknown => {}
            Outcome::ConditionFailed | Outcome::Conflict | Outcome::Unavailable => {
                if decided.is_some() {
                    return Err(format!("client {client} is told {outcome:?}, and its transaction is committed"));
                }
                self.past_mut().not_done.insert(client);
            }
        }
        Ok(())
    }

    /// Whether readers find the rows of an applied transaction who do not ask what has become of what is prepared.
    fn check_visible(&self, client: usize) -> Result<(), String> {
        let unasked = self.clients[client].plan.parts.iter().filter(|part| !part.readers_ask);
        let is_of = |(id, _): &&(TransactionId, usize)| self.past.clients.get(id) == Some(&client);
        let written: BTreeSet<usize> = self.past.written.iter().filter(is_of).map(|(_, at)| *at).collect();
        let mut tablets = unasked.map(|part| self.index(part.participant.tablet));
        match tablets.find(|at| !written.contains(at)) {
            None => Ok(()),
            Some(at) => Err(format!("client {client} is told of rows that {} does not show yet", self.tablets[at].id)),
        }
    }

    fn see_all(&mut self, client: usize, stamp_us: i64) {
        let plan: std::sync::Arc<Plan> = std::sync::Arc::clone(&self.clients[client].plan);
        for part in &plan.parts {
            let tablet = self.index(part.participant.tablet);
            self.past_mut().see(tablet, increment(&part.program).0, stamp_us);
        }
    }

    /// A reader has read a version of a row.
    pub fn has_read(&mut self, tablet: usize, key: u8, stamp_us: i64, at_least_us: i64) -> Result<(), String> {
        if stamp_us < at_least_us {
            return Err(format!("a read of row {key} in tablet {tablet} gives {stamp_us}, not {at_least_us} or later"));
        }
        self.past_mut().see(tablet, key, stamp_us);
        if let Some(client) = self.past.at(stamp_us) {
            self.see_all(client, stamp_us);
        }
        Ok(())
    }

    /// A read of several tablets has ended: the versions of its row, by tablet.
    pub fn has_read_snapshot(
        &mut self,
        at_us: i64,
        versions: &BTreeMap<usize, i64>,
        at_least_us: &BTreeMap<usize, i64>,
    ) -> Result<(), String> {
        for (tablet, version_us) in versions {
            if *version_us > at_us || *version_us < at_least_us[tablet] {
                let least = at_least_us[tablet];
                return Err(format!("a read at {at_us} shows {version_us} in tablet {tablet}, and {least} was there"));
            }
        }
        for (id, decided) in self.past.decided.clone() {
            let plan = std::sync::Arc::clone(&self.clients[self.past.clients[&id]].plan);
            let of_plan = plan.parts.iter().filter(|part| increment(&part.program).0 == KEY);
            let read = of_plan.filter_map(|part| versions.get(&self.index(part.participant.tablet)));
            let is_shown: BTreeSet<bool> = read.map(|version_us| *version_us >= decided.stamp_us).collect();
            if is_shown.len() > 1 {
                return Err(format!("a read at {at_us} shows a part of {id}: {versions:?}"));
            }
            if is_shown.contains(&true) {
                self.past_mut().has_snapshots = true;
                let client = self.past.clients[&id];
                self.see_all(client, decided.stamp_us);
            }
        }
        Ok(())
    }

    /// What holds when nothing is left to be done: all of each committed transaction is there.
    pub fn check_end(&self) -> Result<(), String> {
        for (id, client) in &self.past.clients {
            let is_decided = self.past.decided.contains_key(id);
            for part in &self.clients[*client].plan.parts {
                let at = self.index(part.participant.tablet);
                if self.past.written.contains(&(*id, at)) != is_decided {
                    return Err(format!(
                        "{id} is committed: {is_decided}, and its rows in {} differ",
                        self.tablets[at].id
                    ));
                }
            }
            if is_decided && !self.past.decided[id].is_forgotten {
                return Err(format!("{id} is never forgotten"));
            }
        }
        let open = self.clients.iter().position(|client| client.coordinator.is_some());
        open.map_or(Ok(()), |client| Err(format!("client {client} waits for ever")))
    }
}
