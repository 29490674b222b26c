//! The life of this node's replicas: opened and closed, copied, set aside and rebuilt, moved between disks, split and
//! merged.

pub(crate) mod aside;
pub(crate) mod asides;
pub(crate) mod command;
pub(crate) mod copy;
pub(crate) mod disk_balance;
pub(crate) mod disk_failure;
pub(crate) mod disks;
pub(crate) mod installing;
pub(crate) mod merge_driver;
pub(crate) mod opening;
pub(crate) mod openings;
mod parallel;
pub(crate) mod replicas;
pub(crate) mod split;
