"""`make console-pictures`: pictures of some screens of the console, and the page that shows them; with --png of every screen.

May touch:  processes it starts, a temporary directory, docs/console, docs/console-pictures.md.    Must not touch: the product.
Invariants: what the pictures show is a cluster that runs: topics with traffic, groups that lag, an open transaction, and at the end
            a broker that is killed; beside it a run of the simulator, the same each time.
Read next:  screens.py, browser.py.

    python -m tests.admin.console.pictures [--seconds 150] [--png DIR] [--only NAME,NAME]

It takes about five minutes, most of them so that the charts have lines. The docs keep the screens of SHOWN, wide and light, narrow and
dark; --png keeps every screen, in both themes and both widths, as PNG there, and leaves the docs alone.
"""

from __future__ import annotations

import argparse
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn
from confluent_kafka import Consumer, Producer
from selenium import webdriver

from barnabas_admin.client import AdminClient
from barnabas_admin.console.application import make_application
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.sign_in import SignIn
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.security import PLAINTEXT
from tests.admin.console.browser import THEMES, WIDTHS, choose_theme, open_browser, save_picture, set_width
from tests.admin.console.conftest import Console
from tests.admin.console.screens import screens

DOCS = Path(__file__).parents[3] / "docs"
PICTURES, PAGE = DOCS / "console", DOCS / "console-pictures.md"
QUALITY = 60
TOPICS = {"flights": 6, "orders": 3, "payments": 3, "weather": 3, "audit": 1}
PACE = {"flights": 180, "orders": 60, "weather": 15}
"""Records a second, about."""
CARRIERS = ("LH", "AF", "BA", "UA", "DL", "B6")
AIRPORTS = ("JFK", "EWR", "LGA", "FRA", "CDG", "LHR", "ORD")
TRANSACTIONAL_ID = "payments-writer-1"
SCENARIO, SEED = "network-splits", 1
STEP, RECORD_STEP = 44, 60
"""Of that run: two nodes believe that they lead the quorum; a record that the new leader has, and the old one lacks."""
SIGN_IN = {"sign-in": "/sign-in"}
DRAWN_S = 1.2
"""Until the charts are drawn."""
TAILED_S = 2.5
"""Until a tail has asked twice."""
SHOWN = ("overview", "brokers", "topics", "topic-messages", "group", "events", "run")
"""Screens of the docs."""
SHOWN_AS = (("wide", "light"), ("narrow", "dark"))
DOWN = ("overview", "topic", "topic-explain", "brokers", "broker-down", "big-screen")
"""Screens that are shown once more while a broker is down."""


class Traffic:
    """Records that come, and groups that read them, some too slowly, until it is closed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write)]
        for group, topic, pause_s in (
            ("billing", "orders", 0.0),
            ("billing", "orders", 0.0),
            ("delays", "flights", 0.012),
            ("forecast", "weather", 0.0),
        ):
            self._threads.append(threading.Thread(target=self._read, args=(group, topic, pause_s)))
        self._open = Producer(self._servers | {"transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": 600_000})

    def begin(self) -> None:
        """Returns once a transaction is open."""
        self._open.init_transactions(60)
        self._open.begin_transaction()
        for number in range(3):
            self._open.produce("payments", f'{{"payment": {number}, "cents": {100 * number}}}'.encode())
        self._open.flush(60)
        for thread in self._threads:
            thread.start()
        self._commit_without_members()

    def close(self) -> None:
        """End every thread, and the transaction."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._open.abort_transaction(60)

    def _write(self) -> None:
        random_ = random.Random(7)
        producer = Producer(self._servers | {"client.id": "airline", "linger.ms": 20})
        while not self._is_over.is_set():
            wave = 1 + 0.5 * random_.random()
            for topic, rate in PACE.items():
                for _ in range(round(rate * wave / 10)):
                    key = f"{random_.choice(CARRIERS)}{random_.randrange(100, 999)}"
                    start, end = random_.sample(AIRPORTS, 2)
                    value = f'{{"from": "{start}", "to": "{end}", "delay_min": {random_.randrange(-5, 90)}}}'
                    producer.produce(topic, value.encode(), key.encode(), headers=[("source", b"airline")])
            producer.poll(0)
            self._is_over.wait(0.1)
        producer.flush(30)

    def _read(self, group: str, topic: str, pause_s: float) -> None:
        asked = {"group.id": group, "client.id": f"{group}-reader", "auto.offset.reset": "earliest"}
        consumer = Consumer(self._servers | asked | {"auto.commit.interval.ms": 1000})
        consumer.subscribe([topic])
        while not self._is_over.is_set():
            if consumer.poll(0.2) is not None:
                time.sleep(pause_s)
        consumer.close()

    def _commit_without_members(self) -> None:
        consumer = Consumer(self._servers | {"group.id": "archive", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        while consumer.poll(0.5) is None:
            pass
        consumer.commit(asynchronous=False)
        consumer.close()


def furnish(console: Console) -> None:
    """Topics, users, ACLs and quotas, by the console's own forms. Raises RuntimeError for a form that is refused."""
    forms: list[tuple[str, dict[str, str]]] = [
        ("/topics/new", {"name": name, "partitions": str(count), "replicas": "3", "configs": "min.insync.replicas=2"})
        for name, count in TOPICS.items()
    ]
    for name in ("ada", "grace"):
        forms.append(
            (
                "/access/users/set",
                {"name": name, "mechanism": "SCRAM-SHA-512", "password": "of-a-picture", "again": "of-a-picture"},
            )
        )
    for principal, permission, operation, topic, prefixed in (
        ("User:ada", "allow", "read", "flights", ""),
        ("User:ada", "allow", "write", "orders", ""),
        ("User:grace", "deny", "delete", "pay", "yes"),
    ):
        acl = {"principal": principal, "permission": permission, "operation": operation, "resource": "topic"}
        forms.append(("/access/acls/new", acl | {"name": topic, "prefixed": prefixed}))
    forms.append(("/access/quotas/set", {"user": "ada", "key": "producer_byte_rate", "bound": "5000000"}))
    forms.append(("/access/quotas/set", {"client-id": "airline", "key": "request_percentage", "bound": "150"}))
    for path, fields in forms:
        answer = console.post(path, **fields)
        if answer.status_code != 303:
            raise RuntimeError(f"{path} {fields}: {answer.status_code} {answer.text}")


def take(browser: webdriver.Chrome, address: str, wanted: Mapping[str, str], directory: Path, kind: str) -> None:
    """A picture of each page of the console at that address, for each theme and width."""
    for theme in THEMES:
        set_width(browser, "wide")
        choose_theme(browser, address, theme)
        for width in WIDTHS:
            if kind == "webp" and (width, theme) not in SHOWN_AS:
                continue
            set_width(browser, width)
            for name, path in wanted.items():
                browser.get(f"{address}{path}")
                if browser.find_elements("css selector", "figure.chart"):
                    time.sleep(DRAWN_S)
                if browser.find_elements("css selector", ".tail"):
                    time.sleep(TAILED_S)
                file = directory / f"{name}-{width}-{theme}.{kind}"
                save_picture(browser, file, quality=QUALITY if kind == "webp" else 0)


def simulate(file: Path) -> None:
    """Write the journal of a run."""
    command = [sys.executable, "-m", "barnabas_broker.main", "sim", "--scenario", SCENARIO, "--seed", str(SEED)]
    subprocess.run([*command, "--out", str(file)], stdout=subprocess.DEVNULL, check=True)


@contextmanager
def serving_sign_in(cluster: LocalCluster) -> Iterator[str]:
    """The address of a console at which nobody can sign in: the cluster has no logins."""
    shown = ConsoleCluster(
        lambda: AdminClient(cluster.admin_addresses, timeout_s=10), brokers=None, security=PLAINTEXT, timeout_s=10
    )
    application = make_application(shown, sign_in=SignIn(lambda user, password: shown))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def running(directory: Path) -> Iterator[tuple[LocalCluster, Console, str]]:
    """A furnished cluster with traffic, its console, and the address of another that asks for a sign-in."""
    journal = directory / "run.jsonl"
    simulate(journal)
    overrides = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with ExitStack() as stack:
        cluster = LocalCluster(directory / "cluster", nodes=3, base_port=find_base_port(), overrides=overrides)
        stack.enter_context(cluster)
        console = Console(cluster, "--journal", str(journal))
        stack.callback(console.close)
        guarded = stack.enter_context(serving_sign_in(cluster))
        furnish(console)
        cluster.wait_until_healthy()
        traffic = Traffic(cluster.bootstrap_servers)
        traffic.begin()
        stack.callback(traffic.close)
        yield cluster, console, guarded


def write_page(names: Mapping[str, str]) -> None:
    """docs/console-pictures.md."""
    out = [
        "# The console in pictures\n\n",
        "Some screens, wide and light, narrow and dark. `make console-pictures` makes them again, and this page: it runs a cluster with\n"
        'traffic, groups and an open transaction; the run is of [the simulator](simulation.md). `ARGS="--png DIR"` has every screen, in\n'
        "both themes and both widths, and those of a cluster whose broker was killed. What each shows is in [the console](console.md).\n",
    ]
    for name, address in names.items():
        out.append(f"\n## {name.replace('-', ' ').capitalize()}\n\n`{address}`\n")
        for width, theme in SHOWN_AS:
            out.append(f"\n![{name}, {theme}, {WIDTHS[width][0]} px](console/{name}-{width}-{theme}.webp)\n")
    PAGE.write_text("".join(out))


def main() -> int:
    """Everything, in order."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.admin.console.pictures", description="Pictures of all screens."
    )
    parser.add_argument("--seconds", type=int, default=150, help="of traffic before the first picture")
    parser.add_argument("--png", type=Path, metavar="DIR", help="keep PNG there, and leave the docs alone")
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="screens to take anew, with commas; none of a broker down"
    )
    options = parser.parse_args()
    directory = options.png or PICTURES
    kind = "png" if options.png else "webp"
    directory.mkdir(parents=True, exist_ok=True)
    wanted = dict(
        screens(topic="flights", group="billing", transactional_id=TRANSACTIONAL_ID, step=STEP, record_step=RECORD_STEP)
    )
    down = {
        f"down-{each.removesuffix('-down')}": "/brokers/3" if each == "broker-down" else wanted[each] for each in DOWN
    }
    only = set(filter(None, options.only.split(","))) or (set() if options.png else set(SHOWN))
    if unknown := only - wanted.keys() - SIGN_IN.keys():
        parser.error(f"no screen is named {', '.join(sorted(unknown))}: {', '.join(wanted | SIGN_IN)}")
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-pictures-"))
        cluster, console, guarded = stack.enter_context(running(Path(name)))
        time.sleep(options.seconds)
        browser = open_browser(Path(name) / "browser")
        try:
            shown = {each: address for each, address in wanted.items() if not only or each in only}
            take(browser, console.address, shown, directory, kind)
            if not only or only & SIGN_IN.keys():
                take(browser, guarded, SIGN_IN, directory, kind)
            if not only:
                cluster.kill(3)
                time.sleep(25)  # the broker is fenced after its session, and the events say so
                take(browser, console.address, down, directory, kind)
        finally:
            browser.quit()
    if options.png is None:
        for old in directory.glob("*.webp"):
            name, width, theme = old.stem.rsplit("-", 2)
            if name not in SHOWN or (width, theme) not in SHOWN_AS:
                old.unlink()
        write_page({name: wanted[name] for name in SHOWN})
    print(f"{len(list(directory.glob(f'*.{kind}')))} pictures in {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
