//! What the program that runs a node provides.

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
    /// The command that runs [`crate::guard()`] in a process of its own.
    pub guard: Command,
    /// The file from which the options were read, if there is one.
    pub configuration: Option<ConfigurationFile>,
}

/// The file that a node's options were read from.
#[derive(Debug, Clone)]
pub struct ConfigurationFile {
    /// Its path.
    pub path: PathBuf,
    /// Reads the file again, and combines it with the command line and the environment.
    pub read: fn(&Path) -> Result<StartOptions, Box<dyn Error + Send + Sync>>,
}
