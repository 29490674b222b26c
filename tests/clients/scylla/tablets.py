"""Scylla's Python driver: after it has met every tablet, fewer than 1 % of its requests are passed on by the node that they reach.

Called with the addresses of a cluster's nodes. Ends with status 0 if that holds.
"""

import sys
import urllib.request

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy

REQUESTS = 1_000
ROUNDS = 30


def routed(addresses):
    """Requests of clients that were passed on, and all of them."""
    elsewhere = here = 0
    for address in addresses:
        page = urllib.request.urlopen(f"http://{address}:7000/metrics", timeout=10).read().decode()
        for line in page.splitlines():
            if line.startswith("diorite_routed_requests"):
                count = int(float(line.rsplit(" ", 1)[1]))
                elsewhere += count if 'led="elsewhere"' in line else 0
                here += count if 'led="here"' in line else 0
    return elsewhere, here + elsewhere


def main(addresses):
    policy = TokenAwarePolicy(RoundRobinPolicy())
    profile = ExecutionProfile(request_timeout=30, load_balancing_policy=policy)
    cluster = Cluster(addresses[:1], protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    session = cluster.connect()
    assert cluster.control_connection._connection.features.tablets_routing_v1, "the extension is negotiated"
    session.execute("CREATE KEYSPACE IF NOT EXISTS py_tablets")
    session.execute("CREATE TABLE IF NOT EXISTS py_tablets.t (k int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO py_tablets.t (k, v) VALUES (?, ?)")
    select = session.prepare("SELECT v FROM py_tablets.t WHERE k = ?")

    def round_of(number):
        before = routed(addresses)
        for k in range(number * REQUESTS, (number + 1) * REQUESTS):
            session.execute(insert, (k, k))
            assert session.execute(select, (k,)).one().v == k
        after = routed(addresses)
        return after[0] - before[0], after[1] - before[1]

    for number in range(ROUNDS):
        if round_of(number)[0] == 0:
            break
    forwarded, every = round_of(ROUNDS)
    cluster.shutdown()
    print(f"{forwarded} of {every} requests were for another node")
    assert every >= 2 * REQUESTS and forwarded * 100 < every


if __name__ == "__main__":
    main(sys.argv[1:])
