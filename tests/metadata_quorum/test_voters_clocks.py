import pytest

from barnabas_quorum.driver.voters_clocks import HEARD_FOR_MS, UNKNOWN_MS, VotersClocks, median_skew_ms
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Uuid

DAYS = 86_400_000
KEYS = [ReplicaKey(BrokerId(number), Uuid(bytes([number]) * 16)) for number in (1, 2, 3)]
VOTERS = VoterSet([Voter(key, "localhost", 9000) for key in KEYS])


@pytest.mark.parametrize(
    ("skews_ms", "voters", "expected"),
    [
        ([0], 1, 0),
        ([0, 20 * DAYS, 3], 3, 3),
        ([0, -20 * DAYS, -20 * DAYS], 3, -20 * DAYS),
        ([0], 3, None),
        ([0, 10], 3, 5),
        ([0, 20 * DAYS], 3, None),
        ([0, 20 * DAYS], 2, None),
        ([0, 1, 2, 20 * DAYS], 4, 1),
        ([0, 1], 4, None),
    ],
)
def test_one_wrong_clock_of_three_does_not_count_and_two_that_contradict_are_none(
    skews_ms: list[int], voters: int, expected: int | None
) -> None:
    assert median_skew_ms(skews_ms, voters=voters) == expected


def test_voters_are_heard_for_a_while_and_observers_and_old_ones_not_at_all() -> None:
    clocks = VotersClocks()
    me, two, three = KEYS

    def median_ms(wall_ms: int, now_ms: int) -> int:
        return clocks.median_ms(VOTERS, me, wall_ms=wall_ms, now_ms=now_ms)

    assert median_ms(1_000_000, 0) == UNKNOWN_MS
    clocks.hear(two, 0, now_ms=0)
    clocks.hear(ReplicaKey(BrokerId(9), two.directory_id), 1_000_000, now_ms=0)
    assert median_ms(1_000_000, 0) == UNKNOWN_MS
    clocks.hear(two, 1_000_010, now_ms=0)
    assert median_ms(1_000_000, 0) == 1_000_005
    clocks.hear(three, 1_000_005 + DAYS, now_ms=5)
    assert median_ms(1_000_005, 5) == 1_000_015
    assert median_ms(1_000_000 + HEARD_FOR_MS, HEARD_FOR_MS + 6) == UNKNOWN_MS, "both are silent by now"


def test_the_clock_of_the_leader_itself_may_jump_after_it_has_heard_the_others() -> None:
    """One of them is silent since then: it is heard for a while, and by the clock of then."""
    clocks = VotersClocks()
    me, two, three = KEYS
    clocks.hear(two, 1_000_000, now_ms=0)
    clocks.hear(three, 1_000_000, now_ms=0)
    clocks.hear(two, 1_000_100, now_ms=100)
    assert clocks.median_ms(VOTERS, me, wall_ms=1_000_100 + DAYS, now_ms=100) == 1_000_100
