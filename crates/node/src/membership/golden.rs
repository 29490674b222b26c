//! The golden bytes of the questions of nodes that join or start, and of their answers.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::join::{Answer, Question};
use diorite_base::{Level, Levels, NodeId};
use diorite_cluster::catalog::NodeDescription;
use diorite_golden::{Decoded, Golden, kinds};
use uuid::Uuid;

kinds!(QUESTIONS, question_kind(Question): Join, Whereabouts, Ended);

fn golden<'a>(format: &'a str, kinds: &'a [&'a [&'a str]]) -> Golden<'a> {
    Golden { level: Levels::OWN.greatest.0, format, kinds }
}

fn description() -> NodeDescription {
    NodeDescription {
        host_id: Uuid::from_u128(3),
        address: "127.0.0.1".parse().unwrap(),
        cql_port: 9_042,
        rpc_port: 7_100,
        http_port: 7_000,
        data_center: "datacenter1".to_owned(),
        zone: "rack1".to_owned(),
        node_address: Some("127.0.0.2:7100".parse().unwrap()),
        levels: None,
    }
}

fn join(node: NodeDescription) -> Question {
    let token = Some(serde_json::from_str("\"0123456789abcdef.00\"").unwrap());
    Question::Join { node, replication_factor: Some(3), program: "0.2.0".to_owned(), token }
}

#[test]
fn questions_have_their_bytes() {
    let without = NodeDescription { node_address: None, ..description() };
    let ended = format!("{{\"ask\":\"ended\",\"node\":2,\"life\":300,\"key\":\"{}\"}}", "07".repeat(32));
    let cases = [
        ("join", join(description())),
        (
            "join without a token",
            Question::Join { node: without, replication_factor: None, program: "0.2.0".to_owned(), token: None },
        ),
        ("whereabouts", Question::Whereabouts { cluster: Uuid::from_u128(1) }),
        ("ended", Question::decode(ended.as_bytes()).unwrap()),
        // Programs of level 1 ignore the levels.
        ("join, with levels", join(NodeDescription { levels: Some(Levels::OWN), ..description() })),
    ];
    golden("join-questions", &[QUESTIONS]).check(
        &cases.map(|(name, question)| (name, question.encode())),
        |_, bytes| {
            let question = Question::decode(bytes).unwrap();
            let encoded = Some(question.encode());
            Decoded { kinds: vec![question_kind(&question)], shown: format!("{question:?}"), encoded }
        },
    );
}

#[test]
fn answers_have_their_bytes() {
    let answer = Answer {
        cluster: Uuid::from_u128(1),
        node: Some(NodeId(2)),
        version: 300,
        members: vec![(NodeId(1), "127.0.0.1:7100".parse().unwrap())],
        level: Level::FIRST,
    };
    let later = Answer { level: Level::RECORDED, ..answer.clone() };
    let cases = [("member", Answer { node: None, ..answer.clone() }), ("newcomer", answer), ("at level 2", later)];
    golden("join-answers", &[]).check(&cases.map(|(name, answer)| (name, answer.encode())), |_, bytes| {
        let answer = Answer::decode(bytes).unwrap();
        Decoded { kinds: vec![], shown: format!("{answer:?}"), encoded: Some(answer.encode()) }
    });
}
