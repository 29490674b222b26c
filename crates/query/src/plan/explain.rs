//! The plan of `EXPLAIN`: that of the statement, and what is told of it beside.
//!
//! Always true: nothing here is a value that was bound; the texts are the statement's own, or names of the schema. Left
//! out: what depends on more than the definition of the table, such as the number of its tablets
//! ([`crate::exec::explain`]).

use super::modify::ModifyPlan;
use super::restrictions::Restrictions;
use super::select::{CoveringPlan, SelectPlan};
use crate::table::TableContext;

/// The statement that is explained, planned as if it were to be carried out.
#[derive(Debug)]
pub enum Explained {
    /// `SELECT`
    Select(Box<SelectPlan>),
    /// `INSERT`, `UPDATE`, `DELETE`
    Modify(Box<ModifyPlan>),
}

impl Explained {
    /// Which partitions and rows.
    pub fn restrictions(&self) -> &Restrictions {
        match self {
            Explained::Select(select) => &select.restrictions,
            Explained::Modify(modify) => &modify.restrictions,
        }
    }

    /// The read of a covering index by which it is carried out.
    pub fn covering(&self) -> Option<&CoveringPlan> {
        match self {
            Explained::Select(select) => select.ready_covering(),
            Explained::Modify(_) => None,
        }
    }

    /// Its table.
    pub fn table(&self) -> &TableContext {
        match self {
            Explained::Select(select) => &select.table,
            Explained::Modify(modify) => &modify.table,
        }
    }
}

/// See the top of this module.
#[derive(Debug)]
pub struct ExplainPlan {
    /// The statement.
    pub of: Explained,
    /// Its relations that ranges of keys, or the index, express; each as CQL.
    pub keys: Vec<String>,
    /// Its relations by which rows are filtered after they were read; each as CQL.
    pub filters: Vec<String>,
    /// The `IF` of a write, as CQL.
    pub condition: Option<String>,
    /// Which index is used and which are not, and why.
    pub indexes: Vec<String>,
}

/// Conditions of which all hold, as YCQL shows them.
pub fn joined(conditions: &[String]) -> String {
    conditions.iter().map(|condition| format!("({condition})")).collect::<Vec<_>>().join(" AND ")
}
