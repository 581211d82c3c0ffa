"""Which nodes a roll restarts next, and whether a host's brokers may go at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas_admin.commands.roll import Node, bears_at_once, next_step


def node(number: int, host: str | None = None, *, votes: bool = False) -> Node:
    return Node(id=number, is_broker=True, is_controller=votes, incarnation=(1, ""), host=host)


def steps(nodes: Sequence[Node], *, active: int, refused: Sequence[str] = ()) -> list[list[int]]:
    waiting, found = list(nodes), []
    while waiting:
        step = next_step(waiting, active=active, may_go_at_once=lambda nodes: nodes[0].host not in refused)
        found.append([each.id for each in step])
        waiting = [each for each in waiting if each not in step]
    return found


def test_a_roll_goes_host_by_host_and_one_by_one_where_a_host_may_not_go_at_once() -> None:
    nodes = [node(9, votes=True), node(1, "b"), node(2, "a"), node(3, "b"), node(4, "a"), node(5), node(8, votes=True)]
    assert steps(nodes, active=8) == [[5], [2, 4], [1, 3], [9], [8]]
    assert steps(nodes, active=8, refused="b") == [[5], [2, 4], [1], [3], [9], [8]]
    assert steps([node(1), node(2), node(3, votes=True)], active=3) == [[1], [2], [3]]


def test_brokers_that_vote_go_alone_whatever_their_host() -> None:
    assert steps([node(1, "a", votes=True), node(2, "a"), node(3, "a")], active=1) == [[2, 3], [1]]


@pytest.mark.parametrize(
    ("isr", "min_isr", "bears"),
    [
        ([1, 3, 4], 2, True),
        ([1, 2, 3], 1, True),
        ([1, 2, 3], 2, False),
        ([1, 2], 1, False),
        ([1, 2, 3, 4], 2, True),
        ([1], 1, True),  # it stands still one by one, too
        ([1, 3], 2, True),  # below its minimum one by one, too
        ([1, 2, 3], 3, False),
        ([3, 4], 2, True),
    ],
)
def test_a_partition_bears_at_once_what_it_would_bear_one_by_one(isr: list[int], min_isr: int, bears: bool) -> None:
    assert bears_at_once(isr, [1, 2], min_isr=min_isr) is bears
