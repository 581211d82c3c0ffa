"""The benchmark's own parts: the floor answers what it is sent, and the verdicts follow from the figures."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from barnabas_broker.network.config import NetworkConfig
from tests.bench.__main__ import Bench, _median
from tests.bench.blaster import Blast, Target, blast, drain_floor
from tests.bench.disk import fill_disk
from tests.bench.figures import SATURATED_BYTES, SMALL, Demand, Figures, Row
from tests.bench.frames import KIB, MIB, Load, make_fetch, make_produce
from tests.bench.machine import FlushProbe, cpu_s, resident_mib, stolen_s


@pytest.mark.parametrize("load", [Load(100, 16 * KIB), Load(KIB, MIB)])
def test_the_produce_floor_takes_every_batch_and_writes_it_whole(tmp_path: Path, load: Load) -> None:
    bench = Bench(tmp_path, rounds=1, scale=0.01, only="")
    frame = make_produce(load, "floor", 0, acks=-1)
    assert frame.batch_bytes <= load.batch_bytes
    path = tmp_path / "floor.log"
    with bench.floor_process("produce", str(path), str(frame.batch_start)) as (pid, port):
        before = cpu_s([pid])
        result = blast([Target("127.0.0.1", port, frame)] * 2, requests=40, window=8, is_broker=False)
        assert cpu_s([pid]) > before
        assert resident_mib(pid) > 1
    assert (result.requests, result.records) == (40, 40 * frame.record_count)
    assert len(result.latencies_s) == 40
    batch = frame.data[frame.batch_start : frame.batch_start + frame.batch_bytes]
    assert path.read_bytes() == batch * 40


def test_the_fetch_floor_sends_what_is_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path, rounds=1, scale=0.01, only="")
    (tmp_path / "segment").write_bytes(bytes(5 * MIB))
    with bench.floor_process("fetch", str(tmp_path / "segment"), str(MIB)) as (_, port):
        result = drain_floor("127.0.0.1", port, requests=12, records_bytes=MIB, values_share=0.5)
    assert (result.requests, result.bytes) == (12, 6 * MIB)


def test_a_fetch_request_is_the_same_but_for_its_offset() -> None:
    first, position = make_fetch("t", 0, offset=0, max_bytes=MIB)
    second, _ = make_fetch("t", 0, offset=77, max_bytes=MIB)
    assert first[:position] + (77).to_bytes(8, "big") + first[position + 8 :] == second


def row(
    name: str, cpu_ms_per_mb: float, *, us: float = 10.0, mb_per_s: float = 100.0, ratio: float | None = None
) -> Row:
    return Row(
        name=name,
        cpu_ms_per_mb=cpu_ms_per_mb,
        cpu_us_per_request=us,
        mb_per_s=mb_per_s,
        krecords_per_s=1.0,
        p50_ms=1.0,
        p99_ms=2.0,
        data_lag_p99_ms=1.0,
        control_lag_p99_ms=1.0,
        elections=0,
        fdatasync_worst_ms=1.0,
        ratio=ratio,
    )


def test_a_slow_floor_voids_the_run_and_targets_follow_their_bounds(tmp_path: Path) -> None:
    figures = Figures()
    for large, small in ((0.5, 10.0), (0.7, 20.0), (0.6, 12.0)):
        figures.rows.setdefault("floor, produce, 1 KiB in 1 MiB", []).append(row("", large))
        figures.rows.setdefault("floor, produce, 1 KiB in 16 KiB", []).append(row("", 0.6, us=small))
    figures.rows["produce, RF 1, page cache, 1 KiB in 16 KiB"] = [row("", 1.5, ratio=2.4), row("", 1.7, ratio=2.5)]
    figures.rows["produce, RF 1, page cache, 1 KiB in 16 KiB, 16 MiB in flight"] = [row("", 1.6)]
    figures.rows["produce, RF 3, page cache, 1 KiB in 16 KiB"] = [row("", 8.0)]
    figures.rows["produce, RF 3, durable, 1 KiB in 16 KiB"] = [row("", 8.0, mb_per_s=60.0)]
    for kind, speed in (("page cache", 200.0), ("durable", 160.0)):
        figures.rows[f"produce, RF 3, {kind}, 1 KiB in 16 KiB, 16 MiB in flight"] = [row("", 8.0, mb_per_s=speed)]
    rows = figures.medians()
    assert figures.void_reason(rows) is None
    demands = figures.targets(rows)
    assert "allows" not in "".join(map(str, demands)), "the disk was not measured, or allows what is demanded"
    verdicts = {demand.name: demand.is_met for demand in demands}
    assert verdicts == {
        "produce, RF 1, page cache, 1 KiB in 16 KiB: broker CPU / floor CPU": True,
        "1 KiB in 16 KiB, 16 MiB in flight: CPU of all brokers, RF 3 / RF 1": False,
        "1 KiB in 16 KiB, 1 MiB in flight: CPU of all brokers, RF 3 / RF 1": True,  # told, not demanded
        "1 KiB in 16 KiB, RF 3, 16 MiB in flight: durable / page cache MB/s": True,
        "1 KiB in 16 KiB, RF 3, 1 MiB in flight: durable / page cache MB/s": True,  # told, not demanded
        "control-lane tick p99 under load, worst case, ms": True,
        "elections under load": True,
    }
    figures.rows["floor, produce, 1 KiB in 1 MiB"] = [row("", 1.0)]
    assert figures.void_reason(figures.medians()) is not None


def test_a_miss_that_the_disk_does_not_let_be_met_says_so_and_stays_a_miss(tmp_path: Path) -> None:
    figures = Figures()
    for name, speed in (
        ("produce, RF 3, page cache, 1 KiB in 1 MiB, 16 MiB in flight", 500.0),
        ("produce, RF 3, durable, 1 KiB in 1 MiB, 16 MiB in flight", 350.0),
        ("floor, disk, RF 3, durable, 1 KiB in 1 MiB, 16 MiB in flight", 1080.0),
    ):
        figures.rows[name] = [row(name, 1.0, mb_per_s=speed)]
    missed = next(demand for demand in figures.targets(figures.medians()) if not demand.is_met)
    assert (missed.value, missed.at_least) == (0.7, 0.75)
    assert str(missed).startswith("  MISSED 1 KiB in 1 MiB, RF 3")
    assert str(missed).endswith("0.70 (at least 0.75) (the disk allows at most 0.72)")
    assert str(Demand("share", 0.7, at_least=0.75, allowed=0.9)) == "  MISSED share: 0.70 (at least 0.75)"


def test_a_share_is_the_median_of_the_rounds_own(tmp_path: Path) -> None:
    figures = Figures()
    figures.rows["page"] = [row("page", 1.0, mb_per_s=speed) for speed in (100.0, 400.0, 200.0)]
    figures.rows["durable"] = [
        row("durable", cost, mb_per_s=speed) for cost, speed in ((2, 90.0), (4, 100.0), (3, 140.0))
    ]
    assert figures.share("durable", "page") == pytest.approx(0.7), "of one machine state each; of the medians it is 0.5"
    assert figures.share("durable", "page", "cpu_ms_per_mb") == pytest.approx(3)
    assert figures.share("durable", "not measured") is None


def test_the_disk_floor_makes_every_byte_durable_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr("os.fdatasync", lambda descriptor: flushed.append(os.fstat(descriptor).st_size))
    run = fill_disk(tmp_path, files=3, write_bytes=KIB, flush_bytes=4 * KIB, total_bytes=30 * KIB)
    assert run.bytes == 3 * 8 * KIB, "whole flushes only"
    assert sorted(flushed) == [4 * KIB] * 3 + [8 * KIB] * 3
    assert len(run.flushes_s) == 6
    assert not list(tmp_path.iterdir())


def test_one_connection_in_another_mode_does_not_move_the_figure() -> None:
    parts = [(cpu, Blast(0.5, 10, 1_000_000, 5, [0.001])) for cpu in (0.0003, 0.0004, 0.0001, 0.0009, 0.0004)]
    cpu, joined = _median(parts)
    assert cpu / (joined.bytes / 1e6) == pytest.approx(0.0004)
    assert (joined.requests, joined.bytes, len(joined.latencies_s)) == (50, 5_000_000, 5)


def test_a_saturated_run_has_in_flight_what_it_says() -> None:
    assert NetworkConfig().in_flight_requests_max >= SATURATED_BYTES // SMALL, "the broker would not read on"


def test_what_the_host_took_is_the_steal_time_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    stat = "cpu  1 2 3 4 5 6 7 850 9 10\ncpu0 1 2 3 4 5 6 7 400 9 10\n"
    monkeypatch.setattr(Path, "read_text", lambda path: {"/proc/stat": stat}[str(path)])
    monkeypatch.setattr("os.sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    assert stolen_s() == pytest.approx(8.5)


def test_the_flush_probe_times_flushes(tmp_path: Path) -> None:
    with FlushProbe(tmp_path) as probe:
        while len(probe.seconds) < 2:
            time.sleep(0.01)
    assert 0 < probe.median_ms <= probe.worst_ms
    assert not (tmp_path / "flush-probe").exists()
