//! `diorite local` with real processes: what a person types, and what is there afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a test drives another process and waits for it")]

mod aggregates;
mod busy;
#[path = "../common/client.rs"]
#[allow(dead_code, reason = "the tests of one process use more of it")]
mod client;
mod losses;
mod one_node;
mod operations;
mod replication;
#[path = "../common/server.rs"]
#[allow(dead_code, reason = "the tests of one process use more of it")]
mod server;
mod splits;
mod three_nodes;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A cluster's directory, and addresses that no other test uses; destroyed when dropped.
pub struct Local {
    home: tempfile::TempDir,
    pub first_address: String,
}

impl Local {
    pub fn fresh() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let block = NEXT.fetch_add(1, Ordering::Relaxed) * 10 + 1;
        let first_address = format!("127.{}.{}.{block}", 10 + process / 250 % 240, process % 250);
        Self { home: tempfile::tempdir().unwrap(), first_address }
    }

    pub fn directory(&self) -> std::path::PathBuf {
        self.home.path().join("cluster")
    }

    /// The address of node `number`, from 1.
    pub fn address(&self, number: u32) -> String {
        let (net, host) = self.first_address.rsplit_once('.').unwrap();
        format!("{net}.{}", host.parse::<u32>().unwrap() + number - 1)
    }

    /// `diorite local <arguments>` in the cluster's directory.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
        command
            .arg("local")
            .args(["--dir".as_ref(), self.directory().as_os_str()])
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command that must succeed prints.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command that must fail says: one line.
    pub fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?} must fail");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.trim().lines().count(), 1, "one clear line: {said}");
        said
    }

    /// Starts a cluster of `nodes`; more `up` arguments come after.
    pub fn up(&self, nodes: u32, more: &[&str]) -> String {
        let nodes = nodes.to_string();
        let mut arguments = vec!["up", "--nodes", &nodes, "--address", &self.first_address];
        arguments.extend_from_slice(more);
        self.run(&arguments)
    }

    /// Waits until each of `nodes` nodes sends heartbeats to every other.
    pub fn wait_until_in_touch(&self, nodes: u32) {
        // More than the few that may have been sent before all of them were known.
        const HEARTBEATS: u64 = 5;
        let others_reached = |number: u32| {
            let metrics = server::get(&self.address(number), "/metrics").unwrap_or_default();
            let sent = metrics.lines().filter_map(|line| {
                let (_, lane) = line.strip_prefix("diorite_node_frames_sent_total{")?.split_once(',')?;
                lane.strip_prefix("lane=\"control\"} ")?.parse::<u64>().ok()
            });
            sent.filter(|sent| *sent >= HEARTBEATS).count() as u32
        };
        let reached = || (1..=nodes).map(others_reached).collect::<Vec<_>>();
        operations::wait_for("all nodes are in touch", reached, |reached| {
            reached.iter().all(|others| others + 1 == nodes)
        });
    }

    /// `status --json` of one node, without the quotes: its pid and state.
    pub fn node(&self, number: u32) -> (Option<u32>, String) {
        let status = self.run(&["status", "--json"]);
        let nodes = status.split("\"address\":").nth(number as usize).unwrap();
        let field = |name: &str| {
            let rest = nodes.split_once(&format!("\"{name}\":")).unwrap().1;
            rest.split(&[',', '\n'][..]).next().unwrap().trim().trim_matches('"').to_owned()
        };
        (field("pid").parse().ok(), field("state"))
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if self.directory().exists() {
            let _ = self.output(&["destroy", "--yes"]);
        }
    }
}

pub fn process_exists(pid: u32) -> bool {
    // A process that has ended and that nobody waited for is still listed, with an empty command line.
    std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).is_ok_and(|line| !line.is_empty())
}
