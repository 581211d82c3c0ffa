"""Three hosts of sixteen brokers on this machine, while nothing happens, and what a change, a start and a loss take.

May touch:  hosts under test, /proc.      Must not touch: broker code.
Invariants: CPU is read over a time that begins after a pause; a host is started beside those that run.
Read next:  cluster.py.

Idle CPU does not ask how busy the machine is; times do. A run says the load average beside them.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from barnabas_broker.host.system_calls import memory_bytes
from barnabas_wire.client.blocking import BlockingConnection
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.bench.hosts.cluster import CONTROLLER_LOST, TIMEOUT_S, Hosts
from tests.bench.machine import cpu_s
from tests.chaos.network import Network

SETTLE_S = 15.0
REST_S = 20.0
ROLES = ("broker", "controller", "host")
TOPICS = 10
CHANGES = 40
CHANGES_S, START_TIMEOUT_S = 180.0, 900.0
"""Where cores are short: no further topic or change after so long, and how long a host may take to start."""
MEMORY_BYTES_MIN = 3 << 30
"""The run ends where the machine has less free memory than this."""
ESTABLISHED = "01"
CORES_MAX, START_S_MAX = 1.5, 10.0


def mesh(ids: list[int], hosts: int) -> list[list[int]]:
    """Partitions of three replicas such that every broker leads one that each other broker follows, but for one at most, and the
    followers are on two hosts. ids: in the order of hosts, each of which has as many."""
    ids = [each for place in range(len(ids) // hosts) for each in ids[place :: len(ids) // hosts]]
    count = len(ids)
    return [
        [ids[first], ids[(first + 2 * step - 1) % count], ids[(first + 2 * step) % count]]
        for first in range(count)
        for step in range(1, (count - 1) // 2 + 1)
    ]


def measure(hosts: int, brokers: int, *, by_exec: bool, network: Network | None = None) -> dict[str, float]:
    """Figures by name with unit."""
    found: dict[str, float] = {}

    def say(name: str, value: float) -> None:
        found[name] = value
        print(f"{name:76} {value:10.4g}   load {os.getloadavg()[0]:.0f}", flush=True)

    with Hosts([brokers] * hosts, by_exec=by_exec, network=network) as running:
        say(
            "hosts started together, with their format: the last in service after, s",
            max(h.start_s for h in running.hosts),
        )
        for name, value in _rest(running).items():
            say(f"no partition: {name}", value)
        began = time.monotonic()
        assigned = mesh(running.broker_ids, hosts)
        topic = running.create(assigned)
        say(
            f"{len(assigned)} partitions, RF 3, each broker follows almost every other: whole after, s",
            time.monotonic() - began,
        )
        for name, value in _rest(running).items():
            say(f"every broker follows the others: {name}", value)
        for name, value in _propagation(running).items():
            say(name, value)
        for name, value in _changes(running, topic, found).items():
            say(name, value)
        lost = running.hosts[-1]
        lost.kill()
        began = time.monotonic()
        _until_fenced(running, topic, set(lost.broker_ids))
        say("a host is killed: all that it led is led elsewhere after, s", time.monotonic() - began)
        before = cpu_s(others := running.pids())
        running.start(lost, START_TIMEOUT_S)
        say("a host started beside the others: in service after, s", lost.start_s)
        say("a host started beside the others: its own CPU, s", cpu_s(lost.pids().values()))
        say("a host started beside the others: CPU of the others, s", cpu_s(others) - before)
    return found


def missed(found: Mapping[str, float]) -> list[str]:
    """Goals that were not met."""
    bounds = {
        "every broker follows the others: all, cores": CORES_MAX,
        "a host started beside the others: in service after, s": START_S_MAX,
    }
    return [
        f"{name}: {found[name]:.3g} (at most {bound:g})"
        for name, bound in bounds.items()
        if name in found and found[name] > bound
    ]


def _rest(running: Hosts) -> dict[str, float]:
    _require_memory()
    time.sleep(SETTLE_S)
    pids = {role: running.pids(role) for role in ROLES}
    before = {pid: cpu_s([pid]) for each in pids.values() for pid in each}
    began = time.perf_counter()
    time.sleep(REST_S)
    took_s = time.perf_counter() - began
    used = {pid: (cpu_s([pid]) - before[pid]) / took_s for pid in before}
    found: dict[str, float] = {"all, cores": sum(used.values())}
    for role, each in pids.items():
        found[f"{role}s together, cores"] = sum(used[pid] for pid in each)
        found[f"the busiest {role}, cores"] = max(used[pid] for pid in each)
        found[f"{role}s together, MiB (PSS)"] = sum((memory_bytes(pid) or 0) for pid in each) / 2**20
        found[f"median {role}, MiB (PSS)"] = statistics.median((memory_bytes(pid) or 0) for pid in each) / 2**20
    for kind, count in _connections(running).items():
        found[f"{kind} connections"] = count
    found["descriptors of the broker with most"] = max(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids["broker"])
    return found


def _connections(running: Hosts) -> Counter[str]:
    """Established ones by what they were made to."""
    found: Counter[str] = Counter()
    tables = {  # of a namespace: a host's process sees what its nodes have
        Path(f"/proc/{pid}/ns/net").readlink(): Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii")
        for pid in running.pids("host")
    }
    for line in chain.from_iterable(table.splitlines()[1:] for table in tables.values()):
        words = line.split()
        if words[3] == ESTABLISHED:
            kind = running.kind_of_port(int(words[1].rpartition(":")[2], 16))
            if kind is not None:
                found[kind] += 1
    return found


def _require_memory() -> None:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:") and int(line.split()[1]) * 1024 < MEMORY_BYTES_MIN:
            raise MemoryError(f"less than {MEMORY_BYTES_MIN >> 30} GiB are left: free some, or ask for fewer --brokers")


def _propagation(running: Hosts) -> dict[str, float]:
    """How long it takes from a new topic's creation until every broker, asked in turn, names it."""
    connections = {
        broker: BlockingConnection(
            running.address_of(broker), running.kafka_port(broker), client_id="bench", timeout_s=TIMEOUT_S
        )
        for broker in running.broker_ids
    }
    first_ms: list[float] = []
    spread_ms: list[float] = []
    refused = 0
    began = time.monotonic()
    while len(first_ms) < TOPICS and time.monotonic() - began < CHANGES_S:
        try:
            known = _made_known(running, connections)
        except KafkaException as error:
            if error.args[0].code() not in CONTROLLER_LOST:
                raise
            refused += 1
            continue  # the topic may be there or not: the next one has another name
        first_ms.append(min(known) * 1e3)
        spread_ms.append((max(known) - min(known)) * 1e3)
    for connection in connections.values():
        connection.close()
    found: dict[str, float] = {"a topic is made: refused, for want of a controller": refused}
    if not first_ms:
        return found
    return found | {
        "a topic is made: the first broker names it after, ms (median)": statistics.median(first_ms),
        "a topic is made: from the first broker to the last, ms (median)": statistics.median(spread_ms),
        "a topic is made: from the first broker to the last, ms (worst)": max(spread_ms),
    }


def _made_known(running: Hosts, connections: Mapping[int, BlockingConnection]) -> list[float]:
    """When each broker names a new topic, in s after its creation was asked for. Raises KafkaException with what refused it."""
    name = running.next_name()
    began = time.perf_counter()
    asked = running.create_later(name, [running.broker_ids[:3]])
    known: dict[int, float] = {}
    while len(known) < len(connections):
        for broker, connection in connections.items():
            if broker not in known and _knows(connection, name):
                known[broker] = time.perf_counter() - began
        if asked.done():
            asked.result()
        if time.perf_counter() - began > TIMEOUT_S:
            raise TimeoutError(f"{len(connections) - len(known)} brokers do not name topic {name}")
    asked.result(TIMEOUT_S)
    running.delete(name)
    return list(known.values())


def _knows(connection: BlockingConnection, topic: str) -> bool:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return not connection.call(request, timeout_s=TIMEOUT_S).topics[0].error_code


def _changes(running: Hosts, topic: str, found: Mapping[str, float]) -> dict[str, float]:
    """CPU of one change of a topic's configuration, one after another, beyond the rest."""
    pids = {role: running.pids(role) for role in ("broker", "controller")}
    before = {role: cpu_s(each) for role, each in pids.items()}
    asked = refused = 0
    began = time.perf_counter()
    while asked < CHANGES and time.perf_counter() - began < CHANGES_S:
        asked += 1
        entry = ConfigEntry("retention.ms", str(10**9 + asked), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        try:
            running.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in CONTROLLER_LOST:
                raise
            refused += 1
    took_s = time.perf_counter() - began
    said = {
        "a change of a configuration: refused, for want of a controller": refused,
        "a change of a configuration, one after another, ms": took_s * 1e3 / asked,
    }
    for role, each in pids.items():
        rest_s = found[f"every broker follows the others: {role}s together, cores"] * took_s
        said[f"a change of a configuration: CPU of all {role}s, ms"] = (
            (cpu_s(each) - before[role] - rest_s) * 1e3 / asked
        )
    return said


def _until_fenced(running: Hosts, topic: str, gone: set[int]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while any(part.leader in gone or part.leader < 0 for part in running.partitions(topic).values()):
        if time.monotonic() > deadline:
            raise TimeoutError("partitions of a lost host have no other leader")
        time.sleep(0.02)
