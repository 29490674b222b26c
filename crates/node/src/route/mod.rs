//! Routing: a request for a tablet that another node leads takes one hop to that node.
//!
//! ```text
//! asking node                                            leader
//! ask ─▶ Peer::add ─▶ send_gathered: one frame ───────▶ Router::serve: reads from memory answered at once,
//!  │        ▲                                              reads from disk and writes when they are done
//!  │        └─ parked ◀─ refused, or nobody leads            │
//!  └─ here: the store         Outcomes ◀── one frame ◀───────┘ with its own requests
//! ```
//!
//! [`diorite_control::routing`] decides where a request goes; this folder is its shell: sockets, the store, locks and
//! one coarse timer, which runs only while requests wait. `ask` takes requests, `steps` carries out decisions about
//! them, `serve` answers those of other nodes.
//! Left out: which nodes are up (`diorite_replica::Liveness`), and sending bytes (`diorite_rpc`).

mod ask;
mod by_index;
mod checked;
mod counters;
mod fetch_wire;
mod gathering;
#[cfg(test)]
mod golden;
mod index_wire;
mod options;
mod peer;
mod pin_wire;
mod read;
mod request;
mod router;
mod serve;
mod served;
mod steps;
#[cfg(test)]
mod tests;
mod transactions;
mod until;
mod view;
mod wire;

pub(crate) use options::{CatalogSource, RouteOptions};
pub(crate) use router::{Router, RouterParts};
pub(crate) use transactions::Peers;

/// Reads arbitrary bytes as a frame of `Lane::Requests`.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_frame(input: &[u8]) {
    match wire::read_frame(input) {
        Ok((wire::FrameKind::Requests, _, mut items)) => {
            while !items.is_empty() {
                let Ok(request) = wire::read_request(&mut items) else { return };
                match request.operation {
                    wire::OperationRef::Fetch(fetch) => {
                        let spans = match fetch.to_fetch().rows {
                            diorite_query::kv::FetchRows::Several(several) => several.spans,
                            diorite_query::kv::FetchRows::Index(scan) => scan.spans,
                            _ => Vec::new(),
                        };
                        diorite_query::kv::several::decode(&spans).for_each(drop);
                    }
                    wire::OperationRef::Write(mutation, _) => {
                        if let Ok(mut mutation) = checked::checked(request.tablet, mutation) {
                            mutation.stamp(1);
                        }
                    }
                }
            }
        }
        Ok((wire::FrameKind::Answers, _, mut items)) => {
            while !items.is_empty() {
                if wire::read_answer(&mut items, diorite_base::TabletId).is_err() {
                    return;
                }
            }
        }
        Err(_) => {}
    }
}
