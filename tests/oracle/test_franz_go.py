"""franz-go's own test of share groups, as its authors run it, at Apache Kafka and at Barnabas.

TestShareGroupETL: records go through three levels of topics by share groups that accept, release, reject and mix it all, while members come
and go; none may be lost, counts and bodies must be right. Go builds it once from its module cache; the Go module proxy fills that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.oracle.answers import Side
from tests.oracle.conftest import Pair

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.3"
RECORDS = "2000"
BUILT_WITHIN_S = 900
RUN_WITHIN_S = 240

pytestmark = pytest.mark.timeout(BUILT_WITHIN_S + 2 * RUN_WITHIN_S)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of franz-go's client, built."""
    if shutil.which("go") is None:
        pytest.skip("franz-go needs go")
    directory = tmp_path_factory.mktemp("franz-go")
    built = directory / "kgo.test"
    for words in (
        ("mod", "init", "asked"),
        ("get", "-t", f"{MODULE}/pkg/kgo@{VERSION}"),
        ("test", "-c", "-o", str(built), f"{MODULE}/pkg/kgo"),
    ):
        done = subprocess.run(
            ["go", *words], cwd=directory, capture_output=True, text=True, timeout=BUILT_WITHIN_S, check=False
        )
        if done.returncode and words[0] == "get":
            pytest.skip(f"the Go module proxy does not give {MODULE} {VERSION}: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stderr
    return built


def run(program: Path, side: Side) -> None:
    """The test passes, and was not skipped."""
    environment = os.environ | {
        "KGO_SEEDS": f"{side.host}:{side.port}",
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": RECORDS,
    }
    done = subprocess.run(
        [str(program), "-test.run=^TestShareGroupETL$", "-test.v", f"-test.timeout={RUN_WITHIN_S}s"],
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S + 30,
        check=False,
    )
    said = done.stdout[-4000:] + done.stderr[-1000:]
    assert done.returncode == 0 and "--- PASS: TestShareGroupETL" in done.stdout, f"{side.name}: {said}"


def test_franz_gos_share_groups(program: Path, pair: Pair) -> None:
    run(program, pair.apache)
    run(program, pair.ours)
