//! What the program that runs a node brings along.

use crate::config::StartOptions;
use crate::observe::Allocator;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that runs a node.
#[derive(Debug)]
pub struct Program {
    /// Its allocator.
    pub allocator: Allocator,
    /// Runs [`crate::guard()`].
    pub guard: Command,
    /// The file that it read options from.
    pub configuration: Option<ConfigurationFile>,
}

/// The file that a node's options were read from.
#[derive(Debug, Clone)]
pub struct ConfigurationFile {
    /// Where it is.
    pub path: PathBuf,
    /// Reads it again, with what the command line and the environment say.
    pub read: fn(&Path) -> Result<StartOptions, Box<dyn Error + Send + Sync>>,
}
