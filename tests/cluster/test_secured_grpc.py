"""A cluster of which every listener but metrics is secured: nodes know each other by certificates, operators by theirs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from barnabas_admin import pki
from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.rpc.peers import peer_name

RENEWAL_TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path_factory.mktemp("doors"), nodes=3, base_port=find_base_port(), is_secured=True
    ) as running:
        yield running


def barnabas(
    cluster: LocalCluster, *words: str, config: bool | Path = True, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    security = cluster.security
    assert security is not None
    where = ["--admin", cluster.admin_addresses, "-b", cluster.bootstrap_servers]
    login = ["--client-config", str(security.client_file if config is True else config)] if config else []
    command = [sys.executable, "-m", "barnabas_admin.main", *words, *where, *login]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)


def test_the_commands_reach_it_with_a_login_and_not_without(cluster: LocalCluster) -> None:
    assert barnabas(cluster, "topic", "create", "closed", "-p", "3").returncode == 0
    produced = barnabas(cluster, "topic", "produce", "closed", stdin="hello\n")
    assert produced.returncode == 0, produced.stderr
    consumed = barnabas(cluster, "topic", "consume", "closed", "-n", "1")
    assert consumed.stdout == "hello\n", consumed.stderr
    refused = barnabas(cluster, "cluster", "health", "--timeout", "1", config=False)
    assert refused.returncode != 0 and refused.stdout == ""


def test_who_is_logged_in_may_do_what_acls_say(cluster: LocalCluster) -> None:
    """By the Kafka listener and by the admin listener: one name, one right."""
    security = cluster.security
    assert security is not None
    made = barnabas(cluster, "user", "create", "ann", stdin="hers alone\n")
    assert made.returncode == 0, made.stderr
    config = security.client_file.read_text().replace("=admin\n", "=ann\n")
    hers = security.client_file.with_name("ann.properties")
    hers.write_text(re.sub(r"sasl.password=.*", "sasl.password=hers alone", config))
    hers.chmod(0o600)
    for words, stdin in ((["topic", "produce", "closed"], "no\n"), (["topic", "create", "hers"], "")):
        refused = barnabas(cluster, *words, stdin=stdin, config=hers)
        assert refused.returncode != 0 and "AUTHORIZATION_FAILED" in refused.stderr, refused.stderr
    rights = ("--operation", "write", "--operation", "create", "--resource", "topic", "--name", "hers")
    allowed = barnabas(cluster, "acl", "create", "--allow", "User:ann", *rights)
    assert allowed.returncode == 0, allowed.stderr
    assert barnabas(cluster, "topic", "create", "hers", config=hers).returncode == 0
    assert barnabas(cluster, "topic", "produce", "hers", stdin="mine\n", config=hers).returncode == 0


def test_every_controller_answers_for_itself(cluster: LocalCluster) -> None:
    """Each is asked by another node, over a connection that demands its name."""
    explained = json.loads(barnabas(cluster, "explain", "leader", "-o", "json").stdout)
    facts = "\n".join(explained["facts"])
    assert all(f"controller {node}:" in facts for node in cluster.nodes), facts


@pytest.mark.attack("A1", "files of dev --secure are their owner's alone")
def test_secrets_are_their_owners_alone_and_in_no_log(cluster: LocalCluster) -> None:
    security = cluster.security
    assert security is not None
    for file in (
        security.client_file,
        security.peer_file,
        security.certificate,
        security.authority.with_name("ca-key.pem"),
    ):
        assert file.stat().st_mode & 0o077 == 0, file
    for node in cluster.nodes.values():
        assert node.properties_file.stat().st_mode & 0o077 == 0
        assert security.password not in node.stderr_file.read_text() + node.stdout_file.read_text()


def test_dev_tells_clients_how_to_come_in_and_shows_no_password(tmp_path: Path) -> None:
    """`--exec` runs with the credentials of the cluster; without a context nobody else has them."""
    inner = f"{sys.executable} -m barnabas_admin.main"
    command = f"{inner} topic create mine -p 1 && cat $BARNABAS_CLIENT_CONFIG && env -u BARNABAS_CLIENT_CONFIG {inner} topic list"
    words = ["dev", "-n", "1", "--secure", "--data", str(tmp_path / "dev"), "--port", str(find_base_port())]
    environment = os.environ | {"BARNABAS_CONTEXT": str(tmp_path / "context.json")}
    done = subprocess.run(
        [sys.executable, "-m", "barnabas_admin.main", *words, "--exec", command],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    password = next(line.partition("=")[2] for line in done.stdout.splitlines() if line.startswith("sasl.password="))
    assert "mine" in done.stdout.splitlines()[-1]  # the context, of mode 0600, names the credentials
    assert all(kind in done.stderr for kind in ("librdkafka", "Java", "Python")) and password not in done.stderr


def test_certificates_are_renewed_one_after_another_under_way(cluster: LocalCluster) -> None:
    """New keys for all nodes: servers take them, clients make new channels, and no controller is lost."""
    security = cluster.security
    assert security is not None
    directory = security.authority.parent
    for node in cluster.nodes.values():
        hosts = ["127.0.0.1", "localhost", peer_name(node.id, cluster.cluster_id)]
        pki.issue(directory, f"node-{node.id}", hosts=hosts, is_renewal=True)
    cluster.wait_until(
        lambda: all(
            node.stderr_file.read_text().count("has a new certificate") >= 3 + 1  # controller, admin, two of Kafka's
            for node in cluster.nodes.values()
        ),
        timeout_s=RENEWAL_TIMEOUT_S,
        what="the renewal",
    )
    cluster.restart(2)  # has nothing but the new one
    cluster.wait_until_healthy()
    with AdminClient(cluster.admin_addresses, timeout_s=10, security=security.admin_security()) as admin:
        (outcome,) = admin.create_topics(["after-renewal"], partitions=1, replication_factor=3)
    assert not outcome.error.code


@pytest.mark.attack("A1", "the console of dev --secure asks a stranger for a sign-in")
def test_the_console_of_a_closed_cluster_asks_who_comes(tmp_path: Path) -> None:
    """Every account of the host reaches the page: it shows nothing before a user signed in, and the operator can."""
    words = [
        "dev",
        "-n",
        "1",
        "--secure",
        "--console",
        "--data",
        str(tmp_path / "dev"),
        "--port",
        str(find_base_port()),
    ]
    environment = os.environ | {"BARNABAS_CONTEXT": str(tmp_path / "context.json")}
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas_admin.main", *words, "-o", "json"], stdout=subprocess.PIPE, env=environment
    ) as dev:
        try:
            assert dev.stdout is not None
            ready = json.loads(dev.stdout.readline())
            directory = Path(ready["directory"])
            assert directory.stat().st_mode & 0o077 == 0, "the metadata log in it holds the users' keys"
            with httpx.Client(base_url=ready["console"], timeout=30) as stranger:
                assert stranger.get("/access.json?tab=users").status_code == 401
                page = stranger.get("/sign-in")
                form = {"token": page.cookies["barnabas_token"], "user": "admin", "back": "/"}
                assert stranger.post("/sign-in", data=form | {"password": "not-the-admins"}).status_code == 403
                password = (directory / "password").read_text()
                assert stranger.post("/sign-in", data=form | {"password": password}).status_code == 303
                assert "admin" in stranger.get("/access.json?tab=users").text
        finally:
            dev.terminate()
