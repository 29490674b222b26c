//! The statements of the workloads.
//!
//! Always true: they are exactly those that yb-sample-apps sends, except [`Statements::checks`].
//! Left out: `SELECT COUNT(*)` before and after a run; the checks of rows say more.

use crate::arguments::{IndexShape, WorkloadKind};

/// The statements of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statements {
    pub create_table: String,
    pub create_indexes: Vec<String>,
    pub insert: String,
    pub select: String,
    /// Reads that only we send: by key where the workload reads by an index, and by each index where it reads by key.
    pub checks: Vec<String>,
}

/// The parts of the statements; `TABLE` stands for the table's name.
struct Parts {
    columns: &'static str,
    option: Option<&'static str>,
    insert: &'static str,
    select: &'static str,
}

const TRANSACTIONS: Option<&str> = Some("transactions = { 'enabled' : true }");
/// The option of indexes of tables without transactions.
const USER_ENFORCED: &str = "transactions = { 'enabled' : false, 'consistency_level' : 'user_enforced' }";

impl Statements {
    /// The table's name when the command line gives none.
    pub fn default_table(kind: WorkloadKind) -> &'static str {
        match kind {
            WorkloadKind::KeyValue | WorkloadKind::BatchKeyValue => "CassandraKeyValue",
            WorkloadKind::Timeseries => "ts_metrics_raw",
            WorkloadKind::BatchTimeseries => "batch_ts_metrics_raw",
            WorkloadKind::Personalization => "coupon_recommendation",
            WorkloadKind::StockTicker => "stock_ticker_raw",
            WorkloadKind::EventData => "event_data_raw",
            WorkloadKind::RangeKeyValue
            | WorkloadKind::SecondaryIndex
            | WorkloadKind::UniqueSecondaryIndex
            | WorkloadKind::Inserts
            | WorkloadKind::TransactionalKeyValue
            | WorkloadKind::TransactionalRestartRead
            | WorkloadKind::UserId => kind.name(),
        }
    }

    /// The statements for `table`.
    pub fn new(kind: WorkloadKind, table: &str, ttl_s: Option<u64>, tablets: Option<u32>, indexes: IndexShape) -> Self {
        let options = |option: Option<&str>| {
            let options: Vec<String> = option
                .map(str::to_owned)
                .into_iter()
                .chain(ttl_s.map(|seconds| format!("default_time_to_live = {seconds}")))
                .chain(tablets.map(|tablets| format!("tablets = {tablets}")))
                .collect();
            if options.is_empty() { String::new() } else { format!(" WITH {}", options.join(" AND ")) }
        };
        let transactions = TRANSACTIONS.filter(|_| indexes.is_transactional);
        let index_options = if indexes.is_transactional { String::new() } else { format!(" WITH {USER_ENFORCED}") };
        let Parts { columns, option, insert, select } = match kind {
            WorkloadKind::Inserts => {
                return Self::inserts(table, &options(transactions), indexes.count, &index_options);
            }
            WorkloadKind::SecondaryIndex => Parts { option: transactions, ..row_parts(kind) },
            WorkloadKind::Timeseries
            | WorkloadKind::BatchTimeseries
            | WorkloadKind::StockTicker
            | WorkloadKind::EventData => series_parts(kind),
            _ => row_parts(kind),
        };
        let create_index = match kind {
            WorkloadKind::SecondaryIndex => {
                Some(format!("CREATE INDEX IF NOT EXISTS {table}ByValue ON {table} (v){index_options};"))
            }
            // Whatever the command line says: only tables with transactions have unique indexes.
            WorkloadKind::UniqueSecondaryIndex => {
                Some(format!("CREATE UNIQUE INDEX IF NOT EXISTS {table}ByValue ON {table} (v);"))
            }
            WorkloadKind::EventData => Some(format!(
                "CREATE INDEX IF NOT EXISTS search_by_event_type ON {table} (device_id, event_type, ts) \
                 WITH CLUSTERING ORDER BY (event_type ASC, ts DESC) AND {USER_ENFORCED};"
            )),
            _ => None,
        };
        let by_key = kind.reads_by_value().then(|| format!("SELECT k, v FROM {table} WHERE k = ?;"));
        Self {
            create_table: format!("CREATE TABLE IF NOT EXISTS {table} ({columns}){};", options(option)),
            create_indexes: create_index.into_iter().collect(),
            insert: insert.replace("TABLE", table),
            select: select.replace("TABLE", table),
            checks: by_key.into_iter().collect(),
        }
    }

    /// The statements of CassandraInserts, with a column for each index, or one without.
    fn inserts(table: &str, options: &str, indexes: usize, index_options: &str) -> Self {
        let columns = value_columns(indexes);
        let typed = columns.iter().map(|column| format!(" {column} text,")).collect::<String>();
        let markers = ", ?".repeat(columns.len());
        let index = |number| format!("CREATE INDEX IF NOT EXISTS idx{number} ON {table} (v{number}){index_options};");
        Self {
            create_table: format!("CREATE TABLE IF NOT EXISTS {table}(k text,{typed} primary key (k)){options};"),
            create_indexes: (0..indexes).map(index).collect(),
            insert: format!("INSERT INTO {table}(k, {}) VALUES (?{markers});", columns.join(", ")),
            select: format!("SELECT * FROM {table} WHERE k = ?;"),
            checks: (0..indexes).map(|number| format!("SELECT * FROM {table} WHERE v{number} = ?;")).collect(),
        }
    }
}

/// The columns of CassandraInserts beside the key: one for each index, at least one.
pub fn value_columns(indexes: usize) -> Vec<String> {
    (0..indexes.max(1)).map(|number| format!("v{number}")).collect()
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
        WorkloadKind::SecondaryIndex | WorkloadKind::UniqueSecondaryIndex => Parts {
            columns: "k varchar, v varchar, primary key (k)",
            option: TRANSACTIONS,
            insert: "INSERT INTO TABLE (k, v) VALUES (?, ?);",
            select: "SELECT k, v FROM TABLE WHERE v = ?;",
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
        WorkloadKind::EventData => Parts {
            columns: "device_id varchar, ts bigint, event_type varchar, value blob, \
                      primary key (device_id, ts, event_type)",
            option: Some("CLUSTERING ORDER BY (ts DESC, event_type ASC)"),
            insert: "INSERT INTO TABLE (device_id, ts, event_type, value) \
                     VALUES (:device_id, :ts, :event_type, :value);",
            select: "SELECT * from TABLE WHERE device_id = :deviceId AND ts > :startTs AND ts < :endTs \
                     AND event_type=:event_type ORDER BY ts DESC LIMIT :readBatchSize;",
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
        let statements =
            Statements::new(WorkloadKind::KeyValue, "CassandraKeyValue", None, None, IndexShape::default());
        assert_eq!(
            statements.create_table,
            "CREATE TABLE IF NOT EXISTS CassandraKeyValue (k varchar, v blob, primary key (k));"
        );
        assert_eq!(statements.insert, "INSERT INTO CassandraKeyValue (k, v) VALUES (?, ?);");
        assert_eq!(statements.select, "SELECT k, v FROM CassandraKeyValue WHERE k = ?;");
        let statements =
            Statements::new(WorkloadKind::Timeseries, "ts_metrics_raw", Some(86_400), Some(4), IndexShape::default());
        assert!(statements.create_table.ends_with(") WITH default_time_to_live = 86400 AND tablets = 4;"));
    }

    #[test]
    fn options_of_the_workload_stand_before_those_of_the_command_line() {
        let table = |kind, ttl_s| Statements::new(kind, "t", ttl_s, None, IndexShape::default()).create_table;
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
        let statements = Statements::new(WorkloadKind::TransactionalKeyValue, "t", None, None, IndexShape::default());
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
            let indexes = IndexShape { count: 2, ..IndexShape::default() };
            let Statements { create_table, create_indexes, insert, select, checks } =
                Statements::new(kind, table, None, None, indexes);
            let all = [vec![create_table, insert, select], create_indexes, checks].concat();
            for statement in all {
                assert!(statement.contains(table) && !statement.contains("INTO TABLE"), "{statement}");
            }
        }
    }

    #[test]
    fn secondary_index_has_an_index_of_the_value_with_and_without_transactions() {
        let table = "CassandraSecondaryIndex";
        let statements = |is_transactional| {
            let indexes = IndexShape { count: 0, is_transactional };
            Statements::new(WorkloadKind::SecondaryIndex, table, None, None, indexes)
        };
        let columns = format!("CREATE TABLE IF NOT EXISTS {table} (k varchar, v varchar, primary key (k))");
        let index = format!("CREATE INDEX IF NOT EXISTS {table}ByValue ON {table} (v)");
        let with = statements(true);
        assert_eq!(with.create_table, format!("{columns} WITH transactions = {{ 'enabled' : true }};"));
        assert_eq!(with.create_indexes, [format!("{index};")]);
        assert_eq!(with.select, format!("SELECT k, v FROM {table} WHERE v = ?;"));
        let without = statements(false);
        assert_eq!(without.create_table, format!("{columns};"));
        assert_eq!(
            without.create_indexes,
            [format!("{index} WITH transactions = {{ 'enabled' : false, 'consistency_level' : 'user_enforced' }};")]
        );
        assert_eq!((without.insert, without.select), (with.insert, with.select));
    }

    #[test]
    fn a_unique_index_is_of_a_table_with_transactions_whatever_is_asked_for() {
        let table = "CassandraUniqueSecondaryIndex";
        for is_transactional in [true, false] {
            let indexes = IndexShape { count: 0, is_transactional };
            let statements = Statements::new(WorkloadKind::UniqueSecondaryIndex, table, None, None, indexes);
            assert_eq!(
                statements.create_table,
                format!(
                    "CREATE TABLE IF NOT EXISTS {table} (k varchar, v varchar, primary key (k)) \
                     WITH transactions = {{ 'enabled' : true }};"
                )
            );
            let index = format!("CREATE UNIQUE INDEX IF NOT EXISTS {table}ByValue ON {table} (v);");
            assert_eq!(statements.create_indexes, [index]);
            assert_eq!(statements.insert, format!("INSERT INTO {table} (k, v) VALUES (?, ?);"));
            assert_eq!(statements.select, format!("SELECT k, v FROM {table} WHERE v = ?;"));
            assert_eq!(statements.checks, [format!("SELECT k, v FROM {table} WHERE k = ?;")]);
        }
    }

    #[test]
    fn inserts_have_a_column_for_each_index_or_one_without() {
        let statements = |count, is_transactional| {
            let indexes = IndexShape { count, is_transactional };
            Statements::new(WorkloadKind::Inserts, "t", None, Some(4), indexes)
        };
        let one = statements(0, true);
        assert_eq!(
            one.create_table,
            "CREATE TABLE IF NOT EXISTS t(k text, v0 text, primary key (k)) \
             WITH transactions = { 'enabled' : true } AND tablets = 4;"
        );
        assert_eq!(one.insert, "INSERT INTO t(k, v0) VALUES (?, ?);");
        assert_eq!(one.select, "SELECT * FROM t WHERE k = ?;");
        assert!(one.create_indexes.is_empty() && one.checks.is_empty());
        let two = statements(2, false);
        let table = "CREATE TABLE IF NOT EXISTS t(k text, v0 text, v1 text, primary key (k)) WITH tablets = 4;";
        assert_eq!(two.create_table, table);
        assert_eq!(two.insert, "INSERT INTO t(k, v0, v1) VALUES (?, ?, ?);");
        let index = "CREATE INDEX IF NOT EXISTS idx1 ON t (v1) \
                     WITH transactions = { 'enabled' : false, 'consistency_level' : 'user_enforced' };";
        assert_eq!((two.create_indexes.len(), two.create_indexes[1].as_str()), (2, index));
        assert_eq!(two.checks, ["SELECT * FROM t WHERE v0 = ?;", "SELECT * FROM t WHERE v1 = ?;"]);
    }

    #[test]
    fn events_are_found_by_device_type_and_time() {
        let shape = IndexShape::default();
        let statements = Statements::new(WorkloadKind::EventData, "event_data_raw", Some(86_400), None, shape);
        assert!(
            statements.create_table.ends_with(
                "primary key (device_id, ts, event_type)) WITH CLUSTERING ORDER BY (ts DESC, event_type ASC) \
                 AND default_time_to_live = 86400;"
            ),
            "{statements:?}"
        );
        assert_eq!(
            statements.create_indexes,
            ["CREATE INDEX IF NOT EXISTS search_by_event_type ON event_data_raw (device_id, event_type, ts) \
              WITH CLUSTERING ORDER BY (event_type ASC, ts DESC) \
              AND transactions = { 'enabled' : false, 'consistency_level' : 'user_enforced' };"]
        );
        assert!(statements.select.contains("AND event_type=:event_type ORDER BY ts DESC LIMIT :readBatchSize;"));
    }
}
