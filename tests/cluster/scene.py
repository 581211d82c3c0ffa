"""What a cluster and its clients look like where a test stopped going on: one directory that says why.

May touch:  a directory it is given, the cluster as its client.        Must not touch: anything the cluster keeps.
Invariants: every command has a time limit, and one that fails leaves its words in place of its answer: what is broken is to be seen.
Read next:  exactly_once.py, whose copies it is for.

`scene.txt` has the answers of `barnabas` (transactions, group, partitions), then the end of every client's output, and of every node's
without what is only information; the whole of both lies beside it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from barnabas_admin.local_cluster import LocalCluster

FILE = "scene.txt"
COMMAND_S = 20.0
TAIL_LINES = 60
SHOWN_IDS = 20
AT_ONCE = 3
LIST = ("txn", "list", "-o", "json")


def write_scene(
    cluster: LocalCluster,
    directory: Path,
    *,
    group: str,
    partitions: Iterable[tuple[str, int]],
    outputs: Iterable[Path],
) -> Path:
    """Ask and copy, and return the file to read first.

    Args: `partitions` to explain; `outputs` are what the clients wrote. Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for node in cluster.nodes.values():
        if node.stderr_file.is_file():
            shutil.copy(node.stderr_file, directory / f"node-{node.id}.log")
    logs = sorted({*outputs, *directory.glob("node-*.log")})
    scene = directory / FILE
    with scene.open("w", encoding="utf-8") as out:
        listed = ask(cluster, LIST)
        out.write(f"$ barnabas {' '.join(LIST)}\n{listed}\n\n")
        questions = [*_questions(_ids(listed)[:SHOWN_IDS], group, partitions)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for words, answer in zip(questions, pool.map(lambda words: ask(cluster, words), questions), strict=True):
                out.write(f"$ barnabas {' '.join(words)}\n{answer}\n\n")
        for log in logs:
            lines = log.read_text(errors="replace").splitlines()
            if log.name.startswith("node-"):  # hundreds of lines about every node that went and came
                lines = [line for line in lines if " INFO " not in line]
            out.write(f"== {log.name}: the last {min(TAIL_LINES, len(lines))} of {len(lines)} lines\n")
            out.writelines(f"{line}\n" for line in lines[-TAIL_LINES:])
    return scene


def ask(cluster: LocalCluster, words: Sequence[str]) -> str:
    """What `barnabas WORDS` prints, its complaint too; that it did not end, where it does not within COMMAND_S."""
    where = ["--admin", cluster.admin_addresses, "--brokers", cluster.bootstrap_servers]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas_admin.main", *words, *where],
            capture_output=True, text=True, check=False, timeout=COMMAND_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer within {COMMAND_S:.0f} s"
    return f"{done.stdout}{done.stderr}".rstrip()


def _questions(
    transactional_ids: Iterable[str], group: str, partitions: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, ...]]:
    yield "cluster", "info"
    yield "cluster", "health"
    for transactional_id in transactional_ids:
        yield "txn", "describe", transactional_id
    yield "group", "describe", group
    for topic, partition in partitions:
        yield "explain", "partition", topic, str(partition)


def _ids(listed: str) -> list[str]:
    """Of an answer of LIST; none where it is a complaint."""
    try:
        return [each["transactional_id"] for each in json.loads(listed)["transactions"]]
    except (ValueError, LookupError, TypeError):
        return []
