"""How a room's config dataclass declares a property of the node.

May touch:  its arguments.            Must not touch: files, environment.
Invariants: name, default and doc stand in one call, where the value is used.
Read next:  barnabas_broker/config/keys.py, which finds them and reads a node's properties with them.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def config_key(name: str | None, default: Any, doc: str, *, sensitive: bool = False) -> Any:
    """A field for a property.

    Args:
        name: in a properties file; None: no file may set it.
        default: as the field's type has it; MISSING where a file must say it.
        doc: what it means, its unit, its dangers.
        sensitive: shown to nobody, in no repr either.
    """
    metadata = {"key": name, "doc": doc, "sensitive": sensitive}
    return dataclasses.field(default=default, repr=not sensitive, metadata=metadata)
