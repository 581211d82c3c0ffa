"""Each of the commonest reports is a program that fails, and `barnabas doctor` names its cause, from where the program ran."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaAdmin

from barnabas_admin import pki
from barnabas_admin.client import AdminClient
from barnabas_admin.doctor.finding import Cause
from barnabas_admin.doctor.rebalancing import Look, judge
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.scenarios.doctor.programs import DoesNotWork, commit, consume, polling, produce, wait_for_share
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

pytestmark = pytest.mark.cluster
OVERRIDES = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("doctor")
    with ForkedCluster(directory, nodes=3, base_port=find_base_port(), overrides=OVERRIDES) as running:
        yield running


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("doctor-secured")
    with ForkedCluster(directory, nodes=1, base_port=find_base_port(), is_secured=True) as running:
        yield running


def servers(cluster: LocalCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def make(cluster: LocalCluster, name: str, *, partitions: int = 1, replicas: int = 1, **configs: str) -> str:
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        (made,) = admin.create_topics([name], partitions=partitions, replication_factor=replicas, configs=named)
    wait_until_known(cluster, name, made.id)
    return name


def ask(address: str, *words: str, status: int = 10) -> dict[str, Any]:
    command = [sys.executable, "-m", "barnabas_admin.main", "doctor", "-b", address, *words, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (done.stdout, done.stderr)
    return dict(json.loads(done.stdout))


def cause_of(address: str, cause: Cause, *words: str) -> dict[str, str]:
    """The one finding of that cause."""
    found = ask(address, *words)
    findings = [each for each in found["findings"] if each["cause"] == cause.value]
    assert len(findings) == 1, found
    return dict(findings[0])


def properties(tmp_path: Path, **keys: str) -> tuple[str, str]:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in keys.items()))
    file.chmod(0o600)
    return "--client-config", str(file)


def test_nothing_is_wrong_with_a_cluster_that_works(cluster: LocalCluster) -> None:
    produce(servers(cluster), make(cluster, "well", replicas=3))
    found = ask(cluster.bootstrap_servers, "-t", "well", "-g", "none", status=0)
    assert (found["findings"], found["not_looked_at"], found["brokers"]) == ([], [], 3)


# ---- addresses


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(DoesNotWork):
        produce({"bootstrap.servers": "no-such-host.invalid:9092"}, "t")
    assert "no-such-host.invalid" in cause_of("no-such-host.invalid:9092", Cause.NAME_UNKNOWN)["what"]


def test_a_port_where_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DoesNotWork):
            produce({"bootstrap.servers": address}, "t")
        cause_of(address, Cause.NOTHING_LISTENS)


def test_a_port_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DoesNotWork):
            produce({"bootstrap.servers": address}, "t")
        cause_of(address, Cause.NO_ANSWER)


def test_the_port_of_another_listener(cluster: LocalCluster) -> None:
    address = cluster.admin_addresses.split(",")[0]
    with pytest.raises(DoesNotWork):
        produce({"bootstrap.servers": address}, "t")
    assert "gRPC" in cause_of(address, Cause.OTHER_LISTENER)["what"]


def test_a_broker_that_advertises_what_cannot_be_reached(tmp_path: Path) -> None:
    base_port = find_base_port()
    told = {"advertised.listeners": "PLAINTEXT://no-such-host.invalid:9092"}
    with ForkedCluster(tmp_path, nodes=1, base_port=base_port, overrides=told) as running:
        with pytest.raises(DoesNotWork):
            produce(servers(running), "t")
        finding = cause_of(running.bootstrap_servers, Cause.ADVERTISED_UNREACHABLE)
        assert "broker 1" in finding["what"] and "advertised.listeners" in finding["fix"]


def test_brokers_that_advertise_one_address(tmp_path: Path) -> None:
    base_port = find_base_port()
    first = f"127.0.0.1:{base_port}"
    told = {"advertised.listeners": f"PLAINTEXT://{first}"}
    with ForkedCluster(tmp_path, nodes=3, base_port=base_port, overrides=told) as running:
        led_elsewhere = make(running, "elsewhere", partitions=3)
        with pytest.raises(DoesNotWork):
            for partition in range(3):
                produce(servers(running), led_elsewhere, partition=partition)
        found = [each["what"] for each in ask(first)["findings"] if each["cause"] == Cause.OTHER_BROKER.value]
        assert len(found) == 2 and "broker 2" in found[0] and "broker 3" in found[1]


def test_brokers_of_two_clusters(cluster: LocalCluster, tmp_path: Path) -> None:
    with ForkedCluster(tmp_path, nodes=1, base_port=find_base_port()) as other:
        both = f"{cluster.bootstrap_servers},{other.bootstrap_servers}"
        only_there = make(other, "only-there")
        seen = {
            len(KafkaAdmin({"bootstrap.servers": each}).list_topics(timeout=10).brokers) for each in both.split(",")
        }
        assert seen == {1, 3}, "a client gets one or the other, as it happens"
        assert only_there and cause_of(both, Cause.OTHER_CLUSTER)


# ---- TLS and logins


def test_a_client_in_plain_text_before_tls(secured: LocalCluster) -> None:
    with pytest.raises(DoesNotWork):
        produce(servers(secured), "t")
    assert "security.protocol=SSL" in cause_of(secured.bootstrap_servers, Cause.TLS_WANTED)["fix"]


def authority_of(cluster: LocalCluster) -> str:
    assert cluster.security is not None
    text = cluster.security.client_file.read_text()
    found = re.search(r"^ssl\.(?:ca|truststore)\.location=(.+)$", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def test_a_client_with_tls_before_plain_text(cluster: LocalCluster, secured: LocalCluster, tmp_path: Path) -> None:
    config = {"security.protocol": "SSL", "ssl.ca.location": authority_of(secured)}
    with pytest.raises(DoesNotWork):
        produce(servers(cluster) | config, "t")
    words = properties(tmp_path, security_protocol="SSL", ssl_ca_location=authority_of(secured))
    cause_of(cluster.bootstrap_servers.split(",")[0], Cause.TLS_UNWANTED, *words)


def test_a_certificate_of_an_authority_that_the_client_does_not_know(secured: LocalCluster, tmp_path: Path) -> None:
    pki.init(tmp_path / "other")
    config = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "other" / "ca.pem")}
    with pytest.raises(DoesNotWork):
        produce(servers(secured) | config, "t")
    words = properties(tmp_path, security_protocol="SSL", ssl_ca_location=config["ssl.ca.location"])
    cause_of(secured.bootstrap_servers, Cause.CERTIFICATE_REFUSED, *words)


def test_a_client_without_a_login(secured: LocalCluster, tmp_path: Path) -> None:
    config = {"security.protocol": "SSL", "ssl.ca.location": authority_of(secured)}
    with pytest.raises(DoesNotWork):
        produce(servers(secured) | config, "t")
    words = properties(tmp_path, security_protocol="SSL", ssl_ca_location=authority_of(secured))
    assert "SCRAM-SHA-512" in cause_of(secured.bootstrap_servers, Cause.LOGIN_WANTED, *words)["fix"]


def login(secured: LocalCluster, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority_of(secured),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_a_wrong_password(secured: LocalCluster, tmp_path: Path) -> None:
    config = login(secured, "admin", "guessed")
    with pytest.raises(DoesNotWork):
        produce(servers(secured) | config, "t")
    words = properties(tmp_path, **{key.replace(".", "_"): value for key, value in config.items()})
    cause_of(secured.bootstrap_servers, Cause.LOGIN_REFUSED, *words)


def test_a_user_without_a_right(secured: LocalCluster, tmp_path: Path) -> None:
    assert secured.security is not None
    owner = ["--client-config", str(secured.security.client_file), "-b", secured.bootstrap_servers]
    barnabas = [sys.executable, "-m", "barnabas_admin.main"]
    subprocess.run([*barnabas, "topic", "create", "closed", *owner, "--admin", secured.admin_addresses], check=True)
    create = [*barnabas, "user", "create", "ada", *owner, "--admin", secured.admin_addresses]
    subprocess.run(create, input="a-password-of-ada\n", text=True, check=True)
    config = login(secured, "ada", "a-password-of-ada")
    with pytest.raises(DoesNotWork):
        produce(servers(secured) | config, "closed")
    words = properties(tmp_path, **{key.replace(".", "_"): value for key, value in config.items()})
    assert "acl create" in cause_of(secured.bootstrap_servers, Cause.NO_RIGHT, *words, "-t", "closed")["fix"]


# ---- topics


def test_a_topic_that_there_is_not(cluster: LocalCluster) -> None:
    with pytest.raises(DoesNotWork):
        consume(servers(cluster), "Misspelt")
    cause_of(cluster.bootstrap_servers, Cause.TOPIC_UNKNOWN, "-t", "Misspelt")


def test_a_transaction_that_nobody_ends(cluster: LocalCluster) -> None:
    topic = make(cluster, "open")
    producer = Producer(servers(cluster) | {"transactional.id": "forgotten"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.flush()
    with pytest.raises(DoesNotWork):
        consume(servers(cluster), topic, **{"isolation.level": "read_committed"})
    finding = cause_of(cluster.bootstrap_servers, Cause.TRANSACTION_OPEN, "-t", topic)
    assert "'forgotten'" in finding["what"] and "barnabas txn" in finding["fix"]
    producer.abort_transaction()


def test_a_key_that_takes_nearly_everything(cluster: LocalCluster) -> None:
    topic = make(cluster, "hot", partitions=4)
    producer = Producer(servers(cluster) | {"linger.ms": 5})
    for number in range(4000):
        producer.produce(topic, b"value", key=b"the one customer" if number % 20 else str(number).encode())
    producer.flush()
    finding = cause_of(cluster.bootstrap_servers, Cause.HOT_KEY, "-t", topic)
    assert "the one customer" in finding["what"]


def test_a_producer_whose_clock_is_ahead(cluster: LocalCluster) -> None:
    topic = make(cluster, "ahead")
    now_ms = int(time.time() * 1000)
    produce(servers(cluster), topic, timestamp=now_ms + 1_800_000)
    consumer = Consumer(servers(cluster) | {"group.id": "by-time"})
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, now_ms)], timeout=10)
    consumer.close()
    assert found.offset == 0, "a search for now finds what is of later"
    cause_of(cluster.bootstrap_servers, Cause.CLOCK_AHEAD, "-t", topic)


# ---- groups


def test_a_group_that_was_away_for_longer_than_records_are_kept(cluster: LocalCluster) -> None:
    topic = make(cluster, "short")
    for _ in range(10):
        produce(servers(cluster), topic)
    commit(servers(cluster), topic, 3, **{"group.id": "away"})
    with KafkaAdminOf(cluster) as admin:
        for future in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
            future.result()
    with pytest.raises(DoesNotWork):
        consume(servers(cluster), topic, **{"group.id": "away", "auto.offset.reset": "error"})
    finding = cause_of(cluster.bootstrap_servers, Cause.OFFSETS_DELETED, "-t", topic, "-g", "away")
    assert "committed 3" in finding["what"] and "begins at 8" in finding["what"]


class KafkaAdminOf:
    """An admin client of librdkafka, for the time of a block."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._admin = KafkaAdmin(servers(cluster))

    def __enter__(self) -> KafkaAdmin:
        return self._admin

    def __exit__(self, *_: object) -> None:
        del self._admin


def test_more_members_than_partitions(cluster: LocalCluster) -> None:
    topic = make(cluster, "narrow")
    produce(servers(cluster), topic)
    with polling(servers(cluster), topic, 2, **{"group.id": "wide"}) as shares:
        with pytest.raises(DoesNotWork):
            for share in shares:
                wait_for_share(share)
        finding = cause_of(cluster.bootstrap_servers, Cause.MEMBERS_IDLE, "-t", topic, "-g", "wide")
        assert "1 of its 2 members" in finding["what"]


def test_a_member_that_works_too_long_between_two_polls(cluster: LocalCluster) -> None:
    topic = make(cluster, "slow", partitions=2)
    produce(servers(cluster), topic)
    group = {"group.id": "slow", "max.poll.interval.ms": 30_000, "session.timeout.ms": 10_000}
    slow = Consumer(servers(cluster) | group | {"client.id": "the-slow-one", "auto.offset.reset": "earliest"})
    slow.subscribe([topic])
    while slow.poll(0.2) is None:
        pass
    with polling(servers(cluster), topic, 1, **group) as (other,):  # while `slow` does its work
        with pytest.raises(DoesNotWork):
            wait_for_share(other)
        finding = cause_of(cluster.bootstrap_servers, Cause.GROUP_REBALANCES, "-g", "slow", "-t", topic)
        assert "has not joined again" in finding["what"]
        slow.close()


def test_whose_fault_a_rebalance_is() -> None:
    ada, bob = {"a-1": "ada at h1"}, {"b-1": "bob at h2"}
    stable = [Look(at_s, "Stable", ada | bob) for at_s in range(5)]
    assert judge("g", stable) == [] and judge("g", stable[:1]) == []
    flapping = [
        Look(0, "Stable", ada | bob),
        Look(1, "PreparingRebalance", ada),
        Look(2, "Stable", ada | {"b-2": "bob at h2"}),
        Look(3, "PreparingRebalance", ada),
        Look(4, "Stable", ada | {"b-3": "bob at h2"}),
    ]
    assert "bob at h2 left it 2 times in 4 s" in judge("g", flapping)[0].what
    gone = [Look(0, "PreparingRebalance", ada | bob), Look(1, "Stable", ada)]
    assert "waited for bob at h2" in judge("g", gone)[0].what
    assert judge("g", [Look(0, "Stable", ada | bob), Look(1, "Stable", ada)]) == [], "who leaves in order is no fault"


# ---- last: a broker goes


def test_a_dead_broker_leaves_partitions_without_a_leader_and_acks_all_without_enough_in_sync(
    cluster: LocalCluster,
) -> None:
    topic = make(cluster, "alone", partitions=3)
    strict = make(cluster, "strict", replicas=3, min_insync_replicas="3")
    cluster.kill(3)
    with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
        cluster.wait_until(lambda: admin.explain_broker(3).status == "fenced", what="broker 3 is fenced")
    with pytest.raises(DoesNotWork):
        for partition in range(3):
            produce(servers(cluster), topic, partition=partition)
    living = ",".join(cluster.bootstrap_servers.split(",")[:2])
    assert "explain partition alone" in cause_of(living, Cause.NO_LEADER, "-t", topic)["fix"]
    with pytest.raises(DoesNotWork):
        produce(servers(cluster), strict)
    finding = cause_of(living, Cause.ACKS_ALL_REFUSED, "-t", strict)
    assert "2 in sync, min.insync.replicas is 3" in finding["what"]


def test_every_cause_has_a_program_and_a_section_of_the_faq() -> None:
    headings = Path("docs/faq.md").read_text()
    assert [each.value for each in Cause if f"`{each.value}`" not in headings] == []
    programs = Path(__file__).read_text()
    assert [each.name for each in Cause if f"Cause.{each.name}" not in programs] == []


def test_every_command_that_a_finding_names_exists() -> None:
    from barnabas_admin.main import cli

    rooms = sorted(Path("admin/barnabas_admin/doctor").glob("*.py"))
    named = {words for room in rooms for words in re.findall(r"`barnabas ([a-z -]+[a-z])", room.read_text())}
    assert len(named) > 8
    for words in named:
        command: Any = cli
        for word in words.split():
            if not hasattr(command, "get_command"):
                break
            command = command.get_command(None, word)
            assert command is not None, f"barnabas {words}"
