"""The laws of a share group as its members see it: one pure function each, S1 to S7.

May touch:  its arguments.            Must not touch: files, clusters, clocks.
Invariants: a rule accuses only what no correct cluster can do, whatever was lost on the way: an acknowledgement without an answer may
            count or not; a delivery whose answer was lost was one of the record's deliveries.
Read next:  data_rules.py, whose table they stand in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.checker.data_history import OK, History
from tests.checker.share_events import ACCEPTED, DONE, REJECTED, RELEASED, UNKNOWN_COUNT, Settled

STALE_S = 30.0
"""So long may an answer be under way to a member, over connections that were cut: what it shows was acquired before."""

Place = tuple[str, str, int]
"""(group, key, offset)"""


def settled_records_delivered_again(history: History) -> Iterator[str]:
    """S1: a record that was accepted or rejected, and answered so, is delivered afterwards: with a higher count, or long after."""
    done = {place: (settled, count) for place, settled, count, kind in _settled(history) if kind in DONE}
    for delivered in history.delivered:
        for key, records in delivered.records.items():
            for offset, count in records:
                settled, last = done.get((delivered.group, key, offset), (None, 0))
                if settled is None or delivered.begun < settled.ended:
                    continue
                if count > last != UNKNOWN_COUNT or delivered.begun > settled.ended + STALE_S:
                    yield (
                        f"{delivered.client} was given {key} at {offset}, count {count}, "
                        f"{delivered.begun - settled.ended:.1f} s after {settled.client} had settled it with count {last}"
                    )


def settled_twice(history: History) -> Iterator[str]:
    """S2: two members, or one twice, were told that the same record is accepted or rejected by them."""
    first: dict[Place, Settled] = {}
    for place, settled, _, kind in _settled(history):
        if kind not in DONE:
            continue
        if place in first:
            yield f"{place[1]} at {place[2]} was settled by {first[place].client} and by {settled.client}"
        first[place] = settled


def counts_beyond_the_limit(history: History) -> Iterator[str]:
    """S3: a record is delivered more often than the group allows."""
    limits = {each.group: each.limit for each in history.share_groups}
    for delivered in history.delivered:
        for key, records in delivered.records.items():
            beyond = [(offset, count) for offset, count in records if count > limits[delivered.group]]
            if beyond:
                yield f"{delivered.client} was given of {key} (offset, count) {beyond[:5]}; the limit is {limits[delivered.group]}"


def never_delivered(history: History) -> Iterator[str]:
    """S4: a record that is there in the end was delivered to no member, and no dead letter tells of it."""
    seen = {
        (delivered.group, key, offset)
        for delivered in history.delivered
        for key, records in delivered.records.items()
        for offset, _ in records
    }
    seen |= {(letter.group, letter.key, letter.offset) for letter in history.dead_letters}
    for group in history.share_groups:
        for key, records in history.final.items():
            if key.rpartition("-")[0] == group.topic:
                missing = [offset for offset, _ in records if (group.group, key, offset) not in seen]
                if missing:
                    yield f"{group.group} never had {len(missing)} records of {key}, the first at {missing[0]}"


def missing_dead_letters(history: History) -> Iterator[str]:
    """S5: a record that was rejected, or released for the last time, is not among the dead letters."""
    limits = {each.group: each.limit for each in history.share_groups}
    written = {(letter.group, letter.key, letter.offset) for letter in history.dead_letters}
    for place, settled, count, kind in _settled(history):
        is_dead = kind == REJECTED or (kind == RELEASED and count == limits[place[0]])
        if is_dead and place not in written:
            yield f"{settled.client} had {kind}ed {place[1]} at {place[2]} with count {count}: there is no dead letter"


def doubled_dead_letters(history: History) -> Iterator[str]:
    """S6: a record is among the dead letters more than once, as a crash between the two writes leaves it."""
    counts = Counter((letter.key, letter.offset) for letter in history.dead_letters)
    for (key, offset), count in counts.items():
        if count > 1:
            yield f"{key} at {offset} has {count} dead letters"


def dead_letters_of_the_living(history: History) -> Iterator[str]:
    """S7: a record that was accepted, and answered so, is among the dead letters."""
    accepted = {place for place, _, _, kind in _settled(history) if kind == ACCEPTED}
    for letter in history.dead_letters:
        if (letter.group, letter.key, letter.offset) in accepted:
            yield f"{letter.key} at {letter.offset} was accepted, and is dead: {letter.cause}"


def _settled(history: History) -> Iterator[tuple[Place, Settled, int, str]]:
    """What was acknowledged and answered without an error, offset by offset."""
    for settled in history.settled:
        if settled.outcome == OK:
            for offset, count, kind in settled.offsets:
                yield (settled.group, settled.key, offset), settled, count, kind
