"""The life of a group's share states: which are to be begun, asked for, begun, and forgotten.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: a state is asked for once for each epoch of the group, so that the share coordinator refuses what arrives late; a state
            that is not known to be forgotten is asked for again; a request that waits is answered once, and only when
            the log has what came of it.
Read next:  heartbeat.py, which finds partitions without a state; ../share_states.py, which asks; offsets.py, what people ask for.

A partition goes from being begun (its record says where it starts) to begun, when the share coordinator has it; then alone it is assigned.
A topic goes from begun to being forgotten, and then to nothing.

Not obvious:
- To begin a state wipes what was kept of it. Were a request of a former coordinator to arrive once members acknowledge, it would bring
  their records back. So nothing is asked twice in one epoch of the group: before the second time the epoch rises, and with it the
  state epoch, which share coordinators compare.
- Kafka's records do not say where a partition is to begin; ours do (in a tagged field), or a failover within AlterShareGroupOffsets
  would begin it where share.auto.offset.reset says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas_coordination.group.led_group import emptied
from barnabas_coordination.group.share.fencing import group_tombstones
from barnabas_coordination.group.share.group import PartitionOf, ShareGroup, ShareSoftState, Waiting
from barnabas_coordination.group.share.messages import StateDone, StateWork
from barnabas_coordination.group.share.records import (
    Beginning,
    Begun,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareRecord,
    StatePartitions,
)
from barnabas_coordination.group.states import TimerKey, TimerKind
from barnabas_coordination.shard import CoordinatorResult
from barnabas_coordination.share_state.messages import ShareKey
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Offset, Uuid

GROWN: Final = Offset(0)
"""Where a partition begins by which a topic grew that the group has read before: nothing of it is skipped."""


def state_timer(group_id: str) -> TimerKey:
    """Key of the next attempt to begin or to forget what could not be."""
    return TimerKey(TimerKind.STATE, group_id)


def states_record(group: ShareGroup, states: StatePartitions) -> ShareRecord:
    """What the group's share states are now."""
    return ShareGroupStatePartitionMetadataRecord(group.group_id, states)


def assignable(states: StatePartitions, names: Iterable[str], topics: TopicsImage) -> dict[Uuid, list[int]]:
    """The partitions of these topics that have a state, ascending."""
    found = {}
    for name in names:
        topic = topics.get(name)
        begun = None if topic is None else states.begun.get(topic.id)
        if topic is not None and begun is not None:
            partitions = sorted(partition for partition in begun.partitions if partition < len(topic.partitions))
            if partitions:
                found[topic.id] = partitions
    return found


def without_state(states: StatePartitions, names: Iterable[str], topics: TopicsImage) -> dict[Uuid, Beginning]:
    """The partitions of these topics that have none, with where each is to begin."""
    found = {}
    for name in sorted(names):
        topic = topics.get(name)
        if topic is None or topic.id in states.ending:
            continue
        begun, beginning = states.begun.get(topic.id), states.beginning.get(topic.id)
        known = (begun.partitions if begun else frozenset()) | (beginning.starts.keys() if beginning else frozenset())
        start = NO_OFFSET if begun is None else GROWN
        starts = {partition: start for partition in range(len(topic.partitions)) if partition not in known}
        if starts:
            found[topic.id] = Beginning(name, starts)
    return found


def begin(states: StatePartitions, more: Mapping[Uuid, Beginning]) -> StatePartitions:
    """The states with more partitions whose states are being begun, whether they had one or not."""
    beginning, begun = dict(states.beginning), dict(states.begun)
    for topic_id, (name, starts) in more.items():
        before = beginning.get(topic_id)
        beginning[topic_id] = Beginning(name, {**(before.starts if before else {}), **starts})
        had = begun.pop(topic_id, None)
        if had is not None and had.partitions - starts.keys():
            begun[topic_id] = Begun(name, had.partitions - starts.keys())
    return StatePartitions(beginning, begun, states.ending)


def end(states: StatePartitions, topic_ids: Iterable[Uuid]) -> StatePartitions:
    """The states with topics whose states are being forgotten."""
    gone = set(topic_ids)
    names = {topic_id: topic.name for kind in (states.beginning, states.begun) for topic_id, topic in kind.items()}
    return StatePartitions(
        {topic_id: topic for topic_id, topic in states.beginning.items() if topic_id not in gone},
        {topic_id: topic for topic_id, topic in states.begun.items() if topic_id not in gone},
        {**states.ending, **{topic_id: names[topic_id] for topic_id in gone if topic_id in names}},
    )


def without_topics(states: StatePartitions, names: Iterable[str], topics: TopicsImage) -> StatePartitions:
    """Without topics of these names that are gone from the cluster: their states went with them."""
    gone = set(names)

    def is_gone(topic_id: Uuid, name: str) -> bool:
        return name in gone and topics.get_by_id(topic_id) is None

    return StatePartitions(
        {topic_id: of for topic_id, of in states.beginning.items() if not is_gone(topic_id, of.name)},
        {topic_id: of for topic_id, of in states.begun.items() if not is_gone(topic_id, of.name)},
        {topic_id: name for topic_id, name in states.ending.items() if not is_gone(topic_id, name)},
    )


# ---- what share coordinators are asked -------------------------------------------------------------------------------


def has_work(group: ShareGroup) -> bool:
    """Whether something is to be asked that is not being asked."""
    return any(_is_to_ask(group, of) for of in group.beginning()) or bool(
        group.states.ending.keys() - group.soft.ending
    )


def take_work(group: ShareGroup, topics: TopicsImage) -> StateWork:
    """What is to be asked, which is being asked from now on."""
    soft, group_id = group.soft, group.group_id
    to_begin = {}
    for topic_id, topic in group.states.beginning.items():
        for partition, start in topic.starts.items():
            of = (topic_id, partition)
            if _is_to_ask(group, of):
                to_begin[ShareKey(group_id, topic_id, partition)] = start
                soft.beginning[of] = soft.asked[of] = group.epoch
    to_end = []
    for topic_id in sorted(group.states.ending.keys() - soft.ending):
        topic_image = topics.get_by_id(topic_id)
        # A topic that is gone took its states along; one that is there never has fewer partitions than it had.
        count = 1 if topic_image is None else len(topic_image.partitions)
        to_end += [ShareKey(group_id, topic_id, partition) for partition in range(count)]
        soft.ending.add(topic_id)
    return StateWork(group.epoch, to_begin, tuple(to_end))


def _is_to_ask(group: ShareGroup, of: PartitionOf) -> bool:
    return of not in group.soft.beginning and group.soft.asked.get(of, 0) < group.epoch


def done(group: ShareGroup, what: StateDone, *, retry_ms: int) -> CoordinatorResult:
    """What came of it. What failed stays as it is, and is tried again after retry_ms."""
    out = CoordinatorResult()
    states, soft = group.states, group.soft
    errors: dict[PartitionOf, KafkaError | None] = {}
    for key, error in what.begun.items():
        of = (key.topic_id, key.partition)
        if soft.beginning.get(of) == what.state_epoch:  # else it is asked again, or not wanted any more
            del soft.beginning[of]
            errors[of] = error
    beginning, begun = dict(states.beginning), dict(states.begun)
    for topic_id, (name, starts) in states.beginning.items():
        ready = {partition for partition in starts if errors.get((topic_id, partition), _NOT_ASKED) is None}
        if not ready:
            continue
        had = states.begun.get(topic_id)
        begun[topic_id] = Begun(name, frozenset(ready).union(had.partitions if had else ()))
        beginning[topic_id] = Beginning(name, {each: start for each, start in starts.items() if each not in ready})
        if not beginning[topic_id].starts:
            del beginning[topic_id]
        for partition in ready:
            soft.asked.pop((topic_id, partition), None)
    ended: dict[Uuid, KafkaError | None] = {}
    for key, error in what.ended.items():
        if key.topic_id in soft.ending:
            ended[key.topic_id] = ended.get(key.topic_id) or error
    soft.ending.difference_update(ended)
    ending = {each: name for each, name in states.ending.items() if ended.get(each, _NOT_ASKED) is not None}
    after = StatePartitions(beginning, begun, ending)
    _answer(group, errors, ended, after, out)
    if not out.records and after != states:
        out.records.append(states_record(group, after))
    if any(errors.values()) or any(ended.values()):
        out.arm(state_timer(group.group_id), retry_ms)
    return out


_NOT_ASKED: Final = KafkaError()


def _answer(
    group: ShareGroup,
    begun: Mapping[PartitionOf, KafkaError | None],
    ended: Mapping[Uuid, KafkaError | None],
    after: StatePartitions,
    out: CoordinatorResult,
) -> None:
    """Answer who waited for the last of what is done, and let a group go that was to go with its states."""
    left: list[Waiting] = []
    for waiting in group.soft.waiting:
        waiting.begun.update({of: begun[of] for of in begun.keys() & waiting.partitions})
        waiting.ended.update({topic_id: ended[topic_id] for topic_id in ended.keys() & waiting.topic_ids})
        if waiting.begun.keys() < waiting.partitions or waiting.ended.keys() < waiting.topic_ids:
            left.append(waiting)
        elif not waiting.deletes_group:
            out.reply(waiting.ticket, waiting.begun if waiting.partitions else waiting.ended)
        else:
            failure = next((error for error in waiting.ended.values() if error is not None), None)
            if failure is None and (group.members or after != StatePartitions()):
                text = f"group {group.group_id} was joined meanwhile: stop its members and delete it again"
                failure = KafkaError.of(ErrorCode.NON_EMPTY_GROUP, text)
            if failure is None and not out.records:
                out.records.extend(group_tombstones(group))
            out.reply(waiting.ticket, failure)
    group.soft.waiting = left


def resume(group: ShareGroup, out: CoordinatorResult) -> None:
    """A new coordinator has read the group: the former one may have asked for what is being begun, in the epoch of now."""
    group.soft.asked = dict.fromkeys(group.beginning(), group.epoch)
    if group.soft.asked or group.states.ending:
        out.arm(state_timer(group.group_id), 0)


def retry(group: ShareGroup) -> CoordinatorResult:
    """A new coordinator, or the time for another attempt: a new epoch for what is being begun, see above."""
    out = CoordinatorResult()
    if any(of not in group.soft.beginning for of in group.beginning()):
        out.records.extend(next_epoch(group))
    return out


def next_epoch(group: ShareGroup) -> list[ShareRecord]:
    """The group's epoch rises, though its members stay; without members its targets are of that epoch, too."""
    value = group.value._replace(epoch=group.epoch + 1)
    record = ShareGroupMetadataRecord(group.group_id, value)
    return [record] if group.members else [record, emptied(group, value.epoch)]


def on_refused(soft: ShareSoftState, records: Iterable[Any], out: CoordinatorResult, error: KafkaError) -> None:
    """Records could not be appended: requests that wait for what they say are refused."""
    refused = [record.value for record in records if isinstance(record, ShareGroupStatePartitionMetadataRecord)]
    for waiting in [each for each in soft.waiting if any(each.written is states for states in refused)]:
        soft.waiting.remove(waiting)
        out.reply(waiting.ticket, error)
