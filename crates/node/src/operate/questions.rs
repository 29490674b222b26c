//! Answers to questions that one view of the cluster is enough for.

use super::sight::Sight;
use super::{Answer, answers, tablets, unavailable};
use diorite_admin::api::{Ask, Failure, FailureKind};

impl Sight {
    /// The answer to a question that changes nothing and for which no other node needs to be asked.
    pub(super) fn look_up(&self, ask: &Ask) -> Answer {
        let value = match ask {
            Ask::Status => serde_json::to_value(answers::status(self)),
            Ask::Nodes => serde_json::to_value(answers::nodes(self)),
            Ask::Tables => serde_json::to_value(answers::tables(self)),
            Ask::Table { keyspace, name } => serde_json::to_value(answers::table(self, keyspace, name)?),
            Ask::Tablets(filter) => serde_json::to_value(tablets::tablets(self, filter)?),
            Ask::Moves => serde_json::to_value(answers::moves(self)),
            _ => {
                return Err(Failure::new(
                    FailureKind::Invalid,
                    "one view of the cluster does not answer this question",
                ));
            }
        };
        value.map_err(|error| unavailable(error.to_string()))
    }
}
