"""Sample configuration in the wheel: six nodes, and Prometheus with alerts. `barnabas storage init` writes a copy.

May touch:  its own files.            Must not touch: everything else.
Invariants: a node accepts every config here without a warning; every alert has a case in alerts_test.yml.
Read next:  ../commands/storage.py.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

FOLDERS = ("config", "prometheus")


def copy_samples(directory: Path) -> list[Path]:
    """Write every sample file below `directory`, which is made where it is missing; returns their paths in order.

    Raises FileExistsError before anything is written when one of them exists already.
    """
    samples = files(__name__)
    wanted = {
        directory / folder / sample.name: sample.read_bytes()
        for folder in FOLDERS
        for sample in sorted((samples / folder).iterdir(), key=lambda entry: entry.name)
    }
    for path in wanted:
        if path.exists():
            raise FileExistsError(path)
    for path, content in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(wanted)
