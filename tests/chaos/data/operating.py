"""What operators do, as faults: settings that change, and verbs, while a node is killed or stands still.

May touch:  the cluster's admin service, its nodes' directories while they do not run.   Must not touch: the clients' topics beyond what
            loses nothing of theirs; verdicts.
Invariants: what is asked for must not lose an acknowledged record: no unclean election, no retention below what the clients keep, no
            compaction of records without a key. A verb that a broken cluster refuses is noted, not a finding.
Read next:  faults.py, whose table has `settings` and `verbs`; spare_topic.py, the topic that these alone write to.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from barnabas_admin.client import AdminClient
from barnabas_admin.errors import AdminError
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.rpc import admin_pb2, controller_pb2
from tests.chaos.data.plan import IDLE, KEPT, KEYS, LOOSE, PRUNED, key_of
from tests.chaos.data.spare_topic import SpareTopic
from tests.chaos.data.stage import Stage
from tests.chaos.nodes import CONTROLLER_PORT, KAFKA_PORT, ChaosNode

Undo = Callable[[], None]
Disturbances = Sequence[Callable[[Stage], Undo]]

RECORDS = 20
"""Written to the spare topic before and after each verb."""
STOPPED_S = (1.4, 2.2)
"""A leader stands still for so long: longer than it takes to fence the followers, less than a session."""
RISE_SHARE = 0.4
DISTURBED_SHARE = 0.6
VERBS_AT_ONCE = 3
ALONE = {"lose a log", "copy a directory", "restore an old directory"}
"""They stop their broker themselves."""
AGAIN_WITHIN_S = 30.0
LEADER_MOVES = 12
LEADER_MOVE_PAUSE_S = 0.6
"""Most time between two of them."""
REPLICAS = 3
ANY_TOPIC: Mapping[str, Sequence[str | None]] = {
    "min.insync.replicas": ("1", "2"),
    "segment.bytes": ("1048576", "2097152", "4194304"),
    "segment.ms": ("500", "3000", "20000"),
    "index.interval.bytes": ("0", "4096"),
    "compression.type": ("producer", "lz4", "zstd", "gzip", "uncompressed"),
    "retention.ms": ("-1", "86400000"),
    "file.delete.delay.ms": ("1000", "60000"),
    "unclean.leader.election.enable": ("false", None),
    "log.flush.on.acks": ("fsync", "page-cache"),
}
"""What loses nothing, with processes killed at most. Of page-cache: the machine goes on."""
OF_TOPIC: Mapping[str, Mapping[str, Sequence[str | None]]] = {
    PRUNED: {"retention.bytes": ("800000", "1500000", "3000000")},
    SpareTopic.NAME: {"cleanup.policy": ("delete", "compact", "compact,delete")},
}
"""The spare topic's records have keys of their own, so compaction loses nothing either."""
DEFAULTS = {"min.insync.replicas": "2", "log.flush.on.acks": "fsync"}


# -- settings ----------------------------------------------------------------------------------------------------------


def change_settings(stage: Stage, disturbances: Disturbances) -> Undo:
    """Settings of topics change while a broker is killed or stands still; or the minimum rises."""
    _spare(stage).write(stage, RECORDS)
    if stage.random.random() < RISE_SHARE:
        return raise_the_minimum(stage)
    undo = stage.random.choice(disturbances)(stage)
    for topic in stage.random.sample((KEPT, LOOSE, PRUNED, IDLE, SpareTopic.NAME), 3):
        knobs = {**ANY_TOPIC, **OF_TOPIC.get(topic, {})}
        names = stage.random.sample(sorted(knobs), stage.random.randint(1, 3))
        _alter(stage, topic, {name: stage.random.choice(knobs[name]) for name in names})
    return _judged(stage, undo)


def raise_the_minimum(stage: Stage) -> Undo:
    """With a minimum of 1 the leader stands still; the minimum becomes 2 and the followers are killed; it runs on, and is killed; the
    others come back first."""
    _alter(stage, KEPT, dict.fromkeys(("min.insync.replicas",), "1"))
    leader = _leader(stage, KEPT, 0)
    others = [node.id for node in stage.cluster.brokers if leader is not None and node.id != leader.id]
    if leader is None or not all(stage.cluster.nodes[each].is_running for each in (leader.id, *others)):
        return lambda: None
    stage.cluster.pause(leader.id)
    _alter(stage, KEPT, {"min.insync.replicas": "2"})
    stage.cluster.kill(others)
    time.sleep(stage.random.uniform(*STOPPED_S))
    stage.cluster.resume(leader.id)
    time.sleep(stage.random.uniform(0.1, 1.0))
    stage.cluster.kill([leader.id])
    stage.note(
        f"the minimum of {KEPT} rose while its leader {leader.id} stood still; {others} killed, then {leader.id}"
    )

    def undo() -> None:
        for node_id in others:
            stage.cluster.start(node_id)
        time.sleep(stage.random.uniform(2.0, 5.0))
        stage.cluster.start(leader.id)
        stage.note(f"started {others}, then {leader.id}")

    return _judged(stage, undo)


def _alter(stage: Stage, topic: str, changes: Mapping[str, str | None]) -> None:
    done = _asked(
        stage, lambda admin: admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, topic, changes), f"{topic}: {changes}"
    )
    if done:
        stage.note(f"{topic}: {changes}")


# -- verbs -------------------------------------------------------------------------------------------------------------


def operate(stage: Stage, disturbances: Disturbances, *, jump_clocks: Callable[[Stage], Undo]) -> Undo:
    """Some verbs one after the other, while a broker is killed or stands still."""
    spare = _spare(stage)
    spare.write(stage, RECORDS)
    verbs: dict[str, Callable[[Stage], Undo | None]] = {
        "grow": _grow,
        "make again": _make_again,
        "reassign": _reassign,
        "elect": _elect,
        "delete records": _delete_records,
        "drain": _drain,
        "features": _set_features,
        "voters": _change_voters,
        "grow an internal topic": _grow_an_internal_topic,
        "clocks": jump_clocks,
        "lose a log": _lose_log,
        "copy a directory": _copy_directory,
        "restore an old directory": restore_old_directory,
    }
    undone: list[Undo] = []
    chosen = _next_verbs(stage, list(verbs))
    if chosen[0] not in ALONE and stage.random.random() < DISTURBED_SHARE:
        undone.append(stage.random.choice(disturbances)(stage))
    for verb in chosen:
        stage.note(verb)
        if (undo := verbs[verb](stage)) is not None:
            undone.append(undo)
        spare.write(stage, RECORDS)

    def undo_all() -> None:
        for undo in reversed(undone):
            undo()

    return _judged(stage, undo_all)


def _next_verbs(stage: Stage, names: list[str]) -> list[str]:
    """One that stops its broker, or some of the others: each once, in the seed's order, before any comes again."""
    if not stage.verbs_left:
        stage.verbs_left = names
        stage.random.shuffle(stage.verbs_left)
    first = stage.verbs_left[0]
    chosen = [first] if first in ALONE else [each for each in stage.verbs_left if each not in ALONE][:VERBS_AT_ONCE]
    stage.verbs_left = [each for each in stage.verbs_left if each not in chosen]
    return chosen


def _grow(stage: Stage) -> None:
    spare = _spare(stage)
    wanted = spare.partitions + 1
    if _asked(
        stage, lambda admin: _check(admin.add_partitions(SpareTopic.NAME, total=wanted).error), f"grow to {wanted}"
    ):
        spare.partitions = wanted


def _grow_an_internal_topic(stage: Stage) -> None:
    """It must be refused: every group and transaction would move."""
    for name in ("__consumer_offsets", "__transaction_state"):
        with stage.admin() as admin:
            try:
                topics = [topic for topic in admin.describe_topics([name]) if topic.partitions]
                if not topics:
                    continue
                outcome = admin.add_partitions(name, total=len(topics[0].partitions) + 1, validate_only=True)
            except AdminError as error:
                stage.note(f"growing {name}: {error}")
                continue
        if outcome.error.code == ErrorCode.NONE:
            stage.broken.append(f"{name} may be grown: every group and transaction would move")


def _make_again(stage: Stage) -> None:
    spare = _spare(stage)

    def delete(admin: AdminClient) -> None:
        (outcome,) = admin.delete_topics([SpareTopic.NAME])
        if outcome.error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            _check(outcome.error)

    if not _asked(stage, delete, "delete the spare topic", again=True):
        raise TimeoutError("the spare topic is not deleted")
    spare.begin_anew()
    _create_spare(stage)


def _reassign(stage: Stage) -> None:
    topic, index = stage.random.choice(KEYS)
    order = [node.id for node in stage.cluster.brokers]
    stage.random.shuffle(order)
    what = f"{key_of(topic, index)} to {order}"

    def ask(admin: AdminClient) -> None:
        (outcome,) = admin.alter_reassignments({(topic, index): order})
        _check(outcome.error)

    _asked(stage, ask, what)


def _elect(stage: Stage) -> None:
    _asked(stage, lambda admin: list(admin.elect_leaders(None)), "elect preferred leaders")


def move_leaders(stage: Stage) -> Undo:
    """Each partition's leader moves from broker to broker, again and again, so that producers are sent from one to the other."""
    brokers = [node.id for node in stage.cluster.brokers]
    stage.note(f"leaders move {LEADER_MOVES} times")
    for turn in range(LEADER_MOVES):

        def ask(admin: AdminClient, turn: int = turn) -> None:
            turned = [(turn + place) % len(brokers) for place in range(len(KEYS))]
            orders = {key: brokers[first:] + brokers[:first] for key, first in zip(KEYS, turned, strict=True)}
            for outcome in admin.alter_reassignments(orders):
                _check(outcome.error)
            list(admin.elect_leaders(None))

        _asked(stage, ask, "move all leaders")
        time.sleep(LEADER_MOVE_PAUSE_S * stage.random.random())
    return lambda: None


def _delete_records(stage: Stage) -> None:
    _spare(stage).delete_half(stage)


def _drain(stage: Stage) -> Undo:
    node = stage.pick_broker()

    def altered(is_in_maintenance: bool) -> Callable[[AdminClient], Any]:
        call = controller_pb2.AlterMaintenanceCall(broker_id=node.id, is_in_maintenance=is_in_maintenance)
        return lambda admin: admin.ask_controller(call, controller_pb2.AlterMaintenanceAnswer)

    _asked(stage, altered(True), f"drain {node.id}")

    def undo() -> None:
        ended = altered(False)
        if not _asked(stage, ended, f"end the drain of {node.id}", again=True):
            raise TimeoutError(f"the drain of {node.id} does not end")

    return undo


def _set_features(stage: Stage) -> None:
    """To the levels that they have; and asks whether a downgrade would be taken, which changes nothing."""

    def ask(admin: AdminClient) -> None:
        levels = {feature.name: feature.finalized for feature in admin.describe_features() if feature.finalized > 0}
        admin.update_features(levels, kind=1)
        admin.update_features({name: level - 1 for name, level in levels.items()}, kind=2, validate_only=True)

    _asked(stage, ask, "features")


def _change_voters(stage: Stage) -> Undo:
    """A controller loses its vote, and gets it back."""
    node = stage.pick([each for each in stage.cluster.controllers if each.is_running])
    removed = _asked(stage, lambda admin: admin.remove_voter(node.id), f"remove voter {node.id}")

    def undo() -> None:
        if not removed:
            return
        add = partial(_add_voter, node=node)
        if not _asked(stage, add, f"add voter {node.id}", again=True):
            raise TimeoutError(f"node {node.id} does not get its vote back")

    return undo


def _add_voter(admin: AdminClient, *, node: ChaosNode) -> None:
    try:
        admin.add_voter(node.id, host=node.address, port=CONTROLLER_PORT)
    except AdminError as error:
        if error.code != ErrorCode.DUPLICATE_VOTER:
            raise


def restore_old_directory(stage: Stage) -> Undo:
    """A broker's directory is copied while it is down; the next time, that copy is what it finds, as all brokers start cold."""
    copied = [node for node in stage.cluster.brokers if _copy_of(node).exists() and node.is_running]
    node = copied[0] if copied else stage.pick_broker()
    victims = [each.id for each in stage.cluster.brokers if each.is_running] if copied else [node.id]
    stage.cluster.kill(victims)
    if copied:
        shutil.rmtree(node.data)
        _copy_of(node).rename(node.data)
        stage.note(f"{node.id} finds an old copy of its directory; {victims} were killed")
    else:
        shutil.copytree(node.data, _copy_of(node))
        stage.note(f"the directory of {node.id} is copied")
    return partial(_start_all, stage, [node.id, *(each for each in victims if each != node.id)])


def restore(stage: Stage) -> Undo:
    """The same, judged as the verbs are."""
    _spare(stage).write(stage, RECORDS)
    return _judged(stage, restore_old_directory(stage))


def _copy_of(node: ChaosNode) -> Path:
    return node.directory / "old-data"


def _lose_log(stage: Stage) -> Undo:
    """One partition's directory is gone from a broker that was killed."""
    node = stage.pick_broker()
    stage.cluster.kill([node.id])
    directory = node.data / key_of(*stage.random.choice(KEYS))
    if directory.is_dir():
        shutil.rmtree(directory)
        stage.note(f"{directory.name} of {node.id} is gone")
    return partial(_start_all, stage, [node.id])


def _copy_directory(stage: Stage) -> Undo:
    """A partition's directory is copied beside itself under a name that is no partition's, and under that of another one."""
    node = stage.pick_broker()
    stage.cluster.kill([node.id])
    source = node.data / key_of(*stage.random.choice(KEYS))
    for name in (f"{source.name} (copy)", f"copy-of-{source.name}"):
        if source.is_dir() and not (node.data / name).exists():
            shutil.copytree(source, node.data / name)
    stage.note(f"{source.name} of {node.id} is copied beside itself")

    def undo() -> None:
        _start_all(stage, [node.id])
        for path in node.data.glob("*(copy)"):
            shutil.rmtree(path)

    return undo


# -- what they share ---------------------------------------------------------------------------------------------------


def _spare(stage: Stage) -> SpareTopic:
    if stage.spare is None:
        stage.spare = SpareTopic(bootstrap=",".join(f"{node.address}:{KAFKA_PORT}" for node in stage.cluster.brokers))
        _create_spare(stage)
    return stage.spare


def _create_spare(stage: Stage) -> None:
    def create(admin: AdminClient) -> None:
        (outcome,) = admin.create_topics(
            [SpareTopic.NAME], partitions=1, replication_factor=REPLICAS, configs={"min.insync.replicas": "2"}
        )
        if outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            _check(outcome.error)

    if not _asked(stage, create, "make the spare topic", again=True):
        raise TimeoutError("the spare topic is not made")


def _judged(stage: Stage, undo: Undo) -> Undo:
    """Undo, and hold the spare topic against what was acknowledged once all is in sync."""

    def undo_and_judge() -> None:
        undo()
        for topic in (KEPT, LOOSE, PRUNED, IDLE, SpareTopic.NAME):
            _alter(stage, topic, DEFAULTS)
        stage.wait_until_in_sync()
        stage.broken += _spare(stage).judge(stage)

    return undo_and_judge


def _asked(
    stage: Stage,
    ask: Callable[[AdminClient], object],
    what: str,
    *,
    again: bool = False,
    within_s: float = AGAIN_WITHIN_S,
) -> bool:
    """Ask for something; whether it was done. again: until it is, or time is up."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            with stage.admin() as admin:
                ask(admin)
        except AdminError as error:
            if again and time.monotonic() < deadline:
                time.sleep(0.5)
                continue
            stage.note(f"{what}: {error}")
            return False
        return True


def _check(error: admin_pb2.ErrorDetail) -> None:
    if error.code != ErrorCode.NONE:
        raise AdminError(error.message, code=ErrorCode(error.code), hint="")


def _leader(stage: Stage, topic: str, index: int) -> ChaosNode | None:
    with stage.admin() as admin:
        try:
            (found,) = admin.describe_topics([topic])
        except AdminError:
            return None
    leaders = [each.leader for each in found.partitions if each.partition == index]
    return stage.cluster.nodes.get(leaders[0]) if leaders else None


def _start_all(stage: Stage, ids: Sequence[int]) -> None:
    for node_id in ids:
        stage.cluster.start(node_id)
    stage.note(f"started {list(ids)}")
