"""Every file that the product writes is on the page that says what it is, what proves it, and what happens when it is wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "durable-files.md"
WRITERS = (
    "log",
    "broker/barnabas_broker/metadata",
    "broker/barnabas_broker/node",
    "broker/barnabas_broker/offline",
)
NAMES = re.compile(r"_(FILE|SUFFIX|DIRECTORY|PROPERTIES|CHECKPOINT)$|^(META_PROPERTIES|BOOTSTRAP_CHECKPOINT)$")


def names_on_the_page() -> set[str]:
    """What stands between backticks in the first column of the tables."""
    found: set[str] = set()
    for line in PAGE.read_text().splitlines():
        cells = line.split("|")
        if len(cells) == 7:
            assert all(cell.strip() for cell in cells[1:-1]), f"a cell is empty: {line}"
            found |= set(re.findall(r"`([^`]+)`", cells[1]))
    return found


def written_as_on_the_page(path: str) -> str:
    """A path below a node's directory, as the page names it."""
    directory, _, name = path.rpartition("/")
    name = re.sub(r"^(?!0{20}-0{10})\d{20}-\d{10}(?=\.)", "END-EPOCH", name)
    name = re.sub(r"^\d{20}(?=\.)", "N", name)
    if "/.cleaning/" in f"/{directory}/":
        return f".cleaning/RUN/{name}"
    return name


def names_in_the_code() -> Iterator[tuple[str, str]]:
    """Where a constant that names a file stands, and its value."""
    for root in WRITERS:
        for path in sorted((ROOT / root).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                targets, value = [], None
                if isinstance(node, ast.Assign):
                    targets, value = node.targets, node.value
                elif isinstance(node, ast.AnnAssign) and node.value is not None:
                    targets, value = [node.target], node.value
                for target in targets:
                    pairs = (
                        zip(target.elts, value.elts, strict=True)
                        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                        else [(target, value)]
                    )
                    for each, given in pairs:
                        is_name = isinstance(each, ast.Name) and NAMES.search(each.id)
                        if is_name and isinstance(given, ast.Constant) and isinstance(given.value, str):
                            yield f"{path.relative_to(ROOT)}", given.value


def test_every_file_on_the_disk_of_a_cluster_is_on_the_page(short_form: dict[str, Any]) -> None:
    known = names_on_the_page()
    missing = {path for path in short_form["files"] if written_as_on_the_page(path) not in known}
    assert len(short_form["files"]) > 100
    assert not missing, f"put them into {PAGE.relative_to(ROOT)}: {sorted(missing)[:20]}"


def test_every_file_that_the_code_names_is_on_the_page() -> None:
    known = names_on_the_page()
    named = list(names_in_the_code())
    assert len(named) > 20
    missing = {(where, name) for where, name in named if not any(name in each for each in known)}
    assert not missing, f"put them into {PAGE.relative_to(ROOT)}: {sorted(missing)}"


def test_the_page_has_no_file_that_nothing_writes(short_form: dict[str, Any]) -> None:
    on_disk = {written_as_on_the_page(path) for path in short_form["files"]}
    parts = {name for _, name in names_in_the_code()} | {".tmp", ".lock", "set-aside-metadata-log", "TOPIC-PARTITION"}
    idle = {name for name in names_on_the_page() - on_disk if not any(part in name for part in parts)}
    assert not idle
