"""The pages of port 7000 in a real browser (Debian's Chromium, headless, driven by Playwright): on a live cluster of three during load, while a node joins,
and after one was killed.

Always holds: whatever a test does, the browser must have seen no error on its console, no failed request and no request to anywhere but the node that it was
sent to. What waits, waits for the page to show something; the pages' own timers are moved by the browser's clock, not by waiting. Screenshots are left in
`clients/ui` of the cache folder (`DIORITE_SCREENSHOTS` names another one).
"""

import contextlib
import json
import os
import pathlib
import shutil
import threading
import time
import urllib.parse
import urllib.request

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RetryPolicy, RoundRobinPolicy
from playwright.sync_api import expect, sync_playwright

from conftest import Server, clients_folder, cluster_of, free_address, write_all

if os.environ.get("DIORITE_TEST_ADDRESS"):
    pytest.skip("a cluster of its own is needed", allow_module_level=True)

TABLETS = 12
ROWS = 3_000
VALUE_BYTES = 20_000
WIDE = {"width": 1360, "height": 850}
PHONE = {"width": 360, "height": 740}
WITHIN_MS = 60_000
# How long a page may take to come to show what is waited for, such as the end of a dozen moves.
SHOWN_WITHIN_S = 240
# Expectations have five seconds otherwise, whatever the time-outs of a context are.
expect.set_options(timeout=WITHIN_MS)


def chromium():
    found = shutil.which("chromium")
    if not found:
        pytest.exit("there is no chromium: `scripts/setup test` installs it", returncode=2)
    return found


@pytest.fixture(scope="module")
def screenshots():
    named = os.environ.get("DIORITE_SCREENSHOTS")
    folder = pathlib.Path(named) if named else clients_folder("ui")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    return folder


def ask(server, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{server.address}:7000/api/v1/{path}", data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Load:
    """Reads and writes, from a few threads, until it is stopped. What fails is tried again: it is load, not a check."""

    def __init__(self, servers):
        profile = ExecutionProfile(request_timeout=30, load_balancing_policy=RoundRobinPolicy(), retry_policy=RetryPolicy())
        addresses = [server.address for server in servers]
        self.cluster = Cluster(addresses, protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
        session = self.cluster.connect()
        session.execute("CREATE KEYSPACE shop")
        session.execute("CREATE TYPE shop.address (street text, city text)")
        session.execute(
            "CREATE TABLE shop.orders (customer text, placed timestamp, total decimal, sent_to frozen<address>, note blob,"
            f" PRIMARY KEY (customer, placed)) WITH CLUSTERING ORDER BY (placed DESC) AND tablets = {TABLETS}"
        )
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, name text) WITH tablets = 3")
        session.execute("CREATE INDEX items_by_name ON shop.items (name)")
        insert = session.prepare("INSERT INTO shop.orders (customer, placed, total, note) VALUES (?, ?, 12.5, ?)")
        select = session.prepare("SELECT total FROM shop.orders WHERE customer = ? LIMIT 1")
        insert.is_idempotent = select.is_idempotent = True
        rows = ((f"customer {number}", number, os.urandom(VALUE_BYTES)) for number in range(ROWS))
        write_all(session, insert.query_string, rows, concurrency=50)
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(session, insert, select, worker)) for worker in range(3)]
        for thread in self.threads:
            thread.start()

    def work(self, session, insert, select, worker):
        number = 0
        while not self.stopping.is_set():
            number += 1
            with contextlib.suppress(Exception):
                session.execute(insert, (f"customer {number % ROWS}", worker, os.urandom(500)))
                for other in range(3):
                    session.execute(select, (f"customer {(number * 7 + other) % ROWS}",))
            # Enough to be seen, and the machine has browsers to run as well.
            self.stopping.wait(0.005)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    # A short log, so that a node that joins is given copies.
    servers = cluster_of(tmp_path_factory.mktemp("ui"), options=["--replay-limit", "16MiB"])
    load = Load(servers)
    yield servers
    load.stop()
    for server in servers:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


class Window:
    """A page of a browser, and what went wrong in it."""

    def __init__(self, browser, server, viewport=WIDE, **options):
        self.base = f"http://{server.address}:7000"
        self.context = browser.new_context(viewport=viewport, **options)
        self.context.set_default_timeout(WITHIN_MS)
        self.page = self.context.new_page()
        self.wrong, self.requests = [], []
        self.page.on("console", lambda message: message.type in ("error", "warning") and self.wrong.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("request", self.requested)
        self.page.on("requestfailed", self.failed)
        self.page.on("response", lambda answer: answer.status >= 400 and self.wrong.append(f"{answer.status}: {answer.url}"))

    def requested(self, request):
        self.requests.append(request.url)
        if not request.url.startswith((self.base, "data:")):
            self.wrong.append(f"a request to elsewhere: {request.url}")

    def failed(self, request):
        # Whoever leaves a page gives up what it was asking for.
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(f"{request.failure}: {request.url}")

    def go(self, path):
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while True:
            known = len(self.wrong)
            answer = self.page.goto(self.base + path)
            if answer.status != 503 or time.monotonic() > deadline:
                break
            # Another node has not answered the one that is asked within two or three seconds. It is asked again.
            self.page.wait_for_timeout(200)
            del self.wrong[known:]
        expect(self.page.locator("main h1")).not_to_be_empty()
        return self.page

    def expect_renewal(self):
        return self.page.expect_response(lambda answer: answer.url == self.page.url)

    def renew(self):
        with self.expect_renewal():
            self.page.clock.run_for(5_000)

    def keep(self, folder, name):
        self.page.screenshot(path=folder / f"{name}.png", full_page=True)


@contextlib.contextmanager
def window(browser, server, **options):
    opened = Window(browser, server, **options)
    try:
        yield opened
        assert opened.wrong == []
    finally:
        opened.context.close()


def paths(server):
    """Every page, those of single things with things that there are."""
    tablet = ask(server, "tablets?keyspace=shop&limit=1")["tablets"][0]["tablet"]
    node = ask(server, "status")["leader"]
    return {
        "overview": "/",
        "nodes": "/nodes",
        "node": f"/nodes/{node}",
        "tables": "/tables",
        "table": "/tables/shop/orders",
        "tablets": "/tablets",
        "tablet": f"/tablets/{tablet}",
        "moves": "/moves",
        "transactions": "/transactions",
        "indexes": "/indexes",
        "index": "/indexes/shop/items_by_name",
        "queries": "/queries",
        "memory": "/memory",
        "logs": "/logs",
        "config": "/config",
    }


def renewed_until(window, condition):
    """Moves the page's clock from renewal to renewal until it shows what is waited for."""
    end = time.monotonic() + SHOWN_WITHIN_S
    while time.monotonic() < end:
        if condition():
            return
        window.renew()
    raise AssertionError(f"{window.page.url} does not come to show what is expected:\n{window.page.inner_text('main')}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_during_load(browser, servers, screenshots, scheme):
    with window(browser, servers[0], color_scheme=scheme) as opened:
        backgrounds = set()
        for name, path in paths(servers[0]).items():
            page = opened.go(path)
            assert page.title().endswith("· Diorite")
            expect(page.locator("nav a[aria-current=page]")).to_have_count(1)
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            opened.keep(screenshots, f"{name}-{scheme}")
        (background,) = backgrounds
        lightness = sum(int(part) for part in background.strip("rgb()").split(","))
        assert (lightness > 600) == (scheme == "light"), background


def test_pages_say_what_is_so(browser, servers):
    with window(browser, servers[1]) as opened:
        page = opened.go("/")
        expect(page.locator(".headline .badge")).to_have_text("Healthy")
        expect(page.locator("main")).to_contain_text(ask(servers[1], "status")["cluster_id"])
        page = opened.go("/tables/shop/orders")
        expect(page.locator("pre.cql")).to_contain_text("CREATE TYPE shop.address")
        expect(page.locator("pre.cql")).to_contain_text("CLUSTERING ORDER BY (placed DESC)")
        page = opened.go("/queries")
        expect(page.locator("main")).to_contain_text("SELECT total FROM shop.orders")
        page = opened.go("/config")
        expect(page.locator("main tr", has_text="--data-dir")).to_contain_text(str(servers[1].data))
        page = opened.go(paths(servers[1])["tablet"])
        expect(page.locator("main")).to_contain_text("ms left")
        expect(page.locator("main")).to_contain_text("leads in term")
        page = opened.go("/memory")
        expect(page.locator("main")).to_contain_text("block cache")


def test_any_node_shows_every_other(browser, servers):
    with window(browser, servers[2]) as opened:
        nodes = {node["cql_address"].split(":")[0]: node["node"] for node in ask(servers[0], "nodes")}
        page = opened.go("/config")
        other = nodes[servers[0].address]
        # A choice takes effect at once.
        with page.expect_navigation():
            page.locator("select[name=node]").select_option(str(other))
        expect(page.locator("main tr", has_text="--data-dir")).to_contain_text(str(servers[0].data))
        for path in ("queries", "memory", "logs"):
            page = opened.go(f"/{path}?node={other}")
            expect(page.locator("select[name=node]")).to_have_value(str(other))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(browser, servers, screenshots, scheme):
    with window(browser, servers[0], viewport=PHONE, color_scheme=scheme, is_mobile=True, has_touch=True) as opened:
        for name, path in paths(servers[0]).items():
            page = opened.go(path)
            widths = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]")
            assert max(widths) <= PHONE["width"], f"{path} is {widths} wide"
            opened.keep(screenshots, f"phone-{name}-{scheme}")


def test_charts_are_drawn_and_show_values_under_the_pointer(browser, servers, screenshots):
    with window(browser, servers[0]) as opened:
        opened.page.clock.install()
        node = ask(servers[0], "status")["leader"]
        page = opened.go(f"/nodes/{node}")
        chart = page.locator("figure.chart").first
        drawn = lambda: chart.locator("path.line").first.get_attribute("d").count("L") >= 2
        renewed_until(opened, drawn)
        box = chart.locator("svg").bounding_box()
        page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
        expect(page.locator(".tip")).to_be_visible()
        expect(page.locator(".tip .key").first).to_contain_text("reads")
        expect(page.locator(".tip .key b").first).to_contain_text("/s")
        # Renewing the figures does not take it away.
        opened.renew()
        expect(page.locator(".tip")).to_be_visible()
        opened.keep(screenshots, "node-charts")
        page.mouse.move(5, 5)
        expect(page.locator(".tip")).to_be_hidden()
        titles = page.locator("figure.chart figcaption strong").all_inner_texts()
        expected = "Operations|Read latency|Write latency|CPU, cores|Memory|SSTables|Disk operations|Disk throughput|Compaction|Compactions running|Scans and aggregates|CQL connections"
        assert titles == expected.split("|")
        page = opened.go("/")
        renewed_until(opened, lambda: page.locator("figure.chart path.line").first.get_attribute("d").count("L") >= 2)


def test_figures_renew_themselves_in_place(browser, servers):
    with window(browser, servers[0], viewport={"width": 900, "height": 420}) as opened:
        opened.page.clock.install()
        page = opened.go("/")
        page.evaluate("window.marker = 'the same page'; window.scrollTo(0, 150)")
        tile = page.locator(".tile", has_text="Reads").locator("dd").first
        before = tile.inner_text()
        renewed_until(opened, lambda: tile.inner_text() not in (before, "0/s"))
        assert page.evaluate("[window.marker, window.scrollY]") == ["the same page", 150]
        # Paused by hand, and while nobody looks: nothing is asked for.
        button = page.locator("nav .live button")
        expect(button).to_have_text("live")
        button.click()
        expect(button).to_have_text("paused")
        asked = len(opened.requests)
        page.clock.run_for(60_000)
        assert len(opened.requests) == asked
        with opened.expect_renewal():
            button.click()
        hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))"
        page.evaluate(hide % "true")
        asked = len(opened.requests)
        page.clock.run_for(60_000)
        assert len(opened.requests) == asked
        with opened.expect_renewal():
            page.evaluate(hide % "false")


def test_what_is_being_typed_stays(browser, servers):
    with window(browser, servers[0]) as opened:
        opened.page.clock.install()
        page = opened.go("/tablets")
        field = page.locator("input[name=q]")
        field.press_sequentially("sho")
        opened.renew()
        field.press_sequentially("p.or")
        expect(field).to_have_value("shop.or")
        with page.expect_navigation():
            field.press("Enter")
        expect(page.locator(".pager")).to_have_text(f"{TABLETS} in all")


def column(page, number):
    return page.locator(f"main tbody td:nth-child({number})").all_inner_texts()


def test_lists_are_sorted_and_filtered(browser, servers):
    with window(browser, servers[0]) as opened:
        page = opened.go("/tablets")
        with page.expect_navigation():
            page.locator("th a", has_text="Tablet").first.click()
        expect(page.locator("th[aria-sort=descending]")).to_have_text("Tablet")
        ids = [int(text) for text in column(page, 1)]
        assert len(ids) == TABLETS + 3 and ids == sorted(ids, reverse=True)
        with page.expect_navigation():
            page.locator("th[aria-sort] a").click()
        expect(page.locator("th[aria-sort=ascending]")).to_have_text("Tablet")
        assert [int(text) for text in column(page, 1)] == sorted(ids)
        page.locator("input[name=table]").fill("items")
        with page.expect_navigation():
            page.get_by_role("button", name="Filter").click()
        assert column(page, 2) == ["shop.items"] * 3
        query = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).query)
        assert (query["table"], query["sort"]) == (["items"], ["tablet"]), "the order stays"
        with page.expect_navigation():
            page.locator("select[name=state]").select_option("unavailable")
        expect(page.locator("td.none")).to_have_text("No entries.")
        with page.expect_navigation():
            page.get_by_role("link", name="clear").click()
        assert len(column(page, 1)) == TABLETS + 3
        page = opened.go("/nodes")
        page.locator("input[name=q]").fill(servers[1].address)
        with page.expect_navigation():
            page.locator("input[name=q]").press("Enter")
        assert column(page, 3) == [f"{servers[1].address}:9042"]


def test_without_scripts_everything_but_values_under_the_pointer_is_there(browser, servers):
    with window(browser, servers[0], java_script_enabled=False) as opened:
        for path in paths(servers[0]).values():
            page = opened.go(path)
            assert page.locator("main").inner_text().strip()
        page = opened.go("/")
        expect(page.locator("figure.chart svg path.grid")).to_have_count(3)
        expect(page.locator("nav .live")).to_be_hidden()
        page = opened.go("/tables?sort=bytes&desc=1")
        expect(page.locator("tbody tr").first).to_contain_text("orders")


@pytest.fixture(scope="module")
def joined(servers, tmp_path_factory):
    """A fourth node, to which replicas come slowly. It stays for the tests that follow."""
    ask(servers[0], "settings", {"copy_rate_bytes": 500_000})
    server = Server(tmp_path_factory.mktemp("fourth"), free_address(), ["--join", servers[0].address]).start()
    server.wait_until_it_serves()
    servers.append(server)
    return server


def test_every_page_while_a_node_joins(browser, servers, screenshots, joined):
    with window(browser, servers[0]) as opened:
        opened.page.clock.install()
        page = opened.go("/")
        renewed_until(opened, lambda: page.locator(".tile", has_text="Nodes").inner_text().split("\n")[1] == "4 / 4")
        page = opened.go("/moves")
        rate = page.locator("main tbody tr td:nth-child(7)")
        renewed_until(opened, lambda: any(not text.startswith("0 B") for text in rate.all_inner_texts()))
        destination = page.locator("main tbody tr td:nth-child(4)").first.inner_text()
        assert destination == "n4"
        page = opened.go("/tablets?state=moving")
        expect(page.locator(".replica.warn").first).to_contain_text("arriving")
        page = opened.go("/")
        expect(page.locator(".headline .badge")).to_have_text("Healthy")
        for name, path in paths(servers[0]).items():
            opened.go(path)
            opened.keep(screenshots, f"joining-{name}")
    ask(servers[0], "settings", {"copy_rate_bytes": 200_000_000})
    with window(browser, joined) as opened:
        opened.page.clock.install()
        page = opened.go("/moves")
        renewed_until(opened, lambda: "No replica is moving" in page.locator("main").inner_text())
        for name, path in paths(joined).items():
            opened.go(path)
            opened.keep(screenshots, f"joined-{name}")


def test_every_page_after_a_node_was_killed(browser, servers, screenshots, joined):
    victim = servers[1]
    dead = next(node["node"] for node in ask(servers[0], "nodes") if node["cql_address"].startswith(f"{victim.address}:"))
    victim.process.kill()
    victim.process.wait()
    with window(browser, servers[0]) as opened:
        opened.page.clock.install()
        page = opened.go("/")
        renewed_until(opened, lambda: f"node n{dead} " in page.locator(".warnings").inner_text() if page.locator(".warnings").count() else False)
        renewed_until(opened, lambda: page.locator(".headline .badge").inner_text() == "Data at risk")
        renewed_until(opened, lambda: page.locator(".tile", has_text="Leaderless").locator("dd").first.inner_text() == "0")
        for name, path in {**paths(servers[0]), "dead-node": f"/nodes/{dead}"}.items():
            opened.go(path)
            opened.keep(screenshots, f"killed-{name}")
        page = opened.go(f"/nodes/{dead}")
        expect(page.locator(".headline .badge")).to_have_text("down")
        page = opened.go("/tablets?state=under_replicated&sort=tablet")
        expect(page.locator(".replica.bad").first).to_contain_text("down")
    victim.start().wait_until_it_serves()
    with window(browser, victim) as opened:
        opened.page.clock.install()
        page = opened.go("/")
        renewed_until(opened, lambda: page.locator(".headline .badge").inner_text() == "Healthy")
