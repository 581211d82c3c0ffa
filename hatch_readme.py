"""The README as the wheel's page: without links into the repository, which lead nowhere from there.

May touch:  README.md.                Must not touch: the network, anything else.
Invariants: the text stays word for word; links to other places and to parts of the page itself stay links.
Read next:  pyproject.toml, [tool.hatch.metadata.hooks.custom].

Where the repository has a public home, absolute links to it take the place of this.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)]*\)")


class ReadmeHook(MetadataHookInterface):
    """What hatchling asks for `readme`, which pyproject.toml names as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Give the page."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": page_of(text)}


def page_of(text: str) -> str:
    """The README without pictures and links of the repository's own; a link leaves its words."""
    return _LINK.sub(r"\1", _PICTURE.sub("", text))
