"""The driver's decision on a micro-batch: which prepared transactions are to be committed, as offsets of a group keep it. Pure.

May touch:  its arguments.            Must not touch: sockets, Spark, the clock.
Invariants: decode(encode(decision)) == decision; what was decided on another batch is never taken for this one's.
Read next:  exactly_once.py, which writes and obeys it.

Where: group PREFIX.decisions, offsets of partitions 0, 1, … of __transaction_state, a topic that every cluster with transactions has; its
records are not read. Each offset is the next batch, and its metadata a piece of the text, since a broker keeps no more than 4 KiB with an
offset:
    partition 0   number of pieces, space, first piece        partition n   piece n
The text is JSON: {"query": id, "winners": [[task, suffix, producer id, epoch], …]}
All pieces are committed in one transaction of the driver's own, so they are all there or none. A broker keeps them as long as the group:
offsets.retention.minutes after the last (seven days).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas_wire.client.producer import ProducerIdentity
from barnabas_wire.client.transactions import CommittedOffset

PIECE_CHARACTERS = 3500
MARKER_TOPIC = "__transaction_state"


class DecisionError(RuntimeError):
    """The marker of the prefix says that this query may not write this batch."""


class Winner(NamedTuple):
    """A prepared transaction that is to be committed."""

    task: int
    suffix: int
    producer: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided last under a prefix."""

    next_batch: int
    """The batch after the one that was decided on."""
    query: str
    """Whose batch it was; empty where Spark ran a batch without any task, which alone knows the query."""
    winners: tuple[Winner, ...]


def group_of(prefix: str) -> str:
    """The group that keeps the decisions."""
    return f"{prefix}.decisions"


def driver_id(prefix: str) -> str:
    """The transactional id that decisions are written under: one driver fences another."""
    return f"{prefix}.driver"


def transactional_id(prefix: str, task: int, suffix: int) -> str:
    """The transactional id of an attempt of a task."""
    return f"{prefix}-{task}-{suffix}"


def is_of(prefix: str, name: str) -> bool:
    """Whether a transactional id is that of some attempt under the prefix."""
    return re.fullmatch(rf"{re.escape(prefix)}-\d+-\d+", name) is not None


def encode(decision: Decision, *, partitions: int) -> dict[int, CommittedOffset]:
    """By partition of MARKER_TOPIC. Raises DecisionError for more tasks than there is room for."""
    winners = [[each.task, each.suffix, *each.producer] for each in decision.winners]
    text = json.dumps({"query": decision.query, "winners": winners}, separators=(",", ":"))
    pieces = [text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)]
    if len(pieces) > partitions:
        raise DecisionError(
            f"{len(winners)} tasks are too many for one decision: {partitions} partitions of {MARKER_TOPIC} keep "
            f"{partitions * PIECE_CHARACTERS} characters; coalesce() the rows to fewer tasks before writing"
        )
    pieces[0] = f"{len(pieces)} {pieces[0]}"
    return {place: CommittedOffset(decision.next_batch, piece) for place, piece in enumerate(pieces)}


def decode(found: Mapping[int, CommittedOffset]) -> Decision | None:
    """The opposite of encode; None when nothing was ever decided. Raises DecisionError for what is no decision of ours."""
    if 0 not in found:
        return None
    next_batch, text = found[0]
    try:
        count, _, first = text.partition(" ")
        pieces = [first, *(found[place].metadata for place in range(1, int(count)))]
        if any(found[place].offset != next_batch for place in range(1, int(count))):
            raise ValueError("its pieces are of different batches")
        said = json.loads("".join(pieces))
        winners = tuple(
            Winner(int(task), int(suffix), ProducerIdentity(int(producer), int(epoch)))
            for task, suffix, producer, epoch in said["winners"]
        )
        return Decision(next_batch, str(said["query"]), winners)
    except (ValueError, KeyError, TypeError) as error:
        raise DecisionError(
            f"the group of the prefix keeps something that is no decision of this sink ({error}): use another transactionalIdPrefix"
        ) from None


def is_decided(found: Decision | None, *, prefix: str, query: str, batch: int, adopts: bool) -> bool:
    """Whether the batch was decided on already, and so is not to be written again.

    adopts: a marker that is missing is taken for one of the batch before. Raises DecisionError when the batch may not be written.
    """
    group = group_of(prefix)
    if found is None:
        if batch == 0 or adopts:
            return False
        raise DecisionError(
            f"batch {batch} of query {query} has no marker in group {group}: it expired, or the query wrote with another prefix or not "
            "exactly once before. Make sure that nothing of this batch is written yet, then set exactlyOnceAdopt=true for one run"
        )
    if found.query and found.query != query:
        raise DecisionError(
            f"transactionalIdPrefix={prefix} belongs to query {found.query}, this is {query}: give each query a prefix of its "
            "own, and a query that begins anew with another checkpoint a new one"
        )
    if found.next_batch < batch and not adopts:
        raise DecisionError(
            f"batch {batch} of query {query} does not follow the marker in group {group}, which expects batch {found.next_batch}: batches "
            "were written without it. Set exactlyOnceAdopt=true for one run to go on from here"
        )
    return found.next_batch > batch
