//! Asking to join: the questions of nodes that are not members yet, and their answers, as JSON.
//!
//! Always true: asking twice makes one member, as the host id is stored in the data directory before the first
//! question.

use crate::address::resolve;
use crate::config::NodeAddress;
use crate::error::StartError;
use crate::join_token::JoinToken;
use crate::life_key::LifeKey;
use crate::pause::pause;
use diorite_base::{Clock, Level, Levels, NodeId};
use diorite_cluster::catalog::NodeDescription;
use diorite_control::membership::{RETRY, Welcome};
use diorite_rpc::hello::RefusalKind;
use diorite_rpc::tcp::{Caller, Credentials, DialError, ask};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use uuid::Uuid;

/// How long a node tries to join a cluster.
pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long one node may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A question to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(super) enum Question {
    /// To become a member.
    Join {
        /// The node that asks.
        node: NodeDescription,
        /// The replication factor that the operator gave.
        replication_factor: Option<u32>,
        /// The version of the program that asks.
        program: String,
        /// The join token that the operator gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<JoinToken>,
    },
    /// To be given the members' addresses. Asked by a member.
    Whereabouts {
        /// The cluster that the asking node is a member of.
        cluster: Uuid,
    },
    /// No question: the guard of a node reports that the node's process has ended.
    Ended {
        /// The node.
        node: NodeId,
        /// The life, by the number in its heartbeats.
        life: u64,
        /// The key that proves it.
        key: LifeKey,
    },
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("questions have string keys")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// The answer of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The cluster.
    pub(super) cluster: Uuid,
    /// The number of the newcomer.
    pub(super) node: Option<NodeId>,
    /// The version of the catalog from which on the node is a member.
    pub(super) version: u64,
    /// The members' addresses.
    pub(super) members: Vec<(NodeId, SocketAddr)>,
    /// The level of the cluster; absent from programs that know of none.
    #[serde(default, skip_serializing_if = "Level::is_first")]
    pub(super) level: Level,
}

impl From<Welcome> for Answer {
    fn from(Welcome { cluster, node, version, members, level }: Welcome) -> Self {
        Self { cluster, node, version, members, level }
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("answers have string keys")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// A node that has just become a member.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) cluster: Uuid,
    pub(crate) node: NodeId,
    answer: Answer,
}

impl Joined {
    /// The version of the catalog from which on the node is a member.
    pub(super) fn version(&self) -> u64 {
        self.answer.version
    }

    /// The level of the cluster.
    ///
    /// # Errors
    /// If this program does not know it.
    pub(crate) fn level(&self) -> Result<Level, StartError> {
        let (level, known) = (self.answer.level, Levels::OWN);
        match known.contains(level) {
            true => Ok(level),
            false => Err(StartError::Join(format!("the cluster is at level {level}, and this program knows {known}"))),
        }
    }

    /// The members' addresses, the new one's among them.
    pub(super) fn members(&self) -> impl Iterator<Item = (NodeId, SocketAddr)> {
        self.answer.members.iter().copied()
    }
}

/// The node that asks.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    /// The local address of the connections for questions.
    pub(crate) bind: IpAddr,
    /// This node's own address, which is not asked.
    pub(crate) advertise: SocketAddr,
    /// How far the wall clocks of two nodes may differ.
    pub(crate) max_clock_skew: Duration,
    /// How long members are asked again that do not answer.
    pub(crate) timeout: Duration,
    /// What it shows; `None` if traffic between nodes is open.
    pub(crate) tls: Option<Credentials>,
}

/// Why an attempt did not lead to an answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another attempt cannot succeed.
    Final(String),
    /// Another attempt may succeed.
    Passing(String),
}

impl Applicant {
    async fn ask(&self, seed: &NodeAddress, clock: &dyn Clock, question: &Question) -> Result<Answer, Failure> {
        let address = resolve(seed).await.map_err(|error| Failure::Passing(format!("{seed}: {error}")))?;
        if address == self.advertise {
            return Err(Failure::Passing(format!("{seed} is this node itself")));
        }
        let credentials = self.tls.as_ref().map(|tls| tls.load_full());
        let tls = credentials.as_ref().map(|credentials| credentials.client());
        let caller = Caller { bind: Some(self.bind), clock, max_clock_skew: self.max_clock_skew, tls };
        let answered = ask(address, caller, question.encode(), ANSWER_TIMEOUT).await;
        match answered {
            Ok(answer) => Answer::decode(&answer)
                .map_err(|error| Failure::Final(format!("{seed}: its answer is not understood: {error}"))),
            Err(DialError::Refused(refusal)) if refusal.kind == RefusalKind::Unknown => {
                Err(Failure::Passing(format!("{seed}: {refusal}")))
            }
            Err(DialError::Refused(refusal)) => Err(Failure::Final(format!("{seed} refuses this node: {refusal}"))),
            Err(DialError::Unreachable(error)) => Err(Failure::Passing(format!("{seed}: {error}"))),
        }
    }

    /// Asks a node that the operator has named, or a member, for the members' addresses.
    pub(super) async fn whereabouts(
        &self,
        seed: &NodeAddress,
        cluster: Uuid,
        clock: &dyn Clock,
    ) -> Result<Vec<(NodeId, SocketAddr)>, Failure> {
        Ok(self.ask(seed, clock, &Question::Whereabouts { cluster }).await?.members)
    }
}

/// Makes `node` a member of the cluster of the first of `seeds` that answers. The token is shown only where traffic is encrypted.
pub(crate) async fn join(
    applicant: &Applicant,
    seeds: &[NodeAddress],
    node: NodeDescription,
    replication_factor: Option<u32>,
    token: Option<JoinToken>,
    clock: &dyn Clock,
) -> Result<Joined, StartError> {
    if applicant.advertise.ip().is_unspecified() {
        let why = format!("{} cannot be dialled by other nodes: give --advertise-node-address", applicant.advertise);
        return Err(StartError::Join(why));
    }
    let token = token.filter(|_| applicant.tls.is_some());
    let question = Question::Join { node, replication_factor, program: env!("CARGO_PKG_VERSION").to_owned(), token };
    let start_ns = clock.monotonic_ns();
    let mut logged = String::new();
    loop {
        let mut last = String::new();
        for seed in seeds {
            match applicant.ask(seed, clock, &question).await {
                Ok(Answer { node: None, .. }) => last = format!("{seed} gave no node id"),
                Ok(answer @ Answer { node: Some(node), cluster, .. }) => {
                    tracing::info!(%node, %cluster, %seed, "joined");
                    return Ok(Joined { cluster, node, answer });
                }
                Err(Failure::Final(why)) => return Err(StartError::Join(why)),
                Err(Failure::Passing(why)) => last = why,
            }
            // Once for each reason: it may be one that does not pass, such as a certificate that is not accepted.
            if last != logged {
                tracing::info!(%last, "cannot join yet");
                logged.clone_from(&last);
            }
        }
        let waited = Duration::from_nanos(clock.monotonic_ns() - start_ns);
        if waited >= applicant.timeout {
            let seconds = applicant.timeout.as_secs();
            return Err(StartError::Join(format!("no node to join has answered within {seconds} s; the last: {last}")));
        }
        pause(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::SystemClock;

    fn description() -> NodeDescription {
        NodeDescription {
            host_id: Uuid::from_u128(7),
            address: "127.0.0.2".parse().unwrap(),
            cql_port: 9_042,
            rpc_port: 7_100,
            http_port: 7_000,
            data_center: "datacenter1".to_owned(),
            zone: "rack1".to_owned(),
            node_address: None,
            levels: None,
        }
    }

    #[test]
    fn questions_and_answers_are_read_as_written() {
        let (node, program, replication_factor) = (description(), "1".to_owned(), Some(3));
        let without = Question::Join { node: node.clone(), replication_factor, program: program.clone(), token: None };
        let token = JoinToken::random();
        let join = Question::Join { node, replication_factor, program, token: Some(token.clone()) };
        assert!(!format!("{join:?}").contains(&token.reveal()[..16]), "logs do not show it");
        let ended = Question::Ended { node: NodeId(3), life: 7, key: LifeKey::random() };
        for question in [without, join, Question::Whereabouts { cluster: Uuid::nil() }, ended] {
            assert_eq!(Question::decode(&question.encode()).unwrap(), question);
        }
        let members = vec![(NodeId(1), "127.0.0.1:7100".parse().unwrap())];
        let answer =
            Answer { cluster: Uuid::nil(), node: Some(NodeId(2)), version: 3, members, level: Level::RECORDED };
        assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
        assert!(Question::decode(b"{}").is_err() && Answer::decode(b"[]").is_err());
    }

    #[tokio::test]
    async fn a_join_times_out_with_the_reason() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let bind = "127.0.0.1".parse().unwrap();
        let advertise = "127.0.0.2:7100".parse().unwrap();
        let max_clock_skew = Duration::from_millis(500);
        let applicant = &Applicant { bind, advertise, max_clock_skew, timeout: Duration::ZERO, tls: None };
        let clock = &SystemClock::new();
        let attempt = |seed: String| async move {
            let seeds = [seed.parse().unwrap()];
            join(applicant, &seeds, description(), None, None, clock).await.unwrap_err().to_string()
        };
        let said = attempt(nobody.to_string()).await;
        assert!(said.contains(&nobody.to_string()) && said.contains("refused"), "{said}");
        let said = attempt("127.0.0.2".to_owned()).await;
        assert!(said.contains("is this node itself"), "{said}");
    }
}
