"""The version of Barnabas, as the package, its metrics and `version` report it.

May touch:  what pip wrote of the installation.   Must not touch: everything else.
Invariants: one version for the whole distribution, whose metadata take it from here: to ask them costs a start 20 ms of CPU.
Read next:  pyproject.toml.
"""

from __future__ import annotations

import json
from pathlib import Path

VERSION = "0.1.0"


def _commit(packages: Path) -> str:
    try:
        origin = (packages / f"barnabas-{VERSION}.dist-info" / "direct_url.json").read_text(encoding="utf-8")
    except OSError:
        return ""
    return str(json.loads(origin).get("vcs_info", {}).get("commit_id", ""))


COMMIT = _commit(Path(__file__).resolve().parents[1])
"""Known when it was installed straight from a repository (PEP 610), else empty."""
