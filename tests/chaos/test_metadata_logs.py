"""Logs of several controllers: any difference in what is committed is found, and what is not committed is not looked at."""

from __future__ import annotations

from pathlib import Path

from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import ConfigRecord, ConfigResourceType, RemoveTopicRecord, TopicRecord
from barnabas_quorum.records import Record as MetadataRecord
from barnabas_wire.kafka.ids import Epoch, Uuid
from barnabas_wire.records.batch import Record, build_batch
from tests.chaos.metadata_logs import CONFIG_KEY, StoredLog, compare_logs, read_changes, read_log
from tests.chaos.nodes import find_complaints
from tests.checker.metadata_history import Change

TOPIC_ID = Uuid(bytes(range(16)))


def batch(base: int, *records: MetadataRecord, epoch: int = 1) -> bytes:
    """One batch of metadata records."""
    values = [Record(base + index, 0, None, encode(record)) for index, record in enumerate(records)]
    return bytes(build_batch(values, leader_epoch=Epoch(epoch)))


def config(value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key=CONFIG_KEY, value=value)


CREATE = batch(0, TopicRecord(name="t", topic_id=TOPIC_ID), config("1"))
SET = batch(2, config("2"))
REMOVE = batch(3, RemoveTopicRecord(topic_id=TOPIC_ID))
OTHER = batch(3, config("3"), epoch=2)


def stored(*batches: bytes, start: int = 0) -> StoredLog:
    base = {0: CREATE, 2: SET, 3: REMOVE}
    bases = [key for key in base if key >= start][: len(batches)]
    return StoredLog(start, 4 if 3 in bases else 3, dict(zip(bases, batches, strict=True)))


def test_equal_logs_are_equal_wherever_they_start() -> None:
    whole, late = stored(CREATE, SET, REMOVE), stored(SET, REMOVE, start=2)
    assert compare_logs({1: whole, 2: whole, 3: late}, high_watermark=4, voters=(1, 2, 3)).is_clean


def test_a_committed_batch_that_differs_or_is_missing_is_found_and_an_uncommitted_one_is_not() -> None:
    whole, forked = stored(CREATE, SET, REMOVE), stored(CREATE, SET, OTHER)
    assert compare_logs({1: whole, 2: forked}, high_watermark=3, voters=(1, 2)).is_clean
    assert compare_logs({1: whole, 2: forked}, high_watermark=4, voters=(1, 2)).differences == [
        f"batch at 3: sizes by node {{1: {len(REMOVE)}, 2: {len(OTHER)}}}"
    ]
    holed = StoredLog(0, 4, {0: CREATE, 3: REMOVE})
    assert compare_logs({1: whole, 2: holed}, high_watermark=4, voters=(1, 2)).differences == [
        f"batch at 2: sizes by node {{1: {len(SET)}, 2: None}}"
    ]


def test_what_was_told_to_be_committed_and_no_majority_of_the_voters_has_is_found() -> None:
    short, whole = stored(CREATE, SET), stored(CREATE, SET, REMOVE)
    logs = {1: short, 2: short, 3: whole, 4: whole}
    assert compare_logs(logs, high_watermark=3, voters=(1, 2, 3)).is_clean
    assert compare_logs(logs, high_watermark=4, voters=(1, 3, 4)).is_clean
    assert compare_logs(logs, high_watermark=4, voters=(1, 2, 3)).differences == [
        "of the voters [1, 2, 3] only [3] reach the high watermark 4 that was reported"
    ]


def test_changes_are_read_from_files_up_to_a_torn_tail(tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.log").write_bytes(CREATE + SET)
    (tmp_path / f"{3:020}.log").write_bytes(REMOVE + batch(4, config("9"))[:-5])
    log = read_log(tmp_path)
    assert (log.start, log.end) == (0, 4)
    flipped = bytearray(batch(4, config("9")))
    flipped[-1] ^= 1
    (tmp_path / f"{3:020}.log").write_bytes(REMOVE + flipped)
    assert read_log(tmp_path) == log, "a batch with a wrong checksum ends the log as well"
    expected = [Change(1, "create", "1"), Change(2, "set", "2"), Change(3, "delete", None)]
    assert read_changes({1: log}, high_watermark=4) == {"t": expected}
    assert read_changes({1: log}, high_watermark=3) == {"t": expected[:2]}


def test_only_lines_that_no_healthy_node_writes_are_complaints() -> None:
    harmless = "x ERROR grpc._cython.cygrpc ExecuteBatchError raised in core by servicer method [/a]"
    lines = [
        "x INFO fine",
        harmless,
        "Traceback (most recent call last):",
        "y ERROR barnabas_quorum broke",
        "Traceback",
    ]
    assert find_complaints(lines) == ["y ERROR barnabas_quorum broke", "Traceback"]
