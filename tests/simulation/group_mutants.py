"""Bugs planted into groups of consumers: who has a partition, whose commit counts, what a new coordinator and another protocol keep.

May touch:  the real code, in memory.  Must not touch: files, the simulation itself.
Invariants: each falls where members of a group come to the listeners (Slant.MEMBERS, or Slant.STREAMS), and needs nothing else.
Read next:  node_mutants.py, which hunts them; barnabas_simulation/group_laws.py and group_members.py, which find them.

Not among them: a Streams member's commit of any former epoch counts. It takes a join that arrives again while the task is another's, in
none of 12 seeds; tests/broker/coordinator has the rule for both protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from barnabas_coordination.group import led_group, offsets
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.consumer import (
    commits,
    fencing,
    heartbeat,
    migration,
    reconciliation,
    regexes,
    slices,
    target,
)
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.records import ConsumerGroupMetadataRecord
from barnabas_coordination.group.led_records import JOINS, LEAVES
from barnabas_coordination.group.records import GroupMetadataRecord
from barnabas_coordination.group.shard import GroupShard
from barnabas_coordination.group.streams import assignor as streams_assignor
from barnabas_coordination.group.streams import fencing as streams_fencing
from barnabas_coordination.group.streams import heartbeat as streams_heartbeat
from barnabas_coordination.group.streams import reconciliation as streams_reconciliation
from barnabas_coordination.group.streams import target as streams_target
from barnabas_coordination.group.streams.tasks import NO_TASKS, Role
from barnabas_coordination.shard import ArmTimer, CoordinatorResult
from tests.simulation.stories import TwoOfOneInstance

Plant = Callable[[pytest.MonkeyPatch], None]


# ---- who has a partition ---------------------------------------------------------------------------------------------


def _a_partition_is_given_before_it_is_given_up(patch: pytest.MonkeyPatch) -> None:
    original = reconciliation.reconcile

    def reconcile(member: Any, *, is_free: Any, **rest: Any) -> Any:
        return original(member, is_free=lambda topic_id, partition: True, **rest)

    patch.setattr(heartbeat, "reconcile", reconcile)


def _what_is_to_be_given_up_is_nobodys(patch: pytest.MonkeyPatch) -> None:
    original = ConsumerGroup._hold
    patch.setattr(ConsumerGroup, "_hold", lambda self, member: original(self, replace(member, pending={})))


def _what_is_to_be_given_up_counts_as_given_up(patch: pytest.MonkeyPatch) -> None:
    original = reconciliation.reconcile

    def reconcile(member: Any, *, owned: Any, **rest: Any) -> Any:
        return original(member, owned={} if member.pending and owned is not None else owned, **rest)

    patch.setattr(heartbeat, "reconcile", reconcile)


def _a_new_coordinator_gives_no_time(patch: pytest.MonkeyPatch) -> None:
    original = fencing.resume

    def resume(group: ConsumerGroup, settings: Any) -> CoordinatorResult:
        out = original(group, settings)
        out.timers = [timer._replace(delay_ms=0) if isinstance(timer, ArmTimer) else timer for timer in out.timers]
        return out

    patch.setattr(fencing, "resume", resume)


def _a_new_coordinator_waits_for_nobody_to_fall_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fencing, "resume", lambda group, settings: CoordinatorResult())


def _a_new_coordinator_knows_no_holders(patch: pytest.MonkeyPatch) -> None:
    original = GroupShard.on_loaded

    def on_loaded(self: GroupShard, **rest: Any) -> Any:
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.holders.clear()
        return original(self, **rest)

    patch.setattr(GroupShard, "on_loaded", on_loaded)


def _an_upgrade_forgets_what_classic_members_have(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(migration, "_held", lambda member, epoch, topics, taken: {})


def _targets_are_made_anew(patch: pytest.MonkeyPatch) -> None:
    original = target.subscribers_of

    def subscribers_of(*args: Any) -> Any:
        found = original(*args)
        return replace(found, members=tuple(replace(each, target={}) for each in reversed(found.members)))

    patch.setattr(target, "subscribers_of", subscribers_of)


def _a_session_ends_although_the_member_beats(patch: pytest.MonkeyPatch) -> None:
    original = heartbeat.Step.arm

    def arm(self: heartbeat.Step) -> None:
        if self.request.epoch == 0:
            original(self)

    patch.setattr(heartbeat.Step, "arm", arm)


# ---- who an instance id is ------------------------------------------------------------------------------------------


def _who_leaves_for_a_while_is_removed(patch: pytest.MonkeyPatch, rules: Any = fencing) -> None:
    original = rules.leave

    def leave(group: Any, request: Any, *rest: Any) -> CoordinatorResult:
        return original(group, replace(request, epoch=LEAVES), *rest)

    patch.setattr(rules, "leave", leave)


def _a_live_member_is_replaced(patch: pytest.MonkeyPatch) -> None:
    original = heartbeat.Step._find_static

    def find_static(self: heartbeat.Step, instance_id: str) -> Any:
        present_id = self.group.static_members.get(instance_id)
        if present_id is None or self.request.epoch != JOINS or self.request.classic is not None:
            return original(self, instance_id)
        return self._replace(self.group.members[present_id])

    patch.setattr(heartbeat.Step, "_find_static", find_static)


def _who_returns_has_no_target(patch: pytest.MonkeyPatch, steps: Any = heartbeat) -> None:
    original = led_group.replace_static

    def replace_static(group: Any, *rest: Any) -> Any:
        draft = original(group, *rest)
        draft.targets.clear()
        return draft

    patch.setattr(steps, "replace_static", replace_static)


def _who_was_replaced_commits_by_its_instance_id(patch: pytest.MonkeyPatch) -> None:
    original = ClassicGroup.current_member

    def current_member(self: ClassicGroup, member: Any) -> Any:
        present_id = self.static_members.get(member.instance_id, member.member_id)
        return original(self, replace(member, member_id=present_id))

    patch.setattr(ClassicGroup, "current_member", current_member)


def _who_was_replaced_stays_a_member(patch: pytest.MonkeyPatch) -> None:
    original = commits.allow_commit

    def allow_commit(group: Any, commit: Any, **rest: Any) -> None:
        present_id = group.static_members.get(commit.member.instance_id)
        if present_id in (None, commit.member.member_id):
            original(group, commit, **rest)

    patch.setattr(commits, "allow_commit", allow_commit)


# ---- what matches ----------------------------------------------------------------------------------------------------


def _topics_that_come_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    original = regexes.needs_resolution

    def needs_resolution(group: Any, in_use: Any, around: Any) -> bool:
        return not set(in_use) <= group.regexes.keys() and original(group, in_use, around)

    patch.setattr(regexes, "needs_resolution", needs_resolution)


def _a_refused_resolution_counts(patch: pytest.MonkeyPatch) -> None:
    original = fencing.on_refused

    def on_refused(group: Any, result: Any, error: Any) -> Any:
        seen = group.soft.regex_names_seen if isinstance(group, ConsumerGroup) else None
        refused = original(group, result, error)
        if isinstance(group, ConsumerGroup):
            group.soft.regex_names_seen = seen
        return refused

    patch.setattr(fencing, "on_refused", on_refused)


def _the_beginning_of_a_name_matches(patch: pytest.MonkeyPatch) -> None:
    original = regexes.compile_regex
    patch.setattr(regexes, "compile_regex", lambda regex: original(f"(?:{regex}).*"))


def _what_was_found_bumps_no_epoch(patch: pytest.MonkeyPatch) -> None:
    original = regexes.resolution_records

    def resolution_records(*args: Any) -> list[Any]:
        return [each for each in original(*args) if not isinstance(each, ConsumerGroupMetadataRecord)]

    patch.setattr(slices, "resolution_records", resolution_records)


def _what_is_not_resolved_matches_nothing(patch: pytest.MonkeyPatch) -> None:
    def is_subscribed_to(self: ConsumerGroup, topic: str) -> bool:
        resolved = [self.regexes[regex] for regex in self.regex_counts if regex in self.regexes]
        return self.topic_counts[topic] > 0 or any(topic in each.topics for each in resolved)

    patch.setattr(ConsumerGroup, "is_subscribed_to", is_subscribed_to)


# ---- committed offsets -----------------------------------------------------------------------------------------------


def _who_is_no_member_may_commit(patch: pytest.MonkeyPatch) -> None:
    original = commits.allow_commit

    def allow_commit(group: Any, commit: Any, **rest: Any) -> None:
        if commit.member.member_id in group.members:
            original(group, commit, **rest)

    patch.setattr(commits, "allow_commit", allow_commit)


def _a_commit_of_any_former_epoch_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "held_since", lambda self, member, offset: 0)


def _an_upgrade_drops_committed_offsets(patch: pytest.MonkeyPatch) -> None:
    original = GroupShard.consumer_heartbeat

    def consumer_heartbeat(self: GroupShard, request: Any, *args: Any, **rest: Any) -> Any:
        was_classic = isinstance(self.groups.get(request.group_id), ClassicGroup)
        result = original(self, request, *args, **rest)
        if was_classic:
            _drop_offsets(self, request.group_id, result)
        return result

    patch.setattr(GroupShard, "consumer_heartbeat", consumer_heartbeat)


def _a_downgrade_drops_committed_offsets(patch: pytest.MonkeyPatch) -> None:
    original = GroupShard.on_timer

    def on_timer(self: GroupShard, key: Any, **rest: Any) -> Any:
        groups = {name: type(group) for name, group in self.groups.items()}
        result = original(self, key, **rest)
        moved = {each.group_id for each in result.records if isinstance(each, GroupMetadataRecord)}
        for group_id in sorted(moved):
            if groups.get(group_id) is ConsumerGroup:
                _drop_offsets(self, group_id, result)
        return result

    patch.setattr(GroupShard, "on_timer", on_timer)


def _drop_offsets(shard: GroupShard, group_id: str, result: CoordinatorResult) -> None:
    result.records[:0] = shard.offsets.tombstones_of(group_id)


def _offsets_of_subscribed_topics_expire(patch: pytest.MonkeyPatch) -> None:
    original: Any = offsets._is_expired

    def is_expired(group: Any, topic: str, *args: Any) -> bool:
        return bool(original(_Unsubscribed(group), topic, *args))

    patch.setattr(offsets, "_is_expired", is_expired)


class _Unsubscribed:
    """A group, but for its subscriptions."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def is_subscribed_to(self, topic: str) -> bool:
        """Never."""
        return False


# ---- Streams ---------------------------------------------------------------------------------------------------------


def _a_task_is_given_before_it_is_given_up(patch: pytest.MonkeyPatch) -> None:
    original = streams_reconciliation.reconcile

    def reconcile(member: Any, *, others: Any, **rest: Any) -> Any:
        return original(member, others=lambda task: (), **rest)

    patch.setattr(streams_heartbeat, "reconcile", reconcile)


def _a_task_to_be_given_up_counts_as_given_up(patch: pytest.MonkeyPatch) -> None:
    original = streams_reconciliation.reconcile

    def reconcile(member: Any, *, owned: Any, **rest: Any) -> Any:
        return original(member, owned=NO_TASKS if member.is_revoking and owned is not None else owned, **rest)

    patch.setattr(streams_heartbeat, "reconcile", reconcile)


def _a_new_coordinator_of_streams_gives_no_time(patch: pytest.MonkeyPatch) -> None:
    original = streams_fencing.resume

    def resume(*args: Any) -> CoordinatorResult:
        out = original(*args)
        out.timers = [timer._replace(delay_ms=0) if isinstance(timer, ArmTimer) else timer for timer in out.timers]
        return out

    patch.setattr(streams_fencing, "resume", resume)


def _a_standby_is_given_beside_its_task(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streams_reconciliation, "_may_copy", lambda task, member, others: True)


def _a_task_is_given_beside_its_standby(patch: pytest.MonkeyPatch) -> None:
    def may_work(task: Any, member: Any, others: Any) -> bool:
        return not any(role is Role.ACTIVE for _, role in others(task))

    patch.setattr(streams_reconciliation, "_may_work", may_work)


def _each_member_counts_as_a_process(patch: pytest.MonkeyPatch) -> None:
    original = streams_assignor.assign

    def assign(members: Any, **rest: Any) -> Any:
        return original([replace(each, process_id=each.member_id) for each in members], **rest)

    patch.setattr(streams_target, "assign", assign)


def _a_live_member_of_streams_is_replaced(patch: pytest.MonkeyPatch) -> None:
    original = streams_heartbeat.Step.find

    def find(self: streams_heartbeat.Step) -> Any:
        present_id = self.group.static_members.get(self.request.instance_id or "")
        if present_id is None or self.request.epoch != JOINS:
            return original(self)
        return self._replace(self.group.members[present_id])

    patch.setattr(streams_heartbeat.Step, "find", find)


STREAMS_BUGS: tuple[tuple[str, Plant, bool], ...] = (
    ("a task is given before another member gives it up", _a_task_is_given_before_it_is_given_up, True),
    ("a task to be given up counts as given up", _a_task_to_be_given_up_counts_as_given_up, False),
    ("a standby is given beside its task", _a_standby_is_given_beside_its_task, False),
    ("a task is given beside its standby", _a_task_is_given_beside_its_standby, False),
    ("each member counts as a process", _each_member_counts_as_a_process, False),
    ("a new coordinator of Streams gives no time", _a_new_coordinator_of_streams_gives_no_time, False),
    (
        "a static member of Streams that leaves for a while is removed",
        partial(_who_leaves_for_a_while_is_removed, rules=streams_fencing),
        False,
    ),
    ("a live static member of Streams is replaced", _a_live_member_of_streams_is_replaced, False),
    (
        "a static member of Streams that returns has no target",
        partial(_who_returns_has_no_target, steps=streams_heartbeat),
        False,
    ),
)
"""The same, for where the members are of Streams."""
TOLD_BUGS = (
    ("who was replaced commits by its instance id", _who_was_replaced_commits_by_its_instance_id, TwoOfOneInstance),
)
"""Words, plant, and the story in which it is looked for."""
GROUP_BUGS: tuple[tuple[str, Plant, bool], ...] = (
    ("a partition is given before another member gives it up", _a_partition_is_given_before_it_is_given_up, True),
    ("what a member is to give up is nobody's", _what_is_to_be_given_up_is_nobodys, False),
    ("what a member is to give up counts as given up", _what_is_to_be_given_up_counts_as_given_up, False),
    ("a new group coordinator gives its members no time", _a_new_coordinator_gives_no_time, False),
    ("a new group coordinator misses nobody", _a_new_coordinator_waits_for_nobody_to_fall_silent, False),
    ("a new group coordinator knows no holders", _a_new_coordinator_knows_no_holders, False),
    ("an upgrade forgets what classic members have", _an_upgrade_forgets_what_classic_members_have, False),
    ("targets are made anew each time", _targets_are_made_anew, False),
    ("a session ends although the member beats", _a_session_ends_although_the_member_beats, False),
    ("a static member that leaves for a while is removed", _who_leaves_for_a_while_is_removed, True),
    ("a live static member is replaced", _a_live_member_is_replaced, False),
    ("a static member that returns has no target", _who_returns_has_no_target, False),
    ("who was replaced by its instance commits on", _who_was_replaced_stays_a_member, False),
    ("topics that come are not looked for", _topics_that_come_are_not_looked_for, False),
    ("a resolution of patterns that was refused counts", _a_refused_resolution_counts, False),
    ("the beginning of a name matches a pattern", _the_beginning_of_a_name_matches, False),
    ("what a pattern finds bumps no epoch", _what_was_found_bumps_no_epoch, False),
    ("what is not resolved matches nothing", _what_is_not_resolved_matches_nothing, False),
    ("who is no member may commit", _who_is_no_member_may_commit, False),
    ("a commit of any former epoch counts", _a_commit_of_any_former_epoch_counts, False),
    ("an upgrade drops committed offsets", _an_upgrade_drops_committed_offsets, False),
    ("a downgrade drops committed offsets", _a_downgrade_drops_committed_offsets, False),
    ("offsets of subscribed topics expire", _offsets_of_subscribed_topics_expire, True),
)
"""Words, plant, and whether `make test` looks for it too."""
