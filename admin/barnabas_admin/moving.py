"""Partitions on the move: their throttle, how much they have copied, and the wait until they are done.

May touch:  the admin client, the brokers (sizes), stderr.    Must not touch: plans, stdout.
Invariants: a wait that ends well leaves no throttle behind that its command set; one that is broken off says what continues, and
            how to continue with it.
Read next:  commands/reassign.py and commands/balance.py; progress.py, which shows it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation
from barnabas_admin.output import size_text, talk
from barnabas_admin.patience import patiently
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

Moves = dict[tuple[str, int], tuple[int, ...]]
"""(topic, partition) -> wanted replicas, preferred leader first."""

LEADER_THROTTLED = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"

WAIT_PAUSE_S = 0.5
SIZES_TIMEOUT_S = 3.0


def present_replicas(invocation: Invocation, topics: Iterable[str]) -> dict[tuple[str, int], tuple[int, ...]]:
    """The replicas of each partition of the topics. The process ends with the error of a topic that does not exist."""
    from barnabas_admin.commands.topic import end_with_errors

    described = invocation.admin.describe_topics(topics)
    end_with_errors(invocation, [topic for topic in described if topic.HasField("error")])
    return {(topic.name, part.partition): tuple(part.replicas) for topic in described for part in topic.partitions}


def set_throttle(invocation: Invocation, wanted: Moves, rate: int, *, is_taken_off: bool = False) -> list[str]:
    """Kafka's throttle: present replicas send and new ones fetch no faster than `rate` bytes per second, outside the ISR.
    The topics it was set on; `is_taken_off` says that this command will take it off."""
    from barnabas_wire.rpc import admin_pb2

    topics = sorted({topic for topic, _ in wanted})
    present = present_replicas(invocation, topics)
    for topic in topics:
        ours = {index: replicas for (name, index), replicas in wanted.items() if name == topic}
        sending = [f"{index}:{b}" for index in ours for b in present.get((topic, index), ())]
        taking = [
            f"{index}:{b}"
            for index, replicas in ours.items()
            for b in replicas
            if b not in present.get((topic, index), ())
        ]
        changes: dict[str, str | None] = {LEADER_THROTTLED: ",".join(sending), FOLLOWER_THROTTLED: ",".join(taking)}
        invocation.admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, topic, changes)
    rates: dict[str, str | None] = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    invocation.admin.alter_configs(admin_pb2.RESOURCE_TYPE_BROKER, "", rates)
    off = "" if is_taken_off else f"; `barnabas topic reassign unthrottle {' '.join(topics)}` when it is done"
    talk(f"throttled to {size_text(rate)}/s for each broker{off}")
    return topics


def remove_throttle(invocation: Invocation, topics: Iterable[str]) -> None:
    """Take the throttle off the topics, and the rates off all brokers. A topic that was deleted meanwhile has none."""
    from barnabas_wire.rpc import admin_pb2

    for topic in topics:
        changes: dict[str, str | None] = {LEADER_THROTTLED: None, FOLLOWER_THROTTLED: None}
        try:
            invocation.admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, topic, changes)
        except AdminError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
    rates: dict[str, str | None] = {LEADER_RATE: None, FOLLOWER_RATE: None}
    invocation.admin.alter_configs(admin_pb2.RESOURCE_TYPE_BROKER, "", rates)


def replica_sizes(
    invocation: Invocation, partitions: Iterable[tuple[str, int]], brokers: Iterable[int]
) -> dict[tuple[str, int, int], int]:
    """Bytes of each replica by (topic, partition, broker); what a broker does not report is missing, with a word on stderr."""
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=topic, partitions=parts) for topic, parts in by_topic.items()]
    )

    async def work(client: ClusterClient) -> dict[tuple[str, int, int], int]:
        sizes: dict[tuple[str, int, int], int] = {}
        await client.metadata([])
        for broker in sorted(brokers):
            try:
                answer = await client.call(request, broker_id=broker)
            except (KafkaError, OSError) as error:
                talk(f"broker {broker} does not report its size: {error}")
                continue
            for directory in answer.results:
                for found in directory.topics:
                    for part in found.partitions:
                        sizes[found.name, part.partition_index, broker] = part.partition_size
        return sizes

    try:
        return run_with_cluster(invocation, work, timeout_s=min(SIZES_TIMEOUT_S, invocation.timeout_s))
    except (KafkaError, OSError) as error:
        talk(f"the sizes of replicas are not known: {error}")
        return {}


def sizes_of_ongoing(invocation: Invocation, ongoing: Sequence[Any]) -> dict[tuple[str, int, int], int]:
    """replica_sizes of reassignments that are under way, on who holds and who gets them."""
    brokers = {broker for item in ongoing for broker in (*item.replicas, *item.isr)}
    return replica_sizes(invocation, [(item.topic, item.partition) for item in ongoing], brokers)


def bytes_to_copy(ongoing: Sequence[Any], sizes: Mapping[tuple[str, int, int], int]) -> tuple[int, int]:
    """(bytes that have been copied, bytes of the whole) over the replicas that reassignments add."""
    done = whole = 0
    for item in ongoing:
        full = max((sizes.get((item.topic, item.partition, broker), 0) for broker in item.isr), default=0)
        for broker in item.adding:
            whole += full
            is_there = broker in item.isr
            done += full if is_there else min(full, sizes.get((item.topic, item.partition, broker), 0))
    return done, whole


def wait_for_moves(
    invocation: Invocation,
    wanted: Iterable[tuple[str, int]],
    *,
    size_bytes: int = 0,
    throttled: Sequence[str] = (),
    wait_s_max: float | None = None,
) -> None:
    """Show the progress of these partitions' reassignments until none is under way; then take the throttle off `throttled`.

    size_bytes: what the plan has to copy; a move that ends before the first look counts by it.
    Raises AdminError (REQUEST_TIMED_OUT) after `wait_s_max` seconds; the moves and their throttle continue, as after Ctrl-C.
    """
    from barnabas_admin.progress import Progress

    names = frozenset(wanted)
    topics = sorted({topic for topic, _ in names})
    started = time.monotonic()
    copied: dict[tuple[str, int], tuple[int, int]] = {}
    with Progress("moving", total=len(names), noun="partitions") as progress:
        try:
            while True:
                found = patiently(lambda: invocation.admin.list_reassignments(topics))
                ongoing = [item for item in found if (item.topic, item.partition) in names]
                sizes = sizes_of_ongoing(invocation, ongoing) if ongoing else {}
                for item in ongoing:
                    copied[item.topic, item.partition] = bytes_to_copy([item], sizes)
                moving = {(item.topic, item.partition) for item in ongoing}
                for name in copied.keys() - moving:
                    copied[name] = (copied[name][1], copied[name][1])
                bytes_total = max(size_bytes, sum(whole for _, whole in copied.values()))
                progress.show(
                    done=len(names) - len(moving),
                    bytes_done=sum(done for done, _ in copied.values()) if ongoing else bytes_total,
                    bytes_total=bytes_total,
                )
                if not ongoing:
                    break
                if wait_s_max is not None and time.monotonic() - started > wait_s_max:
                    raise AdminError(
                        f"{len(ongoing)} of {len(names)} partitions still move after {wait_s_max:g} s",
                        code=ErrorCode.REQUEST_TIMED_OUT,
                        hint=_goes_on(throttled),
                    )
                time.sleep(WAIT_PAUSE_S)
        except KeyboardInterrupt:
            talk(f"the moves go on: {_goes_on(throttled)}")
            raise
    if throttled:
        remove_throttle(invocation, throttled)
        talk("the throttle is off")


def _goes_on(throttled: Sequence[str]) -> str:
    off = f"; then `barnabas topic reassign unthrottle {' '.join(throttled)}`" if throttled else ""
    return f"`barnabas topic reassign status` shows them{off}"
