"""A host whose brokers lead many partitions is killed, beside one broker that leads as many: until other leaders answer for all.

May touch:  hosts under test.      Must not touch: broker code.
Invariants: a partition counts as led elsewhere when its new leader gives its latest offset, not when a broker names that leader; the
            controller of the killed host does not lead the quorum, or an election would be most of both times.
Read next:  cluster.py, ../many.py (one broker's fail-over until a client has written everywhere).
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas_admin.client import AdminClient as ControlAdmin
from barnabas_wire.client.blocking import BlockingConnection
from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.bench.hosts.cluster import HOST, TIMEOUT_S, Host, Hosts

LEADERS = 5_000
"""Partitions that the killed host leads."""
PARTITIONS_PER_TOPIC = 1_000
SETTLE_S = 10.0
"""Before each kill, after all replicas are in sync."""
POLL_S, ELECT_PAUSE_S = 0.02, 2.0
LATEST = -1
OTHERS = (1, 1)
"""Brokers of the hosts that stay, in both cases: what differs is the host that is lost, not how many share the machine afterwards."""
RATIO_MAX = 1.5


@dataclass(slots=True)
class Failovers:
    """Seconds from the kill, by brokers of the killed host."""

    named_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Until a broker that lives names another leader for each partition."""
    led_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Until those leaders have answered for each partition."""

    def ratio(self, brokers: int) -> float:
        """The median time of a host of so many brokers, of that of a host of one."""
        return statistics.median(self.led_s[brokers]) / statistics.median(self.led_s[1])

    def table(self) -> str:
        """For docs/performance.md."""
        lines = [
            "| brokers of the host | named after s | led after s, median | least; worst | of one broker's |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {brokers} | {statistics.median(self.named_s[brokers]):.2f} | {statistics.median(led):.2f} "
            f"| {min(led):.2f}; {max(led):.2f} | {self.ratio(brokers):.2f} |"
            for brokers, led in self.led_s.items()
        ]
        return "\n".join(lines)

    def missed(self) -> list[str]:
        """Goals that were not met."""
        return [
            f"{brokers} brokers lost at once: fail-over takes {self.ratio(brokers):.2f} times one broker's (at most {RATIO_MAX:g})"
            for brokers in self.led_s
            if self.ratio(brokers) > RATIO_MAX
        ]

    def as_json(self) -> Mapping[str, object]:
        """All of it."""
        return {"named_s": dict(self.named_s), "led_s": dict(self.led_s)}


def measure(brokers: int, others: Sequence[int], kills: int) -> Failovers:
    """First a host of one broker, then one of so many, each beside hosts of so many as `others` says; so many kills of each."""
    found = Failovers()
    for size in (1, brokers):
        with Hosts([size, *others]) as running:
            victim = running.hosts[0]
            topics = _create(running)
            print(f"{LEADERS} partitions led by a host of {size}:", flush=True)
            for _ in range(kills):
                time.sleep(SETTLE_S)
                _move_quorum_leader(running, victim)
                watch = Watch(running, victim, list(topics))
                watch.wait_led_by(victim)
                victim.kill()
                named_s, led_s = watch.wait_led_elsewhere()
                watch.close()
                found.named_s[size].append(named_s)
                found.led_s[size].append(led_s)
                print(f"  killed: others are named after {named_s:.2f} s, and answer after {led_s:.2f} s", flush=True)
                running.start(victim)
                for name, assigned in topics.items():
                    running.wait_whole(name, assigned)
    return found


class Watch:
    """Asks the brokers that stay who leads, by connections made before the kill."""

    def __init__(self, running: Hosts, victim: Host, topics: Sequence[str]) -> None:
        self._brokers = [each for host in running.hosts if host is not victim for each in host.broker_ids]
        self._running = running
        self._connections: dict[int, BlockingConnection] = {}
        self._request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        for broker in self._brokers:
            self._ask(broker, self._request)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def wait_led_by(self, host: Host) -> None:
        """Until the first of those asked names only the host's brokers as leaders."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (leaders := self._leaders()) or not set(host.broker_ids) >= set(leaders.values()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {TIMEOUT_S:.0f} s others than those of host {host.number} still lead")
            self._running.elect_preferred()  # again: one that gets no core may be out of service meanwhile
            time.sleep(ELECT_PAUSE_S)

    def wait_led_elsewhere(self) -> tuple[float, float]:
        """Seconds from now until only those asked are named as leaders, and until they have answered for all partitions."""
        began = time.monotonic()
        answered: set[tuple[str, int]] = set()
        named_s = 0.0
        while True:
            leaders = self._leaders()
            if not named_s and leaders and set(self._brokers) >= set(leaders.values()):
                named_s = time.monotonic() - began
            for broker in self._brokers:
                answered |= self._answering(
                    broker, [each for each in leaders if leaders[each] == broker and each not in answered]
                )
            if named_s and len(answered) == LEADERS:
                return named_s, time.monotonic() - began
            if time.monotonic() - began > TIMEOUT_S:
                raise TimeoutError(f"{LEADERS - len(answered)} partitions have no new leader that answers")
            time.sleep(POLL_S)

    def _leaders(self) -> dict[tuple[str, int], int]:
        """By topic and partition, as the first broker says; none while it does not answer."""
        found = self._ask(self._brokers[0], self._request)
        return (
            {}
            if found is None
            else {
                (topic.name, part.partition_index): part.leader_id
                for topic in found.topics
                for part in topic.partitions
            }
        )

    def _answering(self, broker: int, wanted: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Of these partitions those of which the broker gives the latest offset."""
        topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for name, index in wanted:
            topics[name].append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(*each) for each in topics.items()])
        found = self._ask(broker, request) if topics else None
        return (
            set()
            if found is None
            else {
                (topic.name, part.partition_index)
                for topic in found.topics
                for part in topic.partitions
                if not part.error_code
            }
        )

    def _ask(self, broker: int, request: Any) -> Any:
        """The answer; None where the connection broke: a broker that gets no core for seconds takes itself for cut off."""
        try:
            if broker not in self._connections:
                self._connections[broker] = BlockingConnection(
                    HOST, self._running.kafka_port(broker), client_id="bench", timeout_s=TIMEOUT_S
                )
            return self._connections[broker].call(request, timeout_s=TIMEOUT_S)
        except ConnectionError:
            if (broken := self._connections.pop(broker, None)) is not None:
                broken.close()
            return None


def _move_quorum_leader(running: Hosts, host: Host) -> None:
    """Kill the host's controller, which the host starts again, until another leads the quorum."""
    deadline = time.monotonic() + TIMEOUT_S
    while _quorum_leader(running) == host.number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the controller of host {host.number} leads the quorum again and again")
        os.kill(host.pids()[f"controller-{host.number}"], signal.SIGKILL)
        time.sleep(SETTLE_S)
        host.wait()


def _quorum_leader(running: Hosts) -> int:
    with ControlAdmin(running.admin_addresses, timeout_s=TIMEOUT_S) as control:
        return control.describe_health().controller_id


def _create(running: Hosts) -> dict[str, list[list[int]]]:
    """Topics whose partitions are led by the first host's brokers, as many by each, with a follower on each of two other hosts."""
    homes = [host.broker_ids for host in running.hosts[:3]]
    assigned = [[home[index % len(home)] for home in homes] for index in range(LEADERS)]
    parts = [assigned[first : first + PARTITIONS_PER_TOPIC] for first in range(0, LEADERS, PARTITIONS_PER_TOPIC)]
    return {running.create(part): part for part in parts}
