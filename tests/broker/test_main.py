"""`barnabas-server`: a refusal is one line on stderr that names what is wrong, exit status 2, never a traceback; no verb loads
what only another needs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas_broker.main import EXIT_USAGE, main

WITHOUT_SITE = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
"""For an interpreter that loads nothing by itself."""


def test_a_file_where_a_directory_is_meant_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    report.write_text("{}")
    assert main(["quorum", "recover", str(report), "--inspect"]) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("barnabas-server: ") and str(report) in line
    assert main(["quorum", "recover", str(report), "--inspect", "-o", "json"]) == EXIT_USAGE
    reported = json.loads(capsys.readouterr().err)["error"]
    assert reported.keys() == {"code", "name", "message", "hint", "retriable"} and str(report) in reported["message"]
    assert main(["log", "dump", "--metadata", str(tmp_path / "absent"), "-o", "json"]) == EXIT_USAGE
    assert json.loads(capsys.readouterr().err)["error"]["name"] == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ((), "name a properties file to run a node: barnabas-server -c server.properties"),
        (("--format-for", "AAAA", "check"), "--format-for is of a node that runs, not of check"),
        (("nosuch",), "invalid choice: 'nosuch'"),
        (("check", "--nosuch"), "unrecognized arguments: --nosuch"),
        (("quorum", "recover", "-o", "json", "--nosuch"), "unrecognized arguments: --nosuch"),
        (("config-docs", "--output=json", "-x"), "unrecognized arguments: -x"),
        (("log", "dump", "-ojson"), "PATH"),
    ],
)
def test_wrong_usage_is_one_line_in_the_form_that_was_asked_for(
    words: tuple[str, ...], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    if any("json" in word for word in words):
        line = "barnabas-server: " + json.loads(line)["error"]["message"]
    assert line.startswith("barnabas-server: ") and reported in line and line.endswith(" --help`")


def test_who_reads_only_the_beginning_makes_no_error() -> None:
    code = "import sys; from barnabas_broker.main import main; sys.exit(main(['config-docs', '-o', 'json']))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_a_verb_loads_nothing_that_only_another_needs(tmp_path: Path) -> None:
    """Every start of a local cluster formats each controller in a process of its own."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={tmp_path / 'data'}\n"
    )
    words = ["format", "-c", str(properties), "--standalone", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ"]
    others = ("grpc", "google.protobuf", "barnabas_quorum.image.metadata", "barnabas_broker.offline.quorum_recovery")
    code = f"""
import sys
from barnabas_broker.main import main
assert main({words!r}) == 0
print([name for name in {others!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("words", "is_all_loaded"), [([], True), (["--load-on-demand"], False)])
def test_a_node_loads_its_handlers_before_it_registers(words: list[str], is_all_loaded: bool, tmp_path: Path) -> None:
    """Its package may be upgraded under it: what it loaded later would be of another version. Throw-away clusters load on demand."""
    properties = write_properties(tmp_path)
    text = properties.read_text().replace("process.roles=controller", "process.roles=broker,controller")
    properties.write_text(text.replace("listeners=CONTROLLER:", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER:"))
    code = f"""
import sys
from barnabas_broker import main
from barnabas_broker.node.node import Node

async def run(node, stop):
    from barnabas_broker.api.registry import APIS, SERVED
    print(len(APIS) == sum(map(len, SERVED.values())), "barnabas_broker.api.acls" in sys.modules)

Node.run = run
main._refuse_taken_ports = lambda server: None
sys.exit(main.main(["-c", {str(properties)!r}, *{words!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(is_all_loaded)] * 2


def write_properties(directory: Path) -> Path:
    found = directory / "server.properties"
    found.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={directory / 'data'}\nadmin.listeners=\n"
        "metrics.listeners=\n"
    )
    return found


def test_a_node_that_starts_loads_nothing_beside_this(tmp_path: Path) -> None:
    """What all nodes of a cluster load at once, on as few cores, is most of the time that it needs to start."""
    code = """
import sys
import barnabas_broker.node.properties, barnabas_broker.main, barnabas_broker.node.process
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))
print(*sorted(name for name in sys.modules if name.startswith("barnabas_broker.offline")))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=WITHOUT_SITE
    )
    found, ours = done.stdout.splitlines()
    rooms = {
        "barnabas_broker",
        "barnabas_coordination",
        "barnabas_log",
        "barnabas_quorum",
        "barnabas_replication",
        "barnabas_wire",
    }
    libraries = {"cramjam", "fastcrc", "google", "grpc", "rpds", "typing_extensions"}
    own_to_them = {"grpc_tools", "cython_runtime"}  # gRPC asks for its compiler, and goes on without
    names = {name for name in found.split() if not name.startswith("_cython")}
    assert names - own_to_them - {"__main__"} == rooms | libraries
    assert ours == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAQ", "write CLUSTER_ID/ID@HOST:PORT:DIRECTORY_ID"),
        ("AAAAAAAAAAAAAAAAAAAAAQ/2@127.0.0.1:9093:AAAAAAAAAAAAAAAAAAAAAg", "does not name node 1"),
        ("AAAAAAAAAAAAAAAAAAAAAQ/1@127.0.0.1", "write ID@HOST:PORT:DIRECTORY_ID"),
    ],
)
def test_a_start_that_cannot_format_writes_nothing(
    tmp_path: Path, words: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.main._refuse_taken_ports", lambda server: None)
    assert main(["-c", str(write_properties(tmp_path)), "--format-for", words]) == EXIT_USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("verb", ["quorum", "log"])
def test_the_help_says_of_a_verb_what_the_verb_says_of_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the verb named, its own module puts the line there."""
    shown = []
    for words in (["--help"], ["--help", verb]):
        with pytest.raises(SystemExit):
            main(words)
        shown.append(capsys.readouterr().out)
    assert verb in shown[0] and shown[0] == shown[1]


def test_what_stands_before_a_verb_counts_as_what_stands_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dropped in silence, `--override log.dirs=…` had another directory formatted."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={tmp_path / 'of-the-file'}\n"
    )
    wanted = tmp_path / "wanted"
    identity = ["--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ"]
    assert main(["--override", f"log.dirs={wanted}", "format", "-c", str(properties), *identity]) == 0
    assert (wanted / "meta.properties").exists() and not (tmp_path / "of-the-file").exists()
    assert main(["-c", str(properties), "--override", f"log.dirs={wanted}", "info"]) == 0
    assert str(wanted) in capsys.readouterr().out
    both = ["--override", "log.dirs=/never", "check", "-c", str(properties), "--override", f"log.dirs={wanted}"]
    assert main(both) == 0, "what stands later wins"
    for refused, reported in (
        (["-c", str(properties), "random-uuid"], "random-uuid reads no properties"),
        (["--override", "node.id=2", "random-uuid"], "random-uuid reads no properties"),
        (["-c", "a", "info", "-c", "b"], "name one file"),
        (["info"], "barnabas-server info -c server.properties"),
        ([], "barnabas-server -c server.properties"),
    ):
        assert main(refused) == EXIT_USAGE
        assert reported in capsys.readouterr().err


def test_a_key_typed_on_the_command_line_must_be_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a file it may be there for Kafka's sake; nobody types one for that."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs=data\nnum.io.threads=8\n"
    )
    assert main(["check", "-c", str(properties), "--override", "log.segment.bytes=2000000"]) == 0
    assert main(["check", "-c", str(properties), "--override", "log.segment.byts=2000000"]) == EXIT_USAGE
    assert (
        "log.segment.byts is not a key that barnabas knows; did you mean log.segment.bytes?" in capsys.readouterr().err
    )
    assert main(["check", "-c", str(properties), "--override", "node.id=-1", "-o", "json"]) == EXIT_USAGE
    assert json.loads(capsys.readouterr().err)["error"]["message"].startswith("node.id=-1")


@pytest.mark.parametrize("key", ["listeners", "admin.listeners", "metrics.listeners"])
def test_a_taken_port_is_one_line_that_names_its_key_before_anything_is_made(key: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        free = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "admin.listeners": "127.0.0.1:0",
            "metrics.listeners": "127.0.0.1:0",
        }
        properties = free | {key: free[key].replace("127.0.0.1:0", taken)}
        properties |= {"process.roles": "broker", "node.id": "1", "log.dirs": str(tmp_path / "data")}
        properties["controller.quorum.bootstrap.servers"] = "127.0.0.1:1"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words = [sys.executable, "-m", "barnabas_broker.main", "-c", str(file)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == EXIT_USAGE and not (tmp_path / "data").exists()
    reported = f"barnabas-server: {key}: cannot listen on {taken}: Address already in use; stop what listens there"
    assert done.stderr.startswith(reported) and done.stderr.count("\n") == 1


def test_no_node_runs_where_nobody_has_thought_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["-c", "nowhere.properties"]) == EXIT_USAGE
    assert "a node runs on Linux, and on macOS where nobody has tried it; this is win32" in capsys.readouterr().err


REFUSED_NODE = """
import sys
from barnabas_broker.main import main
from barnabas_broker.node.node import Node
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

async def be_refused(node, stop):
    refusal = KafkaError.of(ErrorCode[sys.argv[2]], "the cluster runs metadata.version=9, broker 1 serves 1 to 4")
    raise ExceptionGroup("lanes", [ExceptionGroup("tasks", [refusal])])

Node.run = be_refused
sys.exit(main(["-c", sys.argv[1]]))
"""


@pytest.mark.parametrize(
    ("code", "is_refusal"),
    [("UNSUPPORTED_VERSION", True), ("INCONSISTENT_CLUSTER_ID", True), ("UNKNOWN_SERVER_ERROR", False)],
)
def test_a_node_that_its_cluster_refuses_says_so_in_one_line(code: str, is_refusal: bool, tmp_path: Path) -> None:
    """Such as one of an older version on a cluster of a newer level. What nobody expects keeps its traceback."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={tmp_path / 'data'}\n"
    )
    command = [sys.executable, "-c", REFUSED_NODE, str(properties), code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    reported = "the cluster runs metadata.version=9, broker 1 serves 1 to 4"
    assert done.returncode != 0 and reported in done.stderr
    assert (done.stderr.splitlines()[-1] == f"barnabas-server: {reported}") == is_refusal
    assert ("Traceback" in done.stderr) != is_refusal
