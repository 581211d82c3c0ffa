"""A whole host is killed under load, again and again: how long its partitions take no record, and whether one is lost.

May touch:  hosts under test, a producer with default settings.      Must not touch: broker code.
Invariants: every acknowledged record is looked for at the end, at its offset; a record that failed counts as a failure of the run.
Read next:  ../../cluster/workload.py, which sends and judges; cluster.py.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas_simulation.history import Verdict
from tests.bench.hosts.cluster import Hosts
from tests.cluster.workload import UniqueProducer

PER_SECOND = 1000
GAP_TIMEOUT_S = 60.0
LINGER_MS = 5
STEADY_S = 2.0
"""Before each kill."""


@dataclass(slots=True)
class Losses:
    """What the kills showed."""

    gaps_s: list[float] = field(default_factory=list)
    """For each kill: seconds until every partition that the host led has acknowledged a record sent after the kill."""
    led: list[int] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    """From the command to the last node of the host in service, beside the load."""
    verdict: Verdict | None = None
    failed: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, and nothing failed."""
        return self.verdict is not None and self.verdict.is_clean and not self.failed

    def table(self) -> str:
        """For docs/performance.md."""
        lines = ["| kill | partitions that the host led | gap s | started again in s |", "|---|---|---|---|"]
        lines += [
            f"| {index + 1} | {led} | {gap:.2f} | {start:.1f} |"
            for index, (led, gap, start) in enumerate(zip(self.led, self.gaps_s, self.starts_s, strict=True))
        ]
        if self.gaps_s:
            worst = [f"{statistics.median(each):.2f}; {max(each):.2f}" for each in (self.gaps_s, self.starts_s)]
            lines.append(f"| median; worst | | {' | '.join(worst)} |")
        return "\n".join(lines)

    def as_json(self) -> Mapping[str, object]:
        """All of it."""
        return {
            "gaps_s": self.gaps_s,
            "led": self.led,
            "starts_s": self.starts_s,
            "failed": self.failed,
            "verdict": str(self.verdict),
        }


def measure(hosts: int, brokers: int, kills: int) -> Losses:
    """Kill one host after another; each comes back, and is in sync, before the next goes."""
    losses = Losses()
    with Hosts([brokers] * hosts) as running:
        ids = running.broker_ids
        assigned = [
            [ids[(index + step * brokers) % len(ids)] for step in range(min(3, hosts))] for index in range(len(ids))
        ]
        topic = running.create(assigned)
        settings: dict[str, Any] = {"linger.ms": LINGER_MS, "log_level": 0}
        producer = UniqueProducer(running.bootstrap, topic, partitions=len(assigned), **settings)
        is_over = threading.Event()

        def send_steadily() -> None:
            while not is_over.is_set():
                producer.send(PER_SECOND // 10, per_second=PER_SECOND)

        sender = threading.Thread(target=send_steadily)
        sender.start()
        try:
            for number in range(kills):
                time.sleep(STEADY_S)
                victim = running.hosts[number % hosts]
                led = {index for index, part in running.partitions(topic).items() if part.leader in victim.broker_ids}
                victim.kill()
                producer.mark_kill(led)
                deadline = time.monotonic() + GAP_TIMEOUT_S
                while len(producer.gaps) <= number:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"kill {number + 1}: nothing was acknowledged within {GAP_TIMEOUT_S:.0f} s")
                    time.sleep(0.02)
                losses.led.append(len(led))
                losses.gaps_s.append(producer.gaps[-1])
                print(
                    f"kill {number + 1:2}: host {victim.number} led {len(led)}, gap {producer.gaps[-1]:.2f} s",
                    flush=True,
                )
                running.start(victim)
                losses.starts_s.append(victim.start_s)
                running.wait_whole(topic, assigned)
                running.elect_preferred()
        finally:
            is_over.set()
            sender.join(GAP_TIMEOUT_S)
        producer.flush()
        losses.verdict = producer.judge(running.bootstrap)
        losses.failed = len(producer.failed)
        running.is_kept = not losses.is_clean  # the batches say by whose fault a record is there twice
    return losses
