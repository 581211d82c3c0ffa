"""The benchmark's own parts: the floor answers what it is sent, and the verdicts follow from the figures."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.bench.__main__ import Bench, Row
from tests.bench.blaster import Target, blast, drain_floor
from tests.bench.frames import KIB, MIB, Load, make_fetch, make_produce
from tests.bench.machine import FlushProbe, cpu_s, resident_mib


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
    bench = Bench(tmp_path, rounds=2, scale=1.0, only="")
    for large, small in ((0.5, 10.0), (0.7, 20.0), (0.6, 12.0)):
        bench.rows.setdefault("floor, produce, 1 KiB in 1 MiB", []).append(row("", large))
        bench.rows.setdefault("floor, produce, 1 KiB in 16 KiB", []).append(row("", 0.6, us=small))
    bench.rows["produce, RF 1, page cache, 1 KiB in 16 KiB"] = [row("", 1.5, ratio=2.4), row("", 1.7, ratio=2.5)]
    bench.rows["produce, RF 3, page cache, 1 KiB in 16 KiB"] = [row("", 8.0)]
    bench.rows["produce, RF 3, durable, 1 KiB in 16 KiB"] = [row("", 8.0, mb_per_s=80.0)]
    rows = bench.medians()
    assert bench.void_reason(rows) is None
    verdicts = {demand.name: demand.is_met for demand in bench.targets(rows)}
    assert verdicts == {
        "produce, RF 1, page cache, 1 KiB in 16 KiB: broker CPU / floor CPU": True,
        "1 KiB in 16 KiB: CPU of all brokers, RF 3 / RF 1": False,
        "1 KiB in 16 KiB, RF 3: durable MB/s / page cache MB/s": True,
        "control-lane tick p99 under load, worst case, ms": True,
        "elections under load": True,
    }
    bench.rows["floor, produce, 1 KiB in 1 MiB"] = [row("", 1.0)]
    assert bench.void_reason(bench.medians()) is not None


def test_the_flush_probe_times_flushes(tmp_path: Path) -> None:
    with FlushProbe(tmp_path) as probe:
        while len(probe.seconds) < 2:
            time.sleep(0.01)
    assert 0 < probe.median_ms <= probe.worst_ms
    assert not (tmp_path / "flush-probe").exists()
