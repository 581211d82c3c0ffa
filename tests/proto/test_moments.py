"""Times as text: whatever a producer wrote into a record's timestamp can be printed."""

from __future__ import annotations

from datetime import UTC

import pytest

from barnabas_admin.console.template_filters import moment
from barnabas_admin.output import local_time
from barnabas_admin.record_format import Columns, text_formatter
from barnabas_wire.moments import iso_text, moment_of
from barnabas_wire.records.batch import Record

LAST_MS = 253_402_300_799_999
NANOSECONDS = 1_760_000_000_123_456_789


def test_a_date_is_printed_to_the_millisecond() -> None:
    assert iso_text(1_760_000_000_123, UTC) == "2025-10-09T08:53:20.123+00:00"
    assert iso_text(LAST_MS // 1000 * 1000, UTC, sep=" ", timespec="seconds") == "9999-12-31 23:59:59+00:00"
    assert moment(1_760_000_000_000) == "2025-10-09 08:53:20.000"


@pytest.mark.parametrize("at_ms", [LAST_MS + 1, NANOSECONDS // 1000, NANOSECONDS, (1 << 63) - 1])
def test_what_has_no_date_is_printed_as_it_is_written_for_a_command(at_ms: int) -> None:
    assert moment_of(at_ms, UTC) is None
    text = f"@{at_ms}"
    assert iso_text(at_ms, UTC) == text
    assert moment(at_ms) == text
    assert local_time(at_ms + 86_400_000) == f"@{at_ms + 86_400_000}"
    line = text_formatter(Columns(has_timestamp=True))("t", 0, Record(0, at_ms + 86_400_000, None, b"v"))
    assert line == f"@{at_ms + 86_400_000}\tv\n".encode()


def test_times_long_before_christ_have_a_text_too() -> None:
    assert iso_text(-(1 << 63)) == f"@{-(1 << 63)}"
