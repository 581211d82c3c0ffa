"""What a node says of its package is what pip wrote of it."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from barnabas_broker.version import VERSION, _commit


def test_the_package_has_the_version_of_the_code() -> None:
    assert version("barnabas") == VERSION


def test_the_commit_is_known_of_an_installation_from_a_repository(tmp_path: Path) -> None:
    assert _commit(tmp_path) == ""
    written = tmp_path / f"barnabas-{VERSION}.dist-info" / "direct_url.json"
    written.parent.mkdir()
    written.write_text(json.dumps({"url": "file:///a", "dir_info": {"editable": True}}))
    assert _commit(tmp_path) == ""
    written.write_text(json.dumps({"url": "https://a", "vcs_info": {"vcs": "git", "commit_id": "0123abc"}}))
    assert _commit(tmp_path) == "0123abc"
