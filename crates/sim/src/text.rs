//! Frames as lines for people who read a trace.

use diorite_base::NodeId;
use diorite_base::bytes::{Malformed, Reader};
use diorite_raft::is_conditional_vote;
use diorite_replica::{Envelope, envelopes};
use diorite_rpc::Lane;

/// A frame as text.
pub fn frame(from: NodeId, lane: Lane, frame: &[u8]) -> String {
    let said = match lane {
        Lane::Control => control(frame),
        Lane::Raft => envelopes(frame).map(|envelopes| {
            let said: Vec<String> =
                envelopes.iter().map(|(group, envelope)| format!("{group} {}", raft(envelope))).collect();
            said.join("; ")
        }),
        Lane::Requests | Lane::Bulk | Lane::Operations => Ok(String::new()),
    };
    format!("from {from}: {}", said.unwrap_or_else(|Malformed| "malformed".to_owned()))
}

fn control(frame: &[u8]) -> Result<String, Malformed> {
    let mut reader = Reader::new(frame);
    reader.u8()?;
    let kind = reader.u8()?;
    let (life, sent_ns, number) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(match kind {
        1 => format!("heartbeat of life {life} at {sent_ns}"),
        _ => format!("support in epoch {number} for life {life} at {sent_ns}"),
    })
}

fn raft(envelope: &Envelope) -> String {
    match envelope {
        Envelope::Released { term, candidate } => format!("released in term {term}, candidate {candidate}"),
        Envelope::Prepared => "children prepared".to_owned(),
        Envelope::Opened => "opened".to_owned(),
        Envelope::Lost { index } => format!("lost all after {index}"),
        Envelope::Suspect { index } => format!("suspects that it has lost what came after {index}"),
        Envelope::Floor { term, index, last_term } => {
            format!("leads in term {term}, log ends with {last_term}/{index}")
        }
        Envelope::Standing { index, term } => format!("log ends with {term}/{index}"),
        Envelope::Ask { asked_ns } => format!("ask for the position at {asked_ns}"),
        Envelope::Position { asked_ns, index } => format!("position {index} for {asked_ns}"),
        Envelope::Raft { epoch, message, .. } => format!(
            "{:?} term {} log {}/{} commit {} entries {}{} epoch {epoch}",
            message.get_msg_type(),
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.entries.len(),
            match message.reject {
                true if is_conditional_vote(message) => " on condition",
                true => " rejected",
                false => "",
            },
        ),
    }
}
