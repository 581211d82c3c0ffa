"""`python -m tests.cluster.versions --commit COMMIT`: roll a cluster from a former version to this one and back, under load.

May touch:  a temporary directory, loopback.   Must not touch: what a history's laws are (tests/checker).
Invariants: every wait is bounded; exit status 1 when a law broke, a record was not acknowledged or a refusal had no words; 0 with a
            line "NOT RUN" where the commit is not in the clone.
Read next:  former.py; tests/chaos/data/confluent.py, the load; tests/checker/data_rules.py, the laws.

Three combined nodes keep their data directories and change their program, one at a time:
1. former -> this, and back, at the former metadata.version: an upgrade can be undone until the level is raised. While they are
   mixed, `barnabas cluster features upgrade` must be refused and name a node that stands against it.
2. former -> this again, then the level is raised; lowering it must be refused in words.
3. a node of the former version on the raised cluster must refuse in words and the others go on; then it comes back as this one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas_admin.client import AdminClient
from barnabas_admin.errors import AdminError, LocalClusterError
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.chaos.data.plan import LOOSE, TOPICS
from tests.chaos.data.replicas import read_replicas
from tests.chaos.data.report import measure
from tests.chaos.nodes import find_complaints
from tests.checker.data_history import OK, Fault, History, HistoryWriter, Phase, Send, read_events
from tests.checker.data_rules import errors, judge
from tests.cluster.former import ROOT, NotInThisCloneError, home_of, make_former, server_of

READY_WITHIN_S = 90.0
WARM_UP_S = 4.0
STEADY_S = 4.0
SETTLE_S = 6.0
"""After every step the load goes on for as long: readers must be shown everything within 5 s."""
CLIENTS_END_WITHIN_S = 150.0
REFUSED_WITHIN_S = 30.0
STOP_WITHIN_S = 40.0
FENCED = " is fenced: "
SHOWN = 6


@dataclass
class Roll:
    """One run: the cluster, who runs what, and what was found."""

    cluster: LocalCluster
    former: tuple[str, ...]
    directory: Path
    history: HistoryWriter
    broken: list[str] = field(default_factory=list)
    formers_own: list[str] = field(default_factory=list)
    """What nodes complained of while they ran the former version."""
    fenced: list[str] = field(default_factory=list)
    """Every node stops in order: no controller has to find a broker dead."""
    begun: float = field(default_factory=time.monotonic)

    def say(self, words: str) -> None:
        """Print progress."""
        print(f"{time.monotonic() - self.begun:6.1f} s  {words}", flush=True)

    def phase(self, name: str) -> None:
        """Write into the history whether the cluster is whole."""
        self.history.write(Phase(at=time.monotonic(), name=name))

    def roll(self, what: str, server: tuple[str, ...]) -> None:
        """Every node, one after the other, runs another version."""
        for node in self.cluster.nodes.values():
            if node.server != server:
                self.change(what, node.id, server)

    def change(self, what: str, node_id: int, server: tuple[str, ...]) -> None:
        """Stop a node in order, start it with another program on the same files, wait until the cluster is healthy."""
        since = time.monotonic()
        self.phase("fault")
        if not self.cluster.stop_node(node_id, timeout_s=STOP_WITHIN_S):
            self.broken.append(f"node {node_id} did not stop within {STOP_WITHIN_S:.0f} s of SIGTERM")
        self.note_complaints(node_id)
        self.cluster.nodes[node_id].server = server
        self.cluster.start_node(node_id)
        self.cluster.wait_until_healthy(timeout_s=READY_WITHIN_S)
        self.phase("healthy")
        self.say(f"{what}: node {node_id} in sync again after {time.monotonic() - since:.1f} s")
        time.sleep(SETTLE_S)

    def level(self) -> int:
        """The cluster's metadata.version."""
        return self.levels()["metadata.version"]

    def levels(self) -> dict[str, int]:
        """What is finalized, by feature."""
        found = json.loads(self._features("-o", "json").stdout)
        return {feature["name"]: int(feature["finalized"]) for feature in found["features"]}

    def upgrade(self) -> None:
        """Raise metadata.version to what every node serves."""
        done = self._features("upgrade")
        if done.returncode != 0:
            self.broken.append(f"metadata.version was not raised: {done.stderr.strip()}")

    def expect_refusal(self, what: str, *words: str, must_name: str) -> None:
        """`barnabas cluster features WORDS` must be refused in words that have `must_name` in them."""
        done = self._features(*words)
        answer = (done.stderr + done.stdout).strip()
        if done.returncode == 0 or must_name not in answer:
            self.broken.append(f"{what}: status {done.returncode}, and the words do not name {must_name}: {answer}")
        self.say(f"{what}: refused: {answer.splitlines()[0] if answer else ''}")

    def _features(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["cluster", "features", *words, "--admin", self.cluster.admin_addresses]
        return subprocess.run(
            [sys.executable, "-m", "barnabas_admin.main", *command],
            capture_output=True, text=True, check=False, timeout=60.0,
        )  # fmt: skip

    def expect_former_refused(self, node_id: int, *, level: int) -> None:
        """The former version on a cluster of a higher level: it must say why it cannot run, and the others go on without it."""
        node = self.cluster.nodes[node_id]
        self.phase("fault")
        self.cluster.stop_node(node_id, timeout_s=STOP_WITHIN_S)
        self.note_complaints(node_id)
        this, node.server = node.server, self.former
        self.cluster.start_node(node_id)
        deadline = time.monotonic() + REFUSED_WITHIN_S
        said = ""
        was_ready = False
        while time.monotonic() < deadline and not said and node.is_running:
            was_ready = was_ready or self.cluster.is_ready(node_id)
            said = self._words_about_level(node_id, level)
            time.sleep(0.2)
        said = said or self._words_about_level(node_id, level)
        if was_ready:
            self.broken.append(
                f"node {node_id} of the former version was ready on a cluster of metadata.version {level}"
            )
        if not said:
            self.broken.append(
                f"node {node_id} of the former version did not say that it cannot serve metadata.version {level}; "
                f"it last said: {self.cluster.last_words(node_id)}"
            )
        self.say(f"a node of the former version on the raised cluster: {said}")
        time.sleep(SETTLE_S)
        for death in self.cluster.find_deaths():
            self.say(f"node {death.node_id} {death.status}")
        self.cluster.stop_node(node_id, timeout_s=STOP_WITHIN_S)
        node.server = this
        self.cluster.start_node(node_id)
        self.cluster.wait_until_healthy(timeout_s=READY_WITHIN_S)
        self.phase("healthy")
        time.sleep(SETTLE_S)

    def note_complaints(self, node_id: int) -> None:
        """What this version complained of since the node's start, and who was fenced by either. The former version's own mistakes
        are known and mended: they are shown, and do not count."""
        lines = self._said(node_id)
        self.fenced += [f"node {node_id}: {line}" for line in lines if FENCED in line]
        complaints = [f"node {node_id}: {line}" for line in find_complaints(lines)]
        if self.cluster.nodes[node_id].server:
            self.formers_own += complaints
        else:
            self.broken += [f"this version's {line}" for line in complaints]

    def _words_about_level(self, node_id: int, level: int) -> str:
        said = next((line for line in self._said(node_id) if f"metadata.version={level}" in line), "")
        return said.lstrip(" |")  # of a traceback, in a task group's frame

    def _said(self, node_id: int) -> list[str]:
        """The lines that the node logged since its start."""
        node = self.cluster.nodes[node_id]
        with node.stderr_file.open("rb") as stream:
            stream.seek(node.stderr_start)
            return stream.read().decode(errors="replace").splitlines()


def run(former: Path, directory: Path, *, seed: int) -> int:
    """Roll forth and back, judge, print; returns the exit status."""
    cluster = LocalCluster(directory / "cluster", nodes=3, base_port=find_base_port(), overrides=OVERRIDES)
    server = server_of(former)
    for node in cluster.nodes.values():
        node.server = server
    files = {who: directory / f"{who}.jsonl" for who in ("harness", "confluent", "last")}
    roll = Roll(cluster, server, directory, HistoryWriter(files["harness"]))
    steady = (0.0, 0.0)
    with cluster:
        create_topics(cluster)
        before = roll.level()
        roll.say(f"three nodes of {home_of(former)} at metadata.version {before}")
        client = start_client(cluster, files["confluent"], seed)
        try:
            time.sleep(WARM_UP_S)
            roll.phase("healthy")
            time.sleep(STEADY_S)
            steady = (time.monotonic() - STEADY_S, time.monotonic())
            _forth_and_back(roll, before=before)
        except (LocalClusterError, AdminError, subprocess.SubprocessError) as error:
            roll.broken.append(str(error))
        finally:
            roll.broken += end_client(client)
        read_last(cluster, files["last"])
        roll.broken += [f"node {death.node_id} {death.status}: {death.last_words}" for death in cluster.find_deaths()]
        for node_id in cluster.nodes:
            roll.note_complaints(node_id)
    roll.history.close()
    return _judge(roll, [path for path in files.values() if path.is_file()], steady=steady)


OVERRIDES = {
    "offsets.topic.num.partitions": "3",
    "log.retention.check.interval.ms": "1000",
    # The harness's own two seconds are less than a loaded machine needs to hand its leaders over.
    "controlled.shutdown.timeout.ms": "20000",
}


def _forth_and_back(roll: Roll, *, before: int) -> None:
    roll.change("former -> this", next(iter(roll.cluster.nodes)), ())
    roll.expect_refusal(
        "raising metadata.version while versions are mixed",
        *("upgrade", "--feature", f"metadata.version={before + 1}"),
        must_name=f"metadata.version 1 to {before}",
    )
    roll.roll("former -> this", ())
    if roll.level() != before:
        roll.broken.append(f"metadata.version became {roll.level()} before anybody raised it")
    roll.roll("this -> former", roll.former)
    roll.roll("former -> this", ())
    roll.upgrade()
    after = roll.level()
    if after <= before:
        roll.broken.append(f"metadata.version is {after} after it was raised from {before}")
    levels = ", ".join(f"{name} {level}" for name, level in sorted(roll.levels().items()))
    roll.say(f"metadata.version raised to {after}; the cluster's levels: {levels}")
    time.sleep(SETTLE_S)
    roll.expect_refusal(
        "lowering metadata.version",
        *("downgrade", "--feature", f"metadata.version={before}"),
        must_name=f"cannot go back to {before}",
    )
    for node_id in roll.cluster.nodes:
        roll.expect_former_refused(node_id, level=after)


def _judge(roll: Roll, files: Sequence[Path], *, steady: tuple[float, float]) -> int:
    events = list(read_events(files))
    ends = {event.key: event.end for event in History(events).listed if event.client == "last-reader"}
    for node in roll.cluster.nodes.values():
        events += read_replicas(node.data_directory, node.id, ends)
    events += [Fault(who="the cluster", what=words) for words in roll.broken]
    history = History(events)
    unwritten = Counter(send.error[:120] for send in history.sends if send.outcome != OK and not _is_meant(send))
    findings = judge(history)
    figures = measure(history, steady=steady, in_sync_s=0.0)
    count = Counter(finding.rule for finding in findings)
    print(
        f"acknowledged {figures.acknowledged}, refused {figures.refused}, unknown {figures.unknown}, "
        f"longest gap {figures.longest_gap_s:.1f} s, lost {count['E1'] + count['E10']}, doubled {count['E2']}, "
        f"reordered {count['E7']}, fenced {len(roll.fenced)}"
    )
    shown: Counter[str] = Counter()
    for finding in findings:
        shown[finding.rule] += 1
        if shown[finding.rule] <= SHOWN:
            print(f"  {finding.rule:<4} {finding.what}")
    for error, times in unwritten.most_common(SHOWN):
        print(f"  a producer was told {times} times: {error}")
    for line in roll.fenced[:SHOWN]:
        print(f"  {line}")
    for line in roll.formers_own[:SHOWN]:
        print(f"  not counted, the former version's {line}")
    is_clean = not errors(findings) and not unwritten and not roll.fenced
    print("clean" if is_clean else "BROKEN")
    return 0 if is_clean else 1


def _is_meant(send: Send) -> bool:
    """Whether a record is not written because it, or one of its batch, is too large: the load has some of those."""
    return send.key.startswith(f"{LOOSE}-") and "MSG_SIZE_TOO_LARGE" in send.error


def create_topics(cluster: LocalCluster) -> None:
    """Those that the load writes to."""
    with AdminClient(cluster.admin_addresses, timeout_s=30.0) as admin:
        for topic in TOPICS:
            (outcome,) = admin.create_topics(
                [topic.name], partitions=topic.partitions, replication_factor=3, configs=topic.configs
            )
            if outcome.error.code:
                raise LocalClusterError(f"topic {topic.name} cannot be created: {outcome.error.message}")
    cluster.wait_until_healthy()


def start_client(cluster: LocalCluster, history: Path, seed: int) -> subprocess.Popen[bytes]:
    """The load, until its standard input ends; what its clients were told goes into `history`."""
    with history.with_suffix(".stderr").open("wb") as output:
        return subprocess.Popen(
            [*_client_words(cluster, history), "--seed", str(seed)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip


def _client_words(cluster: LocalCluster, history: Path) -> list[str]:
    words = ["--bootstrap", cluster.bootstrap_servers, "--history", str(history)]
    return [sys.executable, "-m", "tests.chaos.data.confluent", *words]


def end_client(client: subprocess.Popen[bytes]) -> list[str]:
    """End the load, and wait until its readers have read all; what went wrong."""
    assert client.stdin is not None
    client.stdin.close()
    try:
        status = client.wait(CLIENTS_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
        return [f"the clients did not end within {CLIENTS_END_WITHIN_S:.0f} s"]
    return [f"the clients ended with status {status}"] if status else []


def read_last(cluster: LocalCluster, history: Path) -> None:
    """Read everything that the cluster has, into `history`."""
    done = subprocess.run(
        [*_client_words(cluster, history), "--last"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=CLIENTS_END_WITHIN_S,
    )  # fmt: skip
    if done.returncode != 0:
        writer = HistoryWriter(history)
        writer.write(Fault(who="last-reader", what=f"status {done.returncode}: {done.stderr[-2000:]}"))
        writer.close()


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.versions", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--commit", help="the former version, from this repository's history")
    which.add_argument("--former", type=Path, metavar="PYTHON", help="an interpreter that has the former version")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep everything in this new directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-versions-", ignore_cleanup_errors=True) as temporary:
        former = options.former
        if former is None:
            try:
                former = make_former(options.commit, Path(temporary))
            except NotInThisCloneError as error:
                print(f"NOT RUN: {error}")
                return 0
        directory = options.keep or Path(temporary) / "run"
        directory.mkdir(parents=True)
        return run(former.absolute(), directory, seed=options.seed)


if __name__ == "__main__":
    sys.exit(main())
