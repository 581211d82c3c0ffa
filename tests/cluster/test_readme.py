"""The README's first two blocks, run line by line as a newcomer types them: each works, one after the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_admin.local_ports import find_base_port

pytestmark = pytest.mark.cluster
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
STARTS = "barnabas dev -n 3"
UNHEALTHY = 10


def blocks(kind: str) -> list[str]:
    """The fenced blocks of a kind, "" for those without one."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [block for found, block in fenced if found == kind]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], str]]:
    """The environment of another terminal, and the cluster's brokers: what the README's first command leaves behind."""
    directory = tmp_path_factory.mktemp("readme")
    environment = os.environ | {
        "BARNABAS_CONTEXT": str(directory / "context.json"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    words = [
        "barnabas",
        *STARTS.split()[1:],
        "--data",
        str(directory / "dev"),
        "--port",
        str(find_base_port()),
        "-o",
        "json",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as dev:
        try:
            assert dev.stdout is not None
            yield environment, json.loads(dev.stdout.readline())["brokers"]
        finally:
            dev.terminate()


def test_the_first_program_prints_what_it_says(newcomer: tuple[dict[str, str], str]) -> None:
    environment, brokers = newcomer
    program = blocks("python")[0].replace("127.0.0.1:9092", brokers)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment)
    says = next(block for block in blocks("") if block.startswith("b'"))
    assert (done.returncode, done.stdout) == (0, says), done.stderr


def test_the_first_commands_work_after_it_as_they_stand(newcomer: tuple[dict[str, str], str]) -> None:
    environment, _ = newcomer
    shown = next(block for block in blocks("") if block.startswith(f"$ {STARTS}"))
    first, *steps = [step.splitlines() for step in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]]
    assert first[0].startswith(STARTS) and len(steps) >= 5
    for typed, *says in steps:
        line = typed.partition("  #")[0]
        wanted = UNHEALTHY if "cluster health" in line else 0  # a node was broken just before
        deadline = time.monotonic() + 10
        while True:
            done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, env=environment)
            if done.returncode == wanted or wanted == 0 or time.monotonic() > deadline:
                break
        assert done.returncode == wanted, f"{line}: {done.stdout}{done.stderr}"
        for said in says:  # … in the README is anything
            assert re.search(re.escape(said.strip()).replace("…", ".*"), done.stdout), f"{line}: {done.stdout}"
