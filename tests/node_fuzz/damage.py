"""What may happen to one durable file: the kinds of damage, and which file of which node a number stands for.

May touch:  the directories of one image, while no node runs.   Must not touch: nodes.
Invariants: a seed and a number say what is damaged, whatever the copies' ids and times are; nothing but the chosen file changes.
Read next:  images.py.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from barnabas_log.directories.directory_state import OWN_DIRECTORY
from tests.node_fuzz.cluster import NODES, data_directory
from tests.node_fuzz.world import TOPICS

_OWN = re.escape(OWN_DIRECTORY) + "/"
_CHECKPOINT = r"(?:recovery-point|log-start|replication|cleaner)-offset-checkpoint"
_PARTITION = r"(?P<partition>[^/]+-\d+)/"
FILES: Mapping[str, str] = {
    "meta.properties": r"meta\.properties",
    "recovery points": r"recovery-point-offset-checkpoint",
    "log starts": r"log-start-offset-checkpoint",
    "high watermarks": r"replication-offset-checkpoint",
    "cleaner checkpoint": r"cleaner-offset-checkpoint",
    "all checkpoints": _CHECKPOINT,
    "checkpoints and twins": rf"(?:{_OWN})?{_CHECKPOINT}",
    "clean stop": r"\.kafka_cleanshutdown",
    "reserve": r"reserve",
    "partition.metadata": _PARTITION + r"partition\.metadata",
    "topic witness": _PARTITION + r"topic-id\.witness",
    "directory state": _OWN + "directory-state",
    "checkpoint twins": _OWN + _CHECKPOINT,
    "leader epochs": _PARTITION + r"leader-epoch-checkpoint",
    "segment": _PARTITION + r"\d{20}\.log",
    "index": _PARTITION + r"\d{20}\.index",
    "time index": _PARTITION + r"\d{20}\.timeindex",
    "aborted index": _PARTITION + r"\d{20}\.txnindex",
    "note of the aborted index": _PARTITION + r"\d{20}\.txncheck",
    "producer snapshot": _PARTITION + r"\d{20}\.snapshot",
    "quorum-state": r"__cluster_metadata-0/quorum-state",
    "bootstrap checkpoint": r"__cluster_metadata-0/0{20}-0{10}\.checkpoint",
    "metadata snapshot": r"__cluster_metadata-0/(?!0{20})\d{20}-\d{10}\.checkpoint",
    "metadata segment": r"__cluster_metadata-0/\d{20}\.log",
    "metadata index": r"__cluster_metadata-0/\d{20}\.(?:index|timeindex)",
    "metadata epochs": r"__cluster_metadata-0/leader-epoch-checkpoint",
    "metadata partition.metadata": r"__cluster_metadata-0/partition\.metadata",
    "flush marks": r"__cluster_metadata-0/flush-marks",
    "metadata reserve": r"__cluster_metadata-0/reserve",
}
"""Each durable file by the name that `docs/durable-files.md` gives it, and how its path looks below a node's directory."""
TOGETHER = {"all checkpoints", "checkpoints and twins"}
"""Of these all that match are damaged, each by itself."""

STRANGE_NAMES: Mapping[str, Callable[[Path], None]] = {
    "a file notes-1": lambda data: _write(data / "notes-1", b"buy milk\n"),
    "a file that is not text": lambda data: _write(data / "\u00fcber.bak", b"\xff\xfe\x00"),
    "a directory lost+found": lambda data: (data / "lost+found").mkdir(),
    "an empty directory other-0": lambda data: (data / "other-0").mkdir(),
    "a directory safe-99 of no partition": lambda data: (data / "safe-99").mkdir(),
    "a file notes.log in a log": lambda data: _write(data / "safe-0" / "notes.log", b"buy milk\n"),
    "a directory x.index in a log": lambda data: (data / "safe-0" / "00000000000000000005.index").mkdir(),
    "a copy of a log": lambda data: _copy_tree(data / "safe-0", data / "safe-0 (copy)"),
    "a log's copy with a partition's name": lambda data: _copy_tree(data / "safe-0", data / "copy-0"),
    "half a file left as .tmp": lambda data: _write(data / "meta.properties.tmp", b"version="),
    "a file quorum-state.tmp": lambda data: _write(data / "__cluster_metadata-0" / "quorum-state.tmp", b"{"),
    "a file notes.checkpoint": lambda data: _write(data / "__cluster_metadata-0" / "notes.checkpoint", b"x"),
}


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _copy_tree(path: Path, to: Path) -> None:
    shutil.copytree(path, to)


KINDS = (
    "missing", "empty", "cut", "zeroed", "zero from a byte on", "flipped", "garbled", "old", "another's", "longer",
)  # fmt: skip
FORMS = ("cold", "rejoin")
"""All nodes start at once; or the damaged one when the others run already."""
COPIES = ("killed", "clean")


class Choice(NamedTuple):
    """What a number of a seed stands for."""

    seed: int
    number: int
    file: str
    kind: str
    copy: str
    form: str
    node: int

    @property
    def line(self) -> str:
        """Replays it."""
        return f".venv/bin/python -m tests.node_fuzz --seed {self.seed} --image {self.number}"

    def __str__(self) -> str:
        return f"{self.file}: {self.kind} on node {self.node} ({self.copy}, {self.form})"


def choices(seed: int) -> Iterator[Choice]:
    """Without end. Each file with each kind comes once before any comes again."""
    number = 0
    while True:
        pairs = [(file, kind) for file in FILES for kind in KINDS] + [("strange name", name) for name in STRANGE_NAMES]
        Random(f"{seed} {number}").shuffle(pairs)
        for file, kind in pairs:
            draw = Random(f"{seed} {number} drawn")
            copy = "clean" if file == "clean stop" else draw.choice(COPIES)
            yield Choice(seed, number, file, kind, copy, draw.choice(FORMS), draw.choice(NODES))
            number += 1


@dataclass
class Damage:
    """What was done."""

    what: str
    path: str
    """Of the damaged file, below the node's directory; that of the data directory for a strange name."""
    before: bytes = b""
    after: bytes | None = None
    others: dict[str, bytes | None] = field(default_factory=dict)
    """Files that are damaged together with it, and what they hold then; None: gone."""

    @property
    def changed(self) -> tuple[int, int]:
        """The bytes of the file that are not what they were: from, to (not included)."""
        if self.after is None:
            return 0, len(self.before)
        same = (n for n, (a, b) in enumerate(zip(self.before, self.after, strict=False)) if a != b)
        first = next(same, min(len(self.before), len(self.after)))
        if len(self.before) != len(self.after):
            return first, max(len(self.before), len(self.after))
        back = (n for n, (a, b) in enumerate(zip(reversed(self.before), reversed(self.after), strict=True)) if a != b)
        return first, len(self.before) - next(back, len(self.before))


def plan(choice: Choice, copies: Path) -> Damage | None:
    """What the choice does to the copies that it begins with; None where there is no such file, or nothing would change."""
    if choice.file == "strange name":
        return Damage(choice.kind, ".")
    draw = Random(f"{choice.seed} {choice.number} applied")
    data = data_directory(copies / choice.copy, choice.node)
    found = _matching(choice.file, data)
    if not found:
        return None
    path = draw.choice(_where_it_counts(found, choice.node))
    before = (data / path).read_bytes()
    after, detail = _damaged(choice, before, path, found, draw, data_directory(copies / "old", choice.node), data)
    if after == before:
        return None
    damage = Damage(f"{path} {choice.kind}{detail}", path, before, after)
    for other in found if choice.file in TOGETHER else ():
        if other != path:
            content, how = _damaged(
                choice,
                (data / other).read_bytes(),
                other,
                found,
                draw,
                data_directory(copies / "old", choice.node),
                data,
            )
            damage.others[other] = content
            damage.what += f", {other}{how}"
    return damage


def apply(choice: Choice, damage: Damage, root: Path) -> None:
    """Do it to the image below `root`."""
    data = data_directory(root, choice.node)
    if choice.file == "strange name":
        STRANGE_NAMES[choice.kind](data)
        return
    for path, content in {damage.path: damage.after, **damage.others}.items():
        if content is None:
            (data / path).unlink()
        else:
            (data / path).write_bytes(content)


def _matching(file: str, data: Path) -> list[str]:
    pattern = re.compile(FILES[file])
    found = []
    for path in data.rglob("*"):
        name = str(path.relative_to(data))
        match = pattern.fullmatch(name)
        if match and path.is_file() and not (match.groupdict().get("partition") or "").startswith("__cluster_metadata"):
            found.append(name)
    return sorted(found)


def _where_it_counts(found: list[str], node_id: int) -> list[str]:
    """Of files of partitions three times in four one that has no other replica, or is led by this node: a follower's is hardly believed."""
    counting = []
    for path in found:
        topic, _, index = path.partition("/")[0].rpartition("-")
        placed = TOPICS.get(topic)
        if placed is None or placed[0][int(index)][0] == node_id:
            counting.append(path)
    return counting * 3 + [path for path in found if path not in counting] if counting else found


def _damaged(
    choice: Choice, before: bytes, path: str, like: list[str], draw: Random, old: Path, data: Path
) -> tuple[bytes | None, str]:
    """The file's new content, None: gone; and what to add to the name of the damage."""
    size = len(before)
    at = draw.randrange(size) if size else 0
    if choice.kind == "missing":
        return None, ""
    if choice.kind == "empty":
        return b"", ""
    if choice.kind == "cut":
        return before[:at], f" to {at} of {size} bytes"
    if choice.kind == "zeroed":
        return bytes(size), ""
    if choice.kind == "zero from a byte on":
        return before[:at] + bytes(size - at), f" {at} of {size}"
    if choice.kind == "flipped":
        bit = draw.randrange(8)
        flipped = bytearray(before)
        if size:
            flipped[at] ^= 1 << bit
        return bytes(flipped), f" at bit {bit} of byte {at} of {size}"
    if choice.kind == "garbled":
        return draw.randbytes(size), ""
    if choice.kind == "longer":
        return before + draw.randbytes(1 + draw.randrange(100)), " by random bytes"
    if choice.kind == "old":
        return ((old / path).read_bytes() if (old / path).is_file() else before), ""
    others = [each for each in like if each != path and (data / each).read_bytes() != before]
    if others:
        other = draw.choice(others)
        return (data / other).read_bytes(), f", of {other}"
    # One of a kind on this node: another node's.
    neighbours = [data.with_name(f"node-{each}") / path for each in NODES if each != choice.node]
    contents = [each.read_bytes() for each in neighbours if each.is_file()]
    return (draw.choice(contents) if contents else before), ", of another node"
