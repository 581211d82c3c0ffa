"""Make of a killed node's files what a power cut could have left: `python -m tests.power.rollback JOURNAL --seed N`.

May touch:  the node's files and its journal, once its process is gone.    Must not touch: durable bytes and names.
Invariants: what the journal calls durable is there afterwards, in place; one seed and one state give one outcome.
Read next:  journal.py.

Of the bytes after the durable ones any part may be there, torn at a byte or a sector, followed by nothing, zeros or garbage; a cut
that was not flushed may be undone. Of the names' changes the newest are undone: of all directories together, as a file system
with a journal does, or of each directory by itself, which is all that POSIX promises.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.power.journal import Journal, NameChange, remove

SECTOR = 512
ALL_LOST_SHARE = 0.3
"""Of the power cuts, in how many nothing reached the disk but what was flushed."""
IN_ORDER_SHARE = 0.5
"""Of the others, in how many names come and go in one order for all directories."""


@dataclass(slots=True)
class RolledBack:
    """What was taken away."""

    lost_bytes: int = 0
    torn_files: int = 0
    undone_changes: int = 0

    def __str__(self) -> str:
        return f"{self.lost_bytes} bytes of {self.torn_files} files, {self.undone_changes} changes of names"


def roll_back(journal_directory: Path, random: Random) -> RolledBack:
    """Take away what was not flushed; afterwards everything is durable as it stands. The process must be gone."""
    journal = Journal(journal_directory)
    done = RolledBack()
    is_all_lost = random.random() < ALL_LOST_SHARE
    for path, state in sorted(journal.files.items()):
        if not os.path.exists(path):
            continue  # the kill came between the removal and its note
        if os.path.getsize(path) == state.durable_size and not state.lost_tail:
            continue
        with open(path, "r+b") as stream:
            content = stream.read()
            durable = content[: state.durable_size] + state.lost_tail
            left = durable if is_all_lost else _survive(content, durable, state.durable_size, random)
            if left != content:
                done.lost_bytes += max(0, len(content) - state.durable_size)
                done.torn_files += 1
                stream.seek(0)
                stream.write(left)
                stream.truncate()
    for change in _lost_changes(journal.changes, random, is_all_lost=is_all_lost):
        done.undone_changes += 1
        _undo(journal, change)
    journal.erase()
    return done


def _survive(content: bytes, durable: bytes, same: int, random: Random) -> bytes:
    """`same`: how many first bytes are durable as they stand."""
    cut = random.randint(same, max(same, len(content)))
    if random.random() < 0.5:
        cut = max(same, cut - cut % SECTOR)
    if len(durable) > same:  # cut since, and perhaps written again
        return random.choice([durable, content[:cut], content[:cut] + durable[cut:]])
    if cut == len(content):
        return content
    tail = random.randint(0, min(len(content) - cut, SECTOR))
    return content[:cut] + random.choice([b"", bytes(tail), random.randbytes(tail)])


def _lost_changes(changes: list[NameChange], random: Random, *, is_all_lost: bool) -> list[NameChange]:
    """Those to be undone, newest first."""
    if is_all_lost:
        return changes[::-1]
    if random.random() < IN_ORDER_SHARE:
        return changes[random.randint(0, len(changes)) :][::-1]
    directories = Counter(os.path.dirname(change.path) for change in changes)
    left = {directory: random.randint(0, count) for directory, count in sorted(directories.items())}
    lost = []
    for change in reversed(changes):
        directory = os.path.dirname(change.path)
        if left[directory]:
            left[directory] -= 1
            lost.append(change)
    return lost


def _undo(journal: Journal, change: NameChange) -> None:
    if change.kind in ("created", "made"):
        remove(change.path)
    elif change.kind == "renamed" and os.path.exists(change.path):
        os.rename(change.path, change.source)
        journal.move(change.path, change.source)
    if change.grave and os.path.exists(change.grave):
        os.rename(change.grave, change.path)
        journal.move(change.grave, change.path)


def main() -> int:
    """Roll back one node, and say what went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    print(roll_back(options.journal, Random(options.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
