// Drives the Node.js driver, unmodified, against the server at the address given: one line per check, `ok <check>` or
// `not ok <check>: <why>`, and a non-zero exit when a check failed.
'use strict';

const assert = require('assert');
const cassandra = require('cassandra-driver');
const { types } = cassandra;

const KEYSPACE = 'node_checks';
const address = process.argv[2];
let client;
let failed = false;

// No check times anything: the driver's own 5 s for a connection and 12 s for an answer are too little on a busy machine.
const PATIENCE = { readTimeout: 60000, connectTimeout: 30000 };

function connectTo(keyspace, protocol = {}) {
  return new cassandra.Client({
    contactPoints: [address],
    localDataCenter: connectTo.dataCenter,
    keyspace,
    protocolOptions: { maxVersion: types.protocolVersion.v4, ...protocol },
    socketOptions: PATIENCE,
    queryOptions: { prepare: true, consistency: types.consistencies.quorum },
  });
}
connectTo.dataCenter = undefined;

async function check(name, run) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    failed = true;
    console.log(`not ok ${name}: ${String(error.message || error).replace(/\s+/g, ' ')}`);
  }
}

async function connect() {
  // The name of the data centre is the server's to choose; ask it before a policy needs it.
  const first = new cassandra.Client({
    contactPoints: [address],
    socketOptions: PATIENCE,
    policies: { loadBalancing: new cassandra.policies.loadBalancing.RoundRobinPolicy() },
  });
  await first.connect();
  connectTo.dataCenter = first.hosts.values()[0].datacenter;
  assert.ok(connectTo.dataCenter, 'the host has no data centre');
  await first.execute(`DROP KEYSPACE IF EXISTS ${KEYSPACE}`);
  await first.execute(
    `CREATE KEYSPACE ${KEYSPACE} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`);
  await first.shutdown();
  client = connectTo(KEYSPACE);
  await client.connect();
  assert.strictEqual(client.hosts.length, 1);
  assert.ok(client.hosts.values()[0].cassandraVersion);
}

async function metadata() {
  await client.execute(`CREATE TABLE events (a text, b int, c timestamp, d uuid, s text static,
    v map<text, frozen<list<int>>>, PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)
    AND comment = 'what happened'`);
  await client.metadata.refreshKeyspaces();
  assert.ok(client.metadata.keyspaces[KEYSPACE].strategy.includes('SimpleStrategy'));
  const table = await client.metadata.getTable(KEYSPACE, 'events');
  assert.deepStrictEqual(table.partitionKeys.map((column) => column.name), ['a', 'b']);
  assert.deepStrictEqual(table.clusteringKeys.map((column) => column.name), ['c', 'd']);
  assert.deepStrictEqual(table.clusteringOrder, ['DESC', 'ASC']);
  assert.deepStrictEqual(Object.keys(table.columnsByName).sort(), ['a', 'b', 'c', 'd', 's', 'v']);
  assert.strictEqual(table.columnsByName.s.isStatic, true);
  assert.strictEqual(table.columnsByName.c.type.code, types.dataTypes.timestamp);
  assert.strictEqual(table.columnsByName.v.type.code, types.dataTypes.map);
  assert.strictEqual(table.comment, 'what happened');
  assert.strictEqual(await client.metadata.getTable(KEYSPACE, 'absent'), null);
}

const SCALARS = {
  ascii: ['', 'plain'],
  bigint: ['0', '9223372036854775807', '-9223372036854775808'].map((text) => types.Long.fromString(text)),
  blob: [Buffer.from([0, 255]), Buffer.alloc(100000, 7)],
  boolean: [true, false],
  date: ['2026-02-28', '1970-01-01', '-0001-01-01'].map((text) => types.LocalDate.fromString(text)),
  decimal: ['0', '-123456789012345678901234567890.0987654321'].map((text) => types.BigDecimal.fromString(text)),
  double: [0, -1.5e300, Infinity],
  duration: [new types.Duration(14, 3, 1000000000), new types.Duration(-1, -2, -3)],
  float: [1.5, -Infinity],
  inet: ['127.0.0.1', '2001:db8::1'].map((text) => types.InetAddress.fromString(text)),
  int: [2147483647, -2147483648],
  smallint: [32767, -32768],
  text: ['größer 水 🪨'],
  time: ['00:00:00', '23:59:59.999999999'].map((text) => types.LocalTime.fromString(text)),
  timestamp: [new Date(0), new Date(1769903999999), new Date(-2208988800000)],
  timeuuid: [types.TimeUuid.fromString('50554d6e-29bb-11e5-b345-feff819cdc9f')],
  tinyint: [127, -128],
  uuid: [types.Uuid.fromString('ffffffff-ffff-4fff-bfff-ffffffffffff')],
  varchar: ['varchar'],
  varint: ['0', '-256', '123456789012345678901234567890'].map((text) => types.Integer.fromString(text)),
};

function same(found, written) {
  if (written && typeof written.equals === 'function') {
    return written.equals(found);
  }
  return written instanceof Date ? found.getTime() === written.getTime() : found === written;
}

async function scalars() {
  const columns = Object.keys(SCALARS).map((name) => `c_${name} ${name}`).join(', ');
  await client.execute(`CREATE TABLE scalars (id int PRIMARY KEY, ${columns})`);
  let id = 0;
  for (const [name, values] of Object.entries(SCALARS)) {
    for (const value of values) {
      id += 1;
      await client.execute(`INSERT INTO scalars (id, c_${name}) VALUES (?, ?)`, [id, value]);
      const found = (await client.execute(`SELECT c_${name} FROM scalars WHERE id = ?`, [id])).first()[`c_${name}`];
      assert.ok(same(found, value), `${name}: wrote ${value}, read ${found}`);
    }
  }
}

async function nulls() {
  const names = Object.keys(SCALARS).map((name) => `c_${name}`);
  const marks = names.map(() => '?').join(', ');
  const insert = `INSERT INTO scalars (id, ${names.join(', ')}) VALUES (?, ${marks})`;
  await client.execute(insert, [10000, ...Object.values(SCALARS).map((values) => values[0])]);
  await client.execute(insert, [10000, ...names.map(() => null)]);
  const row = (await client.execute('SELECT * FROM scalars WHERE id = 10000')).first();
  names.forEach((name) => assert.strictEqual(row[name], null, name));
  await client.execute('INSERT INTO scalars (id, c_int, c_text) VALUES (?, ?, ?)', [10001, 1, 'kept']);
  await client.execute('INSERT INTO scalars (id, c_int, c_text) VALUES (?, ?, ?)', [10001, 2, types.unset]);
  const kept = (await client.execute('SELECT c_int, c_text FROM scalars WHERE id = 10001')).first();
  assert.deepStrictEqual([kept.c_int, kept.c_text], [2, 'kept']);
}

async function collections() {
  await client.execute(`CREATE TABLE collections (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, int>,
    fl frozen<list<int>>, fs frozen<set<text>>, fm frozen<map<text, int>>, deep map<text, frozen<list<frozen<list<int>>>>>)`);
  const insert = 'INSERT INTO collections (id, l, s, m, fl, fs, fm, deep) VALUES (?, ?, ?, ?, ?, ?, ?, ?)';
  const written = [[3, 1, 3], ['a', 'b'], { k: 5 }, [7], ['z'], { x: -1 }, { d: [[1, 2], [3]] }];
  await client.execute(insert, [1, ...written]);
  const read = async () => {
    const row = (await client.execute('SELECT l, s, m, fl, fs, fm, deep FROM collections WHERE id = 1')).first();
    return ['l', 's', 'm', 'fl', 'fs', 'fm', 'deep'].map((name) => row[name]);
  };
  assert.deepStrictEqual(await read(), written);
  await client.execute('UPDATE collections SET l = l + ?, s = s - ?, m[?] = ? WHERE id = ?', [[9], ['a'], 'n', 6, 1]);
  const [l, s, m] = await read();
  assert.deepStrictEqual([l, s, m], [[3, 1, 3, 9], ['b'], { k: 5, n: 6 }]);
  await client.execute(insert, [1, null, null, null, null, null, null, null]);
  (await read()).forEach((value) => assert.strictEqual(value, null));
}

async function paging() {
  await client.execute('CREATE TABLE paged (p int, c int, v text, PRIMARY KEY (p, c))');
  const rows = 5500;
  const parameters = Array.from({ length: rows }, (_, n) => [n % 3, n, `value ${n}`]);
  await cassandra.concurrent.executeConcurrent(client, 'INSERT INTO paged (p, c, v) VALUES (?, ?, ?)', parameters,
    { concurrencyLevel: 64 });
  for (const fetchSize of [500, 5000]) {
    const result = await client.execute('SELECT p, c, v FROM paged', [], { fetchSize });
    assert.strictEqual(result.rowLength, fetchSize);
    assert.ok(result.pageState);
    const seen = new Set();
    for await (const row of result) {
      assert.ok(row.p === row.c % 3 && row.v === `value ${row.c}`, `row ${row.c}`);
      seen.add(row.c);
    }
    assert.strictEqual(seen.size, rows);
  }
  const first = await client.execute('SELECT c FROM paged WHERE p = 1 ORDER BY c DESC', [], { fetchSize: 1000 });
  const second = await client.execute('SELECT c FROM paged WHERE p = 1 ORDER BY c DESC', [],
    { fetchSize: 1000, pageState: first.pageState });
  assert.strictEqual(first.rows[999].c, second.rows[0].c + 3);
  assert.strictEqual(first.rowLength + second.rowLength, Math.ceil((rows - 1) / 3));
}

async function simple() {
  // Statements that are not prepared carry their values, by position and by name.
  await client.execute('CREATE TABLE simple (k text PRIMARY KEY, v int)');
  await client.execute('INSERT INTO simple (k, v) VALUES (?, ?)', ['position', 1], { prepare: false, hints: ['text', 'int'] });
  await client.execute('INSERT INTO simple (k, v) VALUES (:key, :value)', { key: 'name', value: 2 },
    { prepare: false, hints: { key: 'text', value: 'int' } });
  await client.execute('INSERT INTO simple (k, v) VALUES (:key, :value)', { key: 'prepared', value: 3 });
  const rows = (await client.execute('SELECT k, v FROM simple')).rows.map((row) => [row.k, row.v]).sort();
  assert.deepStrictEqual(rows, [['name', 2], ['position', 1], ['prepared', 3]]);
}

async function batches() {
  await client.execute('CREATE TABLE batched (k int PRIMARY KEY, v text)');
  await client.execute('CREATE TABLE counted (k int PRIMARY KEY, n counter)');
  for (const logged of [true, false]) {
    const queries = Array.from({ length: 50 }, (_, k) => (
      { query: 'INSERT INTO batched (k, v) VALUES (?, ?)', params: [k, String(logged)] }));
    queries.push({ query: 'DELETE FROM batched WHERE k = ?', params: [0] });
    await client.batch(queries, { prepare: true, logged });
    const found = (await client.execute('SELECT k, v FROM batched')).rows;
    assert.ok(found.length === 49 && found.every((row) => row.v === String(logged)));
  }
  const counts = Array.from({ length: 5 }, (_, k) => (
    { query: 'UPDATE counted SET n = n + ? WHERE k = ?', params: [types.Long.fromNumber(k), k] }));
  await client.batch(counts, { prepare: true, counter: true });
  await client.batch(counts, { prepare: true, counter: true });
  assert.strictEqual((await client.execute('SELECT n FROM counted WHERE k = 4')).first().n.toNumber(), 8);
}

async function conditions() {
  await client.execute('CREATE TABLE conditions (k int PRIMARY KEY, v text, n int)');
  const run = async (applied, query, values) => {
    const result = await client.execute(query, values);
    assert.strictEqual(result.wasApplied(), applied, query);
    return result.first();
  };
  const insert = 'INSERT INTO conditions (k, v, n) VALUES (?, ?, ?) IF NOT EXISTS';
  await run(true, insert, [1, 'first', 1]);
  const present = await run(false, insert, [1, 'second', 2]);
  assert.deepStrictEqual([present.k, present.v, present.n], [1, 'first', 1]);
  const other = await run(false, 'UPDATE conditions SET v = ? WHERE k = ? IF n = ?', ['third', 1, 7]);
  assert.strictEqual(other.n, 1);
  await run(true, 'UPDATE conditions SET v = ? WHERE k = ? IF n = ?', ['third', 1, 1]);
  await run(false, 'UPDATE conditions SET v = ? WHERE k = ? IF EXISTS', ['ghost', 2]);
  await run(false, 'DELETE FROM conditions WHERE k = ? IF EXISTS', [2]);
  await run(true, 'DELETE FROM conditions WHERE k = ? IF EXISTS', [1]);
}

async function requestErrors() {
  await client.execute('CREATE TABLE twice (k int PRIMARY KEY)');
  const cases = [
    [types.responseErrorCodes.syntaxError, 'SELEKT'],
    [types.responseErrorCodes.invalid, 'SELECT * FROM absent'],
    [types.responseErrorCodes.invalid, 'SELECT absent FROM twice'],
    [types.responseErrorCodes.alreadyExists, 'CREATE TABLE twice (k int PRIMARY KEY)'],
    [types.responseErrorCodes.alreadyExists,
      `CREATE KEYSPACE ${KEYSPACE} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`],
  ];
  for (const [code, query] of cases) {
    await assert.rejects(client.execute(query, [], { prepare: false }), (error) => {
      assert.strictEqual(error.code, code, `${query}: ${error.message}`);
      return true;
    });
  }
}

async function afterAlter() {
  await client.execute('CREATE TABLE evolving (k int PRIMARY KEY, v int)');
  const insert = (v) => client.execute('INSERT INTO evolving (k, v) VALUES (?, ?)', [1, v]);
  const read = async () => (await client.execute('SELECT * FROM evolving WHERE k = ?', [1])).first();
  await insert(1);
  assert.deepStrictEqual((await read()).keys(), ['k', 'v']);
  await client.execute('ALTER TABLE evolving ADD a text');
  await client.execute("UPDATE evolving SET a = 'added' WHERE k = 1");
  await insert(2);
  const row = await read();
  assert.deepStrictEqual([row.k, row.v, row.a], [1, 2, 'added']);
}

async function versions() {
  for (const maxVersion of [types.protocolVersion.v3, types.protocolVersion.v4]) {
    const other = connectTo(KEYSPACE, { maxVersion });
    await other.connect();
    try {
      assert.strictEqual(other.controlConnection.protocolVersion, maxVersion);
      const row = (await other.execute('SELECT v FROM paged WHERE p = ? AND c = ?', [0, 3])).first();
      assert.strictEqual(row.v, 'value 3');
    } finally {
      await other.shutdown();
    }
  }
}

async function events() {
  // Another session's table shows without a refresh being asked for.
  const other = connectTo(KEYSPACE);
  await other.connect();
  try {
    const announced = new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no schema event within 60 s')), 60000);
      const connection = client.controlConnection.connection;
      connection.on('nodeSchemaChange', (event) => {
        if (event.table === 'announced') {
          clearTimeout(timer);
          resolve(event);
        }
      });
    });
    await other.execute('CREATE TABLE announced (k int PRIMARY KEY)');
    await announced;
  } finally {
    await other.shutdown();
  }
}

async function main() {
  await check('connect', connect);
  if (!client) {
    process.exit(1);
  }
  const all = { metadata, scalars, nulls, collections, paging, simple, batches, conditions,
    errors: requestErrors, after_alter: afterAlter, versions, events };
  for (const [name, run] of Object.entries(all)) {
    await check(name, run);
  }
  await client.shutdown();
  process.exit(failed ? 1 : 0);
}

main();
