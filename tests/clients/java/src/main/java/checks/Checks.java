package checks;

import static com.datastax.oss.driver.api.core.cql.BatchType.COUNTER;
import static com.datastax.oss.driver.api.core.cql.BatchType.LOGGED;
import static com.datastax.oss.driver.api.core.cql.BatchType.UNLOGGED;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.config.ProgrammaticDriverConfigLoaderBuilder;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchStatementBuilder;
import com.datastax.oss.driver.api.core.cql.BatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.QueryTrace;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.metadata.schema.ClusteringOrder;
import com.datastax.oss.driver.api.core.metadata.schema.ColumnMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.KeyspaceMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.type.codec.TypeCodec;
import com.datastax.oss.driver.api.core.type.codec.registry.CodecRegistry;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletionStage;
import java.util.stream.Collectors;

/**
 * Drives java-driver-core, unmodified, against the server at the address given: one line per check, {@code ok <check>} or
 * {@code not ok <check>: <why>}, and a non-zero exit when a check failed.
 */
public final class Checks {
  private static final String KEYSPACE = "java_checks";
  private static String address;
  private static String dataCenter;
  private static CqlSession session;
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
    if (!Objects.deepEquals(wanted, found)) {
      throw new AssertionError(what + ": wanted " + wanted + ", found " + found);
    }
  }

  private static void expectThrows(Class<? extends Exception> kind, String query) {
    try {
      session.execute(query);
    } catch (Exception refusal) {
      if (kind.isInstance(refusal)) {
        return;
      }
      throw new AssertionError(query + ": " + refusal);
    }
    throw new AssertionError(query + ": accepted");
  }

  private static CqlSession open(String version, String compression, String keyspace) {
    ProgrammaticDriverConfigLoaderBuilder options =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(60))
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.HEARTBEAT_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(100));
    if (dataCenter == null) {
      // The name of the data centre is the server's to choose: this policy does without it.
      options = options.withString(DefaultDriverOption.LOAD_BALANCING_POLICY_CLASS, "BasicLoadBalancingPolicy");
    }
    if (version != null) {
      options = options.withString(DefaultDriverOption.PROTOCOL_VERSION, version);
    }
    if (compression != null) {
      options = options.withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression);
    }
    CqlSessionBuilder builder =
        CqlSession.builder().addContactPoint(new InetSocketAddress(address, 9042)).withConfigLoader(options.build());
    if (dataCenter != null) {
      builder = builder.withLocalDatacenter(dataCenter);
    }
    return (keyspace == null ? builder : builder.withKeyspace(keyspace)).build();
  }

  /** Connects without naming a version: the newest both sides speak is agreed on. */
  private static void connect() {
    try (CqlSession first = open(null, null, null)) {
      dataCenter = first.getMetadata().getNodes().values().iterator().next().getDatacenter();
      expect("V5", first.getContext().getProtocolVersion().name(), "protocol version");
      expect(true, first.getMetadata().getTokenMap().isPresent(), "token map");
      first.execute("DROP KEYSPACE IF EXISTS " + KEYSPACE);
      first.execute(
          "CREATE KEYSPACE " + KEYSPACE + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    }
    session = open(null, null, KEYSPACE);
  }

  private static void metadata() {
    session.execute(
        "CREATE TABLE events (a text, b int, c timestamp, d uuid, s text static, v map<text, frozen<list<int>>>,"
            + " PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'what happened'");
    TableMetadata table = session.refreshSchema().getKeyspace(KEYSPACE).get().getTable("events").get();
    List<String> partition = table.getPartitionKey().stream().map(c -> c.getName().asInternal()).collect(Collectors.toList());
    expect(List.of("a", "b"), partition, "partition key");
    Map<String, ClusteringOrder> clustering = new LinkedHashMap<>();
    table.getClusteringColumns().forEach((column, order) -> clustering.put(column.getName().asInternal(), order));
    expect("{c=DESC, d=ASC}", clustering.toString(), "clustering columns");
    Map<String, String> types = new LinkedHashMap<>();
    for (ColumnMetadata column : table.getColumns().values()) {
      types.put(column.getName().asInternal(), column.getType().asCql(true, true) + (column.isStatic() ? " static" : ""));
    }
    expect(
        Map.of("a", "text", "b", "int", "c", "timestamp", "d", "uuid", "s", "text static", "v", "map<text, frozen<list<int>>>"),
        types,
        "columns");
    expect("what happened", table.getOptions().get(CqlIdentifier.fromInternal("comment")), "comment");
    // What the driver would write to create the table again is accepted.
    String again = table.describe(false);
    session.execute("DROP TABLE events");
    session.execute(again.trim().replaceAll(";$", ""));
    // A document is a text to drivers, in the schema as in results.
    session.execute("CREATE TABLE documents (k int PRIMARY KEY, j jsonb)");
    KeyspaceMetadata keyspace = session.refreshSchema().getKeyspace(KEYSPACE).get();
    expect(DataTypes.TEXT, keyspace.getTable("documents").get().getColumn("j").get().getType(), "the type of a document");
    expect(false, keyspace.getTable("absent").isPresent(), "absent table");
  }

  private static Map<String, List<Object>> scalarValues() throws Exception {
    Map<String, List<Object>> values = new LinkedHashMap<>();
    values.put("ascii", List.of("", "plain"));
    values.put("bigint", List.of(0L, Long.MAX_VALUE, Long.MIN_VALUE));
    values.put("blob", List.of(ByteBuffer.wrap(new byte[0]), ByteBuffer.wrap(new byte[100_000])));
    values.put("boolean", List.of(true, false));
    values.put("date", List.of(LocalDate.of(2026, 2, 28), LocalDate.of(1, 1, 1)));
    values.put("decimal", List.of(new BigDecimal("0"), new BigDecimal("-123456789012345678901234567890.0987654321"), new BigDecimal("1E+40")));
    values.put("double", List.of(0.0, -1.5e300, Double.POSITIVE_INFINITY, Double.NaN));
    values.put("duration", List.of(CqlDuration.newInstance(14, 3, 1_000_000_000L), CqlDuration.newInstance(-1, -2, -3)));
    values.put("float", List.of(1.5f, Float.NEGATIVE_INFINITY));
    values.put("inet", List.of(InetAddress.getByName("127.0.0.1"), InetAddress.getByName("2001:db8::1")));
    values.put("int", List.of(Integer.MAX_VALUE, Integer.MIN_VALUE));
    values.put("smallint", List.of(Short.MAX_VALUE, Short.MIN_VALUE));
    values.put("text", List.of("größer 水 🪨"));
    values.put("time", List.of(LocalTime.MIDNIGHT, LocalTime.MAX));
    values.put("timestamp", List.of(Instant.EPOCH, Instant.ofEpochMilli(1769903999999L), Instant.ofEpochMilli(-2208988800000L)));
    values.put("timeuuid", List.of(UUID.fromString("50554d6e-29bb-11e5-b345-feff819cdc9f")));
    values.put("tinyint", List.of((byte) 127, (byte) -128));
    values.put("uuid", List.of(new UUID(0, 0), UUID.fromString("ffffffff-ffff-4fff-bfff-ffffffffffff")));
    values.put("varchar", List.of("varchar"));
    values.put("varint", List.of(BigInteger.ZERO, BigInteger.valueOf(-256), new BigInteger("123456789012345678901234567890")));
    return values;
  }

  private static void scalars() throws Exception {
    Map<String, List<Object>> values = scalarValues();
    String columns = values.keySet().stream().map(name -> "c_" + name + " " + name).collect(Collectors.joining(", "));
    session.execute("CREATE TABLE scalars (id int PRIMARY KEY, " + columns + ")");
    int id = 0;
    for (Map.Entry<String, List<Object>> entry : values.entrySet()) {
      PreparedStatement insert = session.prepare("INSERT INTO scalars (id, c_" + entry.getKey() + ") VALUES (?, ?)");
      PreparedStatement select = session.prepare("SELECT c_" + entry.getKey() + " FROM scalars WHERE id = ?");
      for (Object value : entry.getValue()) {
        id++;
        session.execute(insert.bind(id, value));
        Row row = session.execute(select.bind(id)).one();
        TypeCodec<?> codec = CodecRegistry.DEFAULT.codecFor(row.getColumnDefinitions().get(0).getType(), value);
        expect(value, row.get(0, codec), entry.getKey());
      }
    }
  }

  private static void nulls() throws Exception {
    List<String> names = new ArrayList<>(scalarValues().keySet());
    String columns = names.stream().map(name -> "c_" + name).collect(Collectors.joining(", "));
    String marks = names.stream().map(name -> "?").collect(Collectors.joining(", "));
    PreparedStatement insert = session.prepare("INSERT INTO scalars (id, " + columns + ") VALUES (?, " + marks + ")");
    List<Object> bound = new ArrayList<>(List.of(10_000));
    scalarValues().values().forEach(list -> bound.add(list.get(0)));
    session.execute(insert.bind(bound.toArray()));
    for (int i = 1; i < bound.size(); i++) {
      bound.set(i, null);
    }
    session.execute(insert.bind(bound.toArray()));
    Row row = session.execute("SELECT " + columns + " FROM scalars WHERE id = 10000").one();
    for (String name : names) {
      expect(true, row.isNull("c_" + name), name);
    }
    // What is not bound is left as it is.
    PreparedStatement two = session.prepare("INSERT INTO scalars (id, c_int, c_text) VALUES (?, ?, ?)");
    session.execute(two.bind(10_001, 1, "kept"));
    session.execute(two.boundStatementBuilder().setInt(0, 10_001).setInt(1, 2).build());
    row = session.execute("SELECT c_int, c_text FROM scalars WHERE id = 10001").one();
    expect("2 kept", row.getInt(0) + " " + row.getString(1), "unset");
  }

  private static void collections() {
    session.execute(
        "CREATE TABLE collections (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, fl frozen<list<int>>,"
            + " fs frozen<set<text>>, fm frozen<map<text, bigint>>, deep map<text, frozen<list<frozen<set<int>>>>>)");
    PreparedStatement insert =
        session.prepare("INSERT INTO collections (id, l, s, m, fl, fs, fm, deep) VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    PreparedStatement select = session.prepare("SELECT l, s, m, fl, fs, fm, deep FROM collections WHERE id = ?");
    List<Object> written =
        Arrays.asList(
            List.of(3, 1, 3), Set.of("a", "b"), Map.of("k", 1L << 40), List.of(), Set.of("z"), Map.of("x", -1L),
            Map.of("d", List.of(Set.of(1, 2), Set.of(3))));
    List<Object> bound = new ArrayList<>(List.of(1));
    bound.addAll(written);
    session.execute(insert.bind(bound.toArray()));
    Row row = session.execute(select.bind(1)).one();
    for (int i = 0; i < written.size(); i++) {
      expect(written.get(i), row.getObject(i), "column " + i);
    }
    session.execute(session.prepare("UPDATE collections SET l = l + ?, s = s - ?, m[?] = ? WHERE id = ?")
        .bind(List.of(9), Set.of("a"), "n", 5L, 1));
    row = session.execute(select.bind(1)).one();
    expect(List.of(3, 1, 3, 9), row.getObject(0), "list after an append");
    expect(Set.of("b"), row.getObject(1), "set after a removal");
    expect(Map.of("k", 1L << 40, "n", 5L), row.getObject(2), "map after a put");
    session.execute(insert.bind(1, null, null, null, null, null, null, null));
    row = session.execute(select.bind(1)).one();
    for (int i = 0; i < written.size(); i++) {
      expect(true, row.isNull(i), "null in column " + i);
    }
  }

  private static void paging() {
    session.execute("CREATE TABLE paged (p int, c int, v text, PRIMARY KEY (p, c))");
    int rows = 5_500;
    PreparedStatement insert = session.prepare("INSERT INTO paged (p, c, v) VALUES (?, ?, ?)");
    List<CompletionStage<AsyncResultSet>> writes = new ArrayList<>();
    for (int n = 0; n < rows; n++) {
      writes.add(session.executeAsync(insert.bind(n % 3, n, "value " + n)));
      if (writes.size() == 200) {
        writes.forEach(write -> write.toCompletableFuture().join());
        writes.clear();
      }
    }
    writes.forEach(write -> write.toCompletableFuture().join());
    for (int size : new int[] {500, 5_000}) {
      ResultSet result = session.execute(SimpleStatement.newInstance("SELECT p, c, v FROM paged").setPageSize(size));
      expect(size, result.getAvailableWithoutFetching(), "rows in the first page");
      Set<Integer> seen = new HashSet<>();
      for (Row row : result) {
        int c = row.getInt("c");
        expect((c % 3) + " value " + c, row.getInt("p") + " " + row.getString("v"), "row");
        expect(true, seen.add(c), "row " + c + " is new");
      }
      expect(rows, seen.size(), "rows in pages of " + size);
    }
    PreparedStatement backwards = session.prepare("SELECT c FROM paged WHERE p = ? ORDER BY c DESC");
    ResultSet first = session.execute(backwards.bind(1).setPageSize(1_000));
    ByteBuffer resume = first.getExecutionInfo().getPagingState();
    int last = 0;
    for (int n = 0; n < 1_000; n++) {
      last = first.one().getInt(0);
    }
    ResultSet second = session.execute(backwards.bind(1).setPageSize(1_000).setPagingState(resume));
    expect(last - 3, second.one().getInt(0), "first row of the resumed page");
  }

  private static void batches() {
    session.execute("CREATE TABLE batched (k int PRIMARY KEY, v text)");
    session.execute("CREATE TABLE counted (k int PRIMARY KEY, n counter)");
    PreparedStatement insert = session.prepare("INSERT INTO batched (k, v) VALUES (?, ?)");
    for (BatchType kind : List.of(LOGGED, UNLOGGED)) {
      BatchStatementBuilder batch = BatchStatement.builder(kind);
      for (int k = 0; k < 50; k++) {
        batch.addStatement(insert.bind(k, kind.toString()));
      }
      batch.addStatement(SimpleStatement.newInstance("DELETE FROM batched WHERE k = ?", 0));
      session.execute(batch.build());
      List<Row> rows = session.execute("SELECT v FROM batched").all();
      expect(49, rows.size(), "rows after a batch");
      expect(true, rows.stream().allMatch(row -> kind.toString().equals(row.getString(0))), "values after a batch");
    }
    PreparedStatement add = session.prepare("UPDATE counted SET n = n + ? WHERE k = ?");
    for (int round = 0; round < 2; round++) {
      BatchStatementBuilder batch = BatchStatement.builder(COUNTER);
      for (int k = 0; k < 5; k++) {
        batch.addStatement(add.bind((long) k, k));
      }
      session.execute(batch.build());
    }
    expect(8L, session.execute("SELECT n FROM counted WHERE k = 4").one().getLong(0), "counter");
  }

  private static Row conditional(boolean applied, String query, Object... values) {
    ResultSet result = session.execute(session.prepare(query).bind(values));
    expect(applied, result.wasApplied(), query);
    return result.one();
  }

  private static void conditions() {
    session.execute("CREATE TABLE conditions (k int PRIMARY KEY, v text, n int)");
    String insert = "INSERT INTO conditions (k, v, n) VALUES (?, ?, ?) IF NOT EXISTS";
    conditional(true, insert, 1, "first", 1);
    Row present = conditional(false, insert, 1, "second", 2);
    expect("1 first 1", present.getInt("k") + " " + present.getString("v") + " " + present.getInt("n"), "present row");
    expect(1, conditional(false, "UPDATE conditions SET v = ? WHERE k = ? IF n = ?", "third", 1, 7).getInt("n"), "present n");
    conditional(true, "UPDATE conditions SET v = ? WHERE k = ? IF n = ?", "third", 1, 1);
    conditional(false, "UPDATE conditions SET v = ? WHERE k = ? IF EXISTS", "ghost", 2);
    conditional(false, "DELETE FROM conditions WHERE k = ? IF EXISTS", 2);
    conditional(true, "DELETE FROM conditions WHERE k = ? IF EXISTS", 1);
  }

  private static void errors() {
    session.execute("CREATE TABLE twice (k int PRIMARY KEY)");
    expectThrows(SyntaxError.class, "SELEKT");
    expectThrows(InvalidQueryException.class, "SELECT * FROM absent");
    expectThrows(InvalidQueryException.class, "SELECT absent FROM twice");
    expectThrows(AlreadyExistsException.class, "CREATE TABLE twice (k int PRIMARY KEY)");
    expectThrows(
        AlreadyExistsException.class,
        "CREATE KEYSPACE " + KEYSPACE + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
  }

  private static void afterAlter() {
    session.execute("CREATE TABLE evolving (k int PRIMARY KEY, v int)");
    PreparedStatement insert = session.prepare("INSERT INTO evolving (k, v) VALUES (?, ?)");
    PreparedStatement select = session.prepare("SELECT * FROM evolving WHERE k = ?");
    session.execute(insert.bind(1, 1));
    expect(2, session.execute(select.bind(1)).getColumnDefinitions().size(), "columns before");
    session.execute("ALTER TABLE evolving ADD a text");
    session.execute("UPDATE evolving SET a = 'added' WHERE k = 1");
    session.execute(insert.bind(1, 2));
    Row row = session.execute(select.bind(1)).one();
    expect(3, row.getColumnDefinitions().size(), "columns after");
    expect("added 2", row.getString("a") + " " + row.getInt("v"), "row after");
  }

  private static void versions() {
    for (String[] pair : new String[][] {{"V3", null}, {"V4", null}, {"V4", "lz4"}, {"V5", null}, {"V5", "lz4"}}) {
      try (CqlSession other = open(pair[0], pair[1], KEYSPACE)) {
        expect(pair[0], other.getContext().getProtocolVersion().name(), "protocol version");
        Row row = other.execute("SELECT v FROM paged WHERE p = ? AND c = ?", 0, 3).one();
        expect("value 3", row.getString(0), Arrays.toString(pair));
        expect(5_500L, other.execute("SELECT COUNT(*) FROM paged").one().getLong(0), Arrays.toString(pair));
      }
    }
  }

  private static void simple() {
    session.execute("CREATE TABLE simple (k text PRIMARY KEY, v int)");
    session.execute("INSERT INTO simple (k, v) VALUES (?, ?)", "position", 1);
    session.execute("INSERT INTO simple (k, v) VALUES (:k, :v)", Map.of("k", "name", "v", 2));
    expect(2, session.execute("SELECT v FROM simple WHERE k = ?", "name").one().getInt(0), "value by name");
    ResultSet traced = session.execute(SimpleStatement.newInstance("SELECT v FROM simple").setTracing(true));
    expect(true, traced.getExecutionInfo().getTracingId() != null, "tracing id");
    QueryTrace trace = traced.getExecutionInfo().getQueryTrace();
    expect("Execute CQL3 query", trace.getRequestType(), "kind of the traced request");
    expect("SELECT v FROM simple", trace.getParameters().get("query"), "traced statement");
    expect(true, trace.getDurationMicros() > 0 && trace.getCoordinatorAddress() != null, "duration and coordinator of a trace");
    String last = trace.getEvents().get(trace.getEvents().size() - 1).getActivity();
    expect(true, last.startsWith("Request complete: 2 rows"), last);
    expect(DataTypes.TEXT, session.prepare("SELECT k FROM simple WHERE v = ? ALLOW FILTERING").getResultSetDefinitions().get(0).getType(), "type");
  }

  public static void main(String[] arguments) {
    address = arguments[0];
    check("connect", Checks::connect);
    if (session == null) {
      System.exit(1);
    }
    check("metadata", Checks::metadata);
    check("scalars", Checks::scalars);
    check("nulls", Checks::nulls);
    check("collections", Checks::collections);
    check("paging", Checks::paging);
    check("simple", Checks::simple);
    check("batches", Checks::batches);
    check("conditions", Checks::conditions);
    check("errors", Checks::errors);
    check("after_alter", Checks::afterAlter);
    check("versions", Checks::versions);
    session.close();
    System.exit(failed ? 1 : 0);
  }
}
