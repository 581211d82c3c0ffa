"""Where histories part: every pair of logs that epochs can make ends equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_replication.follower.truncation import EpochEnd, find_divergence, must_begin_anew, truncation_offset
from barnabas_wire.kafka.ids import Epoch, Offset


def at(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(Epoch(epoch), Offset(offset))


@pytest.mark.parametrize(
    ("asked_epoch", "fetch_offset", "local", "answer"),
    [
        (3, 10, at(3, 10), None),
        (3, 10, at(3, 40), None),
        (3, 10, at(3, 9), at(3, 9)),
        (3, 10, at(2, 8), at(2, 8)),
        (3, 10, at(2, 12), at(2, 12)),
    ],
)
def test_the_leader_answers_only_where_histories_part(
    asked_epoch: int, fetch_offset: int, local: EpochEnd, answer: EpochEnd | None
) -> None:
    found = find_divergence(asked_epoch=Epoch(asked_epoch), fetch_offset=Offset(fetch_offset), local=local)
    assert found == answer


@pytest.mark.parametrize(
    ("log_start", "local", "asker", "answer"),
    [
        (7, at(3, 7), (2, 7), True),
        (7, at(3, 6), (2, 9), True),
        (7, at(3, 7), (-1, 7), True),
        (7, at(3, 7), (7, 7), False),
        (7, at(3, 8), (2, 8), False),
        (0, at(3, 0), (0, 2), False),
    ],
    ids=[
        "retention took its epoch",
        "and what it has is longer",
        "it does not say where it begins",
        "it holds nothing",
        "its epoch is here",
        "nothing was taken",
    ],
)
def test_who_holds_what_nobody_can_judge_begins_anew(
    log_start: int, local: EpochEnd, asker: tuple[int, int], answer: bool
) -> None:
    start, end = map(Offset, asker)
    assert answer is must_begin_anew(
        log_start_offset=Offset(log_start), local=local, asker_start_offset=start, fetch_offset=end
    )


@pytest.mark.parametrize(
    ("leader", "local", "end", "cut"),
    [
        (at(3, 9), at(3, 12), 12, 9),
        (at(3, 30), at(3, 12), 15, 12),
        (at(3, 9), at(2, 7), 12, 7),
        (at(1, 4), at(-1, -1), 12, 4),
        (at(1, 40), at(-1, -1), 12, 12),
    ],
)
def test_the_follower_cuts_to_what_both_know(leader: EpochEnd, local: EpochEnd, end: int, cut: int) -> None:
    assert truncation_offset(leader=leader, local=local, log_end_offset=Offset(end)) == cut


class ModelLog:
    """A log of records (epoch, unique number); epochs rise."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []

    @property
    def latest_epoch(self) -> int:
        return self.records[-1][0] if self.records else -1

    def end_for(self, epoch: int, own_epoch: int = -1) -> EpochEnd:
        """As UnifiedLog.end_offset_for_epoch; own_epoch: an epoch begun at the end, still without records."""
        latest = max(self.latest_epoch, own_epoch)
        if epoch > latest:
            return at(-1, -1)
        end = sum(known <= epoch for known, _ in self.records)
        return at(epoch if epoch == own_epoch or not end else self.records[end - 1][0], end)


def catch_up(leader: ModelLog, follower: ModelLog, leader_epoch: int, records_max: int) -> None:
    """What fetches do until they bring records: truncate round by round, then copy at most records_max."""
    for _ in range(50):
        end = len(follower.records)
        asked = follower.latest_epoch
        if asked >= 0:
            local = leader.end_for(asked, leader_epoch)
            answer = find_divergence(asked_epoch=Epoch(asked), fetch_offset=Offset(end), local=local)
            if answer is not None:
                mine = follower.end_for(answer.epoch)
                cut = truncation_offset(leader=answer, local=mine, log_end_offset=Offset(end))
                assert cut < end, "each round of truncation makes progress"
                del follower.records[cut:]
                continue
        follower.records += leader.records[end : end + records_max]
        return
    raise AssertionError("truncation does not end")


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2), st.integers(0, 4)), max_size=25))
def test_a_follower_ends_as_a_prefix_of_its_leader_whatever_came_before(
    steps: list[tuple[int, int, int, int]],
) -> None:
    """Any broker may be elected, even uncleanly; it writes; one other broker then follows it a little."""
    logs = [ModelLog() for _ in range(3)]
    for epoch, (leader, writes, follower, copies) in enumerate(steps):
        logs[leader].records += [(epoch, number) for number in range(writes)]
        if follower != leader:
            catch_up(logs[leader], logs[follower], epoch, copies)
            end = len(logs[follower].records)
            assert logs[follower].records == logs[leader].records[:end]
