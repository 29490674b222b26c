//! The transition function of the catalog.
//!
//! Always true: what a command does depends on the snapshot, the command and its stamp in the log, and on no clock; a command that is rejected or that changes nothing leaves the snapshot unchanged, including its
//! version.

use super::bounds::Rules;
use super::command::Command;
use super::loadable::check_loadable;
use super::outcome::{Outcome, Rejection};
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use super::{cidr_groups, covering, joining, level, login, merge, operations, roles, schema, split, views};
use diorite_base::Level;

impl Catalog {
    /// The snapshot after `command`, and the answer to the command, as of the beginning of time. [`Catalog::changes_since`] says
    /// what nodes then have to do.
    pub fn apply(&self, command: &Command) -> (Catalog, Outcome) {
        self.apply_by(command, Rules::Limited, 0)
    }

    /// As [`Self::apply`], with the rules and the stamp that the command was logged with.
    pub fn apply_by(&self, command: &Command, rules: Rules, stamp_us: i64) -> (Catalog, Outcome) {
        let mut next = self.clone();
        let mut step = next.step(command, rules, stamp_us.div_euclid(1_000));
        if let (Ok(Done::Changed), true) = (&step, command.is_definition())
            && let Err(rejected) = check_loadable(&next, self, rules)
        {
            step = Err(rejected);
        }
        let version = self.identity.version + 1;
        next.identity.version = version;
        match step {
            Ok(Done::Changed) => (next, Outcome::Applied { version }),
            Ok(Done::Registered(node)) => (next, Outcome::Registered { node, version }),
            Ok(Done::Nothing) => (self.clone(), Outcome::Unchanged { version: self.version() }),
            Err(Rejected(rejection, message)) => {
                (self.clone(), Outcome::Rejected { version: self.version(), rejection, message })
            }
        }
    }

    fn step(&mut self, command: &Command, rules: Rules, now_ms: i64) -> Step {
        if rules == Rules::Limited {
            command.check()?;
        }
        match command {
            Command::Bootstrap { cluster_id, name, replication_factor, requires_login, level } => {
                self.bootstrap(*cluster_id, name, *replication_factor, *requires_login, *level)
            }
            Command::RequireLogin { required, if_undecided } => login::require_login(self, *required, *if_undecided),
            Command::RegisterNode { node } => operations::register_node(self, node),
            Command::CreateJoinToken { id, token } => joining::create(self, *id, token, now_ms),
            Command::RevokeJoinToken { id } => joining::revoke(self, *id, now_ms),
            Command::Join { node, token } => joining::join(self, node, token, now_ms),
            Command::UpdateNode { node, description } => operations::update_node(self, *node, description),
            Command::ForgetDropped { node, tablets } => operations::forget_dropped(self, *node, tablets),
            Command::Place { tablet, expected, replicas, is_numbered } => {
                operations::place(self, *tablet, expected, replicas, *is_numbered)
            }
            Command::FinishMoves { tablets } => Ok(operations::finish_moves(self, tablets)),
            Command::BeginMerge { tablet, into } => merge::begin_merge(self, *tablet, *into),
            Command::ServeMerge { tablet, into, number } => merge::serve_merge(self, *tablet, *into, *number),
            Command::CancelMerge { tablet, number, cancelled } => {
                merge::cancel_merge(self, *tablet, *number, cancelled)
            }
            Command::EndCancelledMerge { tablet, number } => merge::end_cancelled_merge(self, *tablet, *number),
            Command::BeginSplit { tablet, at, stays } => split::begin_split(self, *tablet, *at, *stays),
            Command::CommitSplit { tablet, children } => split::commit_split(self, *tablet, *children),
            Command::CancelSplit { tablet } => split::cancel_split(self, *tablet),
            Command::ServeSplit { tablet, index, term } => split::serve_split(self, *tablet, *index, *term),
            Command::SetNodeState { node, state } => operations::set_node_state(self, *node, *state),
            Command::AssignZone { node, zone } => operations::assign_zone(self, *node, zone.as_deref()),
            Command::SetLeading { node, leads_nothing } => operations::set_leading(self, *node, *leads_nothing),
            Command::RemoveNode { node, only_without_vote } => operations::remove_node(self, *node, *only_without_vote),
            Command::RaiseLevel { level, members } => level::raise(self, *level, members),
            Command::Set { setting } => Ok(operations::set(self, setting)),
            Command::CreateKeyspace { keyspace, if_not_exists } => {
                schema::create_keyspace(self, keyspace, *if_not_exists)
            }
            Command::AlterKeyspace { name, replication, durable_writes, if_exists } => {
                schema::alter_keyspace(self, name, replication.as_ref(), *durable_writes, *if_exists)
            }
            Command::DropKeyspace { name, if_exists } => schema::drop_keyspace(self, name, *if_exists),
            Command::CreateTable { table, tablets, if_not_exists } => {
                schema::create_table(self, table, *tablets, *if_not_exists)
            }
            Command::AlterTable { table } => schema::alter_table(self, table),
            Command::DropTable { keyspace, name, if_exists } => schema::drop_table(self, keyspace, name, *if_exists),
            Command::TruncateTable { keyspace, name } => schema::truncate_table(self, keyspace, name),
            Command::CreateView { view, base_version, columns, follows_rows, tablets, if_not_exists } => {
                let (base_version, follows_rows, tablets) = (*base_version, *follows_rows, *tablets);
                let new = views::NewView { base_version, columns, follows_rows, tablets };
                views::create_view(self, view, &new, *if_not_exists)
            }
            Command::DropView { keyspace, name, if_exists } => views::drop_view(self, keyspace, name, *if_exists),
            Command::FinishCovering { table, view, outcome } => covering::finish(self, *table, *view, outcome),
            Command::CreateType { user_type, if_not_exists } => schema::create_type(self, user_type, *if_not_exists),
            Command::AlterType { expected, changed } => schema::alter_type(self, expected, changed, rules),
            Command::DropType { keyspace, name, if_exists } => schema::drop_type(self, keyspace, name, *if_exists),
            Command::Roles { change } => roles::change_roles(self, change),
            Command::SetCidrGroup { name, cidrs } => cidr_groups::set(self, name, cidrs),
            Command::DropCidrGroup { name } => cidr_groups::drop_group(self, name),
        }
    }

    fn bootstrap(
        &mut self,
        cluster_id: uuid::Uuid,
        name: &str,
        replication_factor: u32,
        requires_login: Option<bool>,
        level: Level,
    ) -> Step {
        match self.identity.cluster_id {
            Some(existing) if existing == cluster_id => return Ok(Done::Nothing),
            Some(existing) => {
                let message = format!("this catalog belongs to cluster {existing}, not to {cluster_id}");
                return Err(Rejected(Rejection::AlreadyExists, message));
            }
            None => {}
        }
        if replication_factor == 0 {
            return Err(Rejected(Rejection::Invalid, "the replication factor must be at least 1".to_owned()));
        }
        self.identity.cluster_id = Some(cluster_id);
        self.identity.name = name.to_owned();
        self.identity.replication_factor = replication_factor;
        self.identity.requires_login = requires_login;
        self.identity.level = level.max(Level::FIRST);
        Ok(Done::Changed)
    }
}
