"""librdkafka as a process of its own that produces by a clock: latency counts from when a record was to be sent.

May touch:  the Kafka listeners, CPU clocks of the brokers.      Must not touch: broker code.
Invariants: a record is sent at its time however late the one before is; a run fails when one record is not acknowledged.
Read next:  measure.py.

    python -m tests.bench.peer.client '{"bootstrap": …, "topic": …, "rate": …, "seconds": …, "producers": 1, "pids": []}'

With bootstrap "" the producers write to librdkafka's own fake broker, which acknowledges at once in the same process: what is
measured then is the client's own part. With "kill" (a process id) that process is killed with SIGKILL after KILL_AFTER_S, and the
run ends with the first acknowledgement of a record that was to be sent after that.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.bench.machine import cpu_s

VALUE_BYTES = 100
KILL_AFTER_S = 1.5
FAILOVER_S_MAX = 40.0
PR_SET_TIMERSLACK = 29


class Client:
    """One run."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.topic: str = options["topic"]
        self.rate: int = options["rate"]
        self.pids: list[int] = options["pids"]
        self.kill: int = options.get("kill", 0)
        self.seconds = FAILOVER_S_MAX if self.kill else float(options["seconds"])
        self.acknowledged: list[tuple[float, float]] = []
        """(when it was to be sent, latency) in seconds."""
        self.failures: list[str] = []
        self.killed_s = float("inf")
        self.is_over = threading.Event()
        bootstrap = (
            {"bootstrap.servers": options["bootstrap"]} if options["bootstrap"] else {"test.mock.num.brokers": 3}
        )
        common = {"acks": "all", "linger.ms": 0, "socket.nagle.disable": True, "log_level": 0}
        self.producers = [Producer({**bootstrap, **common}) for _ in range(options["producers"])]
        self.value = os.urandom(VALUE_BYTES)

    def reported(self, due_s: float, error: KafkaError | None, message: Message) -> None:
        """A record is acknowledged, or failed."""
        now = time.perf_counter()
        if error is not None:
            self.failures.append(str(error))
            return
        self.acknowledged.append((due_s, now - due_s))
        if due_s > self.killed_s:
            self.is_over.set()

    def poll(self, producer: Producer) -> None:
        """Take the reports of one producer the moment they come."""
        while not self.is_over.is_set():
            producer.poll(0.5)

    def run(self) -> dict[str, Any]:
        """Produce, wait for all reports."""
        for producer in self.producers:  # connected, and their metadata there, before the clock runs
            producer.produce(self.topic, self.value, on_delivery=partial(self.reported, 0.0))
        for producer in self.producers:
            if producer.flush(30):
                raise SystemExit("the first record of a producer was not acknowledged within 30 s")
        self.acknowledged.clear()
        threads = [threading.Thread(target=self.poll, args=(producer,)) for producer in self.producers]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        cpu_before, own_before = cpu_s(self.pids), time.process_time()
        began = time.perf_counter()
        sent = self.send(began)
        deadline = time.perf_counter() + 30
        while not self.kill and len(self.acknowledged) + len(self.failures) < sent and time.perf_counter() < deadline:
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        cpu = cpu_s([pid for pid in self.pids if pid != self.kill]) - cpu_before if not self.kill else 0.0
        own = time.process_time() - own_before
        is_in_time = self.is_over.is_set()
        self.is_over.set()
        for thread in threads:
            thread.join()
        after = [due + latency - self.killed_s for due, latency in self.acknowledged if due > self.killed_s]
        if self.kill and not is_in_time:
            raise SystemExit(f"nothing was acknowledged within {FAILOVER_S_MAX} s of the kill")
        if not self.kill and (self.failures or len(self.acknowledged) < sent):
            raise SystemExit(f"{len(self.acknowledged)} of {sent} acknowledged, failures {self.failures[:3]}")
        return {
            "latencies_s": [latency for _, latency in self.acknowledged],
            "seconds": seconds,
            "records": sent,
            "broker_cpu_s": cpu,
            "client_cpu_s": own,
            "back_after_s": min(after, default=0.0),
        }

    def send(self, began: float) -> int:
        """Every record at its time; returns how many."""
        total = int(self.rate * self.seconds)
        for index in range(total):
            due = began + index / self.rate
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            if self.kill and self.killed_s == float("inf") and due - began >= KILL_AFTER_S:
                os.kill(self.kill, signal.SIGKILL)
                self.killed_s = time.perf_counter()
            if self.is_over.is_set():
                return index
            producer = self.producers[index % len(self.producers)]
            producer.produce(self.topic, self.value, on_delivery=partial(self.reported, due))
        return total


def main() -> None:
    """Run and print."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # else every sleep ends 50 us late
    sys.setswitchinterval(0.0001)
    print(json.dumps(Client(json.loads(sys.argv[1])).run()), flush=True)
    os._exit(0)  # librdkafka's threads, and records that a killed leader never answers


if __name__ == "__main__":
    main()
