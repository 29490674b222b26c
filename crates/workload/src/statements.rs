//! The statements of the workloads, exactly those that yb-sample-apps sends.
//!
//! Left out: `SELECT COUNT(*)` before and after a run; the checks of rows say more.

use crate::arguments::WorkloadKind;

/// The statements of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statements {
    pub create_table: String,
    pub insert: String,
    pub select: String,
}

/// The parts of the statements; `TABLE` stands for the table's name.
struct Parts {
    columns: &'static str,
    option: Option<&'static str>,
    insert: &'static str,
    select: &'static str,
}

const TRANSACTIONS: Option<&str> = Some("transactions = { 'enabled' : true }");

impl Statements {
    /// The table's name when the command line gives none.
    pub fn default_table(kind: WorkloadKind) -> &'static str {
        match kind {
            WorkloadKind::KeyValue | WorkloadKind::BatchKeyValue => "CassandraKeyValue",
            WorkloadKind::Timeseries => "ts_metrics_raw",
            WorkloadKind::BatchTimeseries => "batch_ts_metrics_raw",
            WorkloadKind::Personalization => "coupon_recommendation",
            WorkloadKind::StockTicker => "stock_ticker_raw",
            WorkloadKind::RangeKeyValue
            | WorkloadKind::TransactionalKeyValue
            | WorkloadKind::TransactionalRestartRead
            | WorkloadKind::UserId => kind.name(),
        }
    }

    /// The statements for `table`.
    pub fn new(kind: WorkloadKind, table: &str, ttl_s: Option<u64>, tablets: Option<u32>) -> Self {
        let Parts { columns, option, insert, select } = match kind {
            WorkloadKind::Timeseries | WorkloadKind::BatchTimeseries | WorkloadKind::StockTicker => series_parts(kind),
            _ => row_parts(kind),
        };
        let options: Vec<String> = option
            .map(str::to_owned)
            .into_iter()
            .chain(ttl_s.map(|seconds| format!("default_time_to_live = {seconds}")))
            .chain(tablets.map(|tablets| format!("tablets = {tablets}")))
            .collect();
        let options = if options.is_empty() { String::new() } else { format!(" WITH {}", options.join(" AND ")) };
        Self {
            create_table: format!("CREATE TABLE IF NOT EXISTS {table} ({columns}){options};"),
            insert: insert.replace("TABLE", table),
            select: select.replace("TABLE", table),
        }
    }
}

fn row_parts(kind: WorkloadKind) -> Parts {
    match kind {
        WorkloadKind::RangeKeyValue => Parts {
            columns: "k varchar, r1 varchar, r2 varchar, r3 varchar, v blob, primary key ((k), r1, r2, r3)",
            option: None,
            insert: "INSERT INTO TABLE (k, r1, r2, r3, v) VALUES (?, ?, ?, ?, ?);",
            select: "SELECT k, r1, r2, r3, v FROM TABLE WHERE k = ? AND r1 = ? AND r2 = ? AND r3 = ?;",
        },
        WorkloadKind::TransactionalKeyValue => Parts {
            columns: "k varchar, v bigint, primary key (k)",
            option: TRANSACTIONS,
            insert: "BEGIN TRANSACTION  INSERT INTO TABLE (k, v) VALUES (:k1, :v1);  \
                     INSERT INTO TABLE (k, v) VALUES (:k2, :v2);END TRANSACTION;",
            select: "SELECT k, v, writetime(v) FROM TABLE WHERE k in :k;",
        },
        WorkloadKind::TransactionalRestartRead => Parts {
            columns: "k varchar, v bigint, primary key (k)",
            option: TRANSACTIONS,
            insert: "BEGIN TRANSACTION  INSERT INTO TABLE (k, v) VALUES (:k, :v);END TRANSACTION;",
            select: "SELECT k, v FROM TABLE WHERE k = :k;",
        },
        WorkloadKind::Personalization => Parts {
            columns: "customer_id text, store_id text, coupon_code text, begin_date timestamp, end_date timestamp, \
                      relevance_score double, PRIMARY KEY ((customer_id, store_id), coupon_code)",
            option: None,
            insert: "INSERT INTO TABLE (customer_id, store_id, coupon_code, begin_date, end_date, relevance_score) \
                     VALUES (?, ?, ?, ?, ?, ?);",
            select: "SELECT * FROM TABLE WHERE customer_id = ? AND store_id = ?;",
        },
        WorkloadKind::UserId => Parts {
            columns: "user_name varchar, password varchar, update_time timestamp, primary key (user_name)",
            option: None,
            insert: "INSERT INTO TABLE (user_name, password, update_time) VALUES (?, ?, ?);",
            select: "SELECT user_name, password, update_time FROM TABLE WHERE user_name = ?;",
        },
        _ => Parts {
            columns: "k varchar, v blob, primary key (k)",
            option: None,
            insert: "INSERT INTO TABLE (k, v) VALUES (?, ?);",
            select: "SELECT k, v FROM TABLE WHERE k = ?;",
        },
    }
}

fn series_parts(kind: WorkloadKind) -> Parts {
    match kind {
        WorkloadKind::BatchTimeseries => Parts {
            columns: "metric_id varchar, ts bigint, value varchar, primary key (metric_id, ts)",
            option: None,
            insert: "INSERT INTO TABLE (metric_id, ts, value) VALUES (:metric_id, :ts, :value);",
            select: "SELECT * from TABLE WHERE metric_id = :metricId AND ts > :startTs AND ts < :endTs \
                     ORDER BY ts DESC LIMIT :readBatchSize;",
        },
        WorkloadKind::StockTicker => Parts {
            columns: "ticker_id varchar, ts timestamp, value varchar, primary key ((ticker_id), ts)",
            option: Some("CLUSTERING ORDER BY (ts DESC)"),
            insert: "INSERT INTO TABLE (ticker_id, ts, value) VALUES (?, ?, ?)",
            select: "SELECT * from TABLE WHERE ticker_id = ? LIMIT 1",
        },
        _ => Parts {
            columns: "user_id varchar, metric_id varchar, node_id varchar, ts timestamp, value varchar, \
                      primary key ((user_id, metric_id), node_id, ts)",
            option: None,
            insert: "INSERT INTO TABLE (user_id, metric_id, node_id, ts, value) \
                     VALUES (:user_id, :metric_id, :node_id, :ts, :value);",
            select: "SELECT * FROM TABLE WHERE user_id = :userId AND metric_id = :metricId AND node_id = :nodeId \
                     AND ts > :startTs AND ts < :endTs;",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_those_of_the_published_client() {
        let statements = Statements::new(WorkloadKind::KeyValue, "CassandraKeyValue", None, None);
        assert_eq!(
            statements.create_table,
            "CREATE TABLE IF NOT EXISTS CassandraKeyValue (k varchar, v blob, primary key (k));"
        );
        assert_eq!(statements.insert, "INSERT INTO CassandraKeyValue (k, v) VALUES (?, ?);");
        assert_eq!(statements.select, "SELECT k, v FROM CassandraKeyValue WHERE k = ?;");
        let statements = Statements::new(WorkloadKind::Timeseries, "ts_metrics_raw", Some(86_400), Some(4));
        assert!(statements.create_table.ends_with(") WITH default_time_to_live = 86400 AND tablets = 4;"));
    }

    #[test]
    fn options_of_the_workload_stand_before_those_of_the_command_line() {
        let table = |kind, ttl_s| Statements::new(kind, "t", ttl_s, None).create_table;
        let ticker = table(WorkloadKind::StockTicker, Some(86_400));
        assert!(ticker.ends_with(" WITH CLUSTERING ORDER BY (ts DESC) AND default_time_to_live = 86400;"), "{ticker}");
        for kind in [WorkloadKind::TransactionalKeyValue, WorkloadKind::TransactionalRestartRead] {
            assert_eq!(
                table(kind, None),
                "CREATE TABLE IF NOT EXISTS t (k varchar, v bigint, primary key (k)) \
                 WITH transactions = { 'enabled' : true };"
            );
        }
    }

    #[test]
    fn a_block_writes_both_rows_with_markers_by_name() {
        let statements = Statements::new(WorkloadKind::TransactionalKeyValue, "t", None, None);
        assert_eq!(
            statements.insert,
            "BEGIN TRANSACTION  INSERT INTO t (k, v) VALUES (:k1, :v1);  \
             INSERT INTO t (k, v) VALUES (:k2, :v2);END TRANSACTION;"
        );
        assert_eq!(statements.select, "SELECT k, v, writetime(v) FROM t WHERE k in :k;");
    }

    #[test]
    fn every_workload_has_statements_of_its_own_table() {
        for kind in WorkloadKind::ALL {
            let table = Statements::default_table(kind);
            let Statements { create_table, insert, select } = Statements::new(kind, table, None, None);
            for statement in [create_table, insert, select] {
                assert!(statement.contains(table) && !statement.contains("INTO TABLE"), "{statement}");
            }
        }
    }
}
