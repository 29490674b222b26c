//! `diorite admin cidr-groups`: lists, sets and drops the groups of networks that `ACCESS FROM CIDRS` of a role names.

use crate::api::{CIDR_GROUPS, CidrGroupStatus, Done};
use crate::client::{AdminError, Client};
use crate::join_token::{Answer, answer};
use crate::percent::encoded;
use diorite_base::text::table;
use serde_json::{Value, json};

/// What is done with groups of networks.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum CidrGroupsCommand {
    /// Show the groups, their networks, and the roles that name them.
    List,
    /// Make a group, or replace all networks of one. Connections that it no longer permits end within a second.
    Set {
        /// Its name.
        name: String,
        /// Its networks, for example 10.0.0.0/8 or 2001:db8::/32.
        #[arg(value_name = "CIDR", required = true)]
        cidrs: Vec<String>,
    },
    /// Drop a group that no role names.
    Drop {
        /// Its name.
        name: String,
    },
}

/// Carries out the command.
pub(crate) fn carry_out(client: &Client, command: &CidrGroupsCommand) -> Result<Answer, AdminError> {
    let done = match command {
        CidrGroupsCommand::List => {
            let groups: Vec<CidrGroupStatus> = client.get(CIDR_GROUPS)?;
            return answer(&groups, |groups| listed(groups));
        }
        CidrGroupsCommand::Set { name, cidrs } => {
            client.post::<Done>(&format!("{CIDR_GROUPS}/{}", encoded(name)), &json!({ "cidrs": cidrs }))?
        }
        CidrGroupsCommand::Drop { name } => {
            client.post::<Done>(&format!("{CIDR_GROUPS}/{}/drop", encoded(name)), &Value::Null)?
        }
    };
    answer(&done, |done| format!("{}\n", done.message))
}

fn listed(groups: &[CidrGroupStatus]) -> String {
    let rows = groups.iter().map(|group| [group.name.clone(), group.roles.join(", "), group.cidrs.join(" ")]);
    table(["group", "roles", "networks"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_listed_with_their_roles() {
        let group = CidrGroupStatus {
            name: "office".to_owned(),
            cidrs: vec!["10.0.0.0/8".to_owned(), "::1/128".to_owned()],
            roles: vec!["ann".to_owned(), "bob".to_owned()],
        };
        assert_eq!(listed(&[group]), "group   roles     networks\noffice  ann, bob  10.0.0.0/8 ::1/128\n");
    }
}
