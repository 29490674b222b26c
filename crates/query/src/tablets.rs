//! Scylla's protocol extension for tablets: a driver whose request came to another node learns which node leads the tablet.
//!
//! A driver that asked for it at STARTUP (`TABLETS_ROUTING_V1`) finds in the answer of an EXECUTE, as the custom payload `tablets-routing-v1`,
//! the token range of the tablet and its replicas, remembers them, and goes there next time. It is told one replica, the leader: strong reads
//! and writes then take no further hop.
//!
//! ```text
//! tuple<bigint first token (exclusive), bigint last token (inclusive), list<tuple<uuid host, int shard>>>
//! ```
//!
//! Always true: nothing is sent about a tablet that this node leads, or whose leader is not known, nor with the answer
//! to a statement over several partitions, a batch or a statement as text, as drivers keep tablets by prepared
//! statement. Of a read by a covering index it is the tablet of the index's view, and the markers of the statement are said
//! to be of the view, under whose name drivers keep it. Left out: shards, which Diorite's clients need not know (always 0).

use crate::exec::keys::partition_keys;
use crate::kv::Kv;
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::term::Bound;
use crate::plan::{Plan, Planned};
use diorite_base::NodeId;
use uuid::Uuid;

/// The name of the payload.
pub const PAYLOAD: &str = "tablets-routing-v1";

/// The payload for a statement on one partition of which another node than `node` leads the tablet.
pub fn payload<K: Kv>(kv: &K, node: NodeId, planned: &Planned, bound: &Bound<'_>) -> Option<Vec<u8>> {
    let (table, restrictions) = match &planned.plan {
        Plan::Select(plan) => (&plan.routed().table, &plan.routed().restrictions),
        Plan::Modify(plan) => (&plan.table, &plan.restrictions),
        _ => return None,
    };
    let PartitionRestriction::Keys(keys) = &restrictions.partition else { return None };
    let catalog = kv.catalog();
    let entry = catalog.table_by_id(table.table().id)?;
    let partitions = partition_keys(table, keys, bound).ok()?;
    let [partition] = partitions.as_slice() else { return None };
    let after = entry.tablets.partition_point(|range| range.first_token <= partition.token);
    let range = entry.tablets.get(after.checked_sub(1)?)?;
    let leader = kv.leader(range.tablet).filter(|leader| *leader != node)?;
    let last_token = entry.tablets.get(after).map_or(i64::MAX, |next| next.first_token - 1);
    Some(encode(range.first_token, last_token, catalog.node(leader)?.description.host_id))
}

/// The payload for the tablet of these tokens, both inclusive, that the node with that host id leads.
pub fn encode(first_token: i64, last_token: i64, host_id: Uuid) -> Vec<u8> {
    let mut replica = Vec::with_capacity(28);
    put_bytes(&mut replica, host_id.as_bytes());
    put_bytes(&mut replica, &0i32.to_be_bytes());
    let mut replicas = 1i32.to_be_bytes().to_vec();
    put_bytes(&mut replicas, &replica);
    let mut payload = Vec::with_capacity(64);
    // The smallest token of all belongs to no key.
    put_bytes(&mut payload, &first_token.saturating_sub(1).to_be_bytes());
    put_bytes(&mut payload, &last_token.to_be_bytes());
    put_bytes(&mut payload, &replicas);
    payload
}

/// A `[bytes]` of the protocol.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_model::types::{CqlType, Frozen};
    use diorite_model::value::literal_text;
    use std::sync::Arc;

    #[test]
    fn the_payload_is_a_tuple_as_drivers_read_it() {
        let host = Uuid::from_u128(0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10);
        let replica = CqlType::Tuple([CqlType::Uuid, CqlType::Int].into());
        let replicas = CqlType::List(Arc::new(replica), Frozen::Yes);
        let payload_type = CqlType::Tuple([CqlType::Bigint, CqlType::Bigint, replicas].into());
        for (first_token, shown) in [(i64::MIN, "-9223372036854775808"), (1, "0")] {
            let payload = encode(first_token, 4_611_686_018_427_387_903, host);
            payload_type.validate(&payload).unwrap();
            let mut text = String::new();
            literal_text(&payload_type, &payload, &mut text).unwrap();
            assert_eq!(text, format!("({shown}, 4611686018427387903, [(01020304-0506-0708-090a-0b0c0d0e0f10, 0)])"));
        }
        let bytes = encode(1, 255, host);
        let expected = "00000008 0000000000000000 00000008 00000000000000ff 00000024 00000001 0000001c \
                        00000010 0102030405060708090a0b0c0d0e0f10 00000004 00000000";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""));
    }
}
