"""A checkpoint is rewritten for Spark's own Kafka source, whole or not at all, and says what it holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_barnabas import checkpoint

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'
OURS = '{"b":{"id":"qQ","0":5,"1":7,"from":{"1":0}},"a":{"id":"zZ","10":1,"9":2}}'
STOCK = '{"b":{"0":5,"1":7},"a":{"10":1,"9":2}}'
OTHER = '{"id":{"nested":1}}'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint of a query with three sources."""
    log = tmp_path / "offsets"
    log.mkdir()
    (log / "0").write_text(f"v1\n{METADATA}\n{STOCK}\n-\n{OTHER}")
    (log / "1").write_text(f"v1\n{METADATA}\n{OURS}\n-\n{OTHER}")
    (log / ".1.crc").write_bytes(b"crc")
    (log / ".0.crc").write_bytes(b"crc")
    return tmp_path


def test_what_sparks_own_source_cannot_read_is_taken_out_and_nothing_else(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = directory / "offsets"
    assert checkpoint.main(["export", str(directory)]) == 0
    assert (log / "1").read_text() == (log / "0").read_text() == f"v1\n{METADATA}\n{STOCK}\n-\n{OTHER}"
    assert sorted(path.name for path in log.iterdir()) == [".0.crc", "0", "1"], "a checksum of what was is gone"
    assert "1 of 2 files written without topic ids" in capsys.readouterr().out
    assert checkpoint.main(["export", "--json", str(directory)]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == []


def test_the_newest_offsets_are_shown(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint.main(["show", str(directory)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["batch", "source", "topic", "topic_id", "partition", "offset"]
    assert lines[1] == ["1", "0", "a", "zZ", "9", "2"]
    assert [line[2:] for line in lines[2:]] == [["a", "zZ", "10", "1"], ["b", "qQ", "0", "5"], ["b", "qQ", "1", "7"]]


def test_what_is_no_checkpoint_is_refused_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint.main(["export", str(tmp_path)]) == 1
    assert "has no folder offsets; name what the query has as checkpointLocation" in capsys.readouterr().err
    (tmp_path / "offsets").mkdir()
    assert checkpoint.main(["show", str(tmp_path)]) == 1
    assert "holds no micro-batch yet" in capsys.readouterr().err
    (tmp_path / "offsets" / "0").write_text("hello\nworld")
    assert checkpoint.main(["show", str(tmp_path)]) == 1
    assert "it begins with 'hello', not v1" in capsys.readouterr().err
