package checks;

import com.datastax.driver.core.BatchStatement;
import com.datastax.driver.core.BoundStatement;
import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.ConsistencyLevel;
import com.datastax.driver.core.HostDistance;
import com.datastax.driver.core.PoolingOptions;
import com.datastax.driver.core.PreparedStatement;
import com.datastax.driver.core.QueryOptions;
import com.datastax.driver.core.ResultSet;
import com.datastax.driver.core.Row;
import com.datastax.driver.core.Session;
import com.datastax.driver.core.SocketOptions;
import com.datastax.driver.core.exceptions.InvalidQueryException;
import com.yugabyte.driver.core.policies.PartitionAwarePolicy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * What each workload of yb-sample-apps asks of a server, in small: the same driver, session settings (but for patience with a
 * busy machine), statements (DDL and USE prepared and executed), defaults and checks. One line per workload,
 * {@code ok <check>} or {@code not ok <check>: <why>}.
 */
public final class Workloads {
  private static final String KEYSPACE = "ybdemo_keyspace";
  private static Cluster cluster;
  private static Session session;
  private static boolean failed;

  private interface Check {
    void run() throws Exception;
  }

  private static void check(String name, Check body) {
    try {
      body.run();
      System.out.println("ok " + name);
    } catch (Throwable failure) {
      failed = true;
      System.out.println("not ok " + name + ": " + String.valueOf(failure).replaceAll("\\s+", " "));
    }
  }

  private static void expect(Object wanted, Object found, String what) {
    if (!wanted.equals(found)) {
      throw new AssertionError(what + ": wanted " + wanted + ", found " + found);
    }
  }

  /** DDL goes as a prepared statement at consistency ONE. */
  private static void define(String statement) {
    session.execute(session.prepare(statement).setConsistencyLevel(ConsistencyLevel.ONE).bind());
  }

  private static long count(String table) {
    return session.execute("SELECT COUNT(*) FROM " + table).one().getLong(0);
  }

  private static byte[] value(long key, int size) {
    byte[] bytes = new byte[size];
    new Random(key).nextBytes(bytes);
    return bytes;
  }

  private static void connect(String address) {
    System.setProperty("com.datastax.driver.EXTENDED_PEER_CHECK", "false");
    PoolingOptions pooling =
        new PoolingOptions()
            .setCoreConnectionsPerHost(HostDistance.LOCAL, 4)
            .setMaxConnectionsPerHost(HostDistance.LOCAL, 4)
            .setMaxRequestsPerConnection(HostDistance.LOCAL, 32768);
    cluster =
        Cluster.builder()
            .addContactPoint(address)
            .withQueryOptions(new QueryOptions().setConsistencyLevel(ConsistencyLevel.QUORUM))
            .withSocketOptions(new SocketOptions().setReadTimeoutMillis(60_000).setConnectTimeoutMillis(30_000))
            .withLoadBalancingPolicy(new PartitionAwarePolicy())
            .withPoolingOptions(pooling)
            .withoutJMXReporting()
            .build();
    session = cluster.connect();
    define("DROP KEYSPACE IF EXISTS " + KEYSPACE + ";");
    define(
        "CREATE KEYSPACE IF NOT EXISTS " + KEYSPACE
            + " WITH REPLICATION = {'class': 'SimpleStrategy', 'replication_factor' : 1};");
    define("USE " + KEYSPACE + ";");
    expect(KEYSPACE, session.getLoggedKeyspace(), "keyspace of the session");
  }

  private static void keyValueOf(String table, String options, long first) {
    define("CREATE TABLE IF NOT EXISTS " + table + " (k varchar, v blob, primary key (k))" + options + ";");
    long before = count(table);
    PreparedStatement insert = session.prepare("INSERT INTO " + table + " (k, v) VALUES (?, ?);");
    PreparedStatement select = session.prepare("SELECT k, v FROM " + table + " WHERE k = ?;");
    for (long key = first; key < first + 300; key++) {
      ResultSet written = session.execute(insert.bind("key:" + key, ByteBuffer.wrap(value(key, 256))));
      expect(true, written.wasApplied(), "applied");
    }
    for (long key = first; key < first + 300; key++) {
      List<Row> rows = session.execute(select.bind("key:" + key)).all();
      expect(1, rows.size(), "rows of key:" + key);
      expect("key:" + key, rows.get(0).getString(0), "key");
      expect(ByteBuffer.wrap(value(key, 256)), rows.get(0).getBytes(1), "value of key:" + key);
    }
    expect(before + 300, count(table), "rows counted after the load");
  }

  private static void keyValue() {
    keyValueOf("CassandraKeyValue", "", 0);
  }

  private static void keyValueWithTtl() {
    keyValueOf("KeyValueThatExpires", " WITH default_time_to_live = 86400", 0);
    long left = session.execute("SELECT ttl(v) FROM KeyValueThatExpires LIMIT 1").one().getInt(0);
    expect(true, left > 86000 && left <= 86400, "time to live, " + left);
  }

  private static void batchKeyValue() {
    define("CREATE TABLE IF NOT EXISTS CassandraKeyValue (k varchar, v blob, primary key (k));");
    PreparedStatement insert = session.prepare("INSERT INTO CassandraKeyValue (k, v) VALUES (?, ?);");
    long before = count("CassandraKeyValue");
    for (int round = 0; round < 20; round++) {
      BatchStatement batch = new BatchStatement();
      for (int n = 0; n < 10; n++) {
        long key = 10_000 + round * 10L + n;
        batch.add(insert.bind("key:" + key, ByteBuffer.wrap(value(key, 256))));
      }
      session.execute(batch);
    }
    expect(before + 200, count("CassandraKeyValue"), "rows after batches");
  }

  private static void batchTimeseries() {
    define(
        "CREATE TABLE IF NOT EXISTS batch_ts_metrics_raw ( metric_id varchar, ts bigint, value varchar, "
            + "primary key (metric_id, ts)) WITH default_time_to_live = 86400;");
    PreparedStatement insert =
        session.prepare("INSERT INTO batch_ts_metrics_raw (metric_id, ts, value) VALUES (:metric_id, :ts, :value);");
    PreparedStatement select =
        session.prepare(
            "SELECT * from batch_ts_metrics_raw WHERE metric_id = :metricId AND ts > :startTs AND ts < :endTs "
                + "ORDER BY ts DESC LIMIT :readBatchSize;");
    for (int metric = 0; metric < 4; metric++) {
      BatchStatement batch = new BatchStatement();
      for (long ts = 0; ts < 500; ts++) {
        batch.add(
            insert.bind().setString("metric_id", "metric-" + metric).setLong("ts", ts).setString("value", "v".repeat(100) + ts));
      }
      session.execute(batch);
    }
    BoundStatement read =
        select.bind().setString("metricId", "metric-2").setLong("startTs", 99).setLong("endTs", 400).setInt("readBatchSize", 100);
    List<Row> rows = session.execute(read).all();
    expect(100, rows.size(), "rows of the range");
    for (int n = 0; n < 100; n++) {
      expect(399L - n, rows.get(n).getLong("ts"), "time of row " + n);
      expect("v".repeat(100) + (399 - n), rows.get(n).getString("value"), "value of row " + n);
    }
  }

  private static void helloWorld() {
    session.execute("DROP KEYSPACE IF EXISTS \"my_keyspace\"");
    session.execute("CREATE KEYSPACE IF NOT EXISTS \"my_keyspace\";");
    session.execute("USE \"my_keyspace\";");
    session.execute("CREATE TABLE IF NOT EXISTS Employee (id int primary key, name varchar, age int);");
    session.execute("INSERT INTO Employee (id, name, age) VALUES (1, 'John', 35);");
    Row row = session.execute("SELECT name, age FROM Employee WHERE id = 1;").one();
    expect("John 35", row.getString("name") + " " + row.getInt(1), "employee");
    define("USE " + KEYSPACE + ";");
  }

  private static void personalization() {
    define(
        "CREATE TABLE IF NOT EXISTS coupon_recommendation (  customer_id text,  store_id text,  coupon_code text,"
            + "  begin_date timestamp,  end_date timestamp,  relevance_score double,"
            + "  PRIMARY KEY ((customer_id, store_id), coupon_code));");
    PreparedStatement insert =
        session.prepare(
            "INSERT INTO coupon_recommendation (customer_id, store_id, coupon_code, begin_date, end_date, relevance_score)"
                + " VALUES (?, ?, ?, ?, ?, ?);");
    PreparedStatement select = session.prepare("SELECT * FROM coupon_recommendation WHERE customer_id = ? AND store_id = ?;");
    for (int coupon = 0; coupon < 10; coupon++) {
      BatchStatement batch = new BatchStatement();
      for (int store = 0; store < 20; store++) {
        batch.add(insert.bind("customer", "store" + store, "coupon" + coupon, new Date(0), new Date(86_400_000L), coupon / 2.0));
      }
      session.execute(batch);
    }
    List<Row> rows = session.execute(select.bind("customer", "store7")).all();
    expect(10, rows.size(), "coupons of one store");
    expect(new Date(86_400_000L), rows.get(3).getTimestamp("end_date"), "end date");
    expect(1.5, rows.get(3).getDouble("relevance_score"), "score");
  }

  private static void rangeKeyValue() {
    define(
        "CREATE TABLE IF NOT EXISTS CassandraRangeKeyValue (k varchar, r1 varchar, r2 varchar, r3 varchar, v blob, "
            + "primary key ((k), r1, r2, r3));");
    PreparedStatement insert = session.prepare("INSERT INTO CassandraRangeKeyValue (k, r1, r2, r3, v) VALUES (?, ?, ?, ?, ?);");
    PreparedStatement select =
        session.prepare(
            "SELECT k, r1, r2, r3, v FROM CassandraRangeKeyValue WHERE k = ? AND r1 = ? AND r2 = ? AND r3 = ?;");
    for (long key = 0; key < 200; key++) {
      String name = "key:" + key;
      session.execute(insert.bind(name, name + "1", name + "2", name + "3", ByteBuffer.wrap(value(key, 256))));
      List<Row> rows = session.execute(select.bind(name, name + "1", name + "2", name + "3")).all();
      expect(1, rows.size(), "rows of " + name);
      expect(ByteBuffer.wrap(value(key, 256)), rows.get(0).getBytes("v"), "value of " + name);
    }
  }

  private static void stockTicker() {
    for (String[] table : new String[][] {{"stock_ticker_raw", "86400"}, {"stock_ticker_1min", "5184000"}}) {
      define(
          "CREATE TABLE IF NOT EXISTS " + table[0] + " (  ticker_id varchar, ts timestamp, value varchar, "
              + "primary key ((ticker_id), ts)) WITH CLUSTERING ORDER BY (ts DESC) AND default_time_to_live = " + table[1] + ";");
    }
    PreparedStatement select = session.prepare("SELECT * from stock_ticker_raw WHERE ticker_id = ? LIMIT 1");
    PreparedStatement raw = session.prepare("INSERT INTO stock_ticker_raw (ticker_id, ts, value) VALUES (?, ?, ?)");
    PreparedStatement minute = session.prepare("INSERT INTO stock_ticker_1min (ticker_id, ts, value) VALUES (?, ?, ?)");
    for (int tick = 0; tick < 50; tick++) {
      for (String ticker : List.of("ABC", "XYZ")) {
        session.execute(raw.bind(ticker, new Date(1_000_000L + tick * 1_000L), ticker + tick));
        session.execute(minute.bind(ticker, new Date(1_000_000L + tick * 60_000L), ticker + tick));
      }
    }
    List<Row> rows = session.execute(select.bind("XYZ")).all();
    expect(1, rows.size(), "rows of the newest tick");
    expect("XYZ49", rows.get(0).getString("value"), "the newest tick");
  }

  private static void timeseries() {
    define(
        "CREATE TABLE IF NOT EXISTS ts_metrics_raw (  user_id varchar, metric_id varchar, node_id varchar, ts timestamp, "
            + "value varchar, primary key ((user_id, metric_id), node_id, ts)) WITH default_time_to_live = 86400;");
    PreparedStatement insert =
        session.prepare(
            "INSERT INTO ts_metrics_raw (user_id, metric_id, node_id, ts, value) VALUES (:user_id, :metric_id, :node_id, :ts, :value);");
    PreparedStatement select =
        session.prepare(
            "SELECT * from ts_metrics_raw WHERE user_id = :userId AND metric_id = :metricId AND node_id = :nodeId "
                + "AND ts > :startTs AND ts < :endTs;");
    for (int tick = 0; tick < 60; tick++) {
      BatchStatement batch = new BatchStatement();
      for (int metric = 0; metric < 8; metric++) {
        batch.add(
            insert.bind().setString("user_id", "user").setString("metric_id", "metric" + metric).setString("node_id", "node")
                .setTimestamp("ts", new Date(tick * 1_000L)).setString("value", "value" + tick));
      }
      session.execute(batch);
    }
    BoundStatement read =
        select.bind().setString("userId", "user").setString("metricId", "metric5").setString("nodeId", "node")
            .setTimestamp("startTs", new Date(9_000L)).setTimestamp("endTs", new Date(20_000L));
    List<Row> rows = session.execute(read).all();
    expect(10, rows.size(), "rows of the range");
    expect("value10", rows.get(0).getString("value"), "the first row");
  }

  private static void userId() {
    define(
        "CREATE TABLE IF NOT EXISTS CassandraUserId (user_name varchar, password varchar, update_time timestamp, "
            + "primary key (user_name));");
    PreparedStatement insert = session.prepare("INSERT INTO CassandraUserId (user_name, password, update_time) VALUES (?, ?, ?);");
    PreparedStatement select =
        session.prepare("SELECT user_name, password, update_time FROM CassandraUserId WHERE user_name = ?;");
    for (int user = 0; user < 100; user++) {
      session.execute(insert.bind("user" + user, "password" + user, new Date(user)));
    }
    Row row = session.execute(select.bind("user42")).one();
    expect("password42", row.getString(1), "password");
    expect(new Date(42), row.getTimestamp(2), "update time");
    expect(100L, count("CassandraUserId"), "users");
  }

  private static void concurrentKeyValue() throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(32);
    try {
      define("CREATE TABLE IF NOT EXISTS concurrent_key_value (k varchar, v blob, primary key (k));");
      PreparedStatement insert = session.prepare("INSERT INTO concurrent_key_value (k, v) VALUES (?, ?);");
      PreparedStatement select = session.prepare("SELECT k, v FROM concurrent_key_value WHERE k = ?;");
      List<Future<?>> threads = new ArrayList<>();
      for (int thread = 0; thread < 32; thread++) {
        long first = thread * 1_000L;
        threads.add(
            pool.submit(
                () -> {
                  for (long key = first; key < first + 100; key++) {
                    session.execute(insert.bind("key:" + key, ByteBuffer.wrap(value(key, 256))));
                    Row row = session.execute(select.bind("key:" + key)).one();
                    expect(ByteBuffer.wrap(value(key, 256)), row.getBytes(1), "value just written to key:" + key);
                  }
                }));
      }
      for (Future<?> thread : threads) {
        thread.get();
      }
      expect(3_200L, count("concurrent_key_value"), "rows");
    } finally {
      pool.shutdownNow();
    }
  }

  private static void transactionalRestartRead() {
    define(
        "CREATE TABLE IF NOT EXISTS CassandraTransactionalRestartRead (k varchar, v bigint, primary key (k)) "
            + "WITH transactions = { 'enabled' : true };");
    PreparedStatement insert =
        session.prepare(
            "BEGIN TRANSACTION  INSERT INTO CassandraTransactionalRestartRead (k, v) VALUES (:k, :v);END TRANSACTION;");
    PreparedStatement select = session.prepare("SELECT k, v FROM CassandraTransactionalRestartRead WHERE k = :k;");
    expect(1, insert.getRoutingKeyIndexes().length, "key columns of the block");
    for (long value = 0; value < 300; value++) {
      String key = "key:" + value % 10;
      session.execute(insert.bind().setString("k", key).setLong("v", value));
      Row row = session.execute(select.bind().setString("k", key)).one();
      expect(true, row.getLong(1) >= value, "the value just written to " + key);
    }
    expect(10L, count("CassandraTransactionalRestartRead"), "rows");
  }

  private static void transactionBlock() {
    define(
        "CREATE TABLE IF NOT EXISTS accounts (h1 int, h2 int, r int, balance bigint, primary key ((h1, h2), r)) "
            + "WITH transactions = { 'enabled' : true };");
    PreparedStatement open =
        session.prepare(
            "begin transaction"
                + "  insert into accounts (h1, h2, r, balance) values (1, 1, ?, ?);"
                + "  insert into accounts (h1, h2, r, balance) values (?, ?, ?, ?);"
                + "end transaction;");
    expect(List.of(2, 3), List.of(open.getRoutingKeyIndexes()[0], open.getRoutingKeyIndexes()[1]), "routing key");
    session.execute(open.bind(1, 100L, 1, 1, 2, 0L));
    PreparedStatement transfer =
        session.prepare(
            "start transaction;"
                + "update accounts set balance = balance - :n where h1 = 1 and h2 = 1 and r = 1 if balance >= :n else error;"
                + "update accounts set balance = balance + :n where h1 = 1 and h2 = 1 and r = 2;"
                + "commit;");
    for (int at = 0; at < 3; at++) {
      session.execute(transfer.bind().setLong("n", 30L));
    }
    try {
      session.execute(transfer.bind().setLong("n", 30L));
      throw new AssertionError("more was taken than there was");
    } catch (InvalidQueryException failure) {
      expect(true, failure.getMessage().contains("Execution Error. Condition on table accounts was not satisfied."),
          failure.getMessage());
    }
    List<Row> rows = session.execute("SELECT balance, writetime(balance) FROM accounts").all();
    expect(List.of(10L, 90L), List.of(rows.get(0).getLong(0), rows.get(1).getLong(0)), "balances");
    expect(rows.get(0).getLong(1), rows.get(1).getLong(1), "one time of writing");
  }

  private static void drop() {
    for (String table : List.of("CassandraKeyValue", "KeyValueThatExpires", "concurrent_key_value", "absent_table")) {
      session.execute("DROP TABLE IF EXISTS " + table + ";");
    }
    expect(true, cluster.getMetadata().getKeyspace(KEYSPACE).getTable("cassandrakeyvalue") == null, "the table is gone");
    expect(true, cluster.getMetadata().getKeyspace(KEYSPACE).getTable("cassandrauserid") != null, "the other is there");
  }

  public static void main(String[] arguments) {
    check("connect", () -> connect(arguments[0]));
    if (session == null) {
      System.exit(1);
    }
    check("key_value", Workloads::keyValue);
    check("key_value_with_ttl", Workloads::keyValueWithTtl);
    check("batch_key_value", Workloads::batchKeyValue);
    check("batch_timeseries", Workloads::batchTimeseries);
    check("hello_world", Workloads::helloWorld);
    check("personalization", Workloads::personalization);
    check("range_key_value", Workloads::rangeKeyValue);
    check("stock_ticker", Workloads::stockTicker);
    check("timeseries", Workloads::timeseries);
    check("user_id", Workloads::userId);
    check("concurrent_key_value", Workloads::concurrentKeyValue);
    check("transactional_restart_read", Workloads::transactionalRestartRead);
    check("transaction_block", Workloads::transactionBlock);
    check("drop", Workloads::drop);
    cluster.close();
    System.exit(failed ? 1 : 0);
  }
}
