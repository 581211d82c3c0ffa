"""The short form of `make recovery-fuzz`: some hundred images of each of some seeds, and that the law bites."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas_log.read.early_end import Tail
from barnabas_log.recovery import recovery, segment_proof
from barnabas_log.tail.aborted_transactions import AbortedTransactions
from barnabas_wire.kafka.ids import Offset
from tests.log.recovery_fuzz import run_seed

IMAGES = 250


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Each image is reported as damaged, as it must be."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(1, 11))
async def test_a_damaged_directory_opens_and_keeps_what_was_synced_before_the_damage(seed: int) -> None:
    count, failures = await run_seed(seed, images_max=IMAGES)
    assert count == IMAGES
    assert not failures, f"{failures[0].line}   # {failures[0].what}: {failures[0].error!r}"


async def test_a_start_that_believes_any_index_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_tail_by_indexes", lambda segment: Tail(segment.base_offset, -1))
    _, failures = await run_seed(7, images_max=50)
    assert failures


async def test_a_start_that_proves_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_proof, "CRC_START", 61)
    monkeypatch.setattr(segment_proof, "crc32c", lambda data: 0)
    _, failures = await run_seed(1, images_max=50)
    assert failures


async def test_a_start_that_takes_a_gap_for_the_end_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    original = segment_proof.rebuild_segment
    monkeypatch.setattr(
        recovery,
        "rebuild_segment",
        lambda *rest, **named: original(*rest, **{**named, "gaps": segment_proof.Gaps.NEVER}),
    )
    _, failures = await run_seed(3, images_max=50)
    assert failures


async def test_a_start_that_cuts_though_nobody_knows_what_was_flushed_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took a lost checkpoint for a young log, and removed what follows the first damage."""
    monkeypatch.setattr(recovery, "_UNKNOWN", Offset(0))
    _, failures = await run_seed(8, images_max=2 * IMAGES)
    assert failures


async def test_a_start_that_believes_any_txnindex_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "remake_aborted", lambda *_, **__: None)
    _, failures = await run_seed(14, images_max=400)
    assert failures and "aborted" in str(failures[0].error)


async def test_a_log_that_writes_no_notes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a lost file says that nothing was aborted."""
    monkeypatch.setattr(AbortedTransactions, "write_note", lambda *_: None)
    _, failures = await run_seed(14, images_max=400)
    assert failures and "aborted" in str(failures[0].error)
