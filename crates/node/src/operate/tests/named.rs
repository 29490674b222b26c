//! Lists that are asked for by a name that there is not: a misspelt name is no reason for an empty list.

use super::{get, with_pages};
use diorite_admin::api::{Failure, FailureKind};

#[tokio::test]
async fn tablets_of_what_is_not_there_are_refused_in_json() {
    with_pages(|address| async move {
        for (filter, reason) in [
            ("keyspace=shop&table=none", "there is no table shop.none"),
            ("table=none", "there is no table none"),
            ("keyspace=none&table=orders_001", "there is no table none.orders_001"),
            ("keyspace=none", "there is no keyspace none"),
            ("table=orders_001&node=999", "there is no node n999"),
            ("leader=999", "there is no node n999"),
        ] {
            let (status, body) = get(address, &format!("/api/v1/tablets?{filter}")).await;
            assert_eq!(status, 404, "{filter}: {body}");
            let failure: Failure = serde_json::from_str(&body).unwrap();
            assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::NotFound, reason));
        }
        for filter in ["keyspace=shop", "table=orders_001", "keyspace=shop&table=orders_001&node=7&limit=1"] {
            let (status, body) = get(address, &format!("/api/v1/tablets?{filter}")).await;
            assert_eq!(status, 200, "{filter}: {body}");
        }
    })
    .await;
}
