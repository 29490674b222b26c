"""Accounts in many tablets of a cluster of three: transfers as blocks, reads of all accounts in one statement, unique keys inserted beside them, while
nodes are killed and paused, and tablets are split and merged. The statements are those of YugabyteDB's Jepsen workloads bank, bank-inserts, multi-key-acid, set-index and long-fork, as text
and without retries. Some reads of all accounts are by an index of the balances, which move.

Beside them logged batches and counter batches of tables without transactions.

Always checked: each read of all accounts shows the same sum; what was acknowledged is there in the end; rows that are written together are seen together;
a batch is there as a whole or not at all, and as a whole once it is answered; counters of a batch are equal; by its index each element is found once as
soon as it is acknowledged; no two reads by an index see two writes in opposite order."""

import json
import os
import random
import re
import signal
import struct
import subprocess
import threading
import time
import urllib.request

import pytest
from cassandra import DriverException, InvalidRequest, RequestExecutionException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.metadata import Murmur3Token
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ErrorMessage
from cassandra.query import SimpleStatement

from conftest import READY_WITHIN_S, binary, cluster_of, repeated

if os.environ.get("DIORITE_TEST_ADDRESS"):
    pytest.skip("a cluster of its own is needed", allow_module_level=True)

ACCOUNTS = 8
# The rows of a batch, in several tablets.
BATCHED = range(6)
TOTAL = 100
# The groups of elements, and the keys of a group of long_fork.
GROUPS = range(8)
FORKS = range(3)
ENABLED = "WITH transactions = { 'enabled' : true }"
FAILURES = (RequestExecutionException, DriverException, NoHostAvailable, ErrorMessage, ConnectionException)


def session_at(address, request_timeout=10):
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([address]), retry_policy=FallthroughRetryPolicy(), request_timeout=request_timeout
    )
    cluster = Cluster([address], protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    return cluster, cluster.connect()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = cluster_of(tmp_path_factory.mktemp("bank"))
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="module")
def session(servers):
    # Statements that change the schema take longer: each index is waited for, and the driver reads the schema again.
    cluster, session = session_at(servers[0].address, request_timeout=READY_WITHIN_S)
    session.execute("CREATE KEYSPACE jepsen WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
    session.execute(f"CREATE TABLE jepsen.accounts (id int, balance bigint, PRIMARY KEY (id)) {ENABLED}")
    session.execute(f"CREATE TABLE jepsen.pairs (id int, ik int, val int, PRIMARY KEY (id, ik)) {ENABLED}")
    session.execute("CREATE INDEX by_balance ON jepsen.accounts (balance) USING 'sai'")
    session.execute(f"CREATE TABLE jepsen.elements (key int, val int, grp int, PRIMARY KEY (key)) {ENABLED}")
    session.execute("CREATE INDEX IF NOT EXISTS elements_by_group ON jepsen.elements (grp) INCLUDE (val)")
    session.execute(f"CREATE TABLE jepsen.long_fork (key int, key2 int, val int, PRIMARY KEY (key)) {ENABLED}")
    session.execute("CREATE INDEX IF NOT EXISTS long_forks ON jepsen.long_fork (key2) INCLUDE (val)")
    session.execute("CREATE TABLE jepsen.batched (id int, number int, PRIMARY KEY (id, number))")
    session.execute("CREATE TABLE jepsen.counted (id int PRIMARY KEY, n counter)")
    for account in range(ACCOUNTS):
        repeated(lambda: session.execute(f"INSERT INTO jepsen.accounts (id, balance) VALUES ({account}, {0 if account else TOTAL})"))
    yield session
    cluster.shutdown()


def in_the_end(servers, statement):
    """The rows of a read that is repeated until the cluster has recovered."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        cluster = None
        try:
            cluster, session = session_at(servers[0].address)
            return list(session.execute(statement))
        except FAILURES:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        finally:
            if cluster is not None:
                cluster.shutdown()


class Clients:
    """Threads that each hold on to one node, and what they have seen."""

    def __init__(self, servers):
        self.servers = servers
        self.stopped = threading.Event()
        self.threads = []
        self.wrong = []
        self.done = {"transfers": 0, "reads": 0, "inserts": 0, "pairs": 0, "batches": 0, "counts": 0, "elements": 0, "sets": 0, "forks": 0, "failed": 0}
        self.lock = threading.Lock()
        # Of each account that was inserted: what its transfer took from another one; and of each pair its value.
        self.inserted = {}
        self.pairs = {}
        # The numbers of logged batches that were answered, and how many counter batches were sent.
        self.batched = set()
        self.sent_counts = 0
        # The elements that were sent, and those that were answered.
        self.sent_elements = set()
        self.elements = set()
        # What reads of the current group of long_fork have seen.
        self.fork_group = 0
        self.forks_seen = [set()]

    def count(self, what):
        with self.lock:
            self.done[what] += 1

    def start(self, action, seed):
        thread = threading.Thread(target=self.run, args=(action, self.servers[seed % len(self.servers)].address, random.Random(seed)))
        self.threads.append(thread)
        thread.start()

    def run(self, action, address, dice):
        while not self.stopped.is_set():
            cluster = None
            try:
                cluster, session = session_at(address)
                while not self.stopped.is_set():
                    action(session, dice)
            except FAILURES as error:
                if isinstance(error, InvalidRequest):
                    self.wrong.append(error)
                self.count("failed")
                time.sleep(0.05)
            except Exception as error:
                self.wrong.append(error)
                return
            finally:
                if cluster is not None:
                    cluster.shutdown()

    def transfer(self, session, dice):
        source, target = dice.sample(range(ACCOUNTS), 2)
        amount = dice.randint(1, 5)
        session.execute(
            f"BEGIN TRANSACTION UPDATE jepsen.accounts SET balance = balance - {amount} WHERE id = {source};"
            f"UPDATE jepsen.accounts SET balance = balance + {amount} WHERE id = {target};END TRANSACTION;"
        )
        self.count("transfers")

    def insert(self, session, dice):
        account, source = dice.randint(1_000, 10_000_000), dice.randrange(ACCOUNTS)
        session.execute(
            f"BEGIN TRANSACTION INSERT INTO jepsen.accounts (id, balance) values ({account},3) IF NOT EXISTS ELSE ERROR;"
            f"UPDATE jepsen.accounts SET balance = balance - 3 WHERE id = {source};END TRANSACTION;"
        )
        self.inserted[account] = 3
        self.count("inserts")
        # Reads of all accounts should not become long.
        time.sleep(0.05)

    def read(self, session, dice):
        by_index = " WHERE balance > -1000000" if dice.random() < 0.5 else ""
        rows = list(session.execute(f"SELECT * FROM jepsen.accounts{by_index}"))
        total = sum(row.balance for row in rows)
        if total != TOTAL:
            self.wrong.append(f"the accounts sum to {total}: {rows}")
        self.count("reads")

    def pair(self, session, dice):
        key, value = dice.randrange(20), dice.randint(1, 1_000_000)
        with self.lock:
            self.pairs.setdefault(key, set()).add(value)
        session.execute(
            f"BEGIN TRANSACTION INSERT INTO jepsen.pairs (id, ik, val) VALUES (0, {key}, {value});"
            f"INSERT INTO jepsen.pairs (id, ik, val) VALUES (2, {key}, {value});END TRANSACTION;"
        )
        rows = list(session.execute(f"SELECT id, val, writetime(val) AS time FROM jepsen.pairs WHERE ik = {key} AND id IN (0, 2)"))
        if len(rows) != 2 or rows[0].val != rows[1].val or rows[0].time != rows[1].time or rows[0].val not in self.pairs[key]:
            self.wrong.append(f"a pair is seen in part: {rows}")
        self.count("pairs")

    def element(self, session, dice):
        with self.lock:
            value = len(self.sent_elements)
            self.sent_elements.add(value)
        session.execute(f"INSERT INTO jepsen.elements (key, val, grp) VALUES ({value}, {value}, {dice.choice(GROUPS)})")
        with self.lock:
            self.elements.add(value)
        self.count("elements")
        # Reads of all elements should not become long.
        time.sleep(0.02)

    def elements_of(self, session, _):
        with self.lock:
            known = set(self.elements)
        values = [row.val for row in session.execute(f"SELECT val FROM jepsen.elements WHERE grp IN ({', '.join(map(str, GROUPS))})")]
        if len(set(values)) != len(values) or not known <= set(values) <= self.sent_elements:
            self.wrong.append(f"of {known} the index shows {sorted(values)}")
        self.count("sets")

    def fork(self, session, dice):
        with self.lock:
            group = self.fork_group
        keys = [group * len(FORKS) + fork for fork in FORKS]
        if dice.random() < 0.2:
            key = dice.choice(keys)
            session.execute(f"INSERT INTO jepsen.long_fork (key, key2, val) VALUES ({key}, {key}, 1)")
            return
        rows = session.execute(f"SELECT key2, val FROM jepsen.long_fork WHERE key2 IN ({', '.join(map(str, keys))})")
        seen = {row.key2 for row in rows if row.val == 1}
        with self.lock:
            if group != self.fork_group:
                return
            if not all(seen <= other or other <= seen for other in self.forks_seen):
                self.wrong.append(f"{seen} was read beside {self.forks_seen}")
            self.forks_seen.append(seen)
            if len(seen) == len(FORKS):
                self.fork_group, self.forks_seen = group + 1, [set()]
        self.count("forks")

    def batch(self, session, dice):
        number = dice.randrange(1 << 31)
        inserts = "".join(f"INSERT INTO jepsen.batched (id, number) VALUES ({id}, {number}); " for id in BATCHED)
        session.execute(f"BEGIN BATCH {inserts}APPLY BATCH")
        self.batched.add(number)
        ids = ", ".join(map(str, BATCHED))
        rows = list(session.execute(f"SELECT id FROM jepsen.batched WHERE id IN ({ids}) AND number = {number}"))
        if len(rows) != len(BATCHED):
            self.wrong.append(f"of a batch that was answered {rows} is seen")
        self.count("batches")

    def add(self, session, _):
        with self.lock:
            self.sent_counts += 1
        adds = "".join(f"UPDATE jepsen.counted SET n = n + 1 WHERE id = {id}; " for id in BATCHED)
        session.execute(f"BEGIN COUNTER BATCH {adds}APPLY BATCH")
        self.count("counts")
        # Others have the same rows.
        time.sleep(0.05)

    def have_done_enough(self):
        at_least = {"transfers": 51, "reads": 51, "pairs": 21, "inserts": 6, "batches": 21, "counts": 21, "elements": 21, "sets": 21}
        return all(self.done[what] >= count for what, count in at_least.items()) and self.fork_group > 5

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def test_nothing_is_done_if_a_condition_fails_in_another_tablet(session):
    before = {row.id: row.balance for row in session.execute("SELECT * FROM jepsen.accounts")}
    with pytest.raises(InvalidRequest, match="Execution Error. Condition on table accounts was not satisfied."):
        session.execute(
            "BEGIN TRANSACTION UPDATE jepsen.accounts SET balance = balance - 3 WHERE id = 1;"
            "INSERT INTO jepsen.accounts (id, balance) VALUES (5, 3) IF NOT EXISTS ELSE ERROR;END TRANSACTION;"
        )
    assert {row.id: row.balance for row in session.execute("SELECT * FROM jepsen.accounts")} == before


def test_rows_of_several_tablets_have_one_writetime_and_aggregates_are_of_one_moment(session):
    insert = session.prepare(
        "BEGIN TRANSACTION INSERT INTO jepsen.pairs (id, ik, val) VALUES (:a, :k, :v); INSERT INTO jepsen.pairs (id, ik, val) VALUES (:b, :k, :v); END TRANSACTION;"
    )
    for key in range(100, 110):
        session.execute(insert, {"a": 1_000 + key, "b": 2_000 + key, "k": key, "v": key})
        rows = list(session.execute("SELECT val, writetime(val) AS time FROM jepsen.pairs WHERE id IN (%s, %s) AND ik = %s", (1_000 + key, 2_000 + key, key)))
        assert [row.val for row in rows] == [key, key] and len({row.time for row in rows}) == 1
    assert session.execute("SELECT count(*) FROM jepsen.pairs WHERE id IN (1100, 2100)").one()[0] == 2
    assert session.execute("SELECT sum(balance) FROM jepsen.accounts").one()[0] == TOTAL


def test_pages_of_one_select_are_of_one_moment(servers, session):
    stopped, moved = threading.Event(), []

    def move():
        while not stopped.is_set():
            one, other = random.sample(range(ACCOUNTS), 2)
            try:
                session.execute(
                    f"BEGIN TRANSACTION UPDATE jepsen.accounts SET balance = balance - 1 WHERE id = {one};"
                    f"UPDATE jepsen.accounts SET balance = balance + 1 WHERE id = {other};END TRANSACTION;"
                )
                moved.append(one)
            except FAILURES:
                pass

    thread, reads, torn = threading.Thread(target=move), 0, 0
    thread.start()
    try:
        for text in ("SELECT * FROM jepsen.accounts", f"SELECT * FROM jepsen.accounts WHERE id IN ({', '.join(map(str, range(ACCOUNTS)))})"):
            for _ in range(30):
                before, balances = len(moved), []
                pages = session.execute(SimpleStatement(text, fetch_size=3))
                while True:
                    balances += [row.balance for row in pages.current_rows]
                    if not pages.has_more_pages:
                        break
                    # Something changes between the pages.
                    until = time.monotonic() + READY_WITHIN_S
                    while len(moved) == before and time.monotonic() < until:
                        time.sleep(0.001)
                    pages.fetch_next_page()
                assert len(balances) == ACCOUNTS
                reads, torn = reads + 1, torn + (sum(balances) != TOTAL)
    finally:
        stopped.set()
        thread.join()
    assert moved
    # A snapshot goes if the next page takes ten seconds, or its tablet gets another leader. Without snapshots most sums are wrong.
    assert torn <= reads / 5, f"{torn} of {reads} sums are wrong"


def reshape(server, dice):
    """Begins to split a tablet of some table, or to merge two. The answer may be a refusal, as another one is under way."""
    shown = admin(server, "tablets", dice.choice(["jepsen.accounts", "jepsen.elements", "jepsen.pairs", "jepsen.batched"]), "--json")
    tablets = [tablet["tablet"] for tablet in json.loads(shown.stdout)] if shown.returncode == 0 else []
    if tablets:
        admin(server, dice.choice(["split", "split", "merge"]), str(dice.choice(tablets)))


def test_blocks_are_atomic_while_nodes_are_killed_and_paused(servers, session):
    tablets_before = {tablet["tablet"] for tablet in json.loads(admin(servers[0], "tablets", "jepsen.accounts", "--json").stdout)}
    clients = Clients(servers)
    for seed in range(6):
        clients.start(clients.transfer, seed)
    for seed in range(3):
        clients.start(clients.read, seed)
        clients.start(clients.pair, seed)
        clients.start(clients.batch, seed)
        clients.start(clients.add, seed)
        clients.start(clients.fork, seed)
        clients.start(clients.elements_of, seed)
    clients.start(clients.insert, 1)
    clients.start(clients.element, 2)
    dice = random.Random(7)
    try:
        for turn in range(6):
            time.sleep(1)
            victim = dice.choice(servers)
            other = servers[(servers.index(victim) + 1) % len(servers)]
            for _ in range(3):
                reshape(other, dice)
            time.sleep(1)
            if turn % 2 == 0:
                victim.process.send_signal(signal.SIGSTOP)
                time.sleep(1)
                victim.process.send_signal(signal.SIGCONT)
            else:
                victim.process.kill()
                victim.process.wait()
                time.sleep(1)
                victim.start()
        time.sleep(3)
        # However slow the machine is, enough is done that something could have gone wrong.
        until(lambda: clients.wrong or clients.have_done_enough())
    finally:
        clients.stop()
        print(clients.done, clients.fork_group)
    tablets = {tablet["tablet"] for tablet in json.loads(admin(servers[0], "tablets", "jepsen.accounts", "--json").stdout)}
    print(f"{len(tablets - tablets_before)} new tablets of the accounts")
    assert clients.wrong == []
    done = clients.done
    assert clients.have_done_enough(), (done, clients.fork_group)
    rows = in_the_end(servers, "SELECT * FROM jepsen.accounts")
    rows = {row.id: row.balance for row in rows}
    assert sum(rows.values()) == TOTAL
    assert all(rows.get(account) == balance for account, balance in clients.inserted.items())
    by_index = in_the_end(servers, f"SELECT val FROM jepsen.elements WHERE grp IN ({', '.join(map(str, GROUPS))})")
    assert clients.elements <= {row.val for row in by_index} <= clients.sent_elements
    by_index = in_the_end(servers, "SELECT id, balance FROM jepsen.accounts WHERE balance > -1000000")
    assert {row.id: row.balance for row in by_index} == rows
    until(lambda: all(metric(server, "diorite_transactions_prepared") == 0 for server in servers))
    found = {}
    for row in in_the_end(servers, "SELECT id, number FROM jepsen.batched"):
        found.setdefault(row.number, set()).add(row.id)
    assert all(ids == set(BATCHED) for ids in found.values()) and clients.batched <= found.keys()
    counts = {row.id: row.n for row in in_the_end(servers, "SELECT id, n FROM jepsen.counted")}
    assert counts.keys() == set(BATCHED) and len(set(counts.values())) == 1
    assert done["counts"] <= counts[0] <= clients.sent_counts, (counts, done, clients.sent_counts)


def admin(server, *arguments):
    command = [str(binary()), "admin", "--host", server.address, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=READY_WITHIN_S)


def metric(server, name):
    """The sum of a metric's samples whose names and labels begin in this way."""
    with urllib.request.urlopen(f"http://{server.address}:7000/metrics", timeout=READY_WITHIN_S) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(re.escape(name) + r"(?![a-z_])", line))


def until(look):
    """What is seen, once it is something."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return seen


def listed(server, tablet):
    """The transactions that are prepared in a tablet; `None` while that cannot be said."""
    asked = admin(server, "transactions", "--json")
    if asked.returncode != 0:
        return None
    found = json.loads(asked.stdout)
    assert found["total"] == len(found["transactions"])
    return None if found["unanswered"] else [one for one in found["transactions"] if one["tablet"] == tablet]


def led_by_each(servers, table):
    """For each server a tablet that it leads, and a key in it."""
    nodes = {node["cql_address"].rsplit(":", 1)[0]: node["node"] for node in json.loads(admin(servers[0], "nodes", "--json").stdout)}

    def look():
        tablets = json.loads(admin(servers[0], "tablets", table, "--json").stdout)
        found = [next((tablet for tablet in tablets if tablet["leader"] == nodes[server.address]), None) for server in servers]
        return found if all(found) else None

    for tablet in until(look):
        is_there = lambda key: tablet["first_token"] <= Murmur3Token.hash_fn(struct.pack(">i", key)) <= tablet["last_token"]
        yield tablet["tablet"], next(key for key in range(100_000) if is_there(key))


def leave_prepared(servers, tablet, statement):
    """Has a transaction prepared in a tablet of the first server. The third one coordinates it and has its home, and is killed while the second one, which
    is paused, has not answered. Returns whether it stayed."""
    participant, paused, home = servers
    cluster, session = session_at(home.address)
    try:
        paused.process.send_signal(signal.SIGSTOP)
        answer = session.execute_async(statement)
        deadline = time.monotonic() + 10
        while metric(participant, "diorite_transactions_prepared") == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        home.process.kill()
        home.process.wait()
    finally:
        paused.process.send_signal(signal.SIGCONT)
        cluster.shutdown()
    answer.add_errback(lambda _: None)
    until(lambda: listed(participant, tablet) is not None)
    return bool(listed(participant, tablet))


@pytest.fixture
def lone(tmp_path):
    """A cluster with one replica of everything."""
    servers = cluster_of(tmp_path, replicas=1)
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def test_a_transaction_whose_home_is_down_is_named(lone):
    servers = lone
    cluster, session = session_at(servers[0].address, request_timeout=READY_WITHIN_S)
    session.execute("CREATE KEYSPACE lone WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE lone.t (k int PRIMARY KEY, v int) WITH tablets = 12 AND transactions = {'enabled': true}")
    (tablet, key), (_, other), (home, third) = led_by_each(servers, "lone.t")
    statement = "BEGIN TRANSACTION " + " ".join(f"INSERT INTO lone.t (k, v) VALUES ({k}, %s);" for k in (key, other, third)) + " END TRANSACTION"
    session.execute(statement, (1, 1, 1))
    outcomes = metric(servers[0], 'diorite_transactions_total{outcome="applied"}')
    assert outcomes >= 1
    cluster.shutdown()
    until(lambda: listed(servers[0], tablet) == [])
    for _ in range(10):
        if leave_prepared(servers, tablet, statement % (2, 2, 2)):
            break
        servers[2].start()
    else:
        raise AssertionError("no transaction stayed prepared")
    state = until(lambda: [one for one in listed(servers[0], tablet) or [] if one["age_ms"] > 1_000 and one["home"]["state"] in ("leaderless", "unavailable")])
    [one] = state
    assert (one["keyspace"], one["table"], one["rows"]) == ("lone", "t", 1) and one["staged_bytes"] > 0
    assert one["transaction"]["tablet"] == home
    assert (one["home"]["tablet"], one["home"]["table"], one["home"]["leader"]) == (home, "t", None)
    shown = admin(servers[0], "transactions").stdout
    assert re.search(rf"^{tablet} +lone\.t .*no (leader|quorum)$", shown, flags=re.MULTILINE), shown
    for name in ["prepared", "prepared_old", "staged_bytes"]:
        assert metric(servers[0], f"diorite_transactions_{name}") >= 1, name
    until(lambda: metric(servers[0], 'diorite_transaction_calls_total{call="ask_home"}') >= 1)
    # The reservation was lost with its leader, so the home says that nothing was done.
    servers[2].start()
    until(lambda: listed(servers[0], tablet) == [])
    assert metric(servers[0], 'diorite_transaction_steps_total{step="finished_aborted"}') >= 1
    until(lambda: metric(servers[0], "diorite_transactions_prepared") == 0)
    rows = in_the_end(servers, f"SELECT v FROM lone.t WHERE k IN ({key}, {other}, {third})")
    assert [row.v for row in rows] == [1, 1, 1]
