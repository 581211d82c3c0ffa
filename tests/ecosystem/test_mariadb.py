"""The shipped example: results and offsets in one transaction of a real MariaDB, its consumers killed at random."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.ecosystem.java import IS_FULL
from tests.support.clusters import ForkedCluster

pymysql = pytest.importorskip("pymysql")

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "mariadb"
DATABASE, TOPIC, GROUP = "shop", "payments", "payments"
PARTITIONS = 3
PAYMENTS = 300_000 if IS_FULL else 40_000
KILLS = 20 if IS_FULL else 3
SPARK_PAYMENTS, SPARK_PER_TRIGGER, SPARK_KILLS, SPARK_ENDS_MAX = 60_000, 10_000, 1, 3
SPARK_DEADLINE_S = 1_200.0
"""Two starts of Spark: a quiet machine needs 30 s for one, a busy one minutes."""
KILL_EVERY_S = 0.8
"""So long a consumer that was started may work."""
START_S = 30.0
DEADLINE_S = 600.0 if IS_FULL else 90.0


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a database of our own, without a port."""
    install, server = shutil.which("mariadb-install-db"), shutil.which("mariadbd") or shutil.which("mysqld")
    if install is None or server is None:
        pytest.skip("needs the Debian package mariadb-server")
    place = tmp_path_factory.mktemp("mariadb")
    data, path = place / "data", f"{place}/s"
    user = f"--user={os.environ.get('USER', 'root')}" if os.geteuid() == 0 else ""
    words = [word for word in (install, f"--datadir={data}", user, "--auth-root-authentication-method=normal") if word]
    subprocess.run(words, check=True, capture_output=True, timeout=START_S)
    flags = [f"--datadir={data}", f"--socket={path}", f"--pid-file={place}/pid", "--skip-networking", user]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([server, "--no-defaults", *(flag for flag in flags if flag)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                connection = connect(path)
                break
            except pymysql.err.OperationalError:
                assert time.monotonic() < deadline and process.poll() is None, (place / "log").read_text()[-2000:]
                time.sleep(0.1)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute(f"USE {DATABASE}")
            for statement in (EXAMPLE / "schema.sql").read_text().split(";"):
                if statement.strip():
                    cursor.execute(statement)
        connection.close()
        yield path
    finally:
        process.terminate()
        process.wait(START_S)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with ForkedCluster(
        tmp_path_factory.mktemp("brokers"), nodes=1, base_port=find_base_port(), overrides=overrides
    ) as running:
        yield running


def connect(socket: str, database: str | None = None) -> Any:
    return pymysql.connect(unix_socket=socket, user="root", database=database)


def rows(socket: str, query: str) -> list[tuple[Any, ...]]:
    connection = connect(socket, DATABASE)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())
    finally:
        connection.close()


class Payments:
    """A topic of payments, and what its totals must be."""

    def __init__(self, brokers: LocalCluster, topic: str, count: int) -> None:
        random = Random(5)
        self.expected: dict[str, list[int]] = {}
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer(
            {
                "bootstrap.servers": brokers.bootstrap_servers,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for _ in range(count):
            account, amount = f"{topic}-{random.randrange(50)}", random.randrange(1, 1000)
            total = self.expected.setdefault(account, [0, 0])
            total[0] += amount
            total[1] += 1
            producer.produce(topic, str(amount), account)
            producer.poll(0)
        assert producer.flush(60) == 0


def store_under_kills(
    start: Callable[[], subprocess.Popen[bytes]],
    socket: str,
    payments: Payments,
    topic: str,
    *,
    at_once: int,
    kills: int,
    every_s: float,
) -> None:
    """Run programs that store until all is stored, and kill one now and then; then the totals are the input's."""
    random = Random(6)
    where = f"FROM totals WHERE account LIKE '{topic}-%'"
    wanted = sum(count for _, count in payments.expected.values())
    stores = [start() for _ in range(at_once)]
    killed, deadline = 0, time.monotonic() + DEADLINE_S
    kill_at = time.monotonic() + 2 * every_s
    try:
        while True:
            ((stored,),) = rows(socket, f"SELECT COALESCE(SUM(payments), 0) {where}")
            if killed < kills and time.monotonic() > kill_at:
                kill_at = time.monotonic() + random.uniform(0.5, 1.5) * every_s
                victim = random.randrange(len(stores))
                stores[victim].kill()
                stores[victim].wait()
                stores[victim] = start()
                killed += 1
            for number, store in enumerate(stores):
                if store.poll() is not None:
                    stores[number] = start()
            if stored >= wanted and killed == kills:
                break
            assert time.monotonic() < deadline, f"{stored} of {wanted} payments are stored, {killed} kills"
            time.sleep(0.05)
        time.sleep(1.0)  # one too many would come now
    finally:
        for store in stores:
            store.kill()
            store.wait()
    found = {account: [int(amount), int(count)] for account, amount, count in rows(socket, f"SELECT * {where}")}
    assert found == payments.expected


def program(name: str, **options: str) -> subprocess.Popen[bytes]:
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    return subprocess.Popen([sys.executable, str(EXAMPLE / name), *words], stderr=subprocess.DEVNULL)


def test_the_table_equals_the_input_whatever_is_killed(brokers: LocalCluster, socket: str) -> None:
    payments = Payments(brokers, TOPIC, PAYMENTS)
    settings = {"brokers": brokers.bootstrap_servers, "topic": TOPIC, "socket": socket, "database": DATABASE}
    store_under_kills(
        lambda: program("store.py", group=GROUP, **settings),
        socket,
        payments,
        TOPIC,
        at_once=2,
        kills=KILLS,
        every_s=KILL_EVERY_S,
    )


@pytest.mark.skipif(not IS_FULL, reason="starts Spark twice: make ecosystem")
@pytest.mark.timeout(1_300)
def test_spark_stores_each_payment_once_killed_between_the_commits(
    brokers: LocalCluster, socket: str, tmp_path: Path
) -> None:
    """Its driver is killed as soon as the database shows a micro-batch: before or about when Spark notes that it is done. The next one
    starts without the checkpoint, and is given everything again."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer")
    topic = "sparked"
    payments = Payments(brokers, topic, SPARK_PAYMENTS)
    options = {"brokers": brokers.bootstrap_servers, "topic": topic, "group": "spark", "socket": socket}
    options |= {"database": DATABASE, "per-trigger": str(SPARK_PER_TRIGGER)}
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    log = tmp_path / "log"
    where = f"FROM totals WHERE account LIKE '{topic}-%'"
    deadline = time.monotonic() + SPARK_DEADLINE_S
    killed, ended, is_done = 0, 0, False
    while not is_done:
        ((before,),) = rows(socket, f"SELECT COALESCE(SUM(payments), 0) {where}")
        with log.open("ab") as output:
            driver = subprocess.Popen(
                [
                    sys.executable,
                    str(EXAMPLE / "spark_store.py"),
                    *words,
                    "--checkpoint",
                    f"{tmp_path}/checkpoint-{killed}",
                ],
                stdout=output,
                stderr=output,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
                start_new_session=True,  # its JVM and its Python workers are killed with it
            )
        try:
            while driver.poll() is None:
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                ((stored,),) = rows(socket, f"SELECT COALESCE(SUM(payments), 0) {where}")
                if killed < SPARK_KILLS and stored > before:
                    killed += 1
                    break
                time.sleep(0.02)
            if driver.poll() not in (
                None,
                0,
            ):  # Spark waits ten seconds for its Python worker, and a busy machine needs longer
                ended += 1
                assert ended <= SPARK_ENDS_MAX, log.read_text()[-3000:]
            is_done = driver.poll() == 0
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
    assert killed == SPARK_KILLS
    found = {account: [int(amount), int(count)] for account, amount, count in rows(socket, f"SELECT * {where}")}
    assert found == payments.expected


def test_an_owner_that_lost_its_partition_cannot_store(socket: str) -> None:
    example = runpy.run_path(str(EXAMPLE / "store.py"))
    Fenced, Store = example["Fenced"], example["Store"]

    class Payment:
        def __init__(self, offset: int) -> None:
            self._offset = offset

        def __getattr__(self, name: str) -> Any:
            values = {"topic": "other", "partition": 0, "offset": self._offset, "key": b"late", "value": b"5"}
            return lambda: values[name]

    before, after = (Store(connect(socket, DATABASE), "fenced") for _ in range(2))
    assert before.own(TopicPartition("other", 0)) == 0
    before.store([Payment(0)])
    assert after.own(TopicPartition("other", 0)) == 1
    with pytest.raises(Fenced):
        before.store([Payment(1)])
    assert rows(socket, "SELECT amount, payments FROM totals WHERE account = 'late'") == [(5, 1)]
    after.store([Payment(1)])
    assert rows(socket, "SELECT amount, payments FROM totals WHERE account = 'late'") == [(10, 2)]
    assert rows(socket, "SELECT next_offset FROM stored_offsets WHERE topic = 'other'") == [(2,)]


def test_of_two_spark_programs_the_later_stores_nothing(socket: str) -> None:
    pytest.importorskip("pyspark")
    example = runpy.run_path(str(EXAMPLE / "spark_store.py"))
    options = Namespace(group="two", topic="twice", socket=socket, user="root", password="", database=DATABASE)
    store, database = example["Store"](options), connect(socket, DATABASE)
    read_by_both = store._next_offsets(database)
    store._write(database, read_by_both, {0: 10, 1: 5}, [("twice", 30, 15)])
    with pytest.raises(example["Fenced"], match="twice-1 is stored by another"):
        store._write(database, read_by_both, {1: 7, 0: 0}, [("twice", 30, 15)])
    assert store._next_offsets(database) == {0: 10, 1: 5}
    store._write(database, {0: 10, 1: 5}, {0: 10, 1: 6}, [("twice", 2, 1)])
    assert rows(socket, "SELECT amount, payments FROM totals WHERE account = 'twice'") == [(32, 16)]
    database.close()
