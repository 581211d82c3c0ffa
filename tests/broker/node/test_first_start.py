"""Which empty directories are formatted at a start, and as whose; with others that answer or do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.metadata.meta_properties import StorageError, read_meta
from barnabas_broker.node import first_start
from barnabas_broker.node.bootstrap import QuorumIdentity
from barnabas_broker.node.first_start import format_first, format_to_join
from barnabas_broker.node.properties import NodeConfig, node_config
from barnabas_broker.node.storage import load_storage
from barnabas_log.disk import RealDisk
from barnabas_quorum.explain.leaders import ControllerReport
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.rpc.dialing import UnknownPeer

CLUSTER = str(Uuid((5).to_bytes(16, "big")))
IDS = {number: Uuid((1000 + number).to_bytes(16, "big")) for number in (1, 2, 3)}
VOTERS = VoterSet.parse(",".join(f"{number}@127.0.0.1:{9300 + number}:{IDS[number]}" for number in IDS))
IDENTITY = f"{CLUSTER}/{VOTERS}"


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    found = RealDisk()
    yield found
    found.close()


def config(tmp_path: Path) -> NodeConfig:
    return node_config(
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://127.0.0.1:9301",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9301,127.0.0.1:9302,127.0.0.1:9303",
            "log.dirs": str(tmp_path / "data"),
            "metadata.log.dir": str(tmp_path / "metadata"),
        }
    )


class Others:
    """What the other first voters answer: id -> the end of its log; who is not in it is out of reach."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **ends: int) -> None:
        self.ends = {9300 + int(name[1:]): end for name, end in ends.items()}
        self.asked: list[int] = []
        monkeypatch.setattr(first_start, "ask_replica", self._ask)
        monkeypatch.setattr(first_start, "discover_quorum", self._discover)

    async def _ask(self, address: tuple[str, int], **_: Any) -> ControllerReport:
        self.asked.append(address[1] - 9300)
        if address[1] not in self.ends:
            raise UnknownPeer("out of reach")
        number = address[1] - 9300
        return ControllerReport(
            key=ReplicaKey(BrokerId(number), IDS[number]),
            role="unattached",
            epoch=Epoch(0),
            leader_id=NO_BROKER,
            voted_id=NO_BROKER,
            last_epoch=Epoch(0),
            log_end_offset=Offset(self.ends[address[1]]),
            high_watermark=Offset(0),
            voters=VOTERS,
        )

    async def _discover(self, addresses: Any, **_: Any) -> QuorumIdentity:
        return QuorumIdentity(CLUSTER, VOTERS)


@pytest.mark.parametrize(
    ("ends", "is_voter"),
    [({}, True), ({"n2": 0, "n3": 0}, True), ({"n2": 0}, True), ({"n2": 0, "n3": 7}, False), ({"n3": 1}, False)],
)
def test_an_empty_node_is_a_first_voter_only_while_no_other_that_answers_has_a_log(
    ends: dict[str, int], is_voter: bool, tmp_path: Path, disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Others(monkeypatch, **ends)
    format_first(disk, config(tmp_path), IDENTITY)
    storage = load_storage(disk, config(tmp_path).server)
    assert others.asked == [2, 3] and storage.cluster_id == CLUSTER
    assert (storage.replica.directory_id == IDS[1]) == is_voter == (storage.voters is not None)


def test_what_is_formatted_is_kept_and_nobody_is_asked(
    tmp_path: Path, disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    Others(monkeypatch)
    format_first(disk, config(tmp_path), IDENTITY)
    others = Others(monkeypatch, n2=100, n3=100)
    format_first(disk, config(tmp_path), IDENTITY)
    format_to_join(disk, config(tmp_path))
    assert load_storage(disk, config(tmp_path).server).replica == ReplicaKey(BrokerId(1), IDS[1]) and not others.asked


@pytest.mark.parametrize("join", [False, True])
def test_an_empty_metadata_directory_beside_formatted_ones_is_left_alone(
    join: bool, tmp_path: Path, disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk may not be mounted."""
    Others(monkeypatch)
    node = config(tmp_path)
    node_with_broker = node_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9201,CONTROLLER://127.0.0.1:9301",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9301",
            "log.dirs": str(tmp_path / "data"),
            "metadata.log.dir": str(tmp_path / "metadata"),
        }
    )
    format_first(disk, node_with_broker, IDENTITY)
    (tmp_path / "metadata").rename(tmp_path / "elsewhere")
    (tmp_path / "metadata").mkdir()
    if join:
        format_to_join(disk, node_with_broker)
    else:
        format_first(disk, node_with_broker, IDENTITY)
    assert read_meta(disk, str(tmp_path / "metadata")) is None and node.server.node_id == 1
    with pytest.raises(StorageError, match="the disk of the metadata log is not mounted"):
        load_storage(disk, node_with_broker.server)


def test_a_format_that_a_crash_ended_is_done_again(
    tmp_path: Path, disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first voters are written first, and meta.properties of the metadata directory last."""
    Others(monkeypatch)
    format_first(disk, config(tmp_path), IDENTITY)
    (tmp_path / "metadata" / "meta.properties").unlink()
    format_first(disk, config(tmp_path), IDENTITY)
    assert load_storage(disk, config(tmp_path).server).replica.directory_id == IDS[1]


def test_another_cluster_at_the_bootstrap_servers_is_refused(
    tmp_path: Path, disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    Others(monkeypatch, n2=9)
    other = str(Uuid((6).to_bytes(16, "big")))
    with pytest.raises(StorageError, match="the controllers that answer are of"):
        format_first(disk, config(tmp_path), f"{other}/{VOTERS}")
    assert not (tmp_path / "metadata").exists()
