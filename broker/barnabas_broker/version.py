"""The installed version of Barnabas, as metrics and `version` tell it.

May touch:  the installed package's metadata.   Must not touch: everything else.
Invariants: one version for the whole distribution.
Read next:  pyproject.toml.
"""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("barnabas")
