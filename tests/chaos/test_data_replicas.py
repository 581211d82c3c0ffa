"""Replicas as they lie on disks: read without the node's own code, and rot found."""

from __future__ import annotations

from pathlib import Path
from random import Random

from barnabas_wire.kafka.ids import Epoch
from barnabas_wire.records.batch import Record, build_batch
from tests.chaos.data.replicas import find_rot, read_replicas, rot
from tests.checker.data_history import Batch, Event, History, Replica
from tests.checker.data_rules import judge


def batch(base: int, *, count: int = 2, epoch: int = 1, word: bytes = b"value") -> bytes:
    """A batch of producer 7."""
    records = [Record(base + index, 0, None, word) for index in range(count)]
    return bytes(build_batch(records, leader_epoch=Epoch(epoch), producer_id=7, producer_epoch=0, base_sequence=base))


def write_node(data: Path, *segments: tuple[int, bytes]) -> None:
    """A node's partition t-0, which starts at 2, and what else lies in log.dirs."""
    directory = data / "t-0"
    directory.mkdir(parents=True)
    for base, content in segments:
        (directory / f"{base:020}.log").write_bytes(content)
    (directory / "00000000000000000000.log.deleted").write_bytes(b"gone")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    (data / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    (data / "__cluster_metadata-0").mkdir()
    (data / ".kafka_cleanshutdown").touch()
    (data / "meta.properties").write_text("version=1\n")


def read_nodes(tmp_path: Path) -> list[Event]:
    """What nodes 1 and 2 hold, with an HW of 6."""
    return [event for node in (1, 2) for event in read_replicas(tmp_path / str(node), node, {"t-0": 6})]


def test_replicas_are_read_from_the_disks_and_agree(tmp_path: Path) -> None:
    write_node(tmp_path / "1", (0, batch(0) + batch(2)), (4, batch(4)))
    # the other one has dropped what lies before its start, and has more than the HW and a torn tail
    write_node(tmp_path / "2", (2, batch(2) + batch(4)), (6, batch(6) + batch(8)[:-3]))
    events = read_nodes(tmp_path)
    replicas = [event for event in events if isinstance(event, Replica)]
    assert [(replica.node, replica.start, replica.end, replica.epochs) for replica in replicas] == [
        (1, 2, 6, [(1, 0)]),
        (2, 2, 8, [(1, 0)]),
    ]
    assert judge(History(events)) == []


def test_the_epochs_of_a_node_that_was_killed_are_not_looked_at(tmp_path: Path) -> None:
    for node in ("1", "2"):
        write_node(tmp_path / node, (0, batch(0) + batch(2) + batch(4)))
    (tmp_path / "2" / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 4\n")
    assert [finding.rule for finding in judge(History(read_nodes(tmp_path)))] == ["E16e"]
    (tmp_path / "2" / ".kafka_cleanshutdown").unlink()
    assert judge(History(read_nodes(tmp_path))) == []


def test_a_replica_with_other_bytes_is_found(tmp_path: Path) -> None:
    write_node(tmp_path / "1", (0, batch(0) + batch(2) + batch(4)))
    write_node(tmp_path / "2", (0, batch(0) + batch(2) + batch(4, word=b"eulav")))
    assert [finding.rule for finding in judge(History(read_nodes(tmp_path)))] == ["E16"]


def test_rot_hits_sealed_segments_only_and_is_found(tmp_path: Path) -> None:
    for node in ("1", "2"):
        write_node(tmp_path / node, (2, batch(2)), (4, batch(4)))
    (where,) = rot(tmp_path / "1", ("t",), Random(1), flips=3)
    assert where.startswith("t-0/00000000000000000002.log at ")
    assert find_rot(tmp_path / "1", ("t",), 1) == ["t-0 2"]
    assert find_rot(tmp_path / "2", ("t",), 2) == []
    rotten = [event for event in read_nodes(tmp_path) if isinstance(event, Batch) and not event.is_valid]
    assert [(event.node, event.base) for event in rotten] == [(1, 2)]
    assert {finding.rule for finding in judge(History(read_nodes(tmp_path)))} == {"E16"}
