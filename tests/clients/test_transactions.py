"""Transaction blocks over one partition, and arithmetic on columns, with the Python driver."""

import threading

import pytest
from cassandra import InvalidRequest
from cassandra.protocol import SyntaxException
from test_python import connect

KEYSPACE = "transaction_checks"
NOT_SATISFIED = "Execution Error. Condition on table accounts was not satisfied."


@pytest.fixture(scope="module", params=[3, 4, 5])
def session(server, request):
    cluster, session = connect(server, request.param)
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.set_keyspace(KEYSPACE)
    session.execute("CREATE TABLE accounts (h int, r int, balance bigint, PRIMARY KEY (h, r)) WITH transactions = {'enabled': true}")
    session.execute("CREATE TABLE numbers (k int PRIMARY KEY, i int, d double, v varint)")
    yield session
    cluster.shutdown()


def balances(session, h):
    return [(row.r, row.balance) for row in session.execute(f"SELECT r, balance FROM accounts WHERE h = {h}")]


def test_arithmetic_prepared_and_as_text(session):
    session.execute("INSERT INTO numbers (k, i, d, v) VALUES (1, 10, 0.5, 1)")
    add = session.prepare("UPDATE numbers SET i = i + ?, d = d - ?, v = v + ? WHERE k = ?")
    assert [column.type.typename for column in add.column_metadata] == ["int", "double", "varint", "int"]
    session.execute(add, [5, 0.25, 2**70, 1])
    assert session.execute("SELECT i, d, v FROM numbers").one() == (15, 0.25, 2**70 + 1)
    with pytest.raises(InvalidRequest, match="out of the range of int"):
        session.execute(add, [2**31 - 1, 1.0, 1, 1])
    assert session.execute("UPDATE numbers SET i = i - 15 WHERE k = 1 IF i = 15").one().applied
    session.execute(add, [1, 1.0, 1, 2])
    assert [tuple(row) for row in session.execute("SELECT k, i, d FROM numbers")] == [(1, 0, 0.25)]


def test_blocks_prepared_and_as_text(session):
    session.execute("BEGIN TRANSACTION INSERT INTO accounts (h, r, balance) VALUES (1, 1, 100); INSERT INTO accounts (h, r, balance) VALUES (1, 2, 0); END TRANSACTION;")
    transfer = session.prepare(
        "START TRANSACTION; UPDATE accounts SET balance = balance - ? WHERE h = ? AND r = 1 IF balance >= ? ELSE ERROR;"
        " UPDATE accounts SET balance = balance + ? WHERE h = ? AND r = 2; COMMIT;"
    )
    # The server tells since protocol 4. Before that, the driver takes the last marker with the name of the column.
    assert transfer.routing_key_indexes == ([4] if session.cluster.protocol_version == 3 else [1])
    assert list(session.execute(transfer, [60, 1, 60, 60, 1])) == []
    with pytest.raises(InvalidRequest, match=NOT_SATISFIED):
        session.execute(transfer, [60, 1, 60, 60, 1])
    assert balances(session, 1) == [(1, 40), (2, 60)]
    times = {row[0] for row in session.execute("SELECT writetime(balance) FROM accounts WHERE h = 1")}
    assert len(times) == 1
    named = session.prepare("BEGIN TRANSACTION DELETE FROM accounts WHERE h = :h AND r = 1; INSERT INTO accounts (h, r, balance) VALUES (:h, 1, :b); END TRANSACTION")
    session.execute(named, {"h": 1, "b": 7})
    assert balances(session, 1) == [(1, 7), (2, 60)]


def test_the_option_is_shown_and_blocks_need_it(session):
    session.execute("CREATE TABLE plain (k int PRIMARY KEY, v int)")
    block = "BEGIN TRANSACTION INSERT INTO plain (k, v) VALUES (1, 1); END TRANSACTION"
    with pytest.raises(InvalidRequest, match=f"Transactions are not enabled in the table {KEYSPACE}.plain"):
        session.prepare(block)
    session.execute("ALTER TABLE plain WITH transactions = {'enabled': true}")
    session.execute(session.prepare(block))
    shown = session.execute(f"SELECT transactions FROM system_schema.tables WHERE keyspace_name = '{KEYSPACE}' AND table_name = 'plain'")
    assert dict(shown.one()[0]) == {"enabled": "true"}
    assert "transactions = {'enabled': 'true'}" in session.execute("DESCRIBE TABLE plain").one().create_statement
    session.execute("DROP TABLE plain")


def test_what_is_no_block_is_refused(session):
    insert = "INSERT INTO accounts (h, r, balance) VALUES (9, 1, 1);"
    for text, error, match in [
        (f"BEGIN TRANSACTION {insert}", SyntaxException, "END TRANSACTION"),
        (f"BEGIN TRANSACTION BEGIN TRANSACTION {insert} END TRANSACTION", SyntaxException, "BEGIN"),
        ("BEGIN TRANSACTION SELECT * FROM accounts; END TRANSACTION", InvalidRequest, "Only insert, update, and delete"),
        ("BEGIN TRANSACTION LET x = (SELECT * FROM accounts); COMMIT TRANSACTION", InvalidRequest, "Cassandra's transactions"),
    ]:
        with pytest.raises(error, match=match):
            session.execute(text)
    assert balances(session, 9) == []


def test_transfers_side_by_side_lose_nothing(session):
    session.execute("BEGIN TRANSACTION INSERT INTO accounts (h, r, balance) VALUES (3, 1, 0); INSERT INTO accounts (h, r, balance) VALUES (3, 2, 0); END TRANSACTION")
    transfer = session.prepare("BEGIN TRANSACTION UPDATE accounts SET balance = balance - 1 WHERE h = 3 AND r = 1; UPDATE accounts SET balance = balance + 1 WHERE h = 3 AND r = 2; END TRANSACTION")

    def run():
        for _ in range(50):
            session.execute(transfer)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert balances(session, 3) == [(1, -200), (2, 200)]
