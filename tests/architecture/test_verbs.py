"""docs/adding-a-verb.md is true: a verb with its command stands in the files that it names, and in no others."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/adding-a-verb.md").read_text(encoding="utf-8")
PRODUCT = ("proto", "metadata_quorum", "log", "replication", "broker", "admin", "spark")
PLACES_MAX = 5
FORMER = {
    "proto/barnabas_wire/rpc/admin.proto",
    "broker/barnabas_broker/admin/service.py",
}
"""They serve the verb to command lines of the former version, and lose it in the next one."""


def files_named(part: str) -> set[str]:
    found = re.findall(r"`([a-z_]+/[\w./]+\.(?:py|proto))`", part)
    return {each for each in found if each.startswith(PRODUCT)}


def files_with(word: str) -> set[str]:
    """Hand-written files of the product that have the word, or its messages."""
    wanted = re.compile(rf"\b{word}(Call|Answer|Reply|Request|Response)?\b")
    return {
        str(path.relative_to(ROOT))
        for room in PRODUCT
        for suffix in ("*.py", "*.proto")
        for path in (ROOT / room).rglob(suffix)
        if "_pb2" not in path.name and wanted.search(path.read_text(encoding="utf-8"))
    }


def test_a_verb_of_ours_stands_in_five_files() -> None:
    steps, _, rest = PAGE.partition("There is no sixth file")
    named = files_named(steps)
    assert len(re.findall(r"^\*\*\d\.", steps, re.MULTILINE)) == len(named) == PLACES_MAX and rest
    assert files_with("AlterMaintenance") == named | FORMER


def test_a_verb_that_kafka_has_stands_where_the_page_says() -> None:
    part = PAGE.partition("## A verb that Kafka has")[2].partition("## Add a record")[0]
    named = files_named(re.sub(r"`proto/\S+admin\.proto`", "", part))
    assert len(named) == PLACES_MAX
    words = ("UNREGISTER_BROKER", "UnregisterBroker", "unregister_broker")
    assert all(any(word in (ROOT / each).read_text(encoding="utf-8") for word in words) for each in named)
