"""`python -m tests.simulation.node_mutants [--seed N]`: bugs planted into log and replication, and the hunt for each.

May touch:  the real code, in memory, while one bug is hunted; processes it forks.     Must not touch: files, the simulation itself.
Invariants: a bug is looked for with its fixed seed (mutant_seeds.py), and hunted from a random one where that is stale, with the
            simulation that judges the clean code too; exit status 1 when it survives both, the hunt's CPU limit twice, or when the
            clean code breaks a law with a fixed seed; then the last lines say which bug, which seed, which budget. A bug that needs
            what few seeds have is hunted where all have it (Slant), and one that hardly a seed reaches is looked for in a story
            (stories.py), and not hunted. The clean code is then searched in each slant from a random
            seed, once: what that finds fails nothing, it is to become a scenario.
Read next:  swarm.py and faults.py, which make them fall; mutants/ for the bugs of consensus.

Each bug is one that a careful person could write, most are from the history of Kafka. "Outcome laws" means that only clients
judge: acknowledged records lost, doubled or moved, reads that change, a cluster that does not come back.

Not among them, for it takes metadata within the turns of one clean stop, and fell to one seed in many thousands:
- Metadata is applied behind closed logs. tests/broker/metadata/test_publisher.py holds it.

Nor these, for another guard holds when theirs is gone; unit tests hold each alone:
- The controller takes ISR members of any life. A life that lost its disk has another directory.id: until it is told the proposal
  is refused, and after it the partition epoch is newer. A life that kept its disk has what it told.
- A fetch of a life that the leader has not heard of counts. A follower fetches only once it has heard of itself.
- Compaction passes the high watermark, loses a last sequence, swaps over a log that was cut, finishes half a swap. Clients have too
  little in flight, and cuts below what is committed are too rare; tests/log/cleaner holds each.
- A cut within damage does not wait for the controller to know of the damage. One seed in some 400 CPU seconds;
  tests/replication/test_partition.py holds it.
- An answer installs an ISR before the image does. None of 200 CPU seconds; tests/replication/test_partition.py holds it.
- A stop counts as clean for ever. The look at a log's end after a clean stop cuts what is torn there; tests/log/test_manager.py holds the
  mark.
- The epoch of an earlier life is led. Nobody is served before the broker has heard of this life (metadata/readiness.py).
"""

from __future__ import annotations

import argparse
import gc
import inspect
import logging
import multiprocessing
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import SystemRandom
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.metadata import readiness
from barnabas_broker.metadata.lifecycle import BrokerLifecycle
from barnabas_broker.metadata.voters_clock import VotersClock
from barnabas_broker.node.control_service import ControlService
from barnabas_broker.node.node import Node
from barnabas_log.cleaner import key_scan, survival
from barnabas_log.cleaner.key_scan import keep_last
from barnabas_log.cleaner.survival import KeyOffsets
from barnabas_log.cleaner.swap import PendingSwap
from barnabas_log.config import LogConfig
from barnabas_log.directories import checkpoint_twins, checkpoints, directory_health, saved_offsets, topic_witness
from barnabas_log.directories import manager as log_manager
from barnabas_log.directories.checkpoint_twins import Settled
from barnabas_log.directories.directory_health import DirectoryHealth
from barnabas_log.directories.log_homes import LogHomes
from barnabas_log.directories.manager import LogManager
from barnabas_log.directories.removals import Removals
from barnabas_log.directories.saved_offsets import SavedOffsets
from barnabas_log.directories.topic_witness import Fate
from barnabas_log.errors import DiskFull
from barnabas_log.recovery import log_repairs, recovery, repair, segment_proof
from barnabas_log.recovery.log_repairs import LogRepairs
from barnabas_log.tail import batch_run, flush, log_tail, producer_snapshots, retention, retiring, truncating
from barnabas_log.tail.log_tail import LogTail
from barnabas_log.tail.producer_state import ProducerEntry, ProducerState
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.controller import brokers as controller_brokers
from barnabas_quorum.controller import directories as controller_directories
from barnabas_quorum.controller import partition_change
from barnabas_quorum.controller.partition_change import Replicas, build_change
from barnabas_quorum.controller.sessions import BrokerSessions
from barnabas_quorum.image import snapshot
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.follower import fetch_plan, fetcher_partitions, follower_log
from barnabas_replication.follower.fetch_plan import Meaning
from barnabas_replication.follower.fetcher_pool import FetcherPool
from barnabas_replication.follower.follower_log import TruncationStep
from barnabas_replication.follower.missed_deletions import Intake
from barnabas_replication.hosting import replica_logs, roles
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.hosting.hosting import Hosting
from barnabas_replication.hosting.log_placement import refusal_of_new_log
from barnabas_replication.hosting.replica_faults import ReplicaFaults
from barnabas_replication.hosting.replica_logs import NotOpened, ReplicaLogs
from barnabas_replication.leader import batch_partitions, isr, isr_changes, reads
from barnabas_replication.leader.appends import Appends
from barnabas_replication.leader.fetches import Fetches
from barnabas_replication.leader.isr import IsrState
from barnabas_replication.manager import NO_SETTINGS, ReplicaManager
from barnabas_replication.partition import Partition
from barnabas_simulation.cluster import Cluster
from barnabas_simulation.disk import SimulatedFile
from barnabas_simulation.swarm import Slant
from barnabas_wire.error_groups import leaves
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET
from tests.simulation import stories
from tests.simulation.group_mutants import GROUP_BUGS, STREAMS_BUGS, TOLD_BUGS
from tests.simulation.host_mutants import HOST_BUGS
from tests.simulation.late_leader import LateLeader
from tests.simulation.listener_mutants import LISTENER_BUGS
from tests.simulation.mutant_seeds import WINDOW, load_seeds, save_seeds
from tests.simulation.mutants import OTHER_SEEDS, SEEDS_MAX, clean_limit_s
from tests.simulation.mutants.__main__ import ACCUSED, TRIES_MAX, stale_line, word_of
from tests.simulation.node_seeds import slanted
from tests.simulation.transaction_mutants import COORDINATOR_BUGS, HANDLER_BUGS, TRANSACTION_BUGS
from tests.simulation.watchdog import watched

STEPS = 12_000
KEYS_NOTED, SWAP_PREPARED = KeyOffsets.note, PendingSwap.prepare
"""The real ones, for bugs that go through them."""
CPU_LIMIT_S = 600
MISFITS = (TypeError, AttributeError, NameError, stories.StoryFailed)
"""Errors of a planted bug that no longer matches the code it patches, or of a story that does not."""

Plant = Callable[[pytest.MonkeyPatch], None]


def _leader_counts_what_it_has_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "durable_end_offset", property(lambda self: self.log.written_end_offset))
    patch.setattr(fetcher_partitions, "_is_durable", lambda partition: True)


def _follower_fetches_on_before_its_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetcher_partitions, "_is_durable", lambda partition: True)


def _leader_takes_the_fetch_offset_for_flushed(patch: pytest.MonkeyPatch) -> None:
    original = reads.fetch_from

    def fetch_from(self: Partition, spec: Any, *args: Any, **rest: Any) -> Any:
        return original(self, spec._replace(flushed_offset=NO_OFFSET), *args, **rest)

    patch.setattr(reads, "fetch_from", fetch_from)


def _leader_never_tells_a_follower_to_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reads, "find_divergence", lambda **_: None)


def _anybody_may_join_the_isr(patch: pytest.MonkeyPatch) -> None:
    def may_join(state: IsrState, replica: Any, *, is_eligible: bool, **_: Any) -> bool:
        return state.change is None and replica.broker_id not in state.committed and is_eligible

    patch.setattr(isr, "may_join", may_join)


def _snapshots_know_the_newest_batch_only(patch: pytest.MonkeyPatch) -> None:
    original = producer_snapshots._entries

    def entries(body: bytes) -> list[ProducerEntry]:
        found = list(original(body))
        for entry in found:
            while len(entry.batches) > 1:
                entry.batches.popleft()
        return found

    patch.setattr(producer_snapshots, "_entries", entries)


def _new_leader_expects_no_batch_again(patch: pytest.MonkeyPatch) -> None:
    original = Partition.expect_again

    def expect_again(self: Partition, error: KafkaError, now_ms: int) -> None:
        if not isinstance(error, NotLeaderOrFollower):
            original(self, error, now_ms)

    patch.setattr(Partition, "expect_again", expect_again)


def _refused_batches_are_not_expected_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_partitions, "PASSING_CODES", frozenset())


def _joiner_counts_only_when_the_controller_agreed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        IsrState, "expanding", lambda self, joiner: replace(self, change=isr.IsrChange.EXPAND, maximal=self.committed)
    )
    patch.setattr(Partition, "_is_about_to_join", lambda self, replica, now_ms: False)
    original = isr_changes.propose

    def propose(self: Partition, members: frozenset[Any]) -> None:
        joiners = {
            replica.broker_id
            for replica in self.remotes.values()
            if self.isr.change is isr.IsrChange.EXPAND
            and self.is_eligible(replica)
            and replica.end_offset >= self.high_watermark
        }
        original(self, frozenset(members | joiners))

    patch.setattr(isr_changes, "propose", propose)


def _leaver_stops_counting_before_the_controller_agreed(patch: pytest.MonkeyPatch) -> None:
    original = isr_changes.propose

    def propose(self: Partition, members: frozenset[Any]) -> None:
        original(self, members)
        if self.isr.change is isr.IsrChange.SHRINK:
            self.isr = replace(self.isr, maximal=members)

    patch.setattr(isr_changes, "propose", propose)


def _clients_are_served_before_the_broker_is_unfenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(readiness, "is_in_service", lambda image, broker_id, incarnation_id: True)


def _registration_of_an_earlier_life_makes_ready(patch: pytest.MonkeyPatch) -> None:
    def is_in_service(image: MetadataImage, broker_id: Any, incarnation_id: Any) -> bool:
        broker = image.cluster.broker(broker_id)
        return broker is not None and not broker.is_fenced

    patch.setattr(readiness, "is_in_service", is_in_service)


def _late_controller_gives_no_time_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerSessions, "give_back", lambda self, late_ms, *, now_ms: None)


def _fetch_of_an_earlier_life_counts(patch: pytest.MonkeyPatch) -> None:
    def is_known_incarnation(self: Partition, broker_id: Any, broker_epoch: int) -> bool:
        registered = self.cluster.active_broker_epoch(broker_id)
        return registered is None or broker_epoch <= registered

    patch.setattr(Fetches, "_is_from_earlier_life", lambda self, request: False)
    patch.setattr(Partition, "is_known_incarnation", is_known_incarnation)


def _wrong_clock_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VotersClock, "may_judge_age", lambda self: True)


def _replaced_disk_is_taken_for_the_old_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller_brokers, "is_replica_gone", lambda *_, **__: False)
    patch.setattr(controller_directories, "build_change", lambda *args, gone, **rest: build_change(*args, **rest))


def _follower_truncates_to_its_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = roles.follow

    def follow(partition: Partition, registration: Any) -> bool:
        is_new = original(partition, registration)
        if is_new:
            truncating.truncate_to(partition.log, partition.high_watermark)
        return is_new

    patch.setattr(roles, "follow", follow)


def _follower_does_not_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower_log, "truncate_for", lambda self, leader: TruncationStep(self.log.log_end_offset, False))


def _epochs_stay_when_the_log_is_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogTail, "forget_empty_epochs", lambda self: None)


def _producers_stay_when_the_log_is_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerState, "truncate_to", lambda self, offset: True)


def _acks_all_is_answered_by_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    original = Appends.append_records

    def append_records(self: Appends, entries: Any, *, required_acks: int, **rest: Any) -> None:
        original(self, entries, required_acks=abs(required_acks), **rest)

    patch.setattr(Appends, "append_records", append_records)


def _duplicates_are_forgotten_by_a_restart(patch: pytest.MonkeyPatch) -> None:
    def load_producers(disk: Any, directory: str, segments: Any, *, end_offset: Any, **_: Any) -> ProducerState:
        state = ProducerState()
        state.clear(end_offset)
        return state

    patch.setattr(recovery, "load_producers", load_producers)


def _duplicates_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerState, "check", lambda self, **_: None)


def _new_leader_takes_its_whole_log_for_committed(patch: pytest.MonkeyPatch) -> None:
    original = roles._begin_epoch

    def begin_epoch(partition: Partition, registration: Any, now_ms: int) -> None:
        original(partition, registration, now_ms)
        partition.set_high_watermark(partition.log.log_end_offset)

    patch.setattr(roles, "_begin_epoch", begin_epoch)


def _new_leader_names_an_older_end(patch: pytest.MonkeyPatch) -> None:
    original = roles._begin_epoch

    def begin_epoch(partition: Partition, registration: Any, now_ms: int) -> None:
        original(partition, registration, now_ms)
        partition.leader_epoch_start_offset = partition.log.log_start_offset

    patch.setattr(roles, "_begin_epoch", begin_epoch)


def _high_watermark_checkpoint_is_ahead(patch: pytest.MonkeyPatch) -> None:
    def save(self: SavedOffsets, offsets: Any) -> None:
        with self._saving:
            here = {log.topic_partition: log.log_end_offset for log, _ in offsets if self._has(log)}
            checkpoints.write_offsets(self._disk, f"{self._directory}/{checkpoints.HIGH_WATERMARKS_FILE}", here)
            self.high_watermarks = here

    patch.setattr(SavedOffsets, "save_high_watermarks", save)


def _topic_made_again_takes_the_old_checkpoints(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SavedOffsets, "forget_deleted", lambda self: self.deleted.clear())


def _follower_takes_the_leaders_high_watermark_unclamped(patch: pytest.MonkeyPatch) -> None:
    original = follower_log.append_as_follower

    def append(self: Partition, batches: Any, *, high_watermark: Any, log_start_offset: Any) -> bool:
        has_grown = original(self, batches, high_watermark=high_watermark, log_start_offset=log_start_offset)
        self.high_watermark = max(self.high_watermark, high_watermark)
        return has_grown

    patch.setattr(follower_log, "append_as_follower", append)


def _rolled_segment_is_never_flushed(patch: pytest.MonkeyPatch) -> None:
    original = LogTail.roll

    def roll(self: LogTail, now_ms: int, **rest: Any) -> Any:
        active = original(self, now_ms, **rest)
        self.durability._segments.clear()
        return active

    patch.setattr(LogTail, "roll", roll)


def _torn_tail_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_cut_tail", lambda segment: 0)


def _checksums_are_not_proved(patch: pytest.MonkeyPatch) -> None:
    class Anything:
        def __ne__(self, other: object) -> bool:
            return False

    patch.setattr(segment_proof, "crc32c", lambda data: Anything())


def _retention_passes_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = retention.deletable_count

    def deletable_count(facts: Any, **rest: Any) -> int:
        return original(facts, **{**rest, "high_watermark": facts[-1].end_offset})

    retire = LogManager._retire

    def retire_at_once(self: LogManager, log: UnifiedLog, *, may_block: bool = True) -> None:
        retire(self, log, may_block=True)  # else the start that is saved first goes up to the HW only

    patch.setattr(retiring, "deletable_count", deletable_count)
    patch.setattr(LogManager, "_retire", retire_at_once)


def _loaded_logs_are_shortened_by_the_defaults(patch: pytest.MonkeyPatch) -> None:
    original = LogManager.__init__

    def init(self: LogManager, *, default_config: LogConfig, **rest: Any) -> None:
        original(self, default_config=default_config, **rest)
        self._loaded_config = default_config

    patch.setattr(LogManager, "__init__", init)


def _high_watermark_passes_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr, "effective_min_isr", lambda **_: 1)
    patch.setattr(Partition, "min_isr", 1)


def _isr_is_judged_by_the_settings_before_it(patch: pytest.MonkeyPatch) -> None:
    original = ReplicaManager.apply_delta

    def apply_delta(self: ReplicaManager, delta: Any, image: Any, *, settings: Any = NO_SETTINGS, **rest: Any) -> None:
        original(self, delta, image)
        original(self, None, image, settings=settings, **rest)

    patch.setattr(ReplicaManager, "apply_delta", apply_delta)


def _flush_tells_before_it_is_done(patch: pytest.MonkeyPatch) -> None:
    original = UnifiedLog.dirty_files

    def dirty_files(self: UnifiedLog) -> Any:
        files = original(self)
        self.durability.flushed_end_offset = self.written_end_offset
        return files

    patch.setattr(UnifiedLog, "dirty_files", dirty_files)


def _new_directory_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    original = UnifiedLog.dirty_files

    def dirty_files(self: UnifiedLog) -> Any:
        self.durability._has_new_names, self.durability._is_parent_flushed = False, True
        return original(self)

    patch.setattr(UnifiedLog, "dirty_files", dirty_files)


def _log_of_a_deleted_topic_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    original = log_manager.LogManager.get_or_create

    def get_or_create(self: LogManager, topic_partition: Any, topic_id: Any, config: Any, **rest: Any) -> UnifiedLog:
        log = self.get(topic_partition)
        if log is not None and log.topic_id != topic_id:
            log.topic_id = topic_id
        return original(self, topic_partition, topic_id, config, **rest)

    patch.setattr(LogManager, "get_or_create", get_or_create)
    patch.setattr(LogManager, "delete", lambda self, topic_partition: None)


def _move_ends_with_one_wanted_replica_in_sync(patch: pytest.MonkeyPatch) -> None:
    def completed_reassignment(wanted: Replicas, members: tuple[Any, ...]) -> tuple[Replicas, tuple[Any, ...]] | None:
        staying = tuple(replica for replica in wanted.all if replica not in wanted.removing)
        if not (wanted.adding or wanted.removing) or not set(staying) & set(members):
            return None
        return Replicas(staying), tuple(member for member in members if member in staying)

    patch.setattr(partition_change, "completed_reassignment", completed_reassignment)


def _replica_that_moved_away_stays(patch: pytest.MonkeyPatch) -> None:
    original = Hosting._remove

    def remove(self: Hosting, topic_partition: Any, topic_id: Any) -> None:
        if self._hosted.image.topics.partition(topic_partition) is None:
            original(self, topic_partition, topic_id)

    patch.setattr(Hosting, "_remove", remove)


def _strays_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaLogs, "set_strays_aside", lambda self: None)


def _failed_directory_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerLifecycle, "set_offline_directories", lambda self, directories, *, count: None)


def _failed_directory_is_used_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DirectoryHealth, "fail", lambda self, directory, error: None)
    patch.setattr(LogTail, "fail", lambda self, error: None)


def _want_of_descriptors_is_taken_for_a_dead_disk(patch: pytest.MonkeyPatch) -> None:
    for module in (log_tail, log_manager, directory_health, log_repairs, flush):
        patch.setattr(module, "is_out_of_descriptors", lambda error: False)


def _what_found_no_room_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    original = LogTail._write

    def write(self: LogTail, parts: Any) -> None:
        try:
            original(self, parts)
        except DiskFull:
            self.durability.written_end_offset = self.log_end_offset

    patch.setattr(LogTail, "_write", write)


def _full_directory_is_never_used_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DirectoryHealth, "regain_space", lambda self, directory: None)


def _follower_with_room_again_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = ReplicaFaults._set_fault

    def set_fault(self: ReplicaFaults, target: Partition, *, has_space: bool, **rest: bool) -> None:
        if has_space and not target.has_space and not target.is_leader:
            with pytest.MonkeyPatch.context() as within:
                within.setattr(FetcherPool, "begin", lambda self, partition: None)
                original(self, target, has_space=has_space, **rest)
        else:
            original(self, target, has_space=has_space, **rest)

    patch.setattr(ReplicaFaults, "_set_fault", set_fault)


def _failed_directory_leaves_no_isr(patch: pytest.MonkeyPatch) -> None:
    def fail_directories(image: Any, broker: Any, offline: Any, *, rules: Any) -> list[Any]:
        records = controller_directories.fail_directories(image, broker, offline, rules=rules)
        return records[-1:]

    patch.setattr(controller_brokers, "fail_directories", fail_directories)


def _clean_stop_forgets_to_flush(patch: pytest.MonkeyPatch) -> None:
    def close(self: UnifiedLog) -> None:
        if not self.is_closed:
            self.tail.write_pending(is_forced=True)
            self.release_files()

    patch.setattr(UnifiedLog, "close", close)


def _of_two_logs_the_wrong_one_serves(patch: pytest.MonkeyPatch) -> None:
    original = LogHomes.settle

    def settle(self: LogHomes, topic_partition: Any, topic_id: Any, *, directory_id: Any) -> None:
        self.rivals[topic_partition].sort(key=lambda log: log.topic_id == topic_id)
        wrong = self.rivals[topic_partition][0]
        original(self, topic_partition, wrong.topic_id, directory_id=self.directories[wrong].id)

    patch.setattr(LogHomes, "settle", settle)


def _log_is_begun_for_what_an_older_image_calls_new(patch: pytest.MonkeyPatch) -> None:
    original = ReplicaLogs._refusal_of_new_log

    def refusal(self: ReplicaLogs, topic_partition: Any, registration: Any) -> NotOpened | None:
        online, has_offline = self._logs.health.online_directory_ids, bool(self._logs.health.offline_directories)
        broker_id = self._hosted.broker_id
        if refusal_of_new_log(registration, broker_id, online=online, has_offline=has_offline) is None:
            return None
        return original(self, topic_partition, registration)

    patch.setattr(ReplicaLogs, "_refusal_of_new_log", refusal)


def _snapshot_loads_without_configs(patch: pytest.MonkeyPatch) -> None:
    original = snapshot.loaded_delta

    def loaded_delta(groups: Any, without: Any) -> Any:
        delta = yield from original(groups, without)
        image = delta.apply(NO_OFFSET, NO_EPOCH, -1)
        return MetadataDelta(replace(image, configs=MetadataImage.EMPTY.configs))

    patch.setattr(snapshot, "loaded_delta", loaded_delta)


def _empty_log_is_asked_for_the_epoch_that_retention_took(patch: pytest.MonkeyPatch) -> None:
    def must_begin_anew(*, log_start_offset: Any, local: Any, **_: Any) -> bool:
        return bool(0 < log_start_offset >= local.end_offset)

    original = fetch_plan.meaning_of

    def meaning_of(fetched: Any, **log: Any) -> Meaning:
        meaning = original(fetched, **log)
        return Meaning.WAIT if meaning is Meaning.FORGET_EPOCH else meaning

    patch.setattr(reads, "must_begin_anew", must_begin_anew)
    patch.setattr(fetcher_partitions, "meaning_of", meaning_of)


def _log_that_begins_within_a_batch_refuses_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower_log, "_begin_where_its_first_batch_does", lambda self, batches: None)


def _log_begun_anew_counts_before_its_flush(patch: pytest.MonkeyPatch) -> None:
    original = truncating.truncate_fully_and_start_at

    def start_at(log: UnifiedLog, offset: Any) -> None:
        original(log, offset)
        log.durability.flushed_end_offset = offset

    patch.setattr(truncating, "truncate_fully_and_start_at", start_at)


def _follower_goes_on_where_its_leader_has_forgotten_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetcher_partitions, "intake_of", lambda **known: Intake.PLAIN)


def _deletion_is_answered_without_the_eligible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostedPartitions, "eligible_elsewhere", lambda self, partition: {})


def _retention_tells_of_a_start_before_it_is_saved(patch: pytest.MonkeyPatch) -> None:
    changes = (("if not may_block:\n", "if False:\n"), ("log.durability.sync_names()", "pass"))
    patch.setattr(retiring, "apply_retention", _rewritten(retiring.apply_retention, *changes))


def _retention_goes_by_the_oldest_record(patch: pytest.MonkeyPatch) -> None:
    original = retention.deletable_count

    def deletable_count(facts: Any, **rest: Any) -> int:
        oldest_ms = min(segment.largest_timestamp_ms for segment in facts)
        return original([segment._replace(largest_timestamp_ms=oldest_ms) for segment in facts], **rest)

    patch.setattr(retiring, "deletable_count", deletable_count)


def _silent_follower_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr_changes, "drop_silent", lambda self, *, now_ms: None)


def _silent_follower_counts_as_about_to_join(patch: pytest.MonkeyPatch) -> None:
    def is_about_to_join(self: Partition, replica: Any, now_ms: int) -> bool:
        return isr.is_caught_up(
            replica,
            leader_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
            lag_ms_max=self.config.replica_lag_time_ms_max,
        ) and self.is_eligible(replica)

    patch.setattr(Partition, "_is_about_to_join", is_about_to_join)


def _follower_takes_what_its_leader_sends_unproved(patch: pytest.MonkeyPatch) -> None:
    class Anything:
        def __ne__(self, other: object) -> bool:
            return False

    patch.setattr(batch_run, "crc32c", lambda data: Anything())


def _damage_is_cleared_and_not_repaired(patch: pytest.MonkeyPatch) -> None:
    async def replace_damaged(self: LogRepairs, log: UnifiedLog, damage: Any, batches: bytes) -> bool:
        repair.set_damage(log, damage.segment, [])
        return True

    patch.setattr(LogRepairs, "replace_damaged", replace_damaged)


def _corrupt_leader_goes_on_leading(patch: pytest.MonkeyPatch) -> None:
    original = ReplicaFaults.set_fault

    def set_fault(self: ReplicaFaults, topic_partition: Any, fault: ReplicaFault | None) -> None:
        if fault is not ReplicaFault.CORRUPT:
            original(self, topic_partition, fault)

    patch.setattr(ReplicaFaults, "set_fault", set_fault)


def _what_a_scrub_finds_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repair, "set_damage", lambda log, base_offset, damages: False)


def _repaired_replica_keeps_the_producers_it_had_read(patch: pytest.MonkeyPatch) -> None:
    async def reload_producers(self: LogRepairs, log: UnifiedLog) -> bool:
        return True

    patch.setattr(LogRepairs, "reload_producers", reload_producers)


def _damaged_leader_trusts_what_it_knows_of_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogTail, "is_sole_copy", property(lambda log: True, lambda log, is_sole: None), raising=False)


def _compaction_drops_the_last_value(patch: pytest.MonkeyPatch) -> None:
    """> for >=, as where the offset in the map is taken for that of a later record."""

    def keep(records: bytes, *, offsets: Mapping[bytes, int], **rest: Any) -> Any:
        return keep_last(records, offsets={key: offset + 1 for key, offset in offsets.items()}, **rest)

    patch.setattr(survival, "keep_last", keep)


def _two_keys_share_a_slot_of_the_map(patch: pytest.MonkeyPatch) -> None:
    """A digest that is cut short: the map wraps."""
    patch.setattr(key_scan, "_digest", lambda key: SimpleNamespace(digest=lambda: key[-4:]))


def _tombstones_go_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        survival, "keep_last", lambda records, **rest: keep_last(records, **{**rest, "drops_tombstones": True})
    )


def _a_full_map_counts_as_complete(patch: pytest.MonkeyPatch) -> None:
    """What did not fit is cleaned by all the same: keys that were noted later than the map was full."""

    def note(self: KeyOffsets, batch: Any, header: Any, transactions: Any) -> None:
        before = dict(self.offsets)
        KEYS_NOTED(self, batch, header, transactions)
        if len(self.offsets) > self.entries_max // 4 and before:
            # the table begins anew where it is full, and the oldest keys are overwritten by later offsets
            first = next(iter(before))
            self.offsets[first] = int(self.latest)

    patch.setattr(KeyOffsets, "note", note)


def _compaction_swaps_without_a_flush(patch: pytest.MonkeyPatch) -> None:
    def prepare(self: PendingSwap) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimulatedFile, "sync", lambda file: None)
            return SWAP_PREPARED(self)

    patch.setattr(PendingSwap, "prepare", prepare)


def _recovery_takes_a_gap_for_the_end(patch: pytest.MonkeyPatch) -> None:
    original = segment_proof.rebuild_segment
    patch.setattr(
        recovery,
        "rebuild_segment",
        lambda *rest, **named: original(*rest, **{**named, "gaps": segment_proof.Gaps.NEVER}),
    )


def _a_follower_refuses_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        log_tail,
        "read_run",
        lambda view, at, *, next_offset, **rest: batch_run.read_run(view, at, next_offset=next_offset),
    )


def _log_in_doubt_is_taken_for_a_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    original = topic_witness.fate_of

    def fate_of(*args: Any, **rest: Any) -> Fate:
        fate = original(*args, **rest)
        return Fate.REMOVE if fate is Fate.SET_ASIDE else fate

    patch.setattr(replica_logs, "fate_of", fate_of)


def _deleted_directory_is_emptied_before_its_name_is_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Removals, "_remove_tree", lambda self, path: self._disk.remove_tree(path))


def _what_was_flushed_and_is_gone_is_not_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogManager, "_missing_in", lambda self, directory, opened: {})


def _checkpoint_counts_whatever_its_twin_says(patch: pytest.MonkeyPatch) -> None:
    original = checkpoint_twins.settle

    def settle(main: bytes | None, twin: bytes | None, *, path: str) -> Settled:
        return original(main, None if main is not None else twin, path=path)._replace(is_proved=True)

    patch.setattr(saved_offsets, "settle", settle)


def _older_copy_of_a_directory_is_taken_for_the_newest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller_brokers, "older_copies", lambda present, request: frozenset())


def _replica_that_lost_records_says_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogManager, "lost_replica", lambda self, topic_partition, topic_id: None)


def _rewritten(method: Any, *changes: tuple[str, str]) -> Any:
    """The method with other words in it. Raises AttributeError where it has not the old ones, once each."""
    source = textwrap.dedent(inspect.getsource(method))
    for old, new in changes:
        if source.count(old) != 1:
            raise AttributeError(f"{method.__qualname__} has not {old!r}, once")
        source = source.replace(old, new)
    made: dict[str, Any] = {}
    exec(compile(source, inspect.getfile(method), "exec"), {**method.__globals__}, made)
    return made[method.__name__]


def _logs_are_closed_before_the_publisher_stops(patch: pytest.MonkeyPatch) -> None:
    close, stop = "await broker.logs.close(broker_epoch=broker.epoch_to_keep)\n", "broker.publisher.stop()\n"
    indent = " " * 8
    changes = ((f"{indent}{stop}", ""), (f"{indent}{close}", f"{indent}{close}{indent}{stop}"))
    patch.setattr(Node, "_run_broker", _rewritten(Node._run_broker, *changes))


def _registrar_hears_of_no_metadata(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ControlService,
        "__init__",
        _rewritten(ControlService.__init__, ("(parts.driver, parts.registrar, ", "(parts.driver, ")),
    )


@dataclass(frozen=True, slots=True)
class NodeMutant:
    """A planted bug. `is_tested`: whether `make test` looks for it too, from its fixed seed on; `make sim-mutants` looks for all."""

    bug: str
    plant: Plant
    is_tested: bool = False
    slant: Slant = Slant.NONE
    """What all seeds have in which it is hunted."""
    story: Callable[[], Cluster] | None = None
    """What it is looked for in where one seed in some hundred would find it."""


MUTANTS = (
    NodeMutant(
        "clients are served before the broker is unfenced",
        _clients_are_served_before_the_broker_is_unfenced,
        is_tested=True,
    ),
    NodeMutant(
        "an earlier life's registration makes a broker ready",
        _registration_of_an_earlier_life_makes_ready,
        is_tested=True,
    ),
    NodeMutant("a late controller gives no time back", _late_controller_gives_no_time_back, story=stories.StandsStill),
    NodeMutant(
        "anybody may join the ISR, its end unchecked", _anybody_may_join_the_isr, story=stories.UncommittedTails
    ),
    NodeMutant("records go by a clock that is days ahead", _wrong_clock_is_believed, is_tested=True),
    NodeMutant("a replaced disk is taken for the old one", _replaced_disk_is_taken_for_the_old_one),
    NodeMutant("a fetch of an earlier life counts (KIP-903)", _fetch_of_an_earlier_life_counts, story=stories.Haunted),
    NodeMutant("HW counts what the leader has not flushed", _leader_counts_what_it_has_not_flushed, is_tested=True),
    NodeMutant("a follower fetches on before its flush", _follower_fetches_on_before_its_flush, is_tested=True),
    NodeMutant("a leader takes a fetch ahead for flushed", _leader_takes_the_fetch_offset_for_flushed, is_tested=True),
    NodeMutant("a flush tells before it is done", _flush_tells_before_it_is_done, story=stories.UncommittedTails),
    NodeMutant("acks=all is answered by the leader alone", _acks_all_is_answered_by_the_leader_alone, is_tested=True),
    NodeMutant(
        "a joiner counts only once the controller agreed",
        _joiner_counts_only_when_the_controller_agreed,
        story=stories.LateAnswers,
    ),
    NodeMutant("a leaver counts no more before it agreed", _leaver_stops_counting_before_the_controller_agreed),
    NodeMutant("the HW passes below min ISR", _high_watermark_passes_below_min_isr),
    NodeMutant(
        "an ISR is judged by the settings before it", _isr_is_judged_by_the_settings_before_it, story=LateLeader
    ),
    NodeMutant(
        "a leader never tells a follower to truncate", _leader_never_tells_a_follower_to_truncate, is_tested=True
    ),
    NodeMutant("a follower does not truncate when told", _follower_does_not_truncate),
    NodeMutant("a follower truncates to its HW (KIP-101)", _follower_truncates_to_its_high_watermark, is_tested=True),
    NodeMutant("leader epochs stay when the log is cut", _epochs_stay_when_the_log_is_cut),
    NodeMutant(
        "producer state stays when the log is cut", _producers_stay_when_the_log_is_cut, story=stories.TailWrittenAgain
    ),
    NodeMutant("a restart forgets producers", _duplicates_are_forgotten_by_a_restart, is_tested=True),
    NodeMutant("duplicates are not looked for", _duplicates_are_not_looked_for, story=stories.UncommittedTails),
    NodeMutant(
        "a new leader takes its log for committed",
        _new_leader_takes_its_whole_log_for_committed,
        story=stories.UncommittedTails,
    ),
    NodeMutant("a new leader names an older end (KIP-207)", _new_leader_names_an_older_end),
    NodeMutant("the HW checkpoint is ahead", _high_watermark_checkpoint_is_ahead, story=stories.UncommittedTails),
    NodeMutant(
        "a topic made again takes the old checkpoints",
        _topic_made_again_takes_the_old_checkpoints,
        story=stories.TopicMadeAgain,
    ),
    NodeMutant("a topic made again takes the old log", _log_of_a_deleted_topic_is_taken_over),
    NodeMutant("a follower's HW passes its log", _follower_takes_the_leaders_high_watermark_unclamped),
    NodeMutant("a rolled segment is never flushed", _rolled_segment_is_never_flushed, story=stories.SlowFlushes),
    NodeMutant("a new directory is not flushed", _new_directory_is_not_flushed, is_tested=True),
    NodeMutant("a torn tail stays", _torn_tail_stays, story=stories.UncommittedTails),
    NodeMutant("checksums are not proved in recovery", _checksums_are_not_proved),
    NodeMutant("retention passes the HW", _retention_passes_the_high_watermark, story=stories.TrimmedTails),
    NodeMutant(
        "an empty log is asked for an epoch that is gone", _empty_log_is_asked_for_the_epoch_that_retention_took
    ),
    NodeMutant(
        "a log that begins within a batch refuses it", _log_that_begins_within_a_batch_refuses_it, slant=Slant.DELETING
    ),
    NodeMutant(
        "a deletion is answered without the eligible",
        _deletion_is_answered_without_the_eligible,
        is_tested=True,
        slant=Slant.DELETING,
    ),
    NodeMutant(
        "a log begun anew counts before its flush", _log_begun_anew_counts_before_its_flush, story=stories.BegunAnew
    ),
    NodeMutant("retention goes by the oldest record", _retention_goes_by_the_oldest_record),
    NodeMutant(
        "retention tells of a start before it is saved",
        _retention_tells_of_a_start_before_it_is_saved,
        story=stories.TrimmedEverywhere,
    ),
    NodeMutant("a silent follower keeps its place in the ISR", _silent_follower_keeps_its_place),
    NodeMutant("a silent follower counts as about to join", _silent_follower_counts_as_about_to_join),
    NodeMutant("loaded logs are shortened by the defaults", _loaded_logs_are_shortened_by_the_defaults),
    NodeMutant("a move ends with one wanted replica in sync", _move_ends_with_one_wanted_replica_in_sync),
    NodeMutant("a replica that moved away stays", _replica_that_moved_away_stays),
    NodeMutant("what moved away during a stop stays", _strays_stay),
    NodeMutant("a failed directory is not told", _failed_directory_is_not_told),
    NodeMutant("a failed directory is used on", _failed_directory_is_used_on),
    NodeMutant(
        "want of descriptors is taken for a dead disk", _want_of_descriptors_is_taken_for_a_dead_disk, is_tested=True
    ),
    NodeMutant("what found no room counts as written", _what_found_no_room_counts_as_written),
    NodeMutant("a full directory is never used again", _full_directory_is_never_used_again),
    NodeMutant("a follower with room again is forgotten", _follower_with_room_again_is_forgotten),
    NodeMutant("who is in a failed directory stays in sync", _failed_directory_leaves_no_isr),
    NodeMutant("a clean stop forgets to flush", _clean_stop_forgets_to_flush, story=stories.StopsInTurn),
    NodeMutant("of two logs of a name the wrong one serves", _of_two_logs_the_wrong_one_serves, slant=Slant.BEGUN_ANEW),
    NodeMutant(
        "a log is begun for what was new long ago",
        _log_is_begun_for_what_an_older_image_calls_new,
        slant=Slant.BEGUN_ANEW,
    ),
    NodeMutant("a snapshot loads without configs", _snapshot_loads_without_configs),
    NodeMutant("a follower takes damaged batches", _follower_takes_what_its_leader_sends_unproved, slant=Slant.ROT),
    NodeMutant("damage is cleared and not repaired", _damage_is_cleared_and_not_repaired, slant=Slant.ROT),
    NodeMutant(
        "a repaired replica keeps the producers it had read",
        _repaired_replica_keeps_the_producers_it_had_read,
        slant=Slant.ROT,
    ),
    NodeMutant(
        "a damaged leader trusts what it knows of producers",
        _damaged_leader_trusts_what_it_knows_of_producers,
        story=stories.DoubtedLeader,
    ),
    NodeMutant("a corrupt leader goes on leading", _corrupt_leader_goes_on_leading, slant=Slant.ROT),
    NodeMutant("what a scrub finds is forgotten", _what_a_scrub_finds_is_forgotten, slant=Slant.ROT),
    NodeMutant("compaction drops the last value", _compaction_drops_the_last_value),
    NodeMutant("two keys share a slot of the map", _two_keys_share_a_slot_of_the_map, is_tested=True),
    NodeMutant("a full map counts as complete", _a_full_map_counts_as_complete),
    NodeMutant("compaction lets tombstones go at once", _tombstones_go_at_once, is_tested=True),
    NodeMutant("recovery takes a gap for the log's end", _recovery_takes_a_gap_for_the_end),
    NodeMutant("a follower refuses gaps", _a_follower_refuses_gaps),
    NodeMutant(
        "a follower goes on where its leader has forgotten deletions",
        _follower_goes_on_where_its_leader_has_forgotten_deletions,
        is_tested=True,
        slant=Slant.FORGETTING,
    ),
    NodeMutant("compaction swaps without a flush", _compaction_swaps_without_a_flush),
    NodeMutant(
        "a log in doubt is taken for a deleted topic's",
        _log_in_doubt_is_taken_for_a_deleted_topics,
        slant=Slant.TOPIC_IDS,
    ),
    NodeMutant(
        "a deleted directory is emptied before its name is durable",
        _deleted_directory_is_emptied_before_its_name_is_durable,
        story=stories.MovedAwayAndBack,
    ),
    NodeMutant(
        "what was flushed and is gone is not missed",
        _what_was_flushed_and_is_gone_is_not_missed,
        slant=Slant.SMALL_FILES,
    ),
    NodeMutant(
        "a checkpoint counts whatever its twin says", _checkpoint_counts_whatever_its_twin_says, slant=Slant.SMALL_FILES
    ),
    NodeMutant(
        "an older copy of a directory is taken for the newest",
        _older_copy_of_a_directory_is_taken_for_the_newest,
        slant=Slant.OLDER_COPIES,
    ),
    NodeMutant(
        "a replica that lost records says nothing", _replica_that_lost_records_says_nothing, slant=Slant.SMALL_FILES
    ),
    NodeMutant(
        "logs are closed before the publisher stops", _logs_are_closed_before_the_publisher_stops, is_tested=True
    ),
    NodeMutant("the registrar is left out of the publishers", _registrar_hears_of_no_metadata, is_tested=True),
    NodeMutant(
        "snapshots know the newest batch of a producer only",
        _snapshots_know_the_newest_batch_only,
        is_tested=True,
        slant=Slant.PIPELINING,
    ),
    NodeMutant(
        "a new leader expects no batch again",
        _new_leader_expects_no_batch_again,
        is_tested=True,
        slant=Slant.PIPELINING,
    ),
    NodeMutant(
        "refused batches are not expected again",
        _refused_batches_are_not_expected_again,
        is_tested=True,
        slant=Slant.PIPELINING,
    ),
    *(NodeMutant(bug, plant, slant=Slant.TRANSACTIONS) for bug, plant in TRANSACTION_BUGS),
    *(NodeMutant(bug, plant, is_tested=True, slant=Slant.TRANSACTIONS) for bug, plant in HANDLER_BUGS),
    *(NodeMutant(bug, plant, is_tested, slant=Slant.COORDINATORS) for bug, plant, is_tested in COORDINATOR_BUGS),
    *(NodeMutant(bug, plant, is_tested=True, slant=Slant.LISTENERS) for bug, plant in LISTENER_BUGS),
    *(NodeMutant(bug, plant, is_tested, slant=Slant.MEMBERS) for bug, plant, is_tested in GROUP_BUGS),
    *(NodeMutant(bug, plant, story=story) for bug, plant, story in TOLD_BUGS),
    *(NodeMutant(bug, plant, is_tested, slant=Slant.STREAMS) for bug, plant, is_tested in STREAMS_BUGS),
    *(NodeMutant(bug, plant, is_tested=True, slant=Slant.HOSTS) for bug, plant in HOST_BUGS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """How a search ended."""

    is_found: bool
    seed: int
    seeds_tried: int
    cpu_s: float
    law: str


def hunt(
    plant: Plant | None,
    *,
    seed: int,
    cpu_limit_s: float,
    seeds: int = SEEDS_MAX,
    outcomes_only: bool = False,
    slant: Slant = Slant.NONE,
    story: Callable[[], Cluster] | None = None,
) -> Hunt:
    """Search with a bug planted, or the clean code, so many seeds from one on, until something falls or the CPU time is used up; or in
    a story, which has one seed.

    One of MISFITS is no find: the planted bug calls code that has changed since, so the run breaks by that and shows nothing.
    """
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    tried = 0
    try:
        with pytest.MonkeyPatch.context() as patch:
            if plant is not None:
                plant(patch)
            while True:
                try:
                    with watched(seed + tried):
                        if story is not None:
                            story().run()
                        else:
                            Cluster(seed + tried, steps=STEPS, outcomes_only=outcomes_only, slant=slant).run()
                except Exception as broken:
                    cpu_s = time.process_time() - began
                    causes = list(leaves(broken))
                    law = "; ".join(f"{type(cause).__name__}: {cause}" for cause in causes)
                    is_found = plant is None or not any(isinstance(cause, MISFITS) for cause in causes)
                    if not is_found:
                        law = f"it does not fit the code: {law}"
                    return Hunt(is_found=is_found, seed=seed + tried, seeds_tried=tried + 1, cpu_s=cpu_s, law=law)
                tried += 1
                cpu_s = time.process_time() - began
                if cpu_s >= cpu_limit_s or tried >= seeds:
                    return Hunt(is_found=False, seed=seed, seeds_tried=tried, cpu_s=cpu_s, law="")
    finally:
        # What the broken seed had begun: later, its warnings end in tracebacks (within a namedtuple, which cannot import).
        gc.collect()
        logging.disable(logging.NOTSET)


def main() -> int:
    """Print the table, return the exit status."""
    failures = run()
    print(*failures, sep="\n", end="\n" if failures else "")
    return 1 if failures else 0


def search(
    place: int, *, seeds: Mapping[str, int], seed: int, cpu_limit_s: float, outcomes_only: bool
) -> tuple[Hunt, int]:
    """The hunt for MUTANTS[place], and how many tries it took: 0 with the fixed seed, else at most two, the second from other seeds."""
    mutant = MUTANTS[place]
    fixed = seeds.get(mutant.bug)
    starts = [(0, fixed, WINDOW)] if fixed is not None else []
    hunts = [(1, seed, SEEDS_MAX), (2, seed + OTHER_SEEDS, SEEDS_MAX)]
    for tries, start, count in [*starts, *hunts] if mutant.story is None else [(0, 0, 1)]:
        result = hunt(
            mutant.plant,
            seed=start,
            seeds=count,
            cpu_limit_s=cpu_limit_s,
            outcomes_only=outcomes_only,
            slant=mutant.slant,
            story=mutant.story,
        )
        if result.is_found:
            if tries:
                clean = judge_clean(mutant.slant, result.seed, outcomes_only=outcomes_only)
                if clean.is_found:
                    return replace(result, is_found=False, law=f"{ACCUSED}: {clean.law}"), TRIES_MAX
            return result, tries
    return result, TRIES_MAX


def judge_clean(slant: Slant, seed: int, *, outcomes_only: bool) -> Hunt:
    """The clean code with one fixed seed."""
    return hunt(None, seed=seed, seeds=1, cpu_limit_s=CPU_LIMIT_S, outcomes_only=outcomes_only, slant=slant)


def search_clean(slant: Slant, slowest_s: float, *, seed: int, outcomes_only: bool) -> Hunt:
    """Search the clean code with a slant, as long as befits a slowest hunt of so many CPU seconds."""
    return hunt(None, seed=seed, cpu_limit_s=clean_limit_s(slowest_s), outcomes_only=outcomes_only, slant=slant)


@contextmanager
def _mapping(jobs: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """map(), over so many processes: a bug is planted into the whole process, and CPU time is that of one."""
    if jobs == 1:
        yield map
        return
    # Forked before any thread runs. A process hunts one bug after another, as the whole run did in one process.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        yield pool.map


def run(arguments: Sequence[str] | None = None) -> list[str]:
    """Print the table; returns a line for each bug that was not found and for an accusation of clean code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.node_mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="where the search starts; random when not given")
    parser.add_argument("--cpu", type=float, default=CPU_LIMIT_S, help="CPU seconds for each bug")
    parser.add_argument("--only", default="", help="bugs whose name holds this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="hunts at the same time")
    parser.add_argument(
        "--outcomes-only", action="store_true", help="let clients alone judge; a survivor is no failure then"
    )
    parser.add_argument("--refresh", action="store_true", help="write down the seeds that find what fixed seeds do not")
    parser.add_argument("--no-clean", action="store_true", help="leave the clean code alone")
    options = parser.parse_args(arguments)
    seeds = load_seeds()
    chosen = [place for place, mutant in enumerate(MUTANTS) if options.only in mutant.bug]
    if not chosen:
        parser.error(f"no planted bug has {options.only!r} in its words")
    start = options.seed if options.seed is not None else SystemRandom().randrange(1 << 30)
    print(
        f"each with its fixed seed; hunts from seed {start}, at most {options.cpu:.0f} CPU seconds each, {STEPS} steps a seed",
        flush=True,
    )
    found = 0
    slowest_s = {MUTANTS[place].slant: 0.0 for place in chosen}
    failures = []
    stale: dict[str, int] = {}
    with _mapping(min(options.jobs, len(chosen))) as over:
        hunting = partial(search, seeds=seeds, seed=start, cpu_limit_s=options.cpu, outcomes_only=options.outcomes_only)
        for place, (result, tries) in zip(chosen, over(hunting, chosen), strict=True):
            mutant = MUTANTS[place]
            found += result.is_found
            slowest_s[mutant.slant] = max(slowest_s[mutant.slant], result.cpu_s)
            word = word_of(result.is_found, tries, fixed=seeds.get(mutant.bug))
            if result.is_found and tries:
                stale[mutant.bug] = result.seed
                if options.refresh:  # at once: a run that is ended keeps what it has found
                    save_seeds({mutant.bug: result.seed})
            print(
                f"  {mutant.bug:50} {word:9} seed {result.seed} "
                f"after {result.seeds_tried} seeds, {result.cpu_s:.1f} CPU s: {result.law[:150]}",
                flush=True,
            )
            if not result.is_found and not options.outcomes_only:
                failures.append(
                    f"python -m tests.simulation.node_mutants --only {shlex.quote(mutant.bug)} --seed {start} "
                    f"--cpu {options.cpu:.0f}   # NOT FOUND, nor from seed {start + OTHER_SEEDS}; "
                    f"{result.law or 'the CPU time was used up'}"
                )
        print(f"{found} of {len(chosen)} found, {len(stale)} by a hunt", flush=True)
        if not options.no_clean:
            known = [(MUTANTS[each].slant, seeds[MUTANTS[each].bug]) for each in chosen if MUTANTS[each].bug in seeds]
            fixed = sorted(set(known), key=str)
            judging = partial(judge_clean, outcomes_only=options.outcomes_only)
            judged = over(judging, *zip(*fixed, strict=True)) if fixed else iter(())
            accused = [(slant, each) for (slant, _), each in zip(fixed, judged, strict=True) if each.is_found]
            print(f"  clean code, {len(fixed)} fixed seeds: {len(accused) or 'no'} alarms", flush=True)
            failures += [f"{_again(slant, each)}   # CLEAN CODE ACCUSED: {each.law}" for slant, each in accused]
            searching = partial(search_clean, seed=start, outcomes_only=options.outcomes_only)
            for slant, clean in zip(slowest_s, over(searching, slowest_s, slowest_s.values()), strict=True):
                name = "clean code, random seeds" + ("" if slant is Slant.NONE else f", slant {slant.value}")
                print(
                    f"  {name:50} {'ALARM: ' + clean.law if clean.is_found else 'no alarm'} in {clean.seeds_tried} seeds, "
                    f"{clean.cpu_s:.1f} CPU s",
                    flush=True,
                )
                if clean.is_found:
                    print(
                        f"BECOMES A SCENARIO, and a line in the note: {_again(slant, clean)}   # clean code: {clean.law}"
                    )
    for bug, seed in stale.items():
        print(stale_line(bug, fixed=seeds.get(bug), seed=seed))
    return failures


def _again(slant: Slant, found: Hunt) -> str:
    """The command that runs the clean code with that seed."""
    return f"python -m tests.simulation --only nodes --seed {found.seed} --steps {STEPS}{slanted(slant)}"


if __name__ == "__main__":
    sys.exit(main())
