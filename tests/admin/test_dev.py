"""Laws of `barnabas dev`: what it gives its command, what it says of a dead node, and that nothing stays. Fake nodes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas_admin import local_ports
from barnabas_admin.local_ports import PORTS_SPAN, find_base_port
from barnabas_admin.main import cli
from tests.admin.conftest import FAKE_SERVER, is_alive

pytestmark = pytest.mark.usefixtures("fake_server")

RUN_WITH_FAKE_SERVER = f"""
import sys
from barnabas_admin import local_cluster, main
local_cluster.server_command = lambda *arguments: [sys.executable, {str(FAKE_SERVER)!r}, *arguments]
main.main()
"""


@pytest.fixture(autouse=True)
def context_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "context.json"
    monkeypatch.setenv("BARNABAS_CONTEXT", str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return path


def dev(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["dev", *arguments], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result


def test_exec_gets_the_addresses_and_gives_its_exit_status(tmp_path: Path, context_file: Path) -> None:
    port = find_base_port()
    seen = tmp_path / "seen"
    command = f'cp "$BARNABAS_CONTEXT" {seen}.json; echo "$BARNABAS_BROKERS $BARNABAS_ADMIN" > {seen}; exit 7'
    result = dev("-n", "2", "--data", str(tmp_path / "d"), "--port", str(port), "--exec", command, exit_code=7)
    brokers = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    admin = f"127.0.0.1:{port + 40},127.0.0.1:{port + 41}"
    assert seen.read_text() == f"{brokers} {admin}\n"
    context = json.loads(Path(f"{seen}.json").read_text())
    assert (context["brokers"], context["admin"], context["pid"]) == (brokers, admin, os.getpid())
    assert not context_file.exists()
    assert result.stdout == ""
    assert "2 nodes" in result.stderr


def test_a_console_runs_beside_it_and_ends_with_it(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", RUN_WITH_FAKE_SERVER, "dev", "-n", "1", "--console", "-o", "json"),
            *("--data", str(tmp_path / "d"), "--port", str(find_base_port())),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
        host, _, port = ready["console"].removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), 10) as page:
            page.sendall(b"GET /static/icon.svg HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in page.recv(100)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 10)


def test_exec_of_several_words_runs_without_a_shell(tmp_path: Path) -> None:
    script = "import sys; sys.exit(0 if sys.argv[1:] == ['-n', '$HOME'] else 9)"
    port = str(find_base_port())
    dev("--ephemeral", "-n", "1", "--port", port, "--exec", sys.executable, "-c", script, "-n", "$HOME")
    dev("--ephemeral", "-n", "1", "--port", port, "--exec", "no-such-program", "x", exit_code=127)


def test_an_ephemeral_cluster_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dev("--ephemeral", "-n", "1", "--port", str(find_base_port()), "--exec", f"ls {tmp_path} > {tmp_path}/listing")
    assert "barnabas-dev-" in (tmp_path / "listing").read_text()
    assert not list(tmp_path.glob("barnabas-dev-*"))


def test_a_second_run_is_the_same_cluster_on_another_port(tmp_path: Path) -> None:
    port = find_base_port()
    for number in (0, 1):
        copy = f"cp {tmp_path}/share/barnabas/dev/cluster.json {tmp_path}/{number}.json"
        arguments = ["-n", "1"] if number == 0 else []
        dev(*arguments, "--port", str(port + number * (PORTS_SPAN // 8)), "--exec", copy)
    assert (tmp_path / "0.json").read_text() == (tmp_path / "1.json").read_text()


def test_a_node_that_dies_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    file = tmp_path / "d" / "node-1" / "server.properties"
    command = f"pkill -9 -f {file}; sleep 0.5; pgrep -c -f {tmp_path}/d/node-2/server.properties > {tmp_path}/alive"
    words = "fake.words=I was about to say something"
    port = str(find_base_port())
    # The shell's own command line holds the path too, so that pkill must not match it.
    command = command.replace("node-1", "node-[1]").replace("node-2", "node-[2]")
    result = dev("-n", "2", "--data", str(tmp_path / "d"), "--port", port, "--set", words, "--exec", command)
    assert "node 1 was killed by SIGKILL; it last said:\n  | I was about to say something" in result.stderr
    assert "node 2 was" not in result.stderr
    assert (tmp_path / "alive").read_text().strip() == "1"


def test_ctrl_c_stops_every_node(tmp_path: Path) -> None:
    port = str(find_base_port())
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_WITH_FAKE_SERVER, "dev", "-n", "2", "--ephemeral", "--port", port, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert (ready["event"], ready["api_version"], len(ready["nodes"])) == ("ready", "v1", 2)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")
    for node in ready["nodes"]:
        with pytest.raises(ProcessLookupError):
            os.kill(node["pid"], 0)
    assert not Path(ready["directory"]).exists()


def test_another_terminal_breaks_and_mends_a_node(tmp_path: Path) -> None:
    data = str(tmp_path / "d")
    words = ["dev", "-n", "2", "--data", data, "--port", str(find_base_port()), "-o", "json"]
    with (
        subprocess.Popen(
            [sys.executable, "-c", RUN_WITH_FAKE_SERVER, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.terminate)
        assert process.stdout is not None
        first, second = (node["pid"] for node in json.loads(process.stdout.readline())["nodes"])
        assert dev("kill", "1").stdout == "killed node 1\n", "the context names the cluster"
        assert not is_alive(first) and is_alive(second)
        assert "node 1 is not running" in dev("pause", "1", exit_code=1).stderr
        assert json.loads(dev("--data", data, "-o", "json", "start", "1").stdout)["ready"] is True
        assert "already running" in dev("start", "1", exit_code=1).stderr
        for node in ("1", "2"):
            assert dev("stop", node).stdout == f"stopped node {node}\n"
        assert not is_alive(second)
        assert dev("restart", "2").stdout == "restarted node 2\n", "stopped on purpose, the cluster waits"
        assert "there is no node 9" in dev("kill", "9", exit_code=1).stderr
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, ""), "no death is reported that was asked for"
    refused = dev("--data", data, "kill", "1", exit_code=1).stderr
    assert f"no `barnabas dev` runs the cluster in {data}" in refused and f"barnabas dev --data {data}" in refused
    assert "no `barnabas dev` is known" in dev("kill", "1", exit_code=1).stderr
    for wrong in (("kill",), ("kill", "x"), ("kill", "1", "2")):
        assert "barnabas dev kill 2" in dev(*wrong, exit_code=2).stderr


def test_a_port_that_is_taken_is_gone_around_and_one_that_may_be_taken_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ports, "DEFAULT_PORT", find_base_port())
    with socket.create_server(("127.0.0.1", local_ports.DEFAULT_PORT + 41)):
        result = dev("-n", "1", "--data", str(tmp_path / "d"), "--exec", "echo $BARNABAS_BROKERS >&2")
    assert f"127.0.0.1:{local_ports.DEFAULT_PORT}" not in result.stderr and "kafka    127.0.0.1:" in result.stderr
    first = local_ports.ephemeral_ports().start
    refused = dev("-n", "1", "--data", str(tmp_path / "e"), "--port", str(first - 5), exit_code=1)
    assert "gives to outgoing connections" in refused.stderr
    assert f"use a port up to {first - PORTS_SPAN}" in refused.stderr


def test_under_nohup_a_cluster_outlives_its_terminal(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-c",
        RUN_WITH_FAKE_SERVER,
        "dev",
        "-n",
        "1",
        "--ephemeral",
        "--port",
        str(find_base_port()),
    ]
    words = ["/bin/sh", "-c", f"trap '' HUP; exec {shlex.join([*words, '-o', 'json'])}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(30) == 0


def test_a_stop_ends_what_the_commands_shell_runs_too(tmp_path: Path) -> None:
    words = ["dev", "-n", "1", "--ephemeral", "--port", str(find_base_port())]
    words += ["--exec", f"sleep 600 & echo $! > {tmp_path}/pid; wait; true"]
    process = subprocess.Popen([sys.executable, "-c", RUN_WITH_FAKE_SERVER, *words], stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (pid := (tmp_path / "pid").read_text()):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    while is_alive(int(pid)):
        assert time.monotonic() < until_s, "the shell ended without its child"
        time.sleep(0.02)


def test_a_cluster_that_cannot_start_is_an_error_whose_hint_names_what_the_node_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    words = ("--set", "fake.die=3", "--set", "fake.words=my last words")
    result = dev("-n", "1", "--ephemeral", "--port", str(find_base_port()), *words, exit_code=1)
    assert "node 1 exited with status 3 before the cluster was ready" in result.stderr
    named = result.stderr.rpartition("its whole output is ")[2].strip()
    assert Path(named).read_text() == "my last words\n"


def test_a_context_that_a_later_dev_took_with_it_is_written_again(tmp_path: Path, context_file: Path) -> None:
    later = [sys.executable, "-c", RUN_WITH_FAKE_SERVER, "dev", "-n", "1", "--ephemeral"]
    later += ["--port", str(find_base_port(20_000, 25_000)), "--exec", f"cp {context_file} {tmp_path}/later"]
    seen = f"for _ in $(seq 100); do cp {context_file} {tmp_path}/after 2>&- && exit 0; sleep 0.05; done; exit 1"
    dev(
        "-n",
        "1",
        "--ephemeral",
        "--port",
        str(port := find_base_port(25_000)),
        "--exec",
        f"{shlex.join(later)} && {{ {seen}; }}",
    )
    assert json.loads((tmp_path / "later").read_text())["brokers"] != f"127.0.0.1:{port}"
    assert json.loads((tmp_path / "after").read_text())["brokers"] == f"127.0.0.1:{port}"
    assert not context_file.exists()


def test_what_a_node_would_refuse_or_not_know_ends_it_before_anything_is_made(tmp_path: Path) -> None:
    arguments = ("--data", str(tmp_path / "d"), "--port", str(find_base_port()), "--set", "fake.refused=7")
    assert "--set: --override=fake.refused=7 cannot be had" in dev(*arguments, exit_code=2).stderr
    assert not (tmp_path / "d").exists()


def test_what_each_node_has_of_its_own_is_not_set_for_all_of_them(tmp_path: Path) -> None:
    arguments = ("--data", str(tmp_path / "d"), "--port", str(find_base_port()), "--set", "fake.die=3")
    refused = dev(*arguments, "--set", "listeners=PLAINTEXT://127.0.0.1:1", exit_code=2)
    assert "--set: listeners: each of 3 nodes has its own" in refused.stderr and not (tmp_path / "d").exists()
    alone = dev("-n", "1", *arguments, "--set", "node.id=0", exit_code=2)
    assert "--set: node.id: nodes are numbered from 1" in alone.stderr and not (tmp_path / "d").exists()
    assert (
        "exited with status 3" in dev("-n", "1", *arguments, "--set", "admin.listeners=127.0.0.1:1", exit_code=1).stderr
    )


def test_usage(tmp_path: Path) -> None:
    dev("--data", str(tmp_path), "--ephemeral", exit_code=2)
    dev("--exec", exit_code=2)
    dev("ls", exit_code=2)
    dev("--set", "nothing", exit_code=2)
    dev("-n", "11", exit_code=2)
