//! `diorite admin join-token`: makes, lists and revokes the tokens with which nodes join a cluster that has certificates.
//!
//! Always true: a new token is the only line on standard output, so that it can be written to a file; it is shown once.

use crate::api::{Done, JOIN_TOKENS, JoinTokenStatus, NewJoinToken};
use crate::client::{AdminError, Client};
use crate::moment::moment;
use crate::percent::encoded;
use diorite_base::text::table;
use serde::Serialize;
use serde_json::{Value, json};
use std::str::FromStr;
use thiserror::Error;

/// Arguments of `join-token`.
#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct JoinTokenArguments {
    /// For how long it is valid: a number with s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub expires: Lifetime,
    /// How many nodes may join with it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nodes: u32,
    #[command(subcommand)]
    pub command: Option<JoinTokenCommand>,
}

/// What else is done with join tokens.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum JoinTokenCommand {
    /// Show the tokens that are valid, without their secrets.
    List,
    /// End a token.
    Revoke {
        /// Its id: what stands before the dot.
        id: String,
    },
}

/// How long a token is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    milliseconds: u64,
}

/// A text is no lifetime.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a time such as 90s, 30m, 1h or 7d")]
pub struct NotALifetime(String);

impl FromStr for Lifetime {
    type Err = NotALifetime;

    fn from_str(text: &str) -> Result<Self, NotALifetime> {
        let wrong = || NotALifetime(text.to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit_s = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            _ => return Err(wrong()),
        };
        let milliseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s * 1_000));
        milliseconds.map(|milliseconds| Self { milliseconds }).ok_or_else(wrong)
    }
}

/// An answer as JSON and as text.
pub(crate) struct Answer {
    pub(crate) json: Value,
    pub(crate) text: String,
}

/// Carries out the command.
pub(crate) fn carry_out(client: &Client, arguments: &JoinTokenArguments) -> Result<Answer, AdminError> {
    match &arguments.command {
        None => {
            let wanted = json!({ "lifetime_ms": arguments.expires.milliseconds, "nodes": arguments.nodes });
            let made: NewJoinToken = client.post(JOIN_TOKENS, &wanted)?;
            answer(&made, |made| format!("{}\n", made.token))
        }
        Some(JoinTokenCommand::List) => {
            let tokens: Vec<JoinTokenStatus> = client.get(JOIN_TOKENS)?;
            answer(&tokens, |tokens| listed(tokens))
        }
        Some(JoinTokenCommand::Revoke { id }) => {
            // Whoever has the whole token at hand may give it: its secret is not sent.
            let id = id.split('.').next().unwrap_or_default();
            let done: Done = client.post(&format!("{JOIN_TOKENS}/{}/revoke", encoded(id)), &Value::Null)?;
            answer(&done, |done| format!("{}\n", done.message))
        }
    }
}

pub(crate) fn answer<T: Serialize>(found: &T, text: impl FnOnce(&T) -> String) -> Result<Answer, AdminError> {
    Ok(Answer { json: serde_json::to_value(found).map_err(std::io::Error::other)?, text: text(found) })
}

fn listed(tokens: &[JoinTokenStatus]) -> String {
    let rows = tokens
        .iter()
        .map(|token| [token.id.clone(), token.nodes.to_string(), format!("{} UTC", moment(token.expires_ms))]);
    table(["token", "nodes", "expires"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_a_unit() {
        let of = |text: &str| text.parse::<Lifetime>().map(|lifetime| lifetime.milliseconds);
        assert_eq!(
            [of("90s"), of("30m"), of("1h"), of("7d")],
            [Ok(90_000), Ok(1_800_000), Ok(3_600_000), Ok(604_800_000)]
        );
        for wrong in ["", "1", "h", "1w", "-1h", "1.5h", "99999999999999999999d", "999999999999999999d"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_listed_by_their_ids() {
        let token = JoinTokenStatus { id: "00ff".to_owned(), expires_ms: 1_795_302_605_000, nodes: 2 };
        let text = listed(&[token]);
        assert!(text.contains("00ff   2      2026-11-21 23:10:05 UTC"), "{text}");
    }
}
