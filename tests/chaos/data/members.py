"""`python -m tests.chaos.data.members --bootstrap … --history FILE`: members of one group, each a process, of both protocols.

May touch:  processes it starts, the cluster as who asks what is committed, history files beside its own.   Must not touch: verdicts.
Invariants: who ends is started again under the next life's name; every life has a history of its own, whose lines of before a kill are
            all there.
Read next:  confluent.py for GroupMember; faults.py, which tells this process what to do.

Obeys lines of its standard input: `kill N` is SIGKILL of a member; `stop N` is SIGSTOP for STOP_S, longer than a session; `leave N` lets
one close in order; `move N` does so and starts the next with the other protocol (KIP-848). When the input ends all close in order.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.data.confluent import COMMON, READING, REQUEST_TIMEOUT_S, GroupMember, ask_committed
from tests.chaos.data.plan import CROWD, CROWD_MEMBERS, KEPT, KEYS
from tests.chaos.nodes import ROOT
from tests.checker.data_history import Fault, HistoryWriter

STOP_S: Final = 9.0
"""Three seconds beyond what both protocols' sessions last here."""
PAUSE_S: Final = 0.1
LOOK_EVERY_S: Final = 2.0
CLOSED_WITHIN_S: Final = 60.0
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "classic": READING | {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {
        **{key: value for key, value in READING.items() if key not in ("session.timeout.ms", "heartbeat.interval.ms")},
        "group.protocol": "consumer",
    },
}
OTHER: Final = {"classic": "consumer", "consumer": "classic"}


@dataclass(slots=True)
class Place:
    """One of CROWD_MEMBERS, and who is there now."""

    number: int
    protocol: str
    process: subprocess.Popen[bytes]
    life: int = 1
    wakes_at: float | None = None
    """While it is stopped."""


class Crowd:
    """All of them."""

    def __init__(self, bootstrap: str, history: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = history.parent
        self._history = HistoryWriter(history)
        self._orders: list[str] = []
        self._is_over = threading.Event()
        self.places: list[Place] = []

    def run(self) -> None:
        """Until standard input has ended."""
        threading.Thread(target=self._listen, daemon=True).start()
        looker = Consumer(COMMON | {"bootstrap.servers": self._bootstrap, "group.id": CROWD})
        wanted = [TopicPartition(topic, partition) for topic, partition in KEYS if topic == KEPT]
        looked = 0.0
        try:
            for number in range(CROWD_MEMBERS):
                self.places.append(Place(number, "consumer", self._start(number, 1, "consumer")))
            while not self._is_over.is_set():
                self._turn()
                if time.monotonic() > looked + LOOK_EVERY_S:
                    ask_committed("crowd-looker", CROWD, looker, wanted, self._history, timeout_s=REQUEST_TIMEOUT_S)
                    looked = time.monotonic()
                time.sleep(PAUSE_S)
            for place in self.places:
                self._wake(place)
                self._close(place)
            ask_committed("crowd-looker", CROWD, looker, wanted, self._history, timeout_s=REQUEST_TIMEOUT_S)
        finally:
            for place in self.places:
                place.process.kill()
                place.process.wait()
            looker.close()
            self._history.close()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._orders.append(line)
        self._is_over.set()

    def _start(self, number: int, life: int, protocol: str) -> subprocess.Popen[bytes]:
        name = f"crowd-{number}-{life}-{protocol}"
        words = ("--bootstrap", self._bootstrap, "--history", str(self._directory / f"{name}.jsonl"))
        command = [sys.executable, "-m", "tests.chaos.data.members", *words, "--member", name, "--protocol", protocol]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)

    def _turn(self) -> None:
        """Obey, wake who was stopped, start again who has ended."""
        orders, self._orders = self._orders, []
        for order in orders:
            verb, number = order.split()
            place = self.places[int(number) % len(self.places)]
            if place.wakes_at is not None:
                continue
            if verb == "kill":
                place.process.kill()
                place.process.wait()
            elif verb == "stop":
                place.process.send_signal(signal.SIGSTOP)
                place.wakes_at = time.monotonic() + STOP_S
            elif verb in ("leave", "move"):
                self._close(place)
                if verb == "move":
                    place.protocol = OTHER[place.protocol]
            else:
                raise ValueError(f"no order: {verb}")
        for place in self.places:
            if place.wakes_at is not None and time.monotonic() >= place.wakes_at:
                self._wake(place)
            if place.process.poll() is not None:
                place.life += 1
                place.process = self._start(place.number, place.life, place.protocol)

    def _wake(self, place: Place) -> None:
        if place.wakes_at is not None:
            place.process.send_signal(signal.SIGCONT)
            place.wakes_at = None

    def _close(self, place: Place) -> None:
        """In order; who does not end is killed, which the history says."""
        assert place.process.stdin is not None
        place.process.stdin.close()
        try:
            status = place.process.wait(CLOSED_WITHIN_S)
        except subprocess.TimeoutExpired:
            place.process.kill()
            status = place.process.wait()
        if status != 0:
            self._history.write(Fault(who=f"member {place.number}", what=f"it closed with status {status}"))


def be_member(bootstrap: str, history: Path, name: str, protocol: str) -> None:
    """One life: until standard input ends."""
    writer = HistoryWriter(history)
    is_over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    member = GroupMember(bootstrap, writer, name, group=CROWD, settings=SETTINGS[protocol], may_die=True)
    while not is_over.is_set():
        member.poll()
    member.close()
    writer.close()


def main() -> int:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--member", default="")
    parser.add_argument("--protocol", choices=tuple(SETTINGS), default="consumer")
    options = parser.parse_args()
    if options.member:
        be_member(options.bootstrap, options.history, options.member, options.protocol)
    else:
        Crowd(options.bootstrap, options.history).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
