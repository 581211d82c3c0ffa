"""The shifted wall clock: a process sees what its file says, and says so."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.clock_node import SHIFT_READ_EVERY_S, WallClock, shift_seen


def test_a_shift_moves_the_wall_clock_and_is_read_only_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    file.write_text("-3600\n")
    clock = WallClock(file, real_ns=lambda: 5_000_000_000_000)
    assert (clock.time_ns(), clock.time()) == (1_400_000_000_000, 1400.0)
    file.write_text("+7\n")
    assert clock.time() == 1400.0, "only a look at the file moves it"
    clock.read()
    assert clock.time() == 5007.0


def test_the_node_is_barnabas_server_and_reports_the_shift_it_sees(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    file.write_text("+86400\n")
    assert shift_seen(file) is None
    code = (
        "import sys, time\n"
        "import barnabas_broker.main\n"
        "from grpc.aio._utils import _timeout_to_deadline\n"
        f"barnabas_broker.main.main = lambda rest: time.sleep({3 * SHIFT_READ_EVERY_S}) or print(\n"
        "    int(_timeout_to_deadline(5.0)), rest, int(time.time()))\n"
        "from tests.chaos.clock_node import main\n"
        f"main(['--shift', {str(file)!r}, '-c', 'server.properties'])\n"
    )
    before = time.time()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    deadline, rest = ran.stdout.split(" ", 1)
    rest, seconds = rest.rsplit(" ", 1)
    assert 0 <= int(deadline) - before <= 65, "gRPC goes by the machine's clock"
    assert rest == "['-c', 'server.properties']"
    assert 86_399 <= int(seconds) - before <= 86_460
    assert shift_seen(file) == 86_400
