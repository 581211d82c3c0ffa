"""Lines of Kafka's scripts mean lines of ours, and what is not understood is refused."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from barnabas_admin.apache_flags import SCRIPTS, split_configs
from barnabas_admin.errors import WrongUsage
from barnabas_admin.main import cli


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        (
            "kafka-topics --bootstrap-server b:1 --create --topic t --partitions 3 --replication-factor 2 --config a=b --if-not-exists",
            "topic create t -p 3 -r 2 -c a=b --if-not-exists -b b:1",
        ),
        ("kafka-topics --list --bootstrap-server=b:1 --exclude-internal", "topic list --names -b b:1"),
        ("kafka-topics --describe --topic a,b", "topic describe a b"),
        ("kafka-topics --alter --topic t --partitions 9", "topic add-partitions t --total 9"),
        ("kafka-topics --delete --topic t", "topic delete t --yes"),
        (
            "kafka-console-producer --topic t --bootstrap-server b:1 --property parse.key=true --property key.separator=:",
            "topic produce t --create -b b:1 -k :",
        ),
        ("kafka-console-producer --topic t --producer-property acks=1", "topic produce t --create --acks 1"),
        (
            "kafka-console-consumer --topic t --from-beginning --max-messages 3 --property print.key=true,key.separator=-",
            "topic consume t --offset start -n 3 -k -",
        ),
        ("kafka-console-consumer --include a.* --group g", "topic consume -r a.* --offset end -g g"),
        ("kafka-console-consumer --topic t --partition 1 --offset earliest", "topic consume t --offset start -p 1"),
        ("kafka-consumer-groups --list", "group list"),
        ("kafka-consumer-groups --describe --group g", "group describe g"),
        ("kafka-consumer-groups --describe --all-groups", "group lag --topics"),
        (
            "kafka-consumer-groups --group g --reset-offsets --shift-by -5 --topic t:1 --execute",
            "group seek g t:1 --to=-5 --execute",
        ),
        ("kafka-consumer-groups --group g --reset-offsets --to-latest --all-topics", "group seek g --to=end"),
        (
            "kafka-consumer-groups --group g --reset-offsets --by-duration PT1H30M --topic t",
            "group seek g t --to=@-5400000ms",
        ),
        ("kafka-configs --entity-type topics --entity-name t --describe", "topic config t --overrides"),
        (
            "kafka-configs --alter --topic t --add-config a=1,b=[x,y] --delete-config c",
            "topic alter t -c a=1 -c b=x,y -d c",
        ),
        ("kafka-configs --alter --entity-type brokers --entity-default --add-config a=1", "cluster config set a=1"),
        ("kafka-configs --alter --broker 2 --delete-config a", "broker config unset 2 a"),
        (
            "kafka-configs --entity-type broker-loggers --entity-name 1 --alter --add-config x=DEBUG",
            "broker log-level 1 x=DEBUG",
        ),
        (
            "kafka-reassign-partitions --execute --reassignment-json-file p.json --throttle 5",
            "topic reassign apply --file p.json --throttle 5",
        ),
        ("kafka-reassign-partitions --cancel --reassignment-json-file p.json", "topic reassign cancel --file p.json"),
    ],
)
def test_a_line_of_kafkas_is_one_of_ours(line: str, ours: str) -> None:
    name, *words = line.split()
    translated = SCRIPTS[name](words)
    assert translated == ours.split()
    context = cli.make_context("barnabas", list(translated))
    _, group, rest = cli.resolve_command(context, list(translated))
    while hasattr(group, "resolve_command"):
        _, group, rest = group.resolve_command(context, rest)  # type: ignore[union-attr]
    assert group is not None
    known = {option for parameter in group.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known, "our command has these options"


@pytest.mark.parametrize(
    "line",
    [
        "kafka-topics --create --topic t --nonsense",
        "kafka-topics --create --list",
        "kafka-topics --create",
        "kafka-topics --topic",
        "kafka-console-consumer --topic t --property print.colour=true",
        "kafka-consumer-groups --group g --reset-offsets --to-latest",
        "kafka-configs --describe --entity-type users --entity-name u",
    ],
)
def test_what_is_not_understood_is_refused(line: str) -> None:
    name, *words = line.split()
    with pytest.raises(WrongUsage):
        SCRIPTS[name](words)
    assert CliRunner().invoke(cli, line.split()).exit_code == 2


def test_values_with_commas_stand_in_brackets() -> None:
    assert split_configs("cleanup.policy=[compact,delete],retention.ms=1") == [
        "cleanup.policy=compact,delete",
        "retention.ms=1",
    ]
