"""An operator's day on real processes under load, each step by the commands that an operator types.

python -m tests.ecosystem.operators_day [--former COMMIT] [--page docs/operators-day.md]

May touch:  a temporary directory, loopback, the page that is named.   Must not touch: what a history's laws are (tests/checker).
Invariants: what is done to the cluster is done by `barnabas`; the harness only has an operator's hands: it starts, stops and breaks
            processes and disks; every wait is bounded; the clients' history is judged at the end: no acknowledged record may be lost.
Read next:  ../cluster/versions.py, whose load this is; docs/operators-day.md, what came of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.errors import LocalClusterError
from barnabas_admin.local_cluster import ADMIN_PORT_OFFSET, METRICS_PORT_OFFSET, LocalCluster
from barnabas_admin.local_node import LocalNode
from barnabas_admin.local_ports import find_base_port
from tests.chaos.data.plan import KEPT
from tests.chaos.data.replicas import read_replicas
from tests.checker.data_history import OK, Fault, History, HistoryWriter, Phase, read_events
from tests.checker.data_rules import errors, judge
from tests.cluster.former import NotInThisCloneError, make_former, server_of
from tests.cluster.versions import OVERRIDES, create_topics, end_client, read_last, start_client

FORMER = "0fe494c"
"""A commit of an earlier version, which the cluster begins with."""
FORMER_VERSION = "0.1.0.dev0"
"""What the former version calls itself here: it had the number of this one."""
COMMAND_WITHIN_S = 240.0
READY_WITHIN_S = 90.0
STOP_WITHIN_S = 40.0
WARM_UP_S = 4.0
SETTLE_S = 6.0
"""After every step the load goes on for as long: readers must be shown everything within 5 s."""
NEW, LOST, REPLACED = 4, 2, 103
LEDGER, ENTRIES = "ledger", 3000
PREAMBLE = """# An operator's day

Three controllers and three brokers, each a process of its own, under load by librdkafka (producers with `acks=all`, consumers in groups,
read_committed readers). Every line that begins with `$` was typed, what follows is what it printed; the load never stopped. At the end the
history of the clients was judged by the laws of [the tests](testing.md).

This page is written by the test itself. Make it again with `python -m tests.ecosystem.operators_day --page docs/operators-day.md`;
`make ecosystem` runs it as a test. `BARNABAS_ADMIN` names the nodes' admin listeners; `./restart` stands for what a site has for
`ssh HOST systemctl restart barnabas`.
"""


@dataclass
class Day:
    """One run: the cluster, what was typed, what it printed."""

    cluster: LocalCluster
    directory: Path
    history: HistoryWriter
    former: tuple[str, ...]
    page: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def say(self, words: str) -> None:
        """Print progress."""
        print(f"{time.monotonic() - self.begun:6.1f} s  {words}", flush=True)

    @contextmanager
    def step(self, title: str, text: str) -> Iterator[None]:
        """One thing that an operator does. The load goes on for SETTLE_S behind it."""
        self.say(title)
        self.page += [f"## {title}", text]
        self.history.write(Phase(at=time.monotonic(), name="fault"))
        yield
        self.cluster.wait_until_healthy(timeout_s=READY_WITHIN_S)
        self.history.write(Phase(at=time.monotonic(), name="healthy"))
        time.sleep(SETTLE_S)

    def note(self, text: str) -> None:
        """A sentence on the page."""
        self.page.append(text)

    def type(self, *words: str, status: int = 0, stdin: str | None = None, shown_lines_max: int = 40) -> str:
        """A command, its output on the page; both streams, as a terminal shows them."""
        done = subprocess.run(
            [sys.executable, "-m", "barnabas_admin.main", *words],
            cwd=self.directory,
            env=os.environ | {"BARNABAS_ADMIN": self.cluster.admin_addresses, "COLUMNS": "120"},
            input=stdin or "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_WITHIN_S,
            check=False,
        )
        shown = " ".join(f"'{word}'" if " " in word else word for word in words)
        lines = done.stdout.rstrip().splitlines()
        if len(lines) > shown_lines_max:
            lines = [*lines[:shown_lines_max], f"… {len(lines) - shown_lines_max} more lines"]
        ending = [f"(exit status {status})"] if status else []
        block = "\n".join([f"$ barnabas {shown}", *lines, *ending]).replace(str(self.directory), "~")
        self.page.append(f"```\n{block}\n```")
        self.say(f"  barnabas {shown}: {done.returncode}")
        if done.returncode != status:
            raise LocalClusterError(f"`barnabas {shown}` ended with {done.returncode}, not {status}:\n{done.stdout}")
        return done.stdout

    def ask(self, *words: str) -> dict[str, Any]:
        """A command's JSON, not on the page."""
        done = subprocess.run(
            [sys.executable, "-m", "barnabas_admin.main", *words, "-o", "json", "--admin", self.cluster.admin_addresses],
            capture_output=True, text=True, timeout=COMMAND_WITHIN_S, check=True,
        )  # fmt: skip
        return dict(json.loads(done.stdout))


class Hands:
    """Restarts nodes whose number is asked for by a file, as `./restart ID` does it and waits: with the program of this version."""

    def __init__(self, day: Day) -> None:
        self._day = day
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work)
        script = day.directory / "restart"
        script.write_text("#!/bin/sh\ntouch asked-$1\nwhile [ -e asked-$1 ]; do sleep 0.05; done\n")
        script.chmod(0o755)

    def __enter__(self) -> Hands:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        cluster = self._day.cluster
        while not self._end.wait(0.05):
            for asked in self._day.directory.glob("asked-*"):
                node_id = int(asked.name.partition("-")[2])
                try:
                    if not cluster.stop_node(node_id, timeout_s=STOP_WITHIN_S):
                        self._day.broken.append(f"node {node_id} did not stop within {STOP_WITHIN_S:.0f} s of SIGTERM")
                    cluster.nodes[node_id].server = ()
                    cluster.start_node(node_id)
                except LocalClusterError as error:
                    self._day.broken.append(f"node {node_id} was not restarted: {error}")
                asked.unlink()


def live(day: Day) -> None:
    """The steps, in order. Raises LocalClusterError where one does not come out."""
    cluster = day.cluster
    entries = "".join(f"entry {number}\n" for number in range(ENTRIES))
    with day.step("Before anything", "The cluster runs the former version."):
        day.type("cluster", "info")
        day.type("topic", "create", LEDGER, "-p", "3", "-r", "3")
        day.type("topic", "produce", LEDGER, stdin=entries)
    with day.step("Add a broker", "Its properties name the controllers; it formats itself. It holds nothing yet."):
        add_broker(day)
        day.type("broker", "list")
    with day.step("Balance", "What would move, then the same in earnest."):
        day.type("topic", "reassign", "balance")
        day.type("topic", "reassign", "balance", "--execute", "--throttle", "50000000", "--wait")
        day.type("broker", "list")
    with day.step("Drain a broker for work on its host", "It hands its leaderships over and stays in sync."):
        day.type("broker", "drain", "1")
        day.type("cluster", "health")
        day.type("broker", "undrain", "1")
        day.type("topic", "elect", "--all")
    with day.step("Roll to the new version", "One node at a time, gated by health, the active controller last."):
        new = version("barnabas")
        day.type("cluster", "roll", "--to", new, "--dry")
        with Hands(day):
            day.type("cluster", "roll", "--to", new, "--yes", "--restart-command", "./restart {id}")
        day.type("cluster", "roll", "--to", new, "--dry")
        day.type("cluster", "features")
    with day.step("Replace a controller whose disk is gone", f"Controller {REPLACED} is killed, and its disk is lost."):
        replace_controller(day)
    with day.step("Lose a broker for good", f"Broker {LOST} is killed with SIGKILL, and its disk is lost."):
        cluster.kill(LOST)
        shutil.rmtree(cluster.nodes[LOST].data_directory)
        cluster.wait_until(lambda: is_fenced(day, LOST), timeout_s=60, what="the broker's fencing")
        day.type("cluster", "health", status=10)
        day.type("explain", "broker", str(LOST))
        day.type("explain", "partition", *suffering(day))
        day.note("It will not come back: what it held is copied from the others, and it is forgotten.")
        day.type("broker", "decommission", str(LOST), "--wait", "--yes")
        del cluster.nodes[LOST]
        day.type("broker", "list")
        day.type("cluster", "health", "-e")
    with day.step("Restore a topic from its backup", "The backup is made under load; then somebody deletes the topic."):
        day.type("topic", "export", LEDGER, "-d", "backup")
        day.type("topic", "delete", LEDGER, "--yes")
        day.type("topic", "describe", LEDGER, status=3)
        day.type("topic", "import", "backup")
        found = day.type("topic", "consume", LEDGER, "--from-beginning", "-e", shown_lines_max=3)
        if Counter(found.splitlines()) != Counter(entries.splitlines()):
            day.broken.append(
                f"the restored topic has {len(found.splitlines())} records, not the {ENTRIES} that were written"
            )
        day.note(f"All {ENTRIES} records are there, each once.")


def add_broker(day: Day) -> None:
    """Start a fourth broker, of the version that the others run."""
    cluster = day.cluster
    index = NEW - 1
    node = LocalNode(
        id=NEW,
        is_broker=True,
        is_controller=False,
        directory=cluster.directory / f"node-{NEW}",
        directory_id=random_uuid(),
        kafka_port=cluster.base_port + index,
        controller_port=None,
        admin_port=cluster.base_port + ADMIN_PORT_OFFSET + index,
        metrics_port=cluster.base_port + METRICS_PORT_OFFSET + index,
        server=day.former,
    )
    cluster.nodes[NEW] = node
    node.directory.mkdir()
    node.properties_file.write_text("".join(f"{key}={value}\n" for key, value in cluster.properties(NEW).items()))
    cluster.start_node(NEW)
    cluster.wait_until(lambda: cluster.is_ready(NEW), timeout_s=READY_WITHIN_S, what="the new broker's start")


def replace_controller(day: Day) -> None:
    """A voter's disk is lost: a new directory, an observer, and then a voter again."""
    cluster = day.cluster
    node = cluster.nodes[REPLACED]
    cluster.kill(REPLACED)
    shutil.rmtree(node.data_directory)
    cluster.wait_until(lambda: REPLACED in health(day)["voters_down"], timeout_s=60, what="the voter's absence")
    day.type("cluster", "health", status=10)
    day.note("The new disk is formatted as one that joins, and the node started; then the votes are changed.")
    file = str(node.properties_file)
    day.type("storage", "format", "-c", file, "--cluster-id", cluster.cluster_id, "--no-initial-controllers")
    cluster.start_node(REPLACED)
    cluster.wait_until(lambda: cluster.is_ready(REPLACED), timeout_s=READY_WITHIN_S, what="the controller's start")
    day.type("quorum", "replace-voter", str(REPLACED))
    day.type("quorum", "replicas")
    day.type("cluster", "health", "-e")


def health(day: Day) -> dict[str, Any]:
    """cluster health, whatever its exit status."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas_admin.main", "cluster", "health", "-o", "json", "--admin", day.cluster.admin_addresses],
        capture_output=True, text=True, timeout=COMMAND_WITHIN_S, check=False,
    )  # fmt: skip
    return dict(json.loads(done.stdout)) if done.stdout else {"voters_down": [], "brokers_fenced": []}


def is_fenced(day: Day, broker_id: int) -> bool:
    """Whether the controller has found that a broker is gone."""
    return broker_id in health(day)["brokers_fenced"]


def suffering(day: Day) -> list[str]:
    """Topic and partition of one that has a replica on the lost broker."""
    partitions = day.ask("topic", "describe", KEPT, "--no-offsets")["topics"][0]["partitions"]
    part = next((part for part in partitions if LOST in part["replicas"]), partitions[0])
    return [KEPT, str(part["partition"])]


def run(directory: Path, former: Path | None) -> tuple[int, list[str]]:
    """Live the day and judge it: exit status and the page."""
    overrides = OVERRIDES | {"broker.session.timeout.ms": "6000"}
    cluster = LocalCluster(
        directory / "cluster", nodes=3, base_port=find_base_port(), roles="separate", overrides=overrides
    )
    server = () if former is None else server_of(former)
    for node in cluster.nodes.values():
        node.server = server
    files = {who: directory / f"{who}.jsonl" for who in ("harness", "confluent", "last")}
    day = Day(cluster, directory, HistoryWriter(files["harness"]), server)
    with cluster:
        create_topics(cluster)
        client = start_client(cluster, files["confluent"], 1)
        try:
            time.sleep(WARM_UP_S)
            live(day)
        except (LocalClusterError, subprocess.SubprocessError) as error:
            day.broken.append(str(error))
        finally:
            day.broken += end_client(client)
        read_last(cluster, files["last"])
        day.broken += [f"node {death.node_id} {death.status}: {death.last_words}" for death in cluster.find_deaths()]
    day.history.close()
    return conclude(day, [path for path in files.values() if path.is_file()]), day.page


def conclude(day: Day, files: list[Path]) -> int:
    """Judge the clients' history; 0 when no law was broken and every step came out."""
    events = list(read_events(files))
    ends = {event.key: event.end for event in History(events).listed if event.client == "last-reader"}
    for node in day.cluster.brokers:
        events += read_replicas(node.data_directory, node.id, ends)
    events += [Fault(who="the day", what=words) for words in day.broken]
    history = History(events)
    findings = judge(history)
    count = Counter(finding.rule for finding in findings)
    acknowledged = sum(send.outcome == OK for send in history.sends)
    verdict = (
        f"{acknowledged} records were acknowledged during the day: {count['E1'] + count['E10']} lost, {count['E2']} doubled, "
        f"{count['E7']} reordered. {count['E2r']} stand twice: of a producer without idempotence, which asked for no more."
    )
    print(verdict)
    for finding in findings[:20]:
        print(f"  {finding.rule:<4} {finding.what}")
    is_clean = not errors(findings) and not day.broken and acknowledged > 0
    day.page += ["## At the end of the day", verdict if is_clean else f"BROKEN: {verdict}"]
    return 0 if is_clean else 1


def former_of(commit: str, directory: Path) -> Path | None:
    """The interpreter of a former version, which names itself FORMER_VERSION; None, with a word, where it is not to be had."""
    try:
        python = make_former(commit, directory)
    except NotInThisCloneError as error:
        print(f"every node begins with this version: {error}")
        return None
    (site,) = (directory / "venv").glob("lib/python*/site-packages")
    known = site / f"barnabas-{FORMER_VERSION}.dist-info"
    known.mkdir()
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: barnabas\nVersion: {FORMER_VERSION}\n")
    return python


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.ecosystem.operators_day", description=__doc__)
    parser.add_argument("--former", default=FORMER, metavar="COMMIT", help="the version that the day begins with")
    parser.add_argument("--page", type=Path, help="write what was typed and printed here, when the day went well")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep everything in this new directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-day-", ignore_cleanup_errors=True) as temporary:
        made = Path(temporary) / "former"
        made.mkdir()
        directory = options.keep or Path(temporary) / "run"
        directory.mkdir(parents=True)
        status, page = run(directory, former_of(options.former, made))
    if options.page is not None and status == 0:
        options.page.write_text("\n\n".join([PREAMBLE.strip(), *page]) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
