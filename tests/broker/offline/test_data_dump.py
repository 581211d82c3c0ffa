"""The offline dump of data logs: each kind of file, records of coordinators decoded, damage named and passed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.main import main
from barnabas_coordination.group import records as group_records
from barnabas_log.tail.producer_snapshots import encode_snapshot
from barnabas_log.tail.producer_state import ProducerState
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import Record, build_batch, header_name
from barnabas_wire.records.control import build_transaction_marker


def dump(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> list[dict[str, Any]]:
    assert main(["log", "dump", "-o", "json", *map(str, arguments)]) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "t-0"
    made.mkdir()
    return made


def batch(base_offset: int, *values: bytes, **options: Any) -> bytes:
    records = [Record(i, 1000 + i, b"k", value, (("h", b"x"),)) for i, value in enumerate(values)]
    data = bytearray(build_batch(records, **options))
    data[:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def test_a_segment_shows_batches_records_and_markers(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = bytearray(
        build_transaction_marker(producer_id=7, producer_epoch=3, coordinator_epoch=1, is_commit=True, now_ms=1)
    )
    marker[:8] = (2).to_bytes(8, "big")
    path = directory / "00000000000000000000.log"
    path.write_bytes(batch(0, b"a", b"\xff", producer_id=7, producer_epoch=3, base_sequence=0) + bytes(marker))
    batches = dump(capsys, path)
    assert [(b["kind"], b["base_offset"], b["last_offset"], b["control"]) for b in batches] == [
        ("batch", 0, 1, False),
        ("batch", 2, 2, True),
    ]
    assert (batches[0]["producer_id"], batches[0]["producer_epoch"]) == (7, 3)
    records = [entry for entry in dump(capsys, path, "--records") if entry["kind"] == "record"]
    assert [(r.get("value"), r.get("value_base64")) for r in records[:2]] == [("a", None), (None, "/w==")]
    assert records[0]["headers"] == [{"name": "h", "value": "x"}] and records[2]["marker"] == "COMMIT"
    assert [r["offset"] for r in dump(capsys, path, "--records", "--from", "2") if r["kind"] == "record"] == [2]


def test_a_headers_name_that_is_no_text_is_shown_in_base64(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(0, 1, None, b"a", ((header_name(b"\xff"), b"x"),))]))
    (record,) = [entry for entry in dump(capsys, path, "--records") if entry["kind"] == "record"]
    assert record["headers"] == [{"name_base64": "/w==", "value": "x"}]


def test_damage_is_named_and_what_stands_behind_it_is_shown(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = batch(0, b"a"), batch(1, b"b")
    path = directory / "00000000000000000000.log"
    path.write_bytes(first[:-1] + b"!" + second)
    found = dump(capsys, path, status=1)
    assert (found[0]["position"], found[0]["size"]) == (0, len(first)) and "checksum" in found[0]["damage"]
    assert found[1]["base_offset"] == 1
    (directory / "00000000000000000000.index").write_bytes(b"\0\0\0\1\0\0\0\2\0\0\0")
    assert [item.get("damage") for item in dump(capsys, directory / "00000000000000000000.index", status=1)] == [
        None,
        "3 bytes are less than an entry (8)",
    ]


def test_indexes_snapshots_and_checkpoints_are_read(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def dumped(name: str, content: bytes) -> list[dict[str, Any]]:
        (directory / name).write_bytes(content)
        found = dump(capsys, directory / name)
        return [{key: value for key, value in entry.items() if key not in ("api_version", "file")} for entry in found]

    index = dumped("00000000000000000100.index", bytes.fromhex("00000005000002000000000900000400") + bytes(16))
    assert index == [
        {"kind": "offset_index", "offset": 105, "position": 512},
        {"kind": "offset_index", "offset": 109, "position": 1024},
    ], "relative to the segment's base; preallocated room is none"
    times = dumped("00000000000000000100.timeindex", (1234).to_bytes(8, "big") + (7).to_bytes(4, "big"))
    assert times == [{"kind": "time_index", "timestamp_ms": 1234, "offset": 107}]
    aborted = b"\0\0" + b"".join(number.to_bytes(8, "big") for number in (7, 100, 104, 99))
    (entry,) = dumped("00000000000000000100.txnindex", aborted)
    assert (entry["producer_id"], entry["first_offset"], entry["last_offset"]) == (7, 100, 104)
    state = ProducerState()
    state.update(
        producer_id=7,
        epoch=3,
        first_sequence=0,
        last_offset=Offset(104),
        offset_delta=4,
        timestamp_ms=9,
    )
    (producer,) = dumped("00000000000000000105.snapshot", encode_snapshot(state))
    assert (producer["producer_id"], producer["last_sequence"], producer["last_offset"]) == (7, 4, 104)
    assert [e["text"] for e in dumped("leader-epoch-checkpoint", b"0\n2\n0 0\n3 17\n")] == ["0 0", "3 17"]
    assert dumped("partition.metadata", b"version: 0\ntopic_id: x\n")[0]["text"] == "version: 0"
    (directory / "replication-offset-checkpoint").write_bytes(b"0\n5\nt 0 1\n")
    assert "entries" in dump(capsys, directory / "replication-offset-checkpoint", status=1)[0]["damage"]


def test_a_groups_records_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = group_records.OffsetCommitRecord("g", "t", 3, group_records.OffsetValue(Offset(47), Epoch(2), "", 1000))
    key, value = group_records.encode(record)
    directory = tmp_path / "__consumer_offsets-5"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(bytes(build_batch([Record(0, 1, key, value)])))
    (_, shown) = dump(capsys, directory, "--records")
    assert shown["record"] == "OffsetCommitRecord"
    assert shown["fields"]["group_id"] == "g" and shown["fields"]["value"]["offset"] == 47


def test_what_is_no_log_file_is_refused(tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert main(["log", "dump", str(tmp_path / "notes.txt")]) == 2
    assert "none of the files of a log" in capsys.readouterr().err
    shutil.rmtree(directory)
    assert main(["log", "dump", str(directory)]) == 2
    assert "does not exist" in capsys.readouterr().err
