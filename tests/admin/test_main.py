"""Laws of the command tree: help loads nothing heavy, its lines agree with the commands, JSON and exit codes hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner, Result

from barnabas_admin.commands import explain
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, errors_end_the_process
from barnabas_admin.known_clusters import Context, write_context
from barnabas_admin.main import LazyGroup, cli
from barnabas_admin.output import ExitCode, print_error, size_text
from barnabas_quorum.raft.messages import ReplyError, VoterChangeKind
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc import explain_pb2
from tests.admin.admin_server import AdminServer
from tests.support.images import make_image, make_quorum, make_voters, uuid

HEAVY = ("grpc", "google.protobuf", "rich", "asyncio", "prometheus_client", "cramjam", "barnabas_broker")

HEAVY_IN_COMMANDS = tuple(name for name in HEAVY if name != "asyncio")
"""Those that stream records are made of asyncio, whose 40 ms do no harm by themselves."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.fixture
def run(admin_server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BARNABAS_ADMIN", admin_server.address)
    return Run()


class Run:
    """Runs one command in this process."""

    def __call__(self, *arguments: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result

    def json(self, *arguments: str, exit_code: int = 0) -> dict[str, object]:
        found = json.loads(self(*arguments, "-o", "json", exit_code=exit_code).stdout)
        assert found.pop("api_version") == "v1"
        return dict(found)


def test_to_import_the_package_loads_next_to_nothing() -> None:
    """Who imports it for its fixtures or its version does not wait for a thing that he does not use."""
    code = """
import sys
before = set(sys.modules)
import barnabas
print(*sorted(sys.modules.keys() - before))
print(barnabas.__version__)
"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    loaded, version = done.stdout.splitlines()
    assert loaded == "barnabas"
    assert re.fullmatch(r"\d+\.\d+.*", version)


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
sys.argv = ["barnabas", *{arguments!r}]
from barnabas_admin.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(f"barnabas {' '.join(arguments)}: {1000 * (time.perf_counter() - started):.0f} ms")
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_commands_help_loads_what_only_its_work_needs() -> None:
    """All in one process, each in turn: the first that brings a module in is reported."""
    code = f"""
import contextlib, io, sys
from barnabas_admin.main import cli
brought_by = {{}}
for path in {sorted(path for path, _ in commands(cli))!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        cli([*path, "--help"], standalone_mode=False)
    for name in {HEAVY_IN_COMMANDS!r}:
        if name in sys.modules:
            brought_by.setdefault(name, " ".join(path))
print(brought_by)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "{}"


def test_the_tree_has_every_command_and_its_line_is_the_commands_own() -> None:
    found = dict(commands(cli))
    assert {" ".join(path) for path, command in found.items() if not isinstance(command, click.Group)} == {
        "console",
        "dev",
        "doctor",
        *(f"host {verb}" for verb in ("status", "restart", "resize", "stop")),
        *(f"storage {verb}" for verb in ("format", "info", "init", "random-uuid")),
        *(f"cluster {verb}" for verb in ("info", "health", "roll", "unregister-controller")),
        *(f"cluster features {verb}" for verb in ("upgrade", "downgrade")),
        *(f"acl {verb}" for verb in ("list", "create", "delete")),
        *(f"txn {verb}" for verb in ("list", "describe", "find-hanging", "abort")),
        *(f"user {verb}" for verb in ("list", "create", "delete")),
        *(f"pki {verb}" for verb in ("init", "issue", "renew", "show")),
        *(f"quota {verb}" for verb in ("list", "set")),
        *(
            f"quorum {verb}"
            for verb in ("status", "replicas", "add-voter", "remove-voter", "replace-voter", "recover", "rejoin")
        ),
        *(f"quorum {verb}" for verb in ("verify", "log", "diff")),
        *(f"quorum quarantine {verb}" for verb in ("list", "show", "sign-off")),
        *("top", "completion"),
        *(f"profile {verb}" for verb in ("list", "create", "use", "delete")),
        *(f"log {verb}" for verb in ("dump", "repair", "verify", "strays", "adopt", "delete-stray")),
        *(
            f"broker {verb}"
            for verb in ("list", "logdirs", "unregister", "drain", "undrain", "decommission", "log-level")
        ),
        *(f"{noun} config {verb}" for noun in ("broker", "cluster") for verb in ("get", "set", "unset", "diff")),
        *(f"group config {verb}" for verb in ("get", "set", "unset")),
        *(f"cluster client-metrics {verb}" for verb in ("list", "get", "set", "delete")),
        *(f"explain {verb}" for verb in ("leader", "broker", "partition", "reassignment", "topic", "group")),
        *(f"topic reassign {verb}" for verb in ("plan", "balance", "apply", "status", "cancel", "unthrottle")),
        *(f"topic {verb}" for verb in ("reassignments", "elect")),
        *(f"topic {v}" for v in ("create", "list", "describe", "alter", "config", "add-partitions", "delete")),
        *(f"topic {verb}" for verb in ("produce", "consume", "trim", "export", "import")),
        *("perf produce", "perf consume", "debug bundle"),
        *(
            f"generate {what}"
            for what in ("k8s", "compose", "systemd", "grafana", "alerts", "recording-rules", "prometheus", "config")
        ),
        *(f"group {verb}" for verb in ("list", "describe", "lag", "seek", "skip", "delete", "delete-offsets")),
    }
    for path, command in found.items():
        group = found[path[:-1]] if len(path) > 1 else cli
        if isinstance(group, LazyGroup) and path[-1] in group.entries:
            assert command.help is not None
            assert command.help.startswith(group.entries[path[-1]][1]), path
            assert command.name == path[-1]


def test_every_command_has_json() -> None:
    for path, command in commands(cli):
        if not isinstance(command, click.Group):
            (option,) = [item for item in command.params if item.name == "output"]
            assert isinstance(option.type, click.Choice)
            assert list(option.type.choices) == ["text", "json"], path


def test_health_ends_with_ten_and_reasons_when_unwell(admin_server: AdminServer, run: Run) -> None:
    assert run("cluster", "health").stdout.startswith("HEALTH   HEALTHY\n")
    admin_server.node.image = make_image(fenced=(3,), topics={"t": [((1, 2, 3), (1, 2), 1)]})
    result = run("cluster", "health", exit_code=10)
    assert result.stdout.splitlines() == [
        "HEALTH   UNHEALTHY   (broker_down, under_replicated)",
        "controller 1 (epoch 4)   voters 1 2 3   brokers 1 2 [3 fenced]",
        "partitions 1   leaderless 0   under_min_isr 0   under_replicated 1   not_preferred_leader 0",
    ]
    assert result.stderr.splitlines() == ["next: barnabas explain broker 3", "next: barnabas explain partition t 0"]
    assert run.json("cluster", "health", exit_code=10)["reasons"] == ["broker_down", "under_replicated"]


def test_the_controller_is_marked_in_the_broker_table(run: Run) -> None:
    lines = run("broker", "list").stdout.splitlines()
    assert lines[0].split() == ["BROKER", "STATE", "ENDPOINT", "RACK", "EPOCH", "LEADERS", "REPLICAS"]
    assert [line.split()[0] for line in lines[1:]] == ["1*", "2", "3"]
    brokers = run.json("broker", "list")["brokers"]
    assert isinstance(brokers, list)
    assert brokers[1] == {
        "id": 2,
        "host": None,
        "state": "active",
        "endpoint": "127.0.0.1:9093",
        "rack": "rack-2",
        "broker_epoch": 20,
        "leaders": 0,
        "replicas": 0,
    }


def test_quorum_tells_lags_and_leaves_out_what_is_not_known(admin_server: AdminServer, run: Run) -> None:
    admin_server.node.quorum = make_quorum(ends=(101, -1, 90), observers=(4,))
    status = run.json("quorum", "status")
    assert (status["leader_id"], status["max_follower_lag"]) == (1, 11)
    rows = run("quorum", "replicas").stdout.splitlines()
    assert rows[1].split()[:4] == ["1", "leader", "101", "0"]
    assert rows[2].split()[:4] == ["2", "voter", "-", "-"]
    assert rows[3].split()[:4] == ["3", "voter", "90", "11"]
    assert rows[4].split()[:2] == ["4", "observer"]


def test_cluster_info(run: Run) -> None:
    info = run.json("cluster", "info")
    assert (info["controller_id"], info["metadata_offset"]) == (1, 100)
    assert info["controllers"] == [
        {
            "id": i,
            "endpoint": f"127.0.0.1:{9111 + i}",
            "voter": True,
            "registered": False,
            "incarnation_id": None,
        }
        for i in (1, 2, 3)
    ]


def test_features_are_shown_with_who_serves_them_and_upgraded_all_or_none(admin_server: AdminServer, run: Run) -> None:
    shown = run.json("cluster", "features")["features"]
    assert isinstance(shown, list)
    assert {view["name"] for view in shown} >= {"metadata.version", "kraft.version"}
    run("cluster", "features", "upgrade", "--feature", "metadata.version=2", "--dry")
    assert admin_server.controller.validate_only
    assert admin_server.controller.asked[-1].level == 2
    assert run.json("cluster", "features", "upgrade") == {"features": [], "dry": False}, "nothing is higher"
    assert "NAME=LEVEL" in run("cluster", "features", "upgrade", "--feature", "odd", exit_code=2).stderr


def test_kraft_version_is_upgraded_in_the_voter_set_first_and_only_by_its_name(
    admin_server: AdminServer, run: Run
) -> None:
    node, controller = admin_server.node, admin_server.controller
    upgrade = ("cluster", "features", "upgrade", "--feature")
    run(*upgrade, "metadata.version=2")
    run(*upgrade, "eligible.leader.replicas.version=1")
    run(*upgrade, "kraft.version=1", "--dry")
    controller.refuse = KafkaError.of(ErrorCode.INVALID_UPDATE_VERSION, "broker 3 serves 0 to 0")
    run(*upgrade, "kraft.version=1", exit_code=1)
    assert not node.voter_changes
    controller.refuse = None
    node.voter_error = ReplyError.INVALID_REQUEST
    controller.asked.clear()
    run(*upgrade, "kraft.version=1", exit_code=1)
    assert controller.validate_only, "the level is not written"
    node.voter_error = ReplyError.NONE
    node.voter_changes.clear()
    run(*upgrade, "kraft.version=1")
    assert [asked.kind for asked in node.voter_changes] == [VoterChangeKind.UPGRADE]
    assert not controller.validate_only and controller.asked[-1].level == 1


def test_cluster_info_as_text(run: Run) -> None:
    shown = run("cluster", "info")
    assert "answered_by" in shown.stdout and not shown.stderr


def test_a_metadata_version_that_may_be_raised_is_reported(admin_server: AdminServer, run: Run) -> None:
    admin_server.node.image = make_image(metadata_version=2)
    assert run.json("cluster", "info")["metadata_version"] == 2
    assert "metadata.version 8: barnabas cluster features upgrade" in run("cluster", "info").stderr
    admin_server.node.image = make_image(metadata_version=8)
    assert not run("cluster", "info").stderr


def test_a_node_that_has_read_no_metadata_yet_is_not_taken_for_an_empty_cluster(
    admin_server: AdminServer, run: Run
) -> None:
    admin_server.node.image = make_image(brokers=(), offset=-1)
    assert "node 1 has read no metadata yet: ask again" in run("cluster", "info").stderr


def test_a_cluster_without_a_controller_has_none(admin_server: AdminServer, run: Run) -> None:
    admin_server.node.quorum = make_quorum(leader=-1)
    lines = run("cluster", "info").stdout.splitlines()
    assert "controller_id     -" in lines and not any("*" in line for line in lines)


def test_a_cluster_that_has_lost_its_quorum_is_described_to_who_has_no_time_to_wait(
    admin_server: AdminServer, run: Run
) -> None:
    """A leader may be there in a moment; who asks for health with a short time limit must not be told of a silent node instead."""
    admin_server.node.quorum = make_quorum(leader=-1)
    assert "no controller" in run("cluster", "health", "--timeout", "1", exit_code=ExitCode.UNHEALTHY).stdout
    for words in ("cluster info", "quorum status", "broker list"):
        run(*words.split(), "--timeout", "1")


def test_an_ipv6_address_is_shown_as_it_is_typed(admin_server: AdminServer, run: Run) -> None:
    admin_server.node.voters, admin_server.node.image = make_voters(host="::1"), make_image(host="::1")
    assert "[::1]:9112" in run("quorum", "replicas").stdout
    assert "[::1]:9092" in run("broker", "list").stdout and "[::1]:9112" in run("cluster", "info").stdout
    invocation = Invocation(output="text", admin=admin_server.address, brokers=None, timeout_s=5)
    assert invocation.bootstrap_servers().split(",")[0] == "[::1]:9092"
    invocation.close()


def test_create_tells_each_topic_and_ends_with_three_when_one_exists(run: Run) -> None:
    result = run("topic", "create", "fine", "taken", "-p", "6", "-c", "retention.ms=5", exit_code=3)
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["TOPIC", "STATUS"],
        ["fine", "created"],
        ["taken", "TOPIC_ALREADY_EXISTS"],
    ]
    assert "error: TOPIC_ALREADY_EXISTS: topic 'taken' already exists" in result.stderr
    assert "hint: " in result.stderr
    assert "unchanged" in run("topic", "create", "taken", "--if-not-exists").stdout


def test_a_topic_that_one_lost_broker_stops_is_made_with_a_warning(admin_server: AdminServer, run: Run) -> None:
    admin_server.node.image = make_image(
        topics={"t": [((1, 2), (1, 2), 1)]},
        configs={(ConfigResourceType.TOPIC, "t"): {"min.insync.replicas": "2"}},
    )
    warned = run("topic", "create", "t", "-p", "1", "-r", "2").stderr
    assert "2 replicas and min.insync.replicas=2" in warned and "use -r 3" in warned
    assert "topic alter t -c min.insync.replicas=1" in warned
    for sound in (("-r", "3"), ("-r", "1"), ("-r", "2", "--dry"), ("-r", "2", "-o", "json")):
        assert "warning" not in run("topic", "create", "t", "-p", "1", *sound).stderr


def test_dry_changes_nothing(admin_server: AdminServer, run: Run) -> None:
    assert "would create" in run("topic", "create", "t", "--dry").stdout
    assert admin_server.controller.validate_only
    admin_server.node.image = make_image(topics={"t": [((1,), (1,), 1)]})
    assert run("topic", "add-partitions", "t", "-n", "2", "--dry").stdout == "t: would have 3 partitions\n"
    assert run("topic", "alter", "t", "-c", "retention.ms=7", "--dry").stdout == "t: would set retention.ms=7\n"


def test_describe_shows_partitions_and_ends_with_three_for_the_unknown(admin_server: AdminServer, run: Run) -> None:
    admin_server.node.image = make_image(
        topics={"t": [((1, 2, 3), (1, 2), 1)]},
        configs={(ConfigResourceType.TOPIC, "t"): {"retention.ms": "1000"}},
    )
    result = run("topic", "describe", "t", "nope", "--no-offsets", exit_code=3)
    assert "overrides   retention.ms=1000" in result.stdout
    assert result.stdout.splitlines()[-1].split() == (
        ["0", "1", "5", "1,2,3", "1,2", "-", "-", "-", "under-replicated,at-min-isr"]
    )
    assert "topic 'nope' does not exist" in result.stderr


def test_list_and_config_of_topics(admin_server: AdminServer, run: Run) -> None:
    admin_server.node.image = make_image(topics={"t": [((1, 2, 3), (1, 2, 3), 1)]})
    assert run("topic", "list").stdout.splitlines()[1].split()[:3] == ["t", "1", "3"]
    rows = [line.split() for line in run("topic", "config", "t").stdout.splitlines()]
    assert ["min.insync.replicas", "2", "static"] in rows and ["retention.ms", "604800000", "default"] in rows


UNDOABLE_BY_NONE = [
    ("topic", "delete", "t"),
    ("topic", "elect", "t:0", "--unclean"),
    ("cluster", "unregister-controller", "9"),
    ("broker", "unregister", "3"),
    ("user", "delete", "alice"),
]


@pytest.mark.parametrize("command", UNDOABLE_BY_NONE)
def test_what_cannot_be_undone_is_wrong_usage_where_nobody_can_be_asked(
    admin_server: AdminServer, run: Run, command: tuple[str, ...]
) -> None:
    admin_server.node.image = make_image(topics={"t": [((1, 2, 3), (1, 2), 1)]})
    assert "add --yes to do it" in run(*command, exit_code=2).stderr
    result = run(*command, "-o", "json", exit_code=2)
    reported = json.loads(result.stderr)["error"]
    assert (result.stdout, reported["name"]) == ("", "INVALID_REQUEST") and "add --yes to do it" in reported["message"]
    assert admin_server.controller.asked == []


def test_nobody_is_asked_whether_what_cannot_be_is_meant(run: Run) -> None:
    assert "add --yes" not in run("topic", "elect", "t:x", "--unclean", exit_code=2).stderr


def test_at_a_terminal_the_name_of_what_goes_must_be_typed(
    admin_server: AdminServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("barnabas_admin.invocation.sys", terminal)
    refused = CliRunner().invoke(cli, ["topic", "delete", "t"], input="other\n", catch_exceptions=False)
    assert refused.exit_code == 1 and "nothing was done: 't' was not typed" in refused.stderr
    assert admin_server.controller.asked == []
    done = CliRunner().invoke(cli, ["topic", "delete", "t"], input="t\n", catch_exceptions=False)
    assert done.exit_code == 0 and "deleted" in done.stdout


def test_every_command_that_knows_a_yes_asks_in_the_one_way() -> None:
    asking = {path: each for path, command in commands(cli) for each in command.params if each.name == "yes"}
    assert len(asking) == 19
    others = {path for path, option in asking.items() if getattr(option, "help", "") != "Do not ask."}
    assert others == {("quorum", "recover")}, "it plans until it is told the directory to write into"


def test_delete_deletes_with_a_yes(admin_server: AdminServer, run: Run) -> None:
    assert "deleted" in run("topic", "delete", "t", "--yes").stdout
    run("topic", "delete", "absent", "--yes", exit_code=3)
    run("topic", "delete", "absent", "--yes", "--if-exists")
    rows = run.json("topic", "delete", "t", "absent", "--yes", exit_code=3)["topics"]
    assert isinstance(rows, list) and [row["id"] for row in rows] == [str(uuid(77)), None]


def test_an_error_in_json_has_code_message_hint_and_retriable(admin_server: AdminServer, run: Run) -> None:
    admin_server.controller.refuse = KafkaError.of(ErrorCode.NOT_CONTROLLER, "no controller is active")
    result = run("topic", "create", "t", "-o", "json", exit_code=1)
    assert result.stdout == ""
    assert json.loads(result.stderr) == {
        "api_version": "v1",
        "error": {
            "code": 41,
            "name": "NOT_CONTROLLER",
            "message": "no controller is active",
            "hint": "an election is under way: try again, or see `barnabas quorum status`",
            "retriable": True,
        },
    }


def test_a_time_out_ends_with_four(admin_server: AdminServer, run: Run) -> None:
    admin_server.controller.refuse = KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "too slow")
    run("topic", "create", "t", exit_code=4)


def test_without_any_address_the_way_out_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.delenv("BARNABAS_ADMIN", raising=False)
    monkeypatch.setenv("BARNABAS_CONTEXT", f"{tmp_path}/none.json")
    result = Run()("cluster", "info", exit_code=2)
    assert result.stderr.startswith("error: no cluster is known: start one with `barnabas dev`\n")
    assert "--admin HOST:PORT" in result.stderr


def test_brokers_of_another_cluster_do_not_stand_for_the_one_of_the_context(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`topic delete -b elsewhere:9092` would have deleted the dev cluster's topic."""
    monkeypatch.delenv("BARNABAS_ADMIN", raising=False)
    monkeypatch.setenv("BARNABAS_CONTEXT", str(tmp_path / "context.json"))
    without = Run()("topic", "list", "-b", "elsewhere:9092", "--timeout", "0.5", exit_code=1)
    write_context(
        Context(cluster_id="c", admin="127.0.0.1:1", brokers="127.0.0.1:9092,127.0.0.1:9093", directory="/d", pid=1)
    )
    other = Run()("topic", "list", "-b", "elsewhere:9092", "--timeout", "0.5", exit_code=1)
    for result in (without, other):
        assert "no address is known for elsewhere:9092" in result.stderr
    same = Run()("topic", "list", "-b", "127.0.0.1:9093", "--timeout", "0.5", exit_code=1)
    assert "127.0.0.1:1" in same.stderr, "it is the context's own: its admin listener is asked"


@pytest.mark.parametrize("verb", [("topic", "list"), ("quorum", "verify"), ("quorum", "quarantine", "list")])
@pytest.mark.parametrize("address", [",", "localhost", "localhost:abc"])
def test_what_is_no_admin_address_is_refused_with_the_form(run: Run, verb: tuple[str, ...], address: str) -> None:
    assert "HOST:PORT" in run(*verb, "--admin", address, exit_code=2).stderr


def test_what_is_no_broker_address_is_refused_with_the_form(run: Run) -> None:
    result = run("topic", "consume", "t", "-b", "localhost", exit_code=2)
    assert "'localhost' is not host:port" in result.stderr and "HOST:PORT" in result.stderr


def test_who_does_not_answer_is_named_by_its_address(run: Run) -> None:
    result = run("topic", "consume", "t", "-b", "127.0.0.1:1,127.0.0.1:2", "--timeout", "2", exit_code=1)
    assert "error: NETWORK_EXCEPTION: no broker answers at 127.0.0.1:2: connection refused" in result.stderr


def test_a_broker_that_does_not_tell_of_its_directories_is_reported_with_its_address(run: Run) -> None:
    result = run("broker", "logdirs", "2", "-b", "127.0.0.1:1", "--timeout", "2", exit_code=1)
    assert result.stderr == "broker 2 does not answer: no broker answers at 127.0.0.1:1: connection refused\n"


@pytest.mark.usefixtures("run")
def test_a_node_that_listens_is_never_called_unreachable_however_short_the_time() -> None:
    result = CliRunner().invoke(cli, ["cluster", "info", "--timeout", "0.000001"], catch_exceptions=False)
    assert result.exit_code in (ExitCode.OK, ExitCode.TIMEOUT), result.output


@pytest.mark.parametrize(("words", "meant"), [(("topic", "lst"), "list"), (("cluster", "helth"), "health")])
def test_a_mistyped_command_is_reported_with_the_one_it_means(run: Run, words: tuple[str, ...], meant: str) -> None:
    assert f"Did you mean '{meant}'?" in run(*words, exit_code=2).stderr


def test_a_key_cannot_be_set_and_removed_and_one_that_was_not_set_is_reported(
    admin_server: AdminServer, run: Run
) -> None:
    overrides = {(ConfigResourceType.TOPIC, "t"): {"retention.ms": "1000"}}
    admin_server.node.image = make_image(topics={"t": [((1,), (1,), 1)]}, configs=overrides)
    refused = run("topic", "alter", "t", "-c", "retention.ms=1", "-d", "retention.ms", exit_code=2)
    assert "retention.ms cannot be set and removed at once" in refused.stderr
    done = run("topic", "alter", "t", "-d", "retention.ms", "-d", "nosuch")
    assert done.stdout == "t: set retention.ms (the default)\nt: set nosuch (the default)\n"
    assert done.stderr == "t: nosuch was not overridden\n"


@pytest.mark.parametrize(("offsets", "is_turned"), [((-1, 3, 9, 12, -1), False), ((3, 12, 9), True)])
def test_causes_that_stand_in_another_order_than_in_the_log_say_why(
    offsets: tuple[int, ...], is_turned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    causes = [explain_pb2.Cause(what="it", offset=offset, timestamp_ms=1) for offset in offsets]
    explain._print(explain_pb2.ExplainResponse(summary="so it is", causes=causes))
    assert ("the cause first" in capsys.readouterr().out) is is_turned


def test_a_hint_that_the_message_gives_already_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(
        AdminError("no such voter; `barnabas quorum replicas` lists them", hint="`barnabas quorum replicas` does"),
        is_json=False,
    )
    print_error(AdminError("no such voter", hint="`barnabas quorum replicas` lists them"), is_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "error", "hint"]


def test_a_record_that_is_too_large_is_reported_with_what_lets_it_in(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(KafkaError.of(ErrorCode.MESSAGE_TOO_LARGE, "a batch of 2 bytes"), is_json=False)
    assert "hint: `barnabas topic alter TOPIC -c max.message.bytes=" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_no_broker_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, errors_end_the_process(is_json=False):
        Path("/proc/no-such-directory").mkdir()
    assert ended.value.code == ExitCode.ERROR
    assert capsys.readouterr().err == "error: KAFKA_STORAGE_ERROR: /proc/no-such-directory: No such file or directory\n"
    with pytest.raises(SystemExit), errors_end_the_process(is_json=False), open("/dev/full", "w") as full:
        full.write("x")
    assert capsys.readouterr().err == "error: KAFKA_STORAGE_ERROR: No space left on device\n"


def test_no_line_of_a_groups_help_is_cut(run: Run) -> None:
    for group in (("topic", "reassign"), ("quorum", "quarantine")):
        assert "..." not in run(*group, "--help").stdout.rpartition("Commands:")[2]


def test_usage_errors_end_with_two(run: Run) -> None:
    run("topic", "add-partitions", "t", exit_code=2)
    run("topic", "alter", "t", exit_code=2)
    run("topic", "create", "t", "-c", "novalue", exit_code=2)
    run("nonsense", exit_code=2)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("topic list -o json --nonsense", "--nonsense"),
        ("topic describe --output=json --nonsense", "--nonsense"),
        ("topic create -ojson", "TOPIC"),
        ("topic produce t --acks=sometimes -o json", "sometimes"),
        ("quorum log -fo json -n -1", "-1"),
        ("topic lst -o json", "list"),
        ("lst --output json", "lst"),
        ("dev -o json --ephemeral --data d", "exclude"),
        ("dev -o json -n 0", "0"),
        ("storage format -o json", "--config"),
    ],
)
def test_wrong_usage_is_reported_in_the_form_that_was_asked_for(run: Run, words: str, reported: str) -> None:
    result = run(*words.split(), exit_code=ExitCode.USAGE)
    error = json.loads(result.stderr)["error"]
    assert result.stdout == "" and reported in error["message"] and error["name"] == "INVALID_REQUEST"
    assert error["hint"].startswith("`barnabas ") and error["hint"].endswith(" --help`")


@pytest.mark.parametrize(
    "words", ["topic list -o josn", "dev --exec -n 0 list -o json", "topic produce t --acks=x -- -o json"]
)
def test_wrong_usage_is_reported_as_text_to_who_did_not_ask_for_json(run: Run, words: str) -> None:
    assert run(*words.split(), exit_code=ExitCode.USAGE).stderr.startswith("Usage: ")


@pytest.mark.parametrize("columns", [60, 200])
def test_a_table_too_wide_for_its_terminal_keeps_its_cells_whole(columns: int) -> None:
    row = ["broker,controller", "8652ad2ab435141c", "8652ad2ab435141c", "agrees"]
    code = (
        f"from barnabas_admin.output import print_table; print_table(['ROLES', 'HASH', 'OTHER_HASH', 'STATE'], [{row}])"
    )
    terminal, its_end = os.openpty()
    try:
        environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
        subprocess.run([sys.executable, "-c", code], stdout=its_end, env=environment, check=True, timeout=60)
        shown = os.read(terminal, 100_000).decode()
    finally:
        os.close(terminal)
        os.close(its_end)
    assert all(cell in shown for cell in row), shown
    assert ("─" in shown) == (columns == 200), "rich draws a line where there is room"


def test_sizes_are_reported_in_the_unit_that_fits() -> None:
    reported = [size_text(size) for size in (None, 0, 1023, 1024, 9_650, 270_553_174_016, 5 * 1024**4)]
    assert reported == [None, "0B", "1023B", "1.0KiB", "9.4KiB", "252.0GiB", "5.0TiB"]


def test_storage_init_writes_the_samples_once_and_overwrites_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    first = CliRunner().invoke(cli, ["storage", "init", str(directory), "-o", "json"])
    assert first.exit_code == 0, first.output
    written = [Path(name) for name in json.loads(first.stdout)["files"]]
    assert {path.relative_to(directory).as_posix() for path in written} == {
        *(f"config/{role}-{number}.properties" for role in ("broker", "controller") for number in (1, 2, 3)),
        *(f"prometheus/{name}" for name in ("alerts.yml", "alerts_test.yml", "prometheus.yml")),
    }
    assert all(path.read_bytes() for path in written)
    changed = directory / "config" / "broker-2.properties"
    changed.write_text("node.id=22\n")
    written[0].unlink()
    again = CliRunner().invoke(cli, ["storage", "init", str(directory)])
    assert again.exit_code == ExitCode.ERROR and "exists already; nothing was written" in again.stderr
    assert changed.read_text() == "node.id=22\n" and not written[0].exists()
