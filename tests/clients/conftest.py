"""What all client tests share: one real server process for the session, and programs in other languages.

Always holds: the server is the built binary, started as a person would start it, on a loopback address of its own, so that
tests run beside another server; it is stopped by SIGTERM at the end and must then exit cleanly, within a minute.
Nothing is written inside the checkout.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import cassandra
import cassandra.cluster
import cassandra.concurrent
import cassandra.protocol
import pytest

HERE = pathlib.Path(__file__).resolve().parent
READY_WITHIN_S = 120
# As `diorite local` waits. A stop flushes every tablet and waits for other nodes, beside whatever else the machine does.
STOPPED_WITHIN_S = 60
PORTS = (9042, 7100, 7000)
# The first three numbers of all addresses: two runs beside each other have different ones.
NET = os.environ.get("DIORITE_TEST_NET", "127.0.0")


PATIENCE_S = 30


def _be_patient():
    """Gives the driver's own requests to connect and to read the schema as long as those of the tests.

    Its 2 s and 5 s are too little on two cores on which other servers and compilers run, and these tests time nothing."""
    with_defaults = cassandra.cluster.Cluster.__init__

    def init(self, *arguments, control_connection_timeout=PATIENCE_S, connect_timeout=PATIENCE_S, **options):
        timeouts = {"control_connection_timeout": control_connection_timeout, "connect_timeout": connect_timeout}
        with_defaults(self, *arguments, **timeouts, **options)

    cassandra.cluster.Cluster.__init__ = init


_be_patient()


# cqlsh has five seconds for a connection and for each read of the schema, and ten for a statement.
CQLSH_PATIENCE = [f"--connect-timeout={2 * PATIENCE_S}", f"--request-timeout={2 * PATIENCE_S}"]


# A write that ends in this way on a busy machine may be repeated: whether it took effect is not known, or it did not.
REPEATED = (
    cassandra.WriteTimeout,
    cassandra.Unavailable,
    cassandra.OperationTimedOut,
    cassandra.cluster.NoHostAvailable,
    cassandra.protocol.OverloadedErrorMessage,
)


def repeated(write, errors=REPEATED):
    """What `write` gives, which is done again if it fails because a leader was lost or slow. For what a test needs and does not check."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            return write()
        except errors:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def write_all(session, statement, rows, concurrency=64):
    """Writes rows that a test needs, each until it is acknowledged."""
    left, prepared = list(rows), session.prepare(statement)
    deadline = time.monotonic() + 2 * READY_WITHIN_S
    while left:
        results = cassandra.concurrent.execute_concurrent_with_args(session, prepared, left, concurrency=concurrency, raise_on_first_error=False)
        failed = [(row, error) for row, (succeeded, error) in zip(left, results) if not succeeded]
        for _, error in failed:
            if not isinstance(error, REPEATED) or time.monotonic() > deadline:
                raise error
        left = [row for row, _ in failed]


def while_it_lives(write, look):
    """Has values written with a time to live, in seconds, and looks at them at once: that time, and what was seen.

    The time is longer if that has taken too long for the one before. Times to live end with a whole second: the first
    one may be short."""
    for ttl in (2, 10, 60):
        begun = time.monotonic()
        write(ttl)
        seen = look()
        if time.monotonic() - begun < ttl - 1:
            break
    return ttl, seen


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("DIORITE_CACHE") or os.path.join(base, "diorite"))


def clients_folder(name):
    folder = cache_folder() / "clients" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def binary():
    named = os.environ.get("DIORITE_BINARY")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or cache_folder() / "target")
    path = pathlib.Path(named) if named else target / "release" / "diorite"
    if not path.is_file():
        pytest.exit(f"there is no server at {path}: `cargo build --release --package diorite` builds it", returncode=2)
    return path


def free_address(neighbours=1):
    """The first of some neighbouring loopback addresses on which none of the server's ports is taken."""
    for last in range(10, 250 - neighbours):
        try:
            for number in range(last, last + neighbours):
                for port in PORTS:
                    with socket.socket() as probe:
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        probe.bind((f"{NET}.{number}", port))
        except OSError:
            continue
        return f"{NET}.{last}"
    pytest.exit("no loopback address has the ports 9042, 7100 and 7000 free", returncode=2)


class Server:
    """One `diorite start` process and what it needs."""

    def __init__(self, folder, address=None, options=()):
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.address = address or free_address()
        self.options = list(options)
        self.process = None

    def start(self, listening_at=None):
        """Starts it and waits until it listens to clients, at its address and the usual port or elsewhere."""
        # However full the machine's disk is.
        arguments = [str(binary()), "start", "--data-dir", str(self.data), "--listen", self.address, "--move-reserve", "0", *self.options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server exited with {self.process.returncode}:\n{self.log_tail()}"
            try:
                socket.create_connection(listening_at or (self.address, 9042), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the server does not listen after {READY_WITHIN_S} s:\n{self.log_tail()}")

    def wait_until_it_serves(self):
        """The port for clients is bound long before: who connects to it meanwhile waits, for as long as a driver does at most."""
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                urllib.request.urlopen(f"http://{self.address}:7000/metrics", timeout=READY_WITHIN_S).close()
                return
            except urllib.error.HTTPError:
                raise
            except urllib.error.URLError:
                # The port for HTTP is bound a moment after that for clients.
                assert self.process.poll() is None and time.monotonic() < deadline, self.log_tail()
                time.sleep(0.05)

    def stop(self):
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server still ran {STOPPED_WITHIN_S} s after SIGTERM:\n{self.log_tail()}")

    def log_tail(self):
        return self.log.read_text(errors="replace")[-4000:]


def cluster_of(folder, nodes=3, options=(), replicas=None):
    """Servers that are one cluster, with as many replicas of everything as nodes, or so many at least."""
    first = free_address(neighbours=nodes)
    start, last = first.rsplit(".", 1)
    servers = []
    for number in range(nodes):
        home = folder / f"node{number + 1}"
        home.mkdir()
        role = ["--join", first] if servers else ["--rf", str(replicas or nodes)]
        server = Server(home, f"{start}.{int(last) + number}", [*role, *options]).start()
        # The port is bound before the node has joined.
        server.wait_until_it_serves()
        servers.append(server)
    return servers


class Attached:
    """A server that somebody else runs, at the address in DIORITE_TEST_ADDRESS: for checking the checks."""

    def __init__(self, address):
        self.address = address


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    attached = os.environ.get("DIORITE_TEST_ADDRESS")
    if attached:
        yield Attached(attached)
        return
    running = Server(tmp_path_factory.mktemp("server")).start()
    running.wait_until_it_serves()
    yield running
    died = running.process.poll()
    assert died is None, f"the server died with {died} during the tests:\n{running.log_tail()}"
    status = running.stop()
    assert status == 0, f"after SIGTERM the server exited with {status}:\n{running.log_tail()}"


class Program:
    """The outcome of one client program, check by check."""

    LINE = re.compile(r"^(ok|not ok) ([a-z0-9_]+)(?:: (.*))?$")

    def __init__(self, arguments, folder=None, environment=None, within_s=1_200):
        started = subprocess.run(
            [str(argument) for argument in arguments],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=within_s,
        )
        self.output = started.stdout
        self.status = started.returncode
        self.checks = {}
        for line in self.output.splitlines():
            found = self.LINE.match(line)
            if found:
                self.checks[found[2]] = (found[1] == "ok", found[3] or "")

    def expect(self, check):
        assert check in self.checks, f"the program never got to {check}; it said:\n{self.output[-4000:]}"
        passed, why = self.checks[check]
        assert passed, why

    def expect_exactly(self, checks):
        assert sorted(self.checks) == sorted(checks), f"other checks than expected; the program said:\n{self.output[-4000:]}"
        failed = any(not passed for passed, _ in self.checks.values())
        assert (self.status != 0) == failed, f"exit status {self.status}; the program said:\n{self.output[-4000:]}"


def build(arguments, folder=None, environment=None):
    """Runs a compiler or package manager; its output shows only when it fails."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=1_800,
    )
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout[-4000:]}"


@pytest.fixture(scope="session")
def venv_program():
    """The path of a program that was installed beside this Python."""
    return lambda name: pathlib.Path(sys.executable).parent / name


def java_program(name, main, address):
    """Compiles the Maven project in the folder `name`, from the local repository where it can, and runs its class `main`."""
    output = clients_folder(name)
    compile_it = ["mvn", "-q", "-B", "-f", HERE / name / "pom.xml", f"-Dchecks.output={output}", "process-classes"]
    try:
        build([*compile_it, "--offline"])
    except AssertionError:
        build(compile_it)
    return Program(["java", "-Xmx512m", "-cp", f"{output}/classes:{output}/libraries/*", main, address])
