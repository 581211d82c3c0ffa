"""Names that users write down outlive every move within the house: what former_names.txt has is still there.

`python -m tests.architecture.test_former_names` writes the file anew, for a release that has given former names their one version.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas_admin.main import cli
from barnabas_broker.config import loggers
from barnabas_broker.config.group_keys import GROUP_KEYS
from barnabas_broker.config.topic_keys import ACCEPTED_TOPIC_KEYS
from barnabas_broker.metrics.exporter import render
from barnabas_broker.node.properties import known_keys
from barnabas_broker.security.audit import Kind
from barnabas_log.config import TOPIC_KEYS
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.loader import MetadataLoader
from tests.broker.metrics.test_exporter import make_sources, stand_ins

FILE = Path(__file__).with_name("former_names.txt")
ROOT = FILE.parents[2]
FIELD = re.compile("[a-z][a-z0-9_]*")


def _words(command: click.Command, path: str) -> Iterator[str]:
    yield path
    for parameter in command.params:
        yield from (f"{path} {option}" for option in (*parameter.opts, *parameter.secondary_opts) if option[0] == "-")
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _words(found, f"{path} {name}")


def _metrics() -> Iterator[str]:
    page, _ = render(make_sources(loader=MetadataLoader(), **stand_ins()))
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name.startswith("barnabas_"):
                yield f"{sample.name} {' '.join(sorted(sample.labels.keys() - {'le'}))}".strip()


def _loggers() -> Iterator[str]:
    for root in ("metadata_quorum", "log", "replication", "broker"):
        for path in (ROOT / root).rglob("*.py"):
            if "\nlogger = logging.getLogger(__name__)\n" in path.read_text(encoding="utf-8"):
                yield ".".join(path.relative_to(ROOT / root).with_suffix("").parts).removesuffix(".__init__")


def _json_fields() -> Iterator[str]:
    """The keys of every dictionary that the tools write out: more than what they print, never less."""
    for room in ("admin/barnabas_admin", "broker/barnabas_broker/offline"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                for key in node.keys if isinstance(node, ast.Dict) else ():
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and FIELD.fullmatch(key.value):
                        yield key.value


def names() -> dict[str, set[str]]:
    """By what they name."""
    return {
        "properties": {key.name for key in known_keys()},
        "topic and group keys": {*TOPIC_KEYS, *ACCEPTED_TOPIC_KEYS, *GROUP_KEYS},
        "features": {feature.name for feature in SUPPORTED_FEATURES},
        "words of the command line": set(_words(cli, "barnabas")),
        "metrics and their labels": set(_metrics()),
        "kinds of audit lines": {kind.value for kind in Kind},
        "loggers": {*_loggers(), *loggers.FORMER},
        "fields of JSON": set(_json_fields()),
    }


def former() -> dict[str, set[str]]:
    """The same, as they were."""
    kept: dict[str, set[str]] = {}
    kind = ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            kept[kind].add(line.strip())
        else:
            kind = line
            kept[kind] = set()
    return kept


@pytest.mark.parametrize("kind", former())
def test_no_former_name_is_gone(kind: str) -> None:
    assert sorted(former()[kind] - names()[kind]) == []


def test_a_former_logger_means_one_that_is_there() -> None:
    assert not set(loggers.FORMER.values()) - set(_loggers())


def test_no_kind_of_name_is_left_out() -> None:
    assert former().keys() == names().keys()


if __name__ == "__main__":
    FILE.write_text(
        "".join(f"{kind}\n" + "".join(f"  {name}\n" for name in sorted(of)) for kind, of in names().items())
    )
