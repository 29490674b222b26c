//! Kinds of consensus messages.

use raft::eraftpb::{Message, MessageType};

/// Whether the message asks for a vote, or whether a vote would be given.
pub fn is_vote_request(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
}

/// Whether only a group's leader sends such a message.
pub fn is_from_leader(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot)
}

/// Whether a leader's message carries no entries: it only shows that the leader leads, and the commit index.
pub fn is_without_entries(message: &Message) -> bool {
    match message.get_msg_type() {
        MessageType::MsgHeartbeat => true,
        MessageType::MsgAppend => message.entries.is_empty(),
        _ => false,
    }
}

/// Whether the message acknowledges a leader's message.
pub fn is_acknowledgement(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse)
}

/// Whether a peer may send a message of this kind at all. Consensus forwards no proposals, and leadership is
/// transferred by the replica layer.
pub fn may_come_from_a_peer(message: &Message) -> bool {
    is_vote_request(message)
        || is_from_leader(message)
        || is_acknowledgement(message)
        || matches!(
            message.get_msg_type(),
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse
        )
}
