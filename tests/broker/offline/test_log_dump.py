"""The offline dump of metadata logs: what is whole is shown, what is damaged is named, secrets never."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_broker.main import main
from barnabas_broker.offline.batch_reading import Damage
from barnabas_broker.offline.log_dump import read_file
from barnabas_quorum.driver.committed import data_batch
from barnabas_quorum.driver.log_entries import BAD
from barnabas_quorum.driver.snapshot_content import snapshot_batches
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import ConfigRecord, ConfigResourceType, NoOpRecord, Record, TopicRecord
from barnabas_quorum.records_integrity import ImageHashRecord, PartHash
from barnabas_quorum.records_security import ScramMechanism, UserScramCredentialRecord
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid

GARBAGE = b"\xd2\x09\x00"
SECRET = UserScramCredentialRecord(
    name="alice",
    mechanism=ScramMechanism.SCRAM_SHA_256,
    salt=b"SALTSALT",
    stored_key=b"STOREDKEY",
    server_key=b"SERVERKEY",
    iterations=4096,
)


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16, b"-")))


def password(value: str) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ConfigResourceType.BROKER, resource_name="", key="ssl.keystore.password", value=value
    )


def segment(*batches: list[Record | bytes]) -> tuple[bytes, list[int]]:
    """The bytes, and where each batch begins."""
    data, starts, offset = b"", [], Offset(0)
    for records in batches:
        values = [one if isinstance(one, bytes) else encode(one) for one in records]
        batch = data_batch(values, base_offset=offset, epoch=Epoch(1), timestamp_ms=1000)
        starts.append(len(data))
        data += batch.data
        offset = batch.end_offset
    return data, starts


def shown(data: bytes) -> list[str]:
    return [
        f"damage@{found.position}+{found.size}"
        if isinstance(found, Damage)
        else f"{found.offset}:{found.fields.get('name', found.kind)}"
        for found in read_file(data)
    ]


def test_records_are_shown_in_their_order_and_a_bad_one_between_its_neighbours() -> None:
    data, _ = segment([topic("a"), GARBAGE, topic("c")], [topic("d")])
    assert shown(data) == ["0:a", f"1:{BAD}", "2:c", "3:d"]


@pytest.mark.parametrize(
    "where", [8, 11, 17, 20, 60, 70], ids=["length", "low length", "crc", "crc end", "count", "data"]
)
def test_a_damaged_batch_is_named_and_what_stands_behind_it_is_read(where: int) -> None:
    data, starts = segment([topic("a")], [topic("b"), topic("c")], [topic("d")])
    rotten = bytearray(data)
    rotten[starts[1] + where] ^= 0x01
    size = starts[2] - starts[1]
    assert shown(bytes(rotten)) == ["0:a", f"damage@{starts[1]}+{size}", "3:d"]


def test_a_torn_end_is_damage_and_preallocated_zeros_are_none() -> None:
    data, starts = segment([topic("a")], [topic("b")])
    assert shown(data + bytes(4096)) == ["0:a", "1:b"]
    assert shown(data[:-3]) == ["0:a", f"damage@{starts[1]}+{len(data) - 3 - starts[1]}"]
    assert shown(b"") == []


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment([SECRET, password("hunter2")])[0])
    for output in ("text", "json"):
        assert main(["log", "dump", "--metadata", str(path), "-o", output]) == 0
        said = capsys.readouterr().out
        assert "alice" in said and "ssl.keystore.password" in said and "(hidden)" in said
        for secret in (b"SALTSALT", b"STOREDKEY", b"SERVERKEY"):
            assert secret.decode() not in said and secret.hex() not in said
        assert "hunter2" not in said


def test_a_directory_is_read_with_its_snapshots_and_damage_ends_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    data, starts = segment([topic("a"), NoOpRecord()], [topic("b")])
    (directory / "00000000000000000000.log").write_bytes(data)
    snapshot = snapshot_batches([[encode(topic("s"))]], epoch=Epoch(1), timestamp_ms=5, voters=None)
    (directory / "00000000000000000003-0000000001.checkpoint").write_bytes(b"".join(snapshot))
    (tmp_path / "00000000000000000000.log").write_bytes(b"of another topic")

    assert main(["log", "dump", "--metadata", str(tmp_path), "-o", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [(row["kind"], row["fields"].get("name")) for row in rows]
    assert names == [
        ("TopicRecord", "a"),
        ("TopicRecord", "b"),
        ("SnapshotHeader", None),
        ("TopicRecord", "s"),
        ("SnapshotFooter", None),
    ]
    assert main(["log", "dump", "--metadata", str(tmp_path), "--noops", "--from", "1", "--to", "1"]) == 0
    assert "NoOpRecord" in capsys.readouterr().out

    rotten = bytearray(data)
    rotten[starts[1] + 70] ^= 1
    (directory / "00000000000000000000.log").write_bytes(rotten)
    assert main(["log", "dump", "--metadata", str(directory)]) == 1
    said = capsys.readouterr()
    assert "DAMAGED after offset 1 (NoOpRecord)" in said.out and "checksum of the batch at offset 2" in said.out
    assert "1 damaged place." in said.err


def test_an_image_hash_is_a_line_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = (PartHash("topics", bytes(range(1, 17))), PartHash("configs", bytes(16)))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(segment([ImageHashRecord(format=1, parts=parts)])[0])
    assert main(["log", "dump", "--metadata", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("ImageHashRecord                topics=010203040506…")
    assert main(["log", "dump", "--metadata", str(path), "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["fields"]["parts"]) == 2


def test_what_is_no_log_is_refused_with_what_to_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", "--metadata", str(tmp_path)]) == 2
    assert "metadata.log.dir" in capsys.readouterr().err
    assert main(["log", "dump", "--metadata", str(tmp_path / "gone")]) == 2
