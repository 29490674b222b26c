//! The buffers of one task, which are reused so that operations allocate nothing.

use diorite_base::random::SplitMix64;

use crate::key_state::WriteTicket;

/// The buffers of one task.
pub struct Scratch {
    /// The number of the task in its run, from 0.
    pub task: usize,
    pub random: SplitMix64,
    pub key: String,
    pub value: Vec<u8>,
    pub(super) tickets: Vec<WriteTicket>,
    pub(super) rows: Vec<(String, Vec<u8>)>,
}

impl Scratch {
    /// Buffers of a task with its own sequence of random numbers.
    pub fn new(task: usize, seed: u64) -> Self {
        Self {
            task,
            random: SplitMix64::new(seed),
            key: String::new(),
            value: Vec::new(),
            tickets: Vec::new(),
            rows: Vec::new(),
        }
    }
}
