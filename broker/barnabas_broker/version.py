"""The installed version of Barnabas, as metrics and `version` report it.

May touch:  the installed package's metadata.   Must not touch: everything else.
Invariants: one version for the whole distribution.
Read next:  pyproject.toml.
"""

from __future__ import annotations

import json
from importlib.metadata import distribution

_INSTALLED = distribution("barnabas")
VERSION = _INSTALLED.version
COMMIT: str = json.loads(_INSTALLED.read_text("direct_url.json") or "{}").get("vcs_info", {}).get("commit_id", "")
"""Known when it was installed straight from a repository (PEP 610), else empty."""
