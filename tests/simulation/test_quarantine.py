"""A bad record is committed in a quorum of whole simulated controllers, or is in their snapshots: all stay up, crash and come
back, and go on alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from barnabas_quorum.controller.requests import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
)
from barnabas_quorum.controller.requests_integrity import SignOffRecord, WriteImageHash
from barnabas_quorum.driver import metadata_listener
from barnabas_quorum.image.snapshot import record_groups
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import ConfigRecord, ConfigResourceType
from barnabas_simulation.disk import DiskFaults
from barnabas_simulation.network import LinkFaults
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from tests.simulation.controller_node import ControllerNode
from tests.simulation.controllers import ControllerSwarm, Quorum

GARBAGE = b"\xd2\x09\x00garbage"
QUIET = ControllerSwarm(
    voters=3,
    observers=1,
    links=LinkFaults(),
    disks=DiskFaults(),
    crash_every_s=0.0,
    restart_s=0.1,
    crash_at_disk=0.0,
    crash_after_answer=0.0,
    all_share=0.0,
    partition_every_s=0.0,
    partition_s=1.0,
    is_one_way=False,
    change_voters_s=0.0,
    think_s=0.1,
    askers=0,
    has_cleaning=True,
)


def config(key: str) -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="", key=key, value="1")


class Scenario(Quorum):
    """No fault but those of the script."""

    async def _run(self) -> None:
        self.loop.set_exception_handler(self._on_loop_error)
        self.loop.after_turn = self._after_turn
        for node in self.nodes:
            node.start()
        await self.play()

    async def play(self) -> None:
        await self.change("a")
        leader = await self.leader()
        leader.quorum.propose(
            [encode(config("b")), GARBAGE, encode(config("c"))], epoch=leader.quorum.leader_and_epoch.epoch
        )
        await asyncio.sleep(1.0)
        self.all_stand_alike({"a"})
        with pytest.raises(KafkaError) as refused:
            await self.change("x")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

        follower = next(node for node in self.nodes if node is not leader)
        await self.restart(follower)
        await self.restart(leader)
        self.all_stand_alike({"a"})

        (bad,) = {node.loader.blocked.record.offset for node in self.nodes if node.loader.blocked is not None}
        await self.ask(SignOffRecord(offset=bad, digest=b"", reason="garbage"))
        await asyncio.sleep(1.0)
        self.all_go_on_alike({"a", "b", "c"})

        # long enough for snapshots and for the log to lose its beginning, bad record and sign-off with it
        for number in range(40):
            await self.change(f"k{number}")
        await asyncio.sleep(2.0)
        await self.restart(follower)
        await self.ask(WriteImageHash())
        await asyncio.sleep(1.0)
        self.all_go_on_alike({"a", "b", "c", *(f"k{number}" for number in range(40))})
        for node in self.nodes:
            assert node.quorum.log_start_offset > bad, "the script shall outlive the bad record"
            assert node.loader.stats.hashes_compared > 0 and node.loader.stats.hash_mismatches == 0

    async def change_many(self, letter: str) -> set[str]:
        """Enough for some snapshots."""
        keys = {f"{letter}{number}" for number in range(40)}
        for key in sorted(keys):
            await self.change(key)
        await asyncio.sleep(2.0)
        return keys

    async def leader(self) -> ControllerNode:
        while True:
            found = [node for node in self.nodes if node.is_up and node.driver.is_active]
            if found:
                return found[-1]
            await asyncio.sleep(0.05)

    async def ask(self, request: Any) -> Any:
        return await (await self.leader()).driver.handle(request, principal="User:test")

    async def change(self, key: str) -> None:
        edit = ConfigChange(key=key, operation=ConfigOperation.SET, value="1")
        resource = ConfigAlteration(resource_type=ConfigResourceType.BROKER, resource_name="", changes=(edit,))
        (outcome,) = (await self.ask(IncrementalAlterConfigs(resources=(resource,)))).resources
        assert outcome.error is None

    async def restart(self, node: ControllerNode) -> None:
        node.crash()
        await asyncio.sleep(0.1)
        node.start()
        await asyncio.sleep(4.0)

    def all_stand_alike(self, keys: set[str]) -> None:
        assert all(node.is_up and node.loader.blocked is not None for node in self.nodes)
        self.all_have(keys)

    def all_go_on_alike(self, keys: set[str]) -> None:
        assert all(node.is_up and node.loader.blocked is None for node in self.nodes)
        self.all_have(keys)

    def all_have(self, keys: set[str]) -> None:
        for node in self.nodes:
            found = set(node.loader.image.configs.cluster_default) - {"min.insync.replicas"}
            assert found == keys, f"node {node.id}"
        assert len({node.loader.image.hash for node in self.nodes}) == 1


def test_whole_controllers_stand_before_a_bad_record_and_go_on_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControllerSwarm, "draw", classmethod(lambda cls, random: QUIET))
    Scenario(1, steps=0).run()


class BadSnapshots(Scenario):
    """The script writes a record into snapshots that no node can read."""

    is_writing_bad = False

    async def change_many(self, letter: str) -> set[str]:
        with pytest.MonkeyPatch.context() as patch:
            groups = record_groups
            if self.is_writing_bad:
                patch.setattr(metadata_listener, "record_groups", lambda image: chain(groups(image), [[GARBAGE]]))
            return await super().change_many(letter)


class OlderSnapshot(BadSnapshots):
    """Older snapshots are there: nobody is held up."""

    async def play(self) -> None:
        keys = await self.change_many("a")
        self.is_writing_bad = True
        keys |= await self.change_many("b")
        for node in self.nodes:
            assert len(node.quorum._log.snapshots()) > 1
            bad = node.quorum._log.snapshots()[-1]
            await self.restart(node)
            assert node.loader.image.offset >= bad.end_offset and node.loader.blocked is None
        self.is_writing_bad = False
        self.all_go_on_alike(keys)
        keys |= await self.change_many("c")
        self.all_go_on_alike(keys)


class OnlySnapshot(BadSnapshots):
    """The log begins with a bad snapshot on every node, not with the same on all."""

    async def play(self) -> None:
        self.is_writing_bad = True
        keys = await self.change_many("a") | await self.change_many("b")
        assert all(node.quorum.log_start_offset > 0 for node in self.nodes[:3])
        for node in self.nodes:
            node.crash()
        await asyncio.sleep(0.1)
        for node in self.nodes:
            node.start()
        await asyncio.sleep(4.0)
        self.all_stand_alike(set())
        with pytest.raises(KafkaError, match="quarantine sign-off"):
            await self.change("x")

        leader = await self.leader()
        assert leader.loader.blocked is not None
        bad = leader.loader.blocked.record
        assert bad.is_in_snapshot
        self.is_writing_bad = False
        await self.ask(SignOffRecord(offset=bad.offset, digest=bad.digest, reason="garbage"))
        await asyncio.sleep(1.0)
        self.all_go_on_alike(keys)
        keys |= await self.change_many("d")
        await self.restart(self.nodes[0])
        await self.ask(WriteImageHash())
        await asyncio.sleep(1.0)
        self.all_go_on_alike(keys)
        assert all(node.loader.stats.hash_mismatches == 0 for node in self.nodes)


@pytest.mark.parametrize(("script", "has_cleaning"), [(OlderSnapshot, False), (OnlySnapshot, True)])
def test_a_bad_record_in_a_snapshot_stops_no_controller_for_ever(
    monkeypatch: pytest.MonkeyPatch, script: type[Scenario], has_cleaning: bool
) -> None:
    swarm = replace(QUIET, has_cleaning=has_cleaning)
    monkeypatch.setattr(ControllerSwarm, "draw", classmethod(lambda cls, random: swarm))
    script(1, steps=0).run()
