"""What the comparison makes of its rounds, which rows it takes, and what its client's clock counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_wire.records.compression import CompressionType
from tests.bench.frames import KIB, Load, make_batch
from tests.bench.peer import measure
from tests.bench.peer.__main__ import run
from tests.bench.peer.client import Client
from tests.bench.peer.measure import is_settled
from tests.bench.peer.picture import draw
from tests.bench.peer.results import CLIENT, OURS, THEIRS, Results, percentile
from tests.bench.peer.rows import ROWS, UnknownRows, choose


def results() -> Results:
    found = Results(about={"cpus": 2})
    for ours, theirs in ((1.0, 2.0), (3.0, 2.0), (1.2, 1.0)):
        found.add("latency", OURS, {"p50 ms": ours, "CPU ms/record": ours / 4})
        found.add("latency", THEIRS, {"p50 ms": theirs, "CPU ms/record": theirs})
    found.add("latency", CLIENT, {"p50 ms": 0.05})
    for ours, theirs in ((300.0, 200.0), (150.0, 200.0), (150.0, 200.0)):
        found.add("throughput", OURS, {"MB/s": ours})
        found.add("throughput", THEIRS, {"MB/s": theirs})
    found.add("failover", OURS, {"s": 1.0})
    return found


def test_a_ratio_is_the_median_of_the_rounds_own_and_names_its_spread() -> None:
    ratio = results().ratio("latency", "p50 ms")
    assert ratio == pytest.approx((1.2, 0.5, 1.5)), "of the medians it is 0.6"
    assert str(ratio) == "1.20 (0.50–1.50)"
    assert results().ratio("failover", "s") is None, "Kafka was not measured there"


def test_behind_is_what_is_slower_or_less_than_kafka() -> None:
    assert [(row, figure) for row, figure, _ in results().behind()] == [("latency", "p50 ms"), ("throughput", "MB/s")]


def test_the_table_has_every_figure_and_marks_those_behind() -> None:
    lines = results().table().splitlines()
    assert lines[2] == "| latency | p50 ms | 1.20 | 2.00 | 1.20 (0.50–1.50) ! | 0.0500 |"
    assert lines[3].startswith("| latency | CPU ms/record | 0.30 | 2.00 | 0.30 (0.12–0.38) |")
    assert lines[4] == "| throughput | MB/s | 150 | 200 | 0.75 (0.75–1.50) ! | – |"
    assert lines[5] == "| failover | s | 1.00 | – | – | – |"


def test_the_json_file_says_all_rounds() -> None:
    text = results().to_json()
    assert json.loads(text)["rows"]["latency"]["p50 ms"][OURS] == [1.0, 3.0, 1.2]
    assert Results.from_json(text) == results()


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert [percentile(range(1, 101), fraction) for fraction in (0.5, 0.99, 1.0)] == [51, 100, 100]
    assert percentile([], 0.5) == 0


def test_rows_are_chosen_by_the_beginning_of_their_names_and_keep_their_order() -> None:
    assert choose([]) == list(ROWS)
    chosen = choose(["throughput, RF 1, durable", "latency, 50/s"])
    assert len(chosen) == 9
    assert chosen[-1].name == "latency, 50/s, page cache, beside 1,000 idle"
    with pytest.raises(UnknownRows, match="no row begins with 'latenzy'"):
        choose(["latency", "latenzy"])


def test_row_names_differ_and_idle_partitions_only_grow() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    idle = [row.idle_partitions for row in ROWS]
    assert idle == sorted(idle), "idle partitions are never removed"


def test_a_system_is_warm_when_a_record_gets_no_cheaper() -> None:
    assert not is_settled([2.0]) and not is_settled([2.0, 1.5, 1.2])
    assert is_settled([2.0, 1.5, 1.4]) and is_settled([1.5, 1.6])


@pytest.mark.cluster
def test_rows_with_tls_and_without_are_measured_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "FETCHED_BYTES", 4 * 1024 * KIB)
    found = Results(about={"kafka": ""})
    run(choose(["TLS, fetch", "host of two, TLS, fetch", "memory, after the load"]), 1, 0.0, tmp_path, found)
    assert not found.failures
    fetched = ["MB/s", "CPU ms/MB"]
    assert [list(figures) for figures in found.rows.values()] == [fetched, fetched, ["MiB of all brokers"]]


def test_a_picture_is_drawn_of_what_both_have(tmp_path: Path) -> None:
    path = tmp_path / "peer.svg"
    draw(results(), path)
    drawn = path.read_text()
    assert "latency: p50 ms" in drawn and "throughput: MB/s" in drawn and "failover" not in drawn
    with pytest.raises(ValueError, match="no ratio"):
        draw(Results(rows={"failover": {"s": {OURS: [1.0]}}}), path)


def test_a_batch_to_be_compressed_has_values_that_can_be() -> None:
    plain, count, _ = make_batch(Load(KIB, 16 * KIB))
    packed, packed_count, _ = make_batch(Load(KIB, 16 * KIB), compression=CompressionType.LZ4)
    assert packed_count == count
    assert 0.4 < len(packed) / len(plain) < 0.7


def test_latency_counts_from_the_intended_time(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"bootstrap": "", "topic": "echo", "rate": 100, "seconds": 0.1, "producers": 1, "pids": []}
    client = Client(options)
    monkeypatch.setattr("time.perf_counter", lambda: 5.0)
    client.reported(4.25, None, None)
    assert client.acknowledged == [(4.25, 0.75)]


def test_the_client_alone_is_acknowledged_by_a_broker_in_its_own_process() -> None:
    options = {"bootstrap": "", "topic": "echo", "rate": 100, "seconds": 0.1, "producers": 2, "pids": []}
    said = Client(options).run()
    assert said["records"] == len(said["latencies_s"]) == 10
    assert min(said["latencies_s"]) > 0
