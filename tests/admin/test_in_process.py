"""Laws of `barnabas.broker()`: a real broker in the process that asks for it, which leaves that process as it was."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import locale
import logging
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records

confluent = pytest.importorskip("confluent_kafka")
pytest.importorskip("confluent_kafka.admin")
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    properties = {"log.cleaner.backoff.ms": 100, "offsets.topic.num.partitions": 1}
    with barnabas.broker(properties) as made:
        yield made


def produce(servers: str, topic: str, *values: bytes, **settings: Any) -> None:
    producer = confluent.Producer({"bootstrap.servers": servers, "linger.ms": 0} | settings)
    for value in values:
        producer.produce(topic, value, key=b"key")
    assert producer.flush(20) == 0


def consume(servers: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    consumer = confluent.Consumer(
        {"bootstrap.servers": servers, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"} | settings
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.commit()
    consumer.close()
    return found


def in_a_process(source: str, *arguments: str, timeout_s: float = 120, **environment: str) -> str:
    """What another interpreter prints that runs it. environment: variables on top of this process's own."""
    words = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    env = os.environ | environment
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- what it serves ----------------------------------------------------------------------------------------------------


def test_records_come_back_by_our_own_client(broker: barnabas.Broker) -> None:
    partition = TopicPartition("own", 0)
    with contextlib.closing(BlockingCluster(broker.bootstrap_servers)) as client:
        client.metadata(["own"], creates_topics=True)
        batch = build_batch([Record(number, int(time.time() * 1000), None, b"%d" % number) for number in range(3)])
        assert client.produce(partition, batch) == 0
        fetched = client.fetch(partition, Offset(0))
    values = [
        record.value
        for position, header in iterate_batches(fetched.records)
        for record in iterate_records(memoryview(fetched.records)[position : position + header.size_bytes])
    ]
    assert values == [b"0", b"1", b"2"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols_commit(broker: barnabas.Broker, protocol: str) -> None:
    topic = f"groups-{protocol}"
    produce(broker.bootstrap_servers, topic, b"1", b"2")
    assert consume(broker.bootstrap_servers, topic, 2, **{"group.protocol": protocol}) == [b"1", b"2"]
    produce(broker.bootstrap_servers, topic, b"3")
    assert consume(broker.bootstrap_servers, topic, 1, **{"group.protocol": protocol}) == [b"3"]


def test_readers_of_committed_data_see_no_aborted_transaction(broker: barnabas.Broker) -> None:
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(30)
    for value, ends in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("transactions", value)
        producer.flush(20)
        ends(30)
    assert consume(broker.bootstrap_servers, "transactions", 1, **{"isolation.level": "read_committed"}) == [
        b"committed"
    ]


def test_admin_clients_are_served(broker: barnabas.Broker) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("made", 3, 1, config={"retention.ms": "1000"})])["made"].result(20)
    resource_ = ConfigResource(ConfigResource.Type.TOPIC, "made")
    configs = admin.describe_configs([resource_])[resource_].result(20)
    assert configs["retention.ms"].value == "1000"
    assert len(admin.list_topics("made", 20).topics["made"].partitions) == 3
    described = admin.describe_cluster(request_timeout=20).result(20)
    assert described.cluster_id == broker.cluster_id
    admin.delete_topics(["made"])["made"].result(20)
    with pytest.raises(confluent.KafkaException):
        admin.create_topics([NewTopic("three", 1, 3)])["three"].result(20)


def test_keys_of_kafkas_that_mean_nothing_here_are_taken_and_described(broker: barnabas.Broker) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def change(key: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        changed = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(20)

    change("num.io.threads", "16", AlterConfigOpType.SET)
    assert "num.io.threads=16 is kept and has no effect" in broker.log
    with pytest.raises(confluent.KafkaException, match="is not a key"):
        change("num.of.threads", "16", AlterConfigOpType.SET)
    resource_ = ConfigResource(ConfigResource.Type.BROKER, "1")
    deadline = time.monotonic() + 20
    while "num.io.threads" not in (described := admin.describe_configs([resource_])[resource_].result(20)):
        assert time.monotonic() < deadline
    values = {key: described[key].value for key in ("num.io.threads", "broker.id", "log.retention.hours")}
    assert values == {"num.io.threads": "16", "broker.id": "1", "log.retention.hours": "168"}
    assert "PLAINTEXT:PLAINTEXT" in described["listener.security.protocol.map"].value
    change("num.io.threads", None, AlterConfigOpType.DELETE)


def test_a_compacted_topic_keeps_the_last_value_of_a_key(broker: barnabas.Broker) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "100",
        "min.compaction.lag.ms": "0",
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("compacted", 1, 1, config=configs)])["compacted"].result(20)
    for value in (b"older", b"newer", b"in the active segment, which is never compacted"):
        produce(broker.bootstrap_servers, "compacted", value)
        time.sleep(0.15)  # the next record opens another segment
    deadline = time.monotonic() + 240  # the cleaner's process is nice, and waits behind whatever else runs
    while True:
        time.sleep(0.5)
        found = consume(broker.bootstrap_servers, "compacted", 1, **{"group.id": str(time.monotonic())})
        if found != [b"older"]:
            break
        assert time.monotonic() < deadline, broker.log
    assert found == [b"newer"]


async def test_a_broker_starts_inside_a_running_loop() -> None:
    async with barnabas.broker() as made:
        client = ClusterClient(made.bootstrap_servers)
        view = await client.metadata()
        await client.close()
        assert list(view.brokers) == [1]
    other = barnabas.broker()
    starting = asyncio.ensure_future(other.astart())
    await asyncio.sleep(0)
    assert not starting.done(), "the loop goes on while it starts"
    await (await starting).aclose()
    with barnabas.broker() as made:  # it stands for a moment, and nothing waits for itself
        assert made.is_running


def test_two_brokers_at_once_know_nothing_of_each_other() -> None:
    with barnabas.broker() as first, barnabas.broker() as second:
        assert first.cluster_id != second.cluster_id
        produce(first.bootstrap_servers, "shared", b"first")
        produce(second.bootstrap_servers, "shared", b"second")
        assert consume(second.bootstrap_servers, "shared", 1) == [b"second"]
        assert "shared" in first.log
        first.close()
        assert consume(second.bootstrap_servers, "shared", 1, **{"group.id": "other"}) == [b"second"]


def test_a_broker_is_opened_in_one_thread_and_closed_in_another() -> None:
    made = barnabas.broker()
    opener = threading.Thread(target=made.start)
    opener.start()
    opener.join()
    produce(made.bootstrap_servers, "threads", b"1")
    made.close()
    made.close()


def test_clients_of_several_listeners_are_told_the_port_that_was_free() -> None:
    listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
    }
    with barnabas.broker(listeners) as made:
        assert len(set(made.addresses.values())) == 2
        for address in made.addresses.values():
            produce(address, "listeners", b"1")


# -- the process that it lives in --------------------------------------------------------------------------------------


def host() -> dict[str, object]:
    """What a process has that a library must not change."""
    return {
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
        "signals": [signal.getsignal(each) for each in sorted(signal.valid_signals())],
        "wakeup": signal.set_wakeup_fd(-1),
        "locale": locale.setlocale(locale.LC_ALL),
        "zone": time.tzname,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "switch": sys.getswitchinterval(),
        "excepthook": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "root": (logging.getLogger().level, list(logging.getLogger().handlers), list(logging.getLogger().filters)),
        "policy": asyncio.get_event_loop_policy().__class__,
        "loggers": {
            name: (logger.level, logger.propagate, list(logger.handlers))
            for name, logger in logging.Logger.manager.loggerDict.items()
            if isinstance(logger, logging.Logger) and (logger.level or logger.handlers or not logger.propagate)
        },
    }


def test_a_running_broker_changes_nothing_of_its_process() -> None:
    with barnabas.broker():
        pass  # what is imported is imported
    before = host()
    with barnabas.broker() as made:
        produce(made.bootstrap_servers, "host", b"1")
        during = host()
        during.pop("loggers")
    after = host()
    assert after == before
    before.pop("loggers")
    assert during == before


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_is_left_of_a_hundred_brokers() -> None:
    """In a process of its own, whose memory is nobody else's."""
    found = in_a_process(
        """
        import os, sys, threading
        import barnabas
        from barnabas_wire.client.blocking import BlockingCluster
        from barnabas_wire.kafka.ids import TopicPartition
        from barnabas_wire.records.batch import Record, build_batch

        def rss():
            with open("/proc/self/statm") as stream:
                return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def held():
            return threading.active_count(), len(os.listdir("/proc/self/fd")), sorted(os.listdir("/dev/shm"))

        first, sizes = held(), []
        for number in range(100):
            with barnabas.broker() as broker:
                client = BlockingCluster(broker.bootstrap_servers)
                client.metadata(["t"], creates_topics=True)
                client.produce(TopicPartition("t", 0), build_batch([Record(0, 0, None, b"1")]))
                client.close()
            sizes.append(rss())
        last = held()
        mine = [name for name in last[2] if name not in first[2] and f"-{os.getpid()}-" in name]
        # garbage that is not collected yet comes and goes; what leaks is in each of the last ten
        print(last[0] - first[0], last[1] - first[1], len(mine), (min(sizes[-10:]) - max(sizes[:10])) >> 10)
        """,
        timeout_s=300,
        MALLOC_ARENA_MAX="1",  # with a heap for each thread, the threads of a busy machine hold some MiB more
    )
    threads, descriptors, files, kib = map(int, found.split())
    assert (threads, files) == (0, 0)
    assert descriptors <= 1  # the locks of an interpreter's first thread
    assert kib <= 4 * 1024


def test_no_grpc_is_loaded_and_nothing_at_all_before_a_broker_is_asked_for() -> None:
    found = in_a_process(
        """
        import sys
        before = set(sys.modules)
        import barnabas
        print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] not in sys.stdlib_module_names))
        with barnabas.broker():
            print([name for name in sys.modules if name.partition(".")[0] in ("grpc", "click", "prometheus_client")])
        """
    )
    assert found.splitlines() == ["['barnabas']", "[]"]


def test_lines_of_a_broker_are_its_own_and_those_of_others_go_where_they_went(caplog: pytest.LogCaptureFixture) -> None:
    ours = logging.getLogger("barnabas_wire.client")
    caplog.handler.setLevel(logging.NOTSET)
    with barnabas.broker() as made:
        produce(made.bootstrap_servers, "lines", b"1")
        ours.info("below the level of the process")
        ours.warning("a client's warning")
        ours.setLevel(logging.DEBUG)
        ours.debug("what the process asks its clients for")
        ours.setLevel(logging.NOTSET)
    assert caplog.messages == ["a client's warning", "what the process asks its clients for"]
    assert "is unfenced" in made.log
    assert "a client's" not in made.log
    with barnabas.broker({"log.level": "ERROR"}) as quiet:
        pass
    assert quiet.log == ""


def test_a_process_that_forgets_to_close_ends_and_leaves_no_directory() -> None:
    began_s = time.monotonic()
    directory = in_a_process("import barnabas; b = barnabas.broker().start(); print(b.directory)")
    assert not Path(directory).exists()
    assert time.monotonic() - began_s < 60


def test_a_directory_of_a_process_that_was_killed_is_removed_by_the_next_broker() -> None:
    """And none that is new, or whose process lives: it holds the lock."""
    source = "import barnabas, os, signal; print(barnabas.broker().start().directory, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    long_ago = time.time() - 3600
    with barnabas.broker() as living:
        assert left.is_dir()
        for directory in (left, living.directory):
            os.utime(directory, (long_ago, long_ago))
        with barnabas.broker():
            assert not left.exists()
            assert living.directory.is_dir()


def test_a_forked_child_uses_the_address_and_does_not_end_the_broker(tmp_path: Path) -> None:
    """In a process of its own: pytest's has other threads."""
    found = in_a_process(
        """
        import os, sys
        import barnabas
        with barnabas.broker() as broker:
            child = os.fork()
            if child:
                _, status = os.waitpid(child, 0)
                print(os.waitstatus_to_exitcode(status), broker.is_running, broker.directory.exists(), broker.bootstrap_servers != "")
            else:
                try:
                    broker.close()
                except barnabas.BrokerError as error:
                    print(error)
        if not child:
            sys.stdout.flush()
            os._exit(0 if broker.bootstrap_servers else 1)
        """
    )
    assert re.search(r"forked from \d+, in which the broker lives, and cannot have it closed: do that there", found)
    assert found.splitlines()[-1] == "0 True True True"


def test_records_are_acknowledged_beside_a_thread_that_computes() -> None:
    """No figure: what it takes is in docs/testing.md. That it goes on is a law."""
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(1000))

    computing = threading.Thread(target=compute)
    with barnabas.broker() as made:
        computing.start()
        try:
            produce(made.bootstrap_servers, "beside", *[b"1"] * 50)
            assert len(consume(made.bootstrap_servers, "beside", 50)) == 50
        finally:
            is_over.set()
            computing.join()
        assert "fenced" not in made.log.partition("is unfenced")[2]


# -- a directory that is kept ------------------------------------------------------------------------------------------


def test_what_was_written_is_there_for_the_next_broker_on_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    with barnabas.broker(directory=directory) as first:
        produce(first.bootstrap_servers, "kept", b"1", b"2")
    with barnabas.broker(directory=directory) as second:
        assert second.cluster_id == first._cluster_id
        assert consume(second.bootstrap_servers, "kept", 2) == [b"1", b"2"]
        assert "recovered" not in second.log
        with pytest.raises(barnabas.BrokerError, match="is in use by another cluster"):
            barnabas.broker(directory=directory).start()
        assert second.is_running
    assert directory.is_dir()


@pytest.mark.cluster
def test_a_directory_goes_to_a_process_and_back(tmp_path: Path) -> None:
    with barnabas.broker(directory=tmp_path) as first:
        produce(first.bootstrap_servers, "handed-on", b"1")
    with LocalCluster(tmp_path, base_port=find_base_port()) as cluster:
        assert len(cluster.nodes) == 1
        produce(cluster.bootstrap_servers, "handed-on", b"2")
        with pytest.raises(barnabas.BrokerError, match="is in use"):
            barnabas.broker(directory=tmp_path).start()
    with barnabas.broker(directory=tmp_path) as last:
        assert consume(last.bootstrap_servers, "handed-on", 2) == [b"1", b"2"]


def test_a_voter_whose_directory_was_emptied_does_not_begin_anew(tmp_path: Path) -> None:
    with barnabas.broker(directory=tmp_path):
        pass
    shutil.rmtree(tmp_path / "node-1" / "data")
    with pytest.raises(barnabas.BrokerError, match=r"node 1 has voted before, but .* is empty now; restore it"):
        barnabas.broker(directory=tmp_path).start()


def test_a_cluster_of_three_is_refused_in_words(tmp_path: Path) -> None:
    from barnabas_admin.cluster_directory import new_identity, write_identity

    write_identity(tmp_path, new_identity(nodes=3))
    with pytest.raises(barnabas.BrokerError, match=r"holds a cluster of 3 nodes.*barnabas dev --data"):
        barnabas.broker(directory=tmp_path).start()


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"log.retention.mss": 1}, r"log\.retention\.mss is not a key.*did you mean log\.retention\.ms"),
        ({"log.retention.ms": "soon"}, r"log\.retention\.ms=soon"),
        ({"node.id": 7}, r"node\.id cannot be set for a broker in this process: it is node 1"),
        ({"admin.listeners": "127.0.0.1:9190"}, r"admin\.listeners cannot be set.*Kafka's admin clients are served"),
        ({"log.dirs": "/tmp/x"}, r"give broker\(directory=…\)"),
        ({"listeners": "127.0.0.1:0"}, r"write NAME://host:port"),
        ({"listeners": "CONTROLLER://127.0.0.1:0"}, r"write NAME://host:port for each Kafka listener"),
    ],
)
def test_properties_are_refused_in_words_and_nothing_is_left(properties: dict[str, object], words: str) -> None:
    before = set(os.listdir(SHARED_MEMORY)) if SHARED_MEMORY.exists() else set()
    with pytest.raises(barnabas.BrokerError, match=words):
        barnabas.broker(properties).start()
    after = set(os.listdir(SHARED_MEMORY)) if SHARED_MEMORY.exists() else set()
    assert not [name for name in after - before if f"-{os.getpid()}-" in name]


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(barnabas.BrokerError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*take port 0"):
            barnabas.broker({"listeners": f"PLAINTEXT://127.0.0.1:{port}"}).start()


def test_a_port_can_be_chosen_and_is_free_afterwards() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        with barnabas.broker({"listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as made:
            assert made.bootstrap_servers == f"127.0.0.1:{port}"


def test_before_and_after_a_broker_says_what_to_do() -> None:
    made = barnabas.broker()
    with pytest.raises(barnabas.BrokerError, match="is not started: use `with"):
        _ = made.bootstrap_servers
    with made, pytest.raises(barnabas.BrokerError, match="is started already"):
        made.start()
    with pytest.raises(barnabas.BrokerError, match="is closed: make another"):
        _ = made.bootstrap_servers
    with pytest.raises(barnabas.BrokerError, match="is closed: make another"):
        made.start()


@pytest.mark.parametrize("name", ["kill", "pause", "nodes", "admin_addresses"])
def test_what_only_processes_can_do_names_the_fixture_that_can(name: str) -> None:
    made = barnabas.broker()
    with pytest.raises(AttributeError, match=r"a broker in this process .* barnabas_cluster"):
        getattr(made, name)
    assert not hasattr(made, "no_such_thing")


def test_a_broker_cannot_close_itself() -> None:
    with barnabas.broker() as made:
        said: list[str] = []
        done = threading.Event()

        def close() -> None:
            try:
                made.close()
            except barnabas.BrokerError as error:
                said.append(str(error))
            done.set()

        in_its_thread(made, close)
        assert done.wait(10)
        assert "from its own thread" in said[0]
        assert made.is_running
        produce(made.bootstrap_servers, "goes-on", b"1")


def test_a_broker_that_ended_by_itself_says_why() -> None:
    made = barnabas.broker().start()

    def end() -> None:
        (life,) = (task for task in asyncio.all_tasks() if "InProcessNode._live" in repr(task.get_coro()))
        life.cancel("planted")

    in_its_thread(made, end)
    deadline = time.monotonic() + 20
    while made.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(barnabas.BrokerError, match="has ended by itself: planted"):
        _ = made.bootstrap_servers
    with pytest.raises(barnabas.BrokerError, match="has ended by itself"):
        made.close()
    assert "barnabas.Broker" in repr(made)


def in_its_thread(made: barnabas.Broker, work: Callable[[], None]) -> None:
    node = made._node
    assert node is not None
    assert node._loop is not None
    node._loop.call_soon_threadsafe(work)
