"""A metadata directory that was written long ago opens: golden_directory/ keeps one, a snapshot and the log around it.

Make it again, only when the format itself has changed on purpose: python -m tests.metadata_quorum.test_golden_directory --rewrite
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_log.disk import RealDisk
from barnabas_quorum.controller.requests import AllocateProducerIds
from barnabas_quorum.controller.requests_integrity import WriteImageHash
from barnabas_quorum.controller.requests_security import CreateDelegationToken
from barnabas_quorum.driver.committed import data_batch, leader_change_batch, open_batch, split_batches
from barnabas_quorum.driver.snapshot_content import snapshot_batches
from barnabas_quorum.driver.snapshots import LoadedSnapshot
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.snapshot import record_groups
from barnabas_quorum.raft.messages import HardState, LeaderChange, SnapshotId
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import Record
from barnabas_wire.kafka.ids import BrokerId, Epoch, TopicPartition, Uuid
from tests.metadata_quorum.golden_values import REQUESTS
from tests.support.decided_cluster import DecidedCluster

DIRECTORY = Path(__file__).with_name("golden_directory")
PARTITION = "__cluster_metadata-0"
ALONE = ReplicaKey(BrokerId(1), Uuid(b"\7" * 16))
NOW_MS = 1_700_000_000_000
SETTINGS: dict[str, Any] = {"delegation_token_secret_key": "a-key"}
FORMER, PRESENT = Epoch(1), Epoch(2)


def security_requests() -> Sequence[Any]:
    """Of the golden values, those that leave quotas, ACLs and credentials; credentials with keys of the right length."""
    wanted: dict[str, Any] = {type(request).__name__: request for request in REQUESTS}
    upsertion = dataclasses.replace(
        wanted["AlterUserScramCredentials"].upsertions[0], stored_key=b"k" * 32, server_key=b"l" * 32
    )
    quota = wanted["AlterClientQuotas"].alterations[0]
    return (
        dataclasses.replace(
            wanted["AlterClientQuotas"],
            alterations=(dataclasses.replace(quota, changes=(("producer_byte_rate", 1.5),)),),
            validate_only=False,
        ),
        wanted["CreateAcls"],
        dataclasses.replace(wanted["AlterUserScramCredentials"], deletions=(), upsertions=(upsertion,)),
        CreateDelegationToken(owner="User:a", requester="User:b", renewers=("User:c",)),
    )


async def rewrite() -> None:
    """Decide some changes, and write what they come to as a node of this code would."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir()
    world = DecidedCluster(**SETTINGS).start_brokers(1, 2, 3)
    world.create("old", (1, 2, 3), (2, 3, 1), configs={"retention.ms": "1"})
    for request in security_requests():
        world.do(request)
    log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(DIRECTORY), now_ms=NOW_MS, replica=ALONE)
    await log.save_hard_state(HardState(PRESENT, ALONE.id, ALONE))
    await _append(log, world.log, FORMER)
    snapshot_id = SnapshotId(log.end_offset, FORMER)
    position = 0
    for part in snapshot_batches(record_groups(world.image), epoch=FORMER, timestamp_ms=NOW_MS, voters=None):
        log.write_snapshot_part(snapshot_id, position, part)
        position += len(part)
    await log.freeze_snapshot(snapshot_id)
    begun = len(world.log)
    world.create("new", (3, 1), configs={"segment.bytes": "1048576"})
    world.fence(3)
    epoch = world.image.cluster.brokers[BrokerId(1)].epoch
    world.do(AllocateProducerIds(broker_id=BrokerId(1), broker_epoch=epoch))
    world.do(WriteImageHash())
    change = LeaderChange(ALONE, (ALONE,), (ALONE,))
    log.append([leader_change_batch(change, base_offset=log.end_offset, epoch=PRESENT, timestamp_ms=NOW_MS)])
    await _append(log, world.log[begun:], PRESENT)
    await log.close()
    for path in (DIRECTORY / PARTITION).iterdir():
        if path.name in (".lock", "reserve"):
            path.unlink()


async def _append(log: MetadataLog, records: Sequence[Record], epoch: Epoch) -> None:
    values = [encode(record) for record in records]
    log.append([data_batch(values, base_offset=log.end_offset, epoch=epoch, timestamp_ms=NOW_MS)])
    await log.flush()


async def test_a_directory_of_long_ago_opens_and_says_what_it_said(tmp_path: Path) -> None:
    shutil.copytree(DIRECTORY, tmp_path / "d")
    log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(tmp_path / "d"), now_ms=NOW_MS, replica=ALONE)
    assert log.hard_state == HardState(PRESENT, ALONE.id, ALONE)
    (snapshot_id,) = log.snapshots()
    loader, from_the_start = MetadataLoader(), MetadataLoader()
    for _ in loader.on_load_snapshot(LoadedSnapshot(log, snapshot_id, is_only=True)):
        pass
    behind = log.read(snapshot_id.end_offset, end_offset=log.end_offset, bytes_max=1 << 20)
    loader.on_commit([opened for batch in behind if (opened := open_batch(batch)) is not None])
    stored = split_batches((DIRECTORY / f"{PARTITION}/{0:020d}.log").read_bytes())
    from_the_start.on_commit([opened for batch in stored if (opened := open_batch(batch)) is not None])
    for each in (loader, from_the_start):
        assert each.blocked is None and each.may_be_written
        assert (each.stats.hashes_compared, each.stats.hash_mismatches) == (1, 0), "what was hashed then is hashed now"
    image = loader.image
    assert image.topics.partition(TopicPartition("old", 1)) is not None
    new = image.topics.partition(TopicPartition("new", 0))
    assert new is not None and new.isr == (1,)
    assert image.configs.topic("old") == {"retention.ms": "1"}
    assert len(image.acls.entries) == len(image.scram.credentials) == len(image.tokens.tokens) == 1
    assert image.producer_ids.next_producer_id == 1000
    await log.close()


if __name__ == "__main__":
    assert sys.argv[1:] == ["--rewrite"], __doc__
    asyncio.run(rewrite())
