"""A node under the filter of system calls that the generated unit sets: it starts, serves, compacts and stops in order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas_admin.generating.templates import template
from barnabas_admin.local_ports import find_base_port
from tests.support.seccomp import IS_POSSIBLE, refuse_as_the_unit_does

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(not IS_POSSIBLE, reason="the numbers are those of x86-64")]


def test_the_unit_refuses_what_this_test_refuses() -> None:
    of_node = re.sub(r"#if is_host\n.*?#end is_host\n", "", template("barnabas.service"), flags=re.DOTALL)
    assert (
        "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\nSystemCallErrorNumber=EPERM"
        in of_node
    )


def test_the_filter_is_set() -> None:
    program = "import os\ntry: os.nice(1)\nexcept PermissionError: print('refused')"
    done = subprocess.run([sys.executable, "-c", program], preexec_fn=refuse_as_the_unit_does, capture_output=True)
    assert done.stdout == b"refused\n", done.stderr


def test_a_node_lives_under_it_and_its_cleaner_works(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "barnabas_admin.main",
        "dev",
        "-n",
        "1",
        "--data",
        str(tmp_path / "dev"),
        "-o",
        "json",
    ]
    words += ["--port", str(find_base_port()), "--set", "log.cleaner.backoff.ms=100"]
    environment = os.environ | {"BARNABAS_CONTEXT": str(tmp_path / "context.json")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, preexec_fn=refuse_as_the_unit_does) as dev:
        try:
            assert dev.stdout is not None
            ready = json.loads(dev.stdout.readline())
            topic = [
                "topic",
                "create",
                "changes",
                "-p",
                "1",
                "-c",
                "cleanup.policy=compact",
                "-c",
                "segment.bytes=1048576",
            ]
            topic += ["-c", "min.cleanable.dirty.ratio=0.01"]
            made = subprocess.run([sys.executable, "-m", "barnabas_admin.main", *topic], env=environment, timeout=60)
            assert made.returncode == 0
            producer = Producer({"bootstrap.servers": ready["brokers"]})
            for number in range(4_000):
                producer.produce("changes", b"v" * 1_000, key=b"key-%d" % (number % 10))
                producer.poll(0)
            assert producer.flush(60) == 0
            deadline = time.monotonic() + 60
            while not cleaned(ready["metrics"][0]):
                assert time.monotonic() < deadline, Path(ready["nodes"][0]["log"]).read_text()[-2000:]
                time.sleep(0.2)
        finally:
            dev.send_signal(signal.SIGTERM)
            assert dev.wait(60) == 0


def cleaned(metrics: str) -> bool:
    with urllib.request.urlopen(metrics, timeout=10) as answer:
        page = answer.read().decode()
    found = re.search(r"^barnabas_log_cleaner_uncleanable_logs(?:{[^}]*})? (\S+)$", page, re.MULTILINE)
    assert found is not None and float(found[1]) == 0
    return re.search(r"^barnabas_log_cleaner_runs(?:_total)?(?:{[^}]*})? [1-9]", page, re.MULTILINE) is not None
