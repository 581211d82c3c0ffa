"""The counts are repeatable, they see work in product code alone, and a row that got worse is called so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from barnabas_quorum.image.directories import is_reserved
from barnabas_replication.leader import fetches
from barnabas_wire.kafka.ids import ZERO_UUID
from tests.bench import instructions
from tests.bench.instructions import Bytecodes, compare, measure_all


def test_a_row_takes_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "REQUESTS", 11)
    # Its timer falls into most requests of a row where the machine is busy, and into few else.
    monkeypatch.setattr(fetches, "HIGH_WATERMARK_PUSH_MS", 3_600_000)
    first, second = (asyncio.run(measure_all(Bytecodes(), tmp_path / name)) for name in ("first", "second"))
    assert first == pytest.approx(second, rel=instructions.SLACK)
    assert min(first.values()) > 500
    assert first["fetch of a follower, partitions: 10"] > 2 * first["fetch of a follower, partitions: 1"]


def test_bytecodes_count_product_code_alone() -> None:
    measure = Bytecodes()
    with measure:
        assert sum(number for number in range(1_000)) > 0
    assert measure.count == 0
    with measure:
        is_reserved(ZERO_UUID)
    assert 0 < measure.count < 50


def test_over_three_per_cent_more_is_worse() -> None:
    rows = compare({"same": 1_030, "worse": 1_031, "new": 5}, {"same": 1_000, "worse": 1_000, "gone": 1})
    assert [(row.name, row.is_worse) for row in rows] == [("same", False), ("worse", True), ("new", False)]


def test_exit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(measure: Bytecodes, directory: Path) -> dict[str, int]:
        return {"row": 1_050}

    monkeypatch.setattr(instructions, "measure_all", measured)
    monkeypatch.setattr(instructions, "best_measure", Bytecodes)
    table = tmp_path / "table.json"
    assert instructions.main(["--json", str(table)]) == 0
    assert instructions.main(["--against", str(table)]) == 0
    table.write_text(json.dumps({"measure": "bytecodes", "rows": {"row": 1_000}}))
    assert instructions.main(["--against", str(table)]) == 1
    table.write_text(json.dumps({"measure": "instructions", "rows": {"row": 1_050}}))
    assert instructions.main(["--against", str(table)]) == 2
