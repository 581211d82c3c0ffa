"""`python -m pyspark_barnabas.checkpoint`: what a query's checkpoint says of its offsets, and a form of it that Spark's own Kafka
source can continue with.

May touch:  the offset log of one checkpoint directory.      Must not touch: the cluster, Spark sessions.
Invariants: a file is replaced whole or not at all, and its checksum goes with it; what is not ours is left as it is, byte for
    byte; exporting twice changes nothing the second time.
Read next:  offsets.py, which knows both forms.

Spark keeps one file per micro-batch in DIR/offsets: a version, the batch's metadata, then the offsets of each source as JSON, one
a line (`-` for none).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_barnabas.offsets import BEGUN, TOPIC_ID, stripped

NO_OFFSET = "-"
HEADER_LINES = 2
"""The version, the metadata."""


class CheckpointError(RuntimeError):
    """A directory that is not what it must be; the message says what to do."""


class OffsetFile(NamedTuple):
    """The offsets of one micro-batch."""

    path: Path
    batch_id: int
    lines: list[str]

    @property
    def positions(self) -> Iterator[tuple[int, dict[str, dict[str, Any]]]]:
        """(line, offsets) of each source that is a Kafka source, ours or Spark's own."""
        for number in range(HEADER_LINES, len(self.lines)):
            offsets = _offsets(self.lines[number])
            if offsets is not None:
                yield number, offsets


def read_checkpoint(directory: Path) -> list[OffsetFile]:
    """The offset files of a checkpoint, the oldest first. Raises CheckpointError."""
    log = directory / "offsets"
    if not log.is_dir():
        raise CheckpointError(
            f"{directory} is not the checkpoint of a query: it has no folder offsets; name what the query has as checkpointLocation"
        )
    numbered = sorted((int(path.name), path) for path in log.iterdir() if path.name.isdecimal())
    if not numbered:
        raise CheckpointError(f"{log} holds no micro-batch yet: there is nothing to export")
    files = []
    for batch_id, path in numbered:
        lines = path.read_text(encoding="utf-8").split("\n")
        if len(lines) < HEADER_LINES or not lines[0].startswith("v"):
            raise CheckpointError(
                f"{path} is not a file of Spark's offset log: it begins with {lines[0][:20]!r}, not v1"
            )
        files.append(OffsetFile(path, batch_id, lines))
    return files


def export(directory: Path) -> list[int]:
    """Take out of a checkpoint what Spark's own Kafka source cannot read; returns the micro-batches whose files changed.

    The query must not run meanwhile. Our source reads the new form too, without its protection against topics made again.
    Raises CheckpointError.
    """
    changed = []
    for file in read_checkpoint(directory):
        lines = list(file.lines)
        for number, offsets in file.positions:
            if any(key in parts for parts in offsets.values() for key in (TOPIC_ID, BEGUN)):
                lines[number] = json.dumps(stripped(offsets), separators=(",", ":"))
        if lines != file.lines:
            _replace(file.path, "\n".join(lines))
            changed.append(file.batch_id)
    return changed


def _offsets(line: str) -> dict[str, dict[str, Any]] | None:
    if line == NO_OFFSET:
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(parts, dict) for parts in found.values()):
        return None
    keys = {key for parts in found.values() for key in parts}
    return found if all(key.isdecimal() or key in (TOPIC_ID, BEGUN) for key in keys) else None


def _replace(path: Path, text: str) -> None:
    """Spark's file system keeps a checksum beside each file, and refuses a file that it does not fit."""
    written = path.with_name(f".{path.name}.export")
    with written.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    written.replace(path)


def _rows(files: Sequence[OffsetFile]) -> list[dict[str, Any]]:
    newest = files[-1]
    rows = []
    for number, offsets in newest.positions:
        for topic, parts in sorted(offsets.items()):
            for index in sorted((key for key in parts if key.isdecimal()), key=int):
                rows.append(
                    {
                        "batch": newest.batch_id,
                        "source": number - HEADER_LINES,
                        "topic": topic,
                        "topic_id": parts.get(TOPIC_ID, ""),
                        "partition": int(index),
                        "offset": parts[index],
                    }
                )
    return rows


def _table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "no source of this query is a Kafka source"
    heads = list(rows[0])
    cells = [heads, *([str(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(heads))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 0, or 1 when the directory is no checkpoint."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_barnabas.checkpoint", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument(
        "verb", choices=("export", "show"), help="export: rewrite DIR for Spark's own source; show: its newest offsets"
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the checkpointLocation of a query that is stopped")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        changed = export(given.directory) if given.verb == "export" else []
        rows = _rows(read_checkpoint(given.directory))
    except CheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps({"changed": changed, "offsets": rows} if given.verb == "export" else {"offsets": rows}))
        return 0
    print(_table(rows))
    if given.verb == "export":
        print(
            f"\n{len(changed)} of {len(read_checkpoint(given.directory))} files written without topic ids: "
            'format("kafka") goes on from here'
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
