//! What `diorite admin restart-plan` takes. The plan is made by the node that is asked (`diorite_control::restart`).

/// Arguments of `restart-plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct RestartArguments {
    /// When the restart of the cluster began, in seconds since 1970 (`date +%s`), by this machine's clock. Nodes whose
    /// process began later have been restarted. Not given: none has.
    #[arg(long, value_name = "SECONDS")]
    pub begun: Option<u64>,
    /// Wait until the next node may be restarted, or until all have been and the last one has recovered.
    #[arg(long)]
    pub wait: bool,
    /// Print only the id of the next node; ends with code 3 once all have been restarted.
    #[arg(long, conflicts_with = "json")]
    pub next: bool,
}
