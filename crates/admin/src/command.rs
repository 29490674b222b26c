//! `diorite admin`: looks at and changes a running cluster, through the HTTP port of any of its nodes.
//!
//! Always true: with `--json` only JSON is written to standard output, as the HTTP interface returns it; a command that
//! changes something prints what it did, or fails with the reason why it did not. `status` ends with code 2 when data
//! is at risk.

use crate::api::{
    ClusterStatus, Done, Failure, FailureKind, LogChange, LogStatus, MoveStatus, NodeCompaction, NodeScrub, NodeStatus,
    RestartPlan, TableStatus,
};
use crate::check_index::{self, CheckIndexArguments};
use crate::cidr_groups::{self, CidrGroupsCommand};
pub use crate::client::AdminError;
use crate::client::Client;
use crate::gate::AUTH;
use crate::indexes;
use crate::join_token::{self, JoinTokenArguments};
use crate::password;
use crate::percent::encoded;
use crate::qualified::qualified;
use crate::restart::{self, RestartArguments};
use crate::tables;
use crate::tablets::{self, TabletArguments};
use crate::upgrade::{self, UpgradeCommand};
use diorite_base::text::Size;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The HTTP port of a node.
const HTTP_PORT: u16 = 7000;
/// The time between two checks of `--wait`.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The exit code of `status` when data is at risk.
const AT_RISK: u8 = 2;
/// The exit code of `restart-plan --next` when all nodes have been restarted.
const NONE_LEFT: u8 = 3;

/// `diorite admin`.
#[derive(Debug, Clone, clap::Args)]
pub struct AdminArguments {
    /// A node to ask; every node gives the same answers. Give several in case one is down.
    #[arg(long, global = true, value_name = "HOST[:PORT]", default_value = "127.0.0.1")]
    pub host: Vec<String>,
    /// The role to log in as, where clients have to log in. Its password is in the file that --password-file names, or in the
    /// environment (DIORITE_PASSWORD), or is asked for.
    #[arg(long, global = true, value_name = "ROLE", env = "DIORITE_USER")]
    pub user: Option<String>,
    /// A file that holds the password of the role, on its first line.
    #[arg(long, global = true, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Ask by TLS (`--http-tls` of the node). The directory is one that `diorite certs client` has made: ca.pem has the trusted
    /// authorities; client.pem and client.key, if they are there, log their role in.
    #[arg(long, global = true, value_name = "DIR", env = "DIORITE_CERTS")]
    pub certs: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: AdminCommand,
}

/// The subcommand.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum AdminCommand {
    /// Show the state of the cluster; ends with code 2 when data is at risk: a tablet lacks a replica, a leader or a
    /// quorum, or a disk is full or has failed.
    Status,
    /// Show the nodes.
    Nodes,
    /// Show the tables.
    Tables,
    /// Show one table: its schema, and its replicas on each node.
    Table {
        /// The table.
        #[arg(value_name = "KEYSPACE.TABLE")]
        table: String,
    },
    /// Show one tablet as each of its replicas describes it, with recent events.
    Tablet {
        /// Its id.
        tablet: u64,
    },
    /// Show tablets, where their replicas are and who leads them.
    Tablets(TabletArguments),
    /// Show the replicas that are being moved.
    Moves {
        /// Wait until there are none.
        #[arg(long)]
        wait: bool,
    },
    /// Show the transactions that are prepared in tablets and wait for their homes, oldest first.
    Transactions,
    /// Show the secondary indexes of all tables and how far they have been built, or the tablets of one index.
    Indexes {
        /// The index; all if not given.
        #[arg(value_name = "KEYSPACE.INDEX")]
        index: Option<String>,
    },
    /// Compare a secondary index or a materialized view with its table, in both directions, and name what differs; ends with code
    /// 1 if something is missing or surplus, or could not be compared.
    CheckIndex(CheckIndexArguments),
    /// Show in which order to restart all nodes, and whether the next one may be restarted now.
    RestartPlan(RestartArguments),
    /// Show how far the upgrade of the cluster to another release is, hold it, resume it or finish it.
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    /// Move all replicas off a node, which serves until they are moved.
    Drain {
        /// The node's id.
        node: u64,
        /// Wait until it holds none, and has no vote in the catalog's group.
        #[arg(long)]
        wait: bool,
    },
    /// Let a drained node hold replicas again.
    Undrain {
        /// The node's id.
        node: u64,
    },
    /// End the membership of a node that holds no replicas (any more).
    Remove {
        /// The node's id.
        node: u64,
    },
    /// Rebuild the replicas of a node that is down on other nodes now, instead of after the time set by
    /// `set-replace-after`.
    Replace {
        /// The node's id.
        node: u64,
    },
    /// Transfer the leaderships of a node to other nodes, for instance before it is stopped.
    MoveLeaders {
        /// The node's id.
        node: u64,
        /// Let it lead again.
        #[arg(long)]
        back: bool,
    },
    /// Split a tablet in two, in the middle of its tokens.
    Split {
        /// The tablet's id.
        tablet: u64,
    },
    /// Merge a tablet into its neighbour. All of its rows are copied, so only small tablets should be merged.
    Merge {
        /// The tablet's id.
        tablet: u64,
        /// The neighbour that takes its rows; the next one if not given.
        #[arg(long, value_name = "TABLET")]
        into: Option<u64>,
    },
    /// Cancel a split: the tablet stays whole; refused once the split is committed.
    CancelSplit {
        /// The tablet's id.
        tablet: u64,
    },
    /// Cancel a merge: both tablets stay, each with its own rows; refused once the merge is finished.
    CancelMerge {
        /// The id of either of the two.
        tablet: u64,
    },
    /// Read all data of all nodes once, to find damage; shows the progress, and ends with code 2 if something is damaged.
    Scrub(ScrubArguments),
    /// Compact all data of all nodes, one tablet of each node after another; shows the progress.
    Compact {
        /// Only show the progress.
        #[arg(long)]
        status: bool,
        /// Wait until it has ended.
        #[arg(long)]
        wait: bool,
    },
    /// Limit what flushes and compactions write together, for each node until it is started again; initially
    /// --compaction-rate.
    SetCompactionRate {
        /// Bytes per second; 0: no limit.
        #[arg(value_name = "SIZE")]
        rate: Size,
    },
    /// Limit how fast secondary indexes are built, for each node until it is started again; initially --index-rate.
    SetIndexRate {
        /// Bytes of rows per second; 0: no limit.
        #[arg(value_name = "SIZE")]
        rate: Size,
    },
    /// Put a node into a zone.
    SetZone {
        /// The node's id.
        node: u64,
        /// The zone; the node's own --zone if not given.
        zone: Option<String>,
    },
    /// Limit copies of replicas, for each node; initially 200MB/s.
    SetRate {
        /// Bytes per second.
        #[arg(value_name = "SIZE")]
        rate: Size,
    },
    /// Set how long a node may be silent before its replicas are rebuilt on other nodes; initially 15 minutes.
    SetReplaceAfter {
        /// The time.
        #[arg(value_name = "SECONDS")]
        seconds: u64,
    },
    /// Split tablets with more than this in files; initially 64GiB; 0: no tablet is split for its size.
    SetSplitSize {
        /// Bytes.
        #[arg(value_name = "SIZE")]
        size: Size,
    },
    /// Split tablets with more reads and writes a second than this, for half a minute; initially 100000; 0: no tablet
    /// is split for its load.
    SetSplitLoad {
        /// Reads and writes per second.
        #[arg(value_name = "OPERATIONS")]
        operations: u64,
    },
    /// Merge neighbouring tablets with no more than this in files together, where a table has more tablets than it was
    /// created with; initially 64MiB; 0: never.
    SetMergeSize {
        /// Bytes.
        #[arg(value_name = "SIZE")]
        size: Size,
    },
    /// Set the zones in which leaders are placed; none: any zone.
    SetLeaderZones {
        /// The zones.
        #[arg(value_name = "ZONE")]
        zones: Vec<String>,
    },
    /// Show whether clients have to log in, or decide it for the whole cluster. Needs a superuser, where they have to.
    Auth {
        /// Whether they have to; their connections end, and they connect anew.
        setting: Option<Switch>,
    },
    /// Make a join token, with which a node becomes a member of a cluster whose nodes have certificates, and print it: it is shown only
    /// once. The node reads it from a file (`diorite start --join-token-file`) or from DIORITE_START_JOIN_TOKEN.
    JoinToken(JoinTokenArguments),
    /// List and change the groups of networks that ACCESS FROM CIDRS of a role names. A change needs a superuser, where
    /// clients have to log in.
    CidrGroups {
        /// What is done.
        #[command(subcommand)]
        command: CidrGroupsCommand,
    },
    /// Show what a node logs, or change it until the node is started again.
    Logging {
        /// The node's id; the node that is asked if not given.
        #[arg(long, value_name = "N")]
        node: Option<u64>,
        /// What to log: a level, or directives such as info,diorite_replica=debug.
        #[arg(long)]
        levels: Option<String>,
        /// Log requests that take this many milliseconds or longer; off logs none.
        #[arg(long, value_name = "MILLISECONDS")]
        slow_query: Option<String>,
    },
    /// Show the requests that a node carries out for its clients, the longest running first.
    Requests {
        /// The node's id; the node that is asked if not given.
        #[arg(long, value_name = "N")]
        node: Option<u64>,
    },
    /// End a request. Its client receives a timeout; a write may have taken effect.
    Cancel {
        /// The number of the request, as `requests` shows it.
        request: u64,
        /// The node that carries it out; the node that is asked if not given.
        #[arg(long, value_name = "N")]
        node: Option<u64>,
    },
    /// Pause an activity until it is resumed.
    Pause {
        /// The activity.
        what: Pausable,
    },
    /// Resume an activity that was paused.
    Resume {
        /// The activity.
        what: Pausable,
    },
}

/// Arguments of `scrub`.
#[derive(Debug, Clone, clap::Args)]
pub struct ScrubArguments {
    /// Bytes per second and node; 0: no limit.
    #[arg(long, value_name = "SIZE", default_value = "50MB")]
    pub rate: Size,
    /// Only show the progress, or the result of the last scrub.
    #[arg(long)]
    pub status: bool,
    /// Stop the scrub.
    #[arg(long, conflicts_with = "status")]
    pub stop: bool,
    /// Wait until it has ended.
    #[arg(long)]
    pub wait: bool,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// What can be paused.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Pausable {
    /// Moves of replicas and leaders for balance; lost replicas are still rebuilt.
    Balancing,
}

/// A client for the named nodes, with the named role.
fn client(arguments: &AdminArguments) -> Result<Client, AdminError> {
    let file = arguments.password_file.as_deref();
    let login = arguments.user.as_deref().map(|user| password::find(user, file)).transpose()?;
    let tls = arguments.certs.as_deref().map(crate::client::tls).transpose()?;
    Ok(Client::new(&arguments.host, HTTP_PORT, login.as_ref(), tls))
}

/// Carries out the command.
pub fn run(arguments: &AdminArguments) -> Result<ExitCode, AdminError> {
    let (client, json) = (client(arguments)?, arguments.json);
    let operate = |node: u64, what: &str| change(&client, json, &format!("/api/v1/nodes/{node}/{what}"), &Value::Null);
    let reshape =
        |tablet: u64, what: &str, how: Value| change(&client, json, &format!("/api/v1/tablets/{tablet}/{what}"), &how);
    match &arguments.command {
        AdminCommand::Status => return status(&client, json),
        AdminCommand::Nodes => look(&client, json, "/api/v1/nodes", |nodes: &Vec<NodeStatus>| tables::nodes(nodes))?,
        AdminCommand::Tables => {
            look(&client, json, "/api/v1/tables", |found: &Vec<TableStatus>| tables::tables(found))?
        }
        AdminCommand::Table { table } => one_table(&client, json, table)?,
        AdminCommand::Tablet { tablet } => {
            look(&client, json, &format!("/api/v1/tablets/{tablet}"), tables::tablet_detail)?;
        }
        AdminCommand::Tablets(arguments) => all_tablets(&client, json, arguments)?,
        AdminCommand::Moves { wait } => {
            wait_until(*wait, || Ok(client.get::<Vec<MoveStatus>>("/api/v1/moves")?.is_empty()))?;
            look(&client, json, "/api/v1/moves", |moves: &Vec<MoveStatus>| tables::moves(moves))?;
        }
        AdminCommand::Transactions => look(&client, json, "/api/v1/transactions", tables::transactions)?,
        AdminCommand::Indexes { index } => show_answer(json, indexes::carry_out(&client, index.as_deref())?)?,
        AdminCommand::CheckIndex(arguments) => return compare_index(&client, json, arguments),
        AdminCommand::RestartPlan(arguments) => return restart_plan(&client, json, arguments),
        AdminCommand::Upgrade(command) => upgrade(&client, json, *command)?,
        AdminCommand::Drain { node, wait } => {
            operate(*node, "drain")?;
            wait_until(*wait, || is_drained(&client, *node))?;
        }
        AdminCommand::Undrain { node } => operate(*node, "undrain")?,
        AdminCommand::Remove { node } => operate(*node, "remove")?,
        AdminCommand::Replace { node } => operate(*node, "replace")?,
        AdminCommand::MoveLeaders { node, back } => {
            operate(*node, if *back { "return-leaders" } else { "move-leaders" })?;
        }
        AdminCommand::Split { tablet } => reshape(*tablet, "split", Value::Null)?,
        AdminCommand::Merge { tablet, into } => reshape(*tablet, "merge", json!({ "into": into }))?,
        AdminCommand::CancelSplit { tablet } => reshape(*tablet, "cancel-split", Value::Null)?,
        AdminCommand::CancelMerge { tablet } => reshape(*tablet, "cancel-merge", Value::Null)?,
        AdminCommand::Scrub(arguments) => return scrub(&client, json, arguments),
        AdminCommand::Compact { status, wait } => compact(&client, json, *status, *wait)?,
        AdminCommand::SetCompactionRate { rate } => set_compaction_rate(&client, json, rate.0)?,
        AdminCommand::SetIndexRate { rate } => show_answer(json, indexes::set_rate(&client, rate.0)?)?,
        AdminCommand::SetZone { node, zone } => {
            change(&client, json, &format!("/api/v1/nodes/{node}/zone"), &json!({ "zone": zone }))?;
        }
        AdminCommand::SetRate { rate } => set(&client, json, &json!({ "copy_rate_bytes": rate.0 }))?,
        AdminCommand::SetReplaceAfter { seconds } => {
            set(&client, json, &json!({ "replace_after_ms": seconds.saturating_mul(1_000) }))?;
        }
        AdminCommand::SetSplitSize { size } => set(&client, json, &json!({ "split_bytes": size.0 }))?,
        AdminCommand::SetSplitLoad { operations: most } => {
            set(&client, json, &json!({ "split_operations_per_second": most }))?
        }
        AdminCommand::SetMergeSize { size } => set(&client, json, &json!({ "merge_bytes": size.0 }))?,
        AdminCommand::SetLeaderZones { zones } => set(&client, json, &json!({ "preferred_leader_zones": zones }))?,
        AdminCommand::Auth { setting } => auth(&client, json, *setting)?,
        AdminCommand::JoinToken(arguments) => show_answer(json, join_token::carry_out(&client, arguments)?)?,
        AdminCommand::CidrGroups { command } => show_answer(json, cidr_groups::carry_out(&client, command)?)?,
        AdminCommand::Logging { node, levels, slow_query } => {
            let change = LogChange { levels: levels.clone(), slow_query: slow_query.clone() };
            logging(&client, json, *node, &change)?;
        }
        AdminCommand::Requests { node } => look(&client, json, &of_node(*node, "queries"), tables::requests)?,
        AdminCommand::Cancel { request, node } => cancel(&client, json, *node, *request)?,
        AdminCommand::Pause { what } => pause(&client, json, *what, true)?,
        AdminCommand::Resume { what } => pause(&client, json, *what, false)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn compare_index(client: &Client, json: bool, arguments: &CheckIndexArguments) -> Result<ExitCode, AdminError> {
    let report = check_index::carry_out(client, arguments)?;
    show(json, &report, check_index::shown)?;
    Ok(if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn upgrade(client: &Client, json: bool, command: UpgradeCommand) -> Result<(), AdminError> {
    let upgrade::Answer { json: answer, text } = upgrade::carry_out(client, command)?;
    show(json, &answer, |_| text)
}

/// Shows whether clients have to log in, or decides it.
fn auth(client: &Client, json: bool, setting: Option<Switch>) -> Result<(), AdminError> {
    if let Some(setting) = setting {
        return change(client, json, AUTH, &json!({ "required": setting == Switch::On }));
    }
    let status: ClusterStatus = client.get("/api/v1/status")?;
    let required = status.requires_login;
    show(json, &json!({ "required": required }), |_| format!("{:<12}{}\n", "logins", tables::logins(required)))
}

fn pause(client: &Client, json: bool, what: Pausable, is_paused: bool) -> Result<(), AdminError> {
    match what {
        Pausable::Balancing => set(client, json, &json!({ "balancing_is_paused": is_paused })),
    }
}

fn cancel(client: &Client, json: bool, node: Option<u64>, request: u64) -> Result<(), AdminError> {
    change(client, json, &of_node(node, &format!("queries/{request}/cancel")), &Value::Null)
}

/// The path under which a node answers about itself; `None`: the asked node.
fn of_node(node: Option<u64>, what: &str) -> String {
    node.map_or_else(|| format!("/api/v1/{what}"), |node| format!("/api/v1/nodes/{node}/{what}"))
}

/// Shows the settings of a node's log, after a change if one is asked for.
fn logging(client: &Client, json: bool, node: Option<u64>, change: &LogChange) -> Result<(), AdminError> {
    let path = of_node(node, "logging");
    let status: LogStatus = match *change == LogChange::default() {
        true => client.get(&path)?,
        false => client.post(&path, &serde_json::to_value(change).map_err(std::io::Error::other)?)?,
    };
    show(json, &status, tables::logging)
}

fn look<T: DeserializeOwned + Serialize>(
    client: &Client,
    json: bool,
    path: &str,
    text: impl FnOnce(&T) -> String,
) -> Result<(), AdminError> {
    show(json, &client.get::<T>(path)?, text)
}

fn show<T: Serialize>(json: bool, answer: &T, text: impl FnOnce(&T) -> String) -> Result<(), AdminError> {
    let text = match json {
        true => format!("{:#}\n", serde_json::to_value(answer).map_err(std::io::Error::other)?),
        false => text(answer),
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has closed its end, for example `head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn show_answer(json: bool, answer: join_token::Answer) -> Result<(), AdminError> {
    show(json, &answer.json, |_| answer.text)
}

fn change(client: &Client, json: bool, path: &str, body: &Value) -> Result<(), AdminError> {
    let done: Done = client.post(path, body)?;
    show(json, &done, |done| format!("{}\n", done.message))
}

fn set(client: &Client, json: bool, settings: &Value) -> Result<(), AdminError> {
    let done: Vec<Done> = client.post("/api/v1/settings", settings)?;
    show(json, &done, |done| done.iter().map(|done| format!("{}\n", done.message)).collect())
}

fn status(client: &Client, json: bool) -> Result<ExitCode, AdminError> {
    let status: ClusterStatus = client.get("/api/v1/status")?;
    show(json, &status, tables::status)?;
    Ok(if status.is_at_risk() { ExitCode::from(AT_RISK) } else { ExitCode::SUCCESS })
}

fn restart_plan(client: &Client, json: bool, arguments: &RestartArguments) -> Result<ExitCode, AdminError> {
    // The nodes' clocks take no part: each says how long its process has run.
    let elapsed_ms = || {
        #[allow(clippy::disallowed_methods, reason = "a command that a person runs")]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let begun = arguments.begun.map(Duration::from_secs);
        begun.map_or(0, |begun| now.saturating_sub(begun).as_millis() as u64)
    };
    let ask = |elapsed_ms: u64| -> Result<RestartPlan, AdminError> {
        client.get(&format!("/api/v1/restart-plan?elapsed_ms={elapsed_ms}"))
    };
    let plan = loop {
        match restart::plan(ask, elapsed_ms) {
            Ok(plan) if !arguments.wait || plan.may_go || plan.is_finished() => break plan,
            Ok(_) => {}
            // While the cluster elects a leader of its catalog there is no answer.
            Err(error) if arguments.wait && error.is_temporary() => {}
            Err(error) => return Err(error),
        }
        #[allow(clippy::disallowed_methods, reason = "a command that a person waits for")]
        std::thread::sleep(LOOK_AGAIN);
    };
    if !arguments.next {
        show(json, &plan, tables::restart_plan)?;
        return Ok(ExitCode::SUCCESS);
    }
    match plan.next {
        Some(node) if plan.may_go => show(false, &node, |node| format!("{}\n", node.0)).map(|()| ExitCode::SUCCESS),
        Some(_) => Err(Failure::new(FailureKind::Refused, plan.waits_for.join("; ")).into()),
        None => Ok(ExitCode::from(NONE_LEFT)),
    }
}

fn scrub(client: &Client, json: bool, arguments: &ScrubArguments) -> Result<ExitCode, AdminError> {
    const PATH: &str = "/api/v1/scrub";
    let mut found: Vec<NodeScrub> = match arguments {
        ScrubArguments { status: true, .. } => client.get(PATH)?,
        ScrubArguments { stop: true, .. } => client.post("/api/v1/scrub/stop", &Value::Null)?,
        ScrubArguments { rate, .. } => client.post(PATH, &json!({ "rate_bytes": rate.0 }))?,
    };
    wait_until(arguments.wait, || {
        found = client.get(PATH)?;
        Ok(found.iter().all(|node| !node.is_running))
    })?;
    show(json, &found, |found| tables::scrub(found))?;
    let is_damaged = found.iter().any(|node| !node.damaged.is_empty());
    Ok(if is_damaged { ExitCode::from(AT_RISK) } else { ExitCode::SUCCESS })
}

fn compact(client: &Client, json: bool, is_look: bool, waits: bool) -> Result<(), AdminError> {
    const PATH: &str = "/api/v1/compaction";
    let mut found: Vec<NodeCompaction> = if is_look { client.get(PATH)? } else { client.post(PATH, &Value::Null)? };
    wait_until(waits, || {
        found = client.get(PATH)?;
        Ok(found.iter().all(|node| !node.is_running))
    })?;
    show(json, &found, |found| tables::compaction(found))
}

fn set_compaction_rate(client: &Client, json: bool, rate_bytes: u64) -> Result<(), AdminError> {
    let nodes: Vec<NodeCompaction> = client.post("/api/v1/compaction/rate", &json!({ "rate_bytes": rate_bytes }))?;
    show(json, &nodes, |nodes| tables::compaction(nodes))
}

fn all_tablets(client: &Client, json: bool, arguments: &TabletArguments) -> Result<(), AdminError> {
    show(json, &tablets::all(client, arguments)?, |found| tables::tablets(found))
}

fn one_table(client: &Client, json: bool, table: &str) -> Result<(), AdminError> {
    let (keyspace, name) = qualified(table)?;
    look(client, json, &format!("/api/v1/tables/{}/{}", encoded(keyspace), encoded(name)), tables::table_detail)
}

/// Whether a node holds no replicas and has no vote in the catalog's group.
fn is_drained(client: &Client, node: u64) -> Result<bool, AdminError> {
    let nodes: Vec<NodeStatus> = client.get("/api/v1/nodes")?;
    let holds = |found: &NodeStatus| found.replicas > 0 || found.votes_in_catalog;
    Ok(!nodes.iter().any(|found| found.node.0 == node && holds(found)))
}

fn wait_until(wanted: bool, mut is_so: impl FnMut() -> Result<bool, AdminError>) -> Result<(), AdminError> {
    while wanted && !is_so()? {
        #[allow(clippy::disallowed_methods, reason = "a command that a person waits for")]
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}
