"""`python -m tests.chaos.data.copiers --bootstrap … --history FILE`: copiers, each a process, and a reader of what they commit.

May touch:  processes it starts, the cluster as its reader, history files beside its own.   Must not touch: verdicts.
Invariants: a copier that ends is started again under its transactional id, with the next owner's number; copiers of copies end after
            those that they copy from.
Read next:  copier.py, one incarnation; faults.py, which tells this process whom to kill.

Obeys lines of its standard input: `kill N` is SIGKILL of a copier; `zombie N` stops one, starts another under its transactional id, and
wakes the first ZOMBIE_S later. When the input ends, the copiers copy what is left.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.chaos.data.confluent import COMMON, READING, records_of
from tests.chaos.data.plan import COPIES, TRANSACTED_KEYS, Copy, key_of
from tests.chaos.nodes import ROOT
from tests.checker.data_history import ASSIGNED, Assignment, Fault, HistoryWriter, Poll
from tests.checker.transaction_events import Taken
from tests.cluster.copier import GAVE_UP

ZOMBIE_S = 3.0
FENCED_WITHIN_S = 45.0
"""A zombie that has not noticed by then is killed."""
DRAIN_TIMEOUT_S = 60.0
PAUSE_S = 0.1


@dataclass(slots=True)
class Place:
    """One transactional id and its copiers."""

    copy: Copy
    transactional_id: str
    process: subprocess.Popen[bytes]
    owner: int = 1
    zombies: list[tuple[float, subprocess.Popen[bytes]]] = field(default_factory=list)
    """When each is to wake, and the process."""


class Copiers:
    """All of them."""

    def __init__(self, bootstrap: str, history: Path, seed: int) -> None:
        self._bootstrap = bootstrap
        self._directory = history.parent
        self._history = HistoryWriter(history)
        self._seed = seed
        self._is_over = threading.Event()
        self._has_ended = threading.Event()
        self._orders: list[str] = []
        self.places: list[Place] = []

    def run(self) -> None:
        """Until standard input has ended and everything is copied."""
        reader = threading.Thread(target=self._guard, args=(self._read,))
        reader.start()
        listener = threading.Thread(target=self._listen, daemon=True)
        listener.start()
        try:
            for copy in COPIES:
                for number in range(copy.copiers):
                    name = f"{copy.group}-{number}"
                    self.places.append(Place(copy, name, self._start(copy, name, 1)))
            while not self._is_over.is_set():
                self._turn()
                time.sleep(PAUSE_S)
            for copy in COPIES:
                self._drain([place for place in self.places if place.copy is copy])
        finally:
            for place in self.places:
                for process in (place.process, *(zombie for _, zombie in place.zombies)):
                    process.kill()
                    process.wait()
            self._has_ended.set()
            reader.join()
            self._history.close()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._orders.append(line)
        self._is_over.set()

    def _guard(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except Exception:
            self._history.write(Fault(who="the committed reader", what=traceback.format_exc()))

    # -- lives -----------------------------------------------------------------------------------------------------

    def _start(self, copy: Copy, name: str, owner: int) -> subprocess.Popen[bytes]:
        options = {
            "bootstrap": self._bootstrap,
            "history": str(self._history_of(name, owner)),
            "source": copy.source,
            "target": copy.target,
            "group": copy.group,
            "transactional-id": name,
            "owner": str(owner),
            "seed": str(self._seed),
        }
        words = [word for option, value in options.items() for word in (f"--{option}", value)]
        command = [sys.executable, "-m", "tests.chaos.data.copier", *words]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)

    def _start_next(self, place: Place) -> None:
        place.owner += 1
        place.process = self._start(place.copy, place.transactional_id, place.owner)

    def _turn(self) -> None:
        """Obey, wake zombies, start again who has ended."""
        orders, self._orders = self._orders, []
        for order in orders:
            verb, number = order.split()
            place = self.places[int(number) % len(self.places)]
            if verb == "kill":
                place.process.kill()
                place.process.wait()
            elif verb == "zombie" and not self._has_taken(place):
                self._orders.append(order)  # two that take the id at once: nobody knows who was the last
            elif verb == "zombie":
                place.process.send_signal(signal.SIGSTOP)
                place.zombies.append((time.monotonic() + ZOMBIE_S, place.process))
                self._start_next(place)
            else:
                raise ValueError(f"no order: {verb}")
        for place in self.places:
            if place.process.poll() is not None:
                self._start_next(place)
            self._wake(place)

    def _has_taken(self, place: Place) -> bool:
        """Whether the present copier has its transactional id, as its journal says."""
        journal = self._history_of(place.transactional_id, place.owner)
        return journal.is_file() and f'"{Taken.kind}"' in journal.read_text().partition("\n")[0]

    def _history_of(self, name: str, owner: int) -> Path:
        return self._directory / f"copier-{name}-{owner}.jsonl"

    def _wake(self, place: Place) -> None:
        now = time.monotonic()
        left = []
        for at, zombie in place.zombies:
            if now >= at + FENCED_WITHIN_S:
                zombie.kill()
            elif now >= at:
                zombie.send_signal(signal.SIGCONT)
            if zombie.poll() is None:
                left.append((at, zombie))
        place.zombies = left

    def _drain(self, places: list[Place]) -> None:
        """Until each has copied what was left for it."""
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        left = list(places)
        while left:
            for place in left:
                self._wake(place)
                if place.process.poll() == GAVE_UP:
                    self._start_next(place)
                if place.process.poll() is None and place.process.stdin is not None:
                    place.process.stdin.close()
            left = [place for place in left if place.process.poll() != 0]
            if left and time.monotonic() > deadline:
                names = [place.transactional_id for place in left]
                self._history.write(Fault(who="copiers", what=f"{names} copied not all within {DRAIN_TIMEOUT_S:.0f} s"))
                return
            time.sleep(PAUSE_S)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """By hand, committed data only, which is librdkafka's default."""
        name = "committed-reader"
        reader = Consumer(COMMON | {"bootstrap.servers": self._bootstrap, "group.id": name} | READING)
        keys = [key_of(*key) for key in TRANSACTED_KEYS]
        self._history.write(Assignment(client=name, group="", assignment=0, keys=keys, at=time.monotonic()))
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in TRANSACTED_KEYS])
        while not self._has_ended.is_set():
            begun = time.monotonic()
            records = records_of(reader.consume(500, timeout=0.1))
            self._history.write(Poll(client=name, how=ASSIGNED, begun=begun, ended=time.monotonic(), records=records))
        reader.close()


def main() -> int:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    Copiers(options.bootstrap, options.history, options.seed).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
