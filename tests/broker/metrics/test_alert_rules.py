"""The alerts that are deployed: Prometheus loads them, they fire when they must, and every metric they name is reported."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from barnabas_admin.main import cli
from barnabas_broker.metrics.exporter import render
from barnabas_broker.network.stats import NetworkStats
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.messages import ApiKey
from tests.broker.metrics.test_exporter import make_image, make_sources, on_hosts, stand_ins

DEPLOYED = Path(__file__).resolve().parents[3] / "admin" / "barnabas_admin" / "samples" / "prometheus"


def test_every_metric_of_an_alert_is_reported_by_a_node() -> None:
    network = NetworkStats()
    network.time_of(ApiKey.PRODUCE).observe(0.01)
    lanes = {"data": Histogram()}
    image = on_hosts(make_image())
    body, _ = render(
        make_sources(image=lambda: image, loader=MetadataLoader(), network=network, lanes=lanes, **stand_ins())
    )
    reported = {sample.name for family in text_string_to_metric_families(body.decode()) for sample in family.samples}
    expressions = re.findall(r"expr: (.*)", (DEPLOYED / "alerts.yml").read_text())
    asked = {name for expression in expressions for name in re.findall(r"barnabas_\w+", expression)}
    assert len(expressions) >= 14
    assert asked - reported == set()


@pytest.mark.tools
@pytest.mark.parametrize(("verb", "file"), [("check", "alerts.yml"), ("test", "alerts_test.yml")])
def test_prometheus_takes_the_rules_and_they_do_what_they_say(verb: str, file: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool of the Debian package prometheus")
    done = subprocess.run(
        [promtool, verb, "rules", file], cwd=DEPLOYED, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", (DEPLOYED / "alerts.yml").read_text()))
    assert alerts == set(re.findall(r"alertname: (\w+)", (DEPLOYED / "alerts_test.yml").read_text()))


def test_every_alert_names_the_command_that_comes_next_and_that_command_exists() -> None:
    rules = [
        rule for group in yaml.safe_load((DEPLOYED / "alerts.yml").read_text())["groups"] for rule in group["rules"]
    ]
    known = {" ".join(path) for path, _ in every_command()}
    for rule in rules:
        named = re.findall(r"\bbarnabas ([a-z-]+(?: [a-z-]+)*)", rule["annotations"]["description"])
        assert named, rule["alert"]
        for words in named:
            begins = [" ".join(words.split()[:count]) for count in (3, 2, 1)]
            assert any(begin in known for begin in begins), f"{rule['alert']}: there is no barnabas {words}"


def every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The leaves of the tree, by their path."""

    def below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        if not isinstance(command, click.Group):
            yield path, command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from below(found, (*path, name))

    return below(cli, ())
