//! Counts events that a run should contain: a cluster in which nothing happens violates nothing.

use std::ops::AddAssign;

/// See the top of this module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Runs whose tablets hold real rows.
    pub rows: u64,
    /// Compactions of a tablet of rows on a node.
    pub compactions: u64,
    /// Machines that slept.
    pub sleeps: u64,
    /// Disks that failed.
    pub failed_disks: u64,
    /// Replicas that were opened on another disk, empty.
    pub rebuilt: u64,
    /// Batches that were planned for several tablets of a table.
    pub divided_batches: u64,
    /// Moves that were refused, as the tablet was split or merged, or had been placed elsewhere.
    pub moves_refused: u64,
    /// Moves that began while a split or merge of a related tablet was under way.
    pub moves_beside: u64,
    /// Steps of a split or merge while a tablet that it concerns was moved.
    pub steps_in_moves: u64,
    /// Levels that were reached after the first one.
    pub levels_raised: u64,
    /// Programs that did not start, as they did not know the level of their disks.
    pub refused_programs: u64,
    /// Holds that operators were answered.
    pub holds: u64,
    /// Transactions over several tablets that were committed.
    pub transactions: u64,
    /// Logged and counter batches over several tablets that were carried out.
    pub logged_batches: u64,
    /// Reads that have seen the rows of all of them at one moment.
    pub snapshots: u64,
    /// Writes to the table with a unique index.
    pub claims: u64,
    /// Writes that were refused because another row had the value.
    pub duplicates: u64,
    /// Rows of a materialized view that were read.
    pub view_rows: u64,
    /// Rows that were read from a covering index.
    pub covered_rows: u64,
    /// Runs in which a covering index was found complete.
    pub covered: u64,
    /// Materialized views to which all rows have been added that were there before.
    pub whole_views: u64,
    /// Calls between the leaders of tablets for transactions that were left unfinished.
    pub peer_calls: u64,
}

impl AddAssign for Reached {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.compactions += other.compactions;
        self.sleeps += other.sleeps;
        self.failed_disks += other.failed_disks;
        self.rebuilt += other.rebuilt;
        self.divided_batches += other.divided_batches;
        self.moves_refused += other.moves_refused;
        self.moves_beside += other.moves_beside;
        self.steps_in_moves += other.steps_in_moves;
        self.levels_raised += other.levels_raised;
        self.refused_programs += other.refused_programs;
        self.holds += other.holds;
        self.transactions += other.transactions;
        self.logged_batches += other.logged_batches;
        self.snapshots += other.snapshots;
        self.claims += other.claims;
        self.duplicates += other.duplicates;
        self.view_rows += other.view_rows;
        self.covered_rows += other.covered_rows;
        self.covered += other.covered;
        self.whole_views += other.whole_views;
        self.peer_calls += other.peer_calls;
    }
}
