import logging

import pytest

from barnabas_broker.metadata.voters_clock import VotersClock
from barnabas_quorum.driver.voters_clocks import OLD_CONTROLLER_MS, UNKNOWN_MS

DAYS = 86_400_000


class Clocks:
    """Of one machine."""

    wall_ms = 1_700_000_000_000
    monotonic_ms = 50

    def pass_by(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms


def made() -> tuple[VotersClock, Clocks]:
    clocks = Clocks()
    clock = VotersClock(wall_ms=lambda: clocks.wall_ms, monotonic_ms=lambda: clocks.monotonic_ms, skew_ms_max=60_000)
    return clock, clocks


def test_a_clock_that_nobody_has_confirmed_judges_no_age() -> None:
    clock, clocks = made()
    assert not clock.may_judge_age() and clock.skew_ms is None
    clock.hear(UNKNOWN_MS)
    assert not clock.may_judge_age()
    clock.hear(OLD_CONTROLLER_MS)
    assert clock.may_judge_age(), "a cluster that is being upgraded goes on"
    clock.hear(clocks.wall_ms)
    assert clock.may_judge_age() and clock.skew_ms == 0


@pytest.mark.parametrize("off_ms", [20 * DAYS, -20 * DAYS, 60_001, -60_001])
def test_a_clock_that_is_off_judges_no_age_and_says_so_once(off_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock, clocks = made()
    for _ in range(3):
        clock.hear(clocks.wall_ms - off_ms)
        assert clock.skew_ms == off_ms and not clock.may_judge_age()
        clocks.pass_by(1000)
    clock.hear(clocks.wall_ms - 59_000)
    assert clock.may_judge_age()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_clock_that_jumps_between_two_answers_is_off_at_once() -> None:
    clock, clocks = made()
    clock.hear(clocks.wall_ms)
    clocks.pass_by(3 * DAYS)
    assert clock.may_judge_age(), "cut off from the controllers, and right"
    clocks.wall_ms += 20 * DAYS
    assert not clock.may_judge_age()
    clocks.wall_ms -= 20 * DAYS
    assert clock.may_judge_age()
