"""The Spark pipelines that are shipped: each killed in the middle, started again from its checkpoint, and right in the end.

What must come out is computed here from what went in. One has a short form in `make test`; the others run in `make ecosystem`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.ecosystem.java import IS_FULL
from tests.ecosystem.spark_jobs import EXAMPLES, committed, create, run, run_command, send, send_by_key
from tests.support.clusters import ForkedCluster

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(1_800)
full_form = pytest.mark.skipif(not IS_FULL, reason="make ecosystem runs it")
PAYMENTS = 60_000 if IS_FULL else 6_000
KILLS_MANY = 4 if IS_FULL else 1
KILLS = 2
BASE_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer")
    with ForkedCluster(tmp_path_factory.mktemp("brokers"), nodes=3, base_port=find_base_port()) as running:
        yield running


def words(brokers: LocalCluster, records: int, *, batches: int = 8, **named: Any) -> list[str]:
    """A command line whose query takes about so many micro-batches."""
    found = ["--brokers", brokers.bootstrap_servers, "--per-trigger", str(records // batches)]
    for name, value in named.items():
        found += [f"--{name}", str(value)]
    return found


def amounts(count: int) -> list[tuple[str, int]]:
    """(account, amount) of payments of fifty accounts."""
    return [(f"account-{at % 50}", at % 997 + 1) for at in range(count)]


def totals(payments: list[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """(sum, count) by account."""
    found: dict[str, tuple[int, int]] = {}
    for account, amount in payments:
        total, count = found.get(account, (0, 0))
        found[account] = total + amount, count + 1
    return found


def test_topic_to_topic(brokers: LocalCluster, tmp_path: Path) -> None:
    create(brokers, "payments", "charged")
    paid = amounts(PAYMENTS)
    send(brokers, "payments", ((account, str(amount)) for account, amount in paid))
    asked = words(brokers, PAYMENTS, batches=2 + 2 * KILLS_MANY, source="payments", target="charged")
    run("topic_to_topic", asked, tmp_path, kills=KILLS_MANY)
    found = committed(brokers, "charged")
    assert set(Counter(row["source"] for _, row in found).values()) == {1}
    assert all(row["fee"] == max(1, row["amount"] // 100) for _, row in found)
    assert totals([(account, row["amount"]) for account, row in found]) == totals(paid)


@full_form
def test_declarative(brokers: LocalCluster, tmp_path: Path) -> None:
    """The same as a project of Spark Declarative Pipelines, run by `spark-pipelines`."""
    for needed in ("grpc_status", "yaml"):
        pytest.importorskip(needed, reason="spark-pipelines: pip install 'pyspark[pipelines]'")
    create(brokers, "payments-declared", "charged-declared")
    paid = amounts(12_000)
    send(brokers, "payments-declared", ((account, str(amount)) for account, amount in paid))
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "declarative", project)
    specification = project / "spark-pipeline.yml"
    text = specification.read_text()
    for before, after in (
        ("127.0.0.1:9092", brokers.bootstrap_servers),
        ("file:///tmp/charged", f"file://{tmp_path}/storage"),
        ('"10000"', f'"{len(paid) // 8}"'),
        ("source: payments", "source: payments-declared"),
        ("target: charged", "target: charged-declared"),
    ):
        assert before in text
        text = text.replace(before, after)
    specification.write_text(text)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run"]
    run_command(command, tmp_path / "storage", tmp_path / "log", kills=KILLS, directory=project)
    found = committed(brokers, "charged-declared")
    assert set(Counter(row["source"] for _, row in found).values()) == {1}
    assert all(row["fee"] == max(1, row["amount"] // 100) for _, row in found)
    assert totals([(account, row["amount"]) for account, row in found]) == totals(paid)


@full_form
def test_windowed_counts(brokers: LocalCluster, tmp_path: Path) -> None:
    """Payments two seconds apart, each up to three minutes late, which the windows wait for; then some that come too late."""
    create(brokers, "timed", "by-minute")
    paid = [
        (account, amount, BASE_MS + 2_000 * at - at * 7919 % 181 * 1_000)
        for at, (account, amount) in enumerate(amounts(6_000))
    ]
    send(brokers, "timed", ((account, {"at": at, "amount": amount}) for account, amount, at in paid))
    asked = words(brokers, len(paid), source="timed", target="by-minute")
    run("windowed_counts", asked, tmp_path, kills=KILLS)
    late = [("account-1", {"at": BASE_MS, "amount": 1_000_000})] * 30
    send(brokers, "timed", [*late, ("account-1", {"at": BASE_MS + 10 * HOUR_MS, "amount": 1})])
    run("windowed_counts", asked, tmp_path, kills=0)

    expected: dict[tuple[str, int], tuple[int, int]] = {}
    for account, amount, at in paid:
        window = account, at // MINUTE_MS * MINUTE_MS
        total, count = expected.get(window, (0, 0))
        expected[window] = total + amount, count + 1
    found = committed(brokers, "by-minute")
    assert len(found) == len(expected), "a window came twice, or never"
    assert {(account, row["begin"]): (row["sum"], row["count"]) for account, row in found} == expected


@full_form
def test_stream_join(brokers: LocalCluster, tmp_path: Path) -> None:
    """Of four orders three are paid in time; every eighth is paid too late, every other eighth never."""
    create(brokers, "orders", "paid", "settled")
    orders = [(f"order-{at}", BASE_MS + 3_000 * at, at % 997) for at in range(2_400)]
    payments = [
        (order, at + (2 * HOUR_MS if number % 8 == 7 else number * 7919 % 3_000 * 1_000), amount + 1)
        for number, (order, at, amount) in enumerate(orders)
        if number % 8 != 3
    ]
    payments.sort(key=lambda payment: payment[1])
    send(brokers, "orders", ((order, {"at": at, "amount": amount}) for order, at, amount in orders))
    send(brokers, "paid", ((order, {"at": at, "paid": paid}) for order, at, paid in payments))
    asked = words(brokers, len(orders), orders="orders", payments="paid", target="settled")
    run("stream_join", asked, tmp_path, kills=KILLS)
    # Time goes on, so that nobody waits for the rest.
    for topic in ("orders", "paid"):
        send(brokers, topic, [("last", {"at": BASE_MS + 20 * HOUR_MS, "amount": 0, "paid": 0})])
    run("stream_join", asked, tmp_path, kills=0)
    found = [(order, row["amount"], row.get("paid")) for order, row in committed(brokers, "settled") if order != "last"]
    expected = [
        (order, amount, None if number % 4 == 3 else amount + 1) for number, (order, _, amount) in enumerate(orders)
    ]
    assert sorted(found) == sorted(expected)


@full_form
def test_dedup(brokers: LocalCluster, tmp_path: Path) -> None:
    """Each id once, twice or three times, the last time twenty minutes later."""
    create(brokers, "sent", "once")
    sent = [
        (BASE_MS + 2_000 * at + again, f"id-{at}")
        for at in range(2_000)
        for again in (0, 5 * MINUTE_MS, 20 * MINUTE_MS)[: 1 + at % 3]
    ]
    send(brokers, "sent", ((name, {"id": name, "at": at}) for at, name in sorted(sent)))
    run("dedup", words(brokers, len(sent), source="sent", target="once"), tmp_path, kills=KILLS)
    found = committed(brokers, "once")
    assert sorted(key for key, _ in found) == sorted({name for _, name in sent})
    assert all(key == row["id"] for key, row in found)


@full_form
def test_sessions(brokers: LocalCluster, tmp_path: Path) -> None:
    """Sessions of one to five clicks a minute apart, half an hour of silence between them."""
    create(brokers, "clicks", "sessions")
    expected, clicks = [], []
    for user in range(40):
        begin = BASE_MS + user * 17_000
        for number in range(12):
            count = 1 + (user + number) % 5
            end = begin + (count - 1) * MINUTE_MS
            expected.append((f"user-{user}", begin, end, count))
            clicks += [(begin + at * MINUTE_MS, f"user-{user}") for at in range(count)]
            begin = end + 30 * MINUTE_MS
    send(brokers, "clicks", ((user, {"at": at}) for at, user in sorted(clicks)))
    asked = words(brokers, len(clicks), source="clicks", target="sessions")
    run("sessions", asked, tmp_path, kills=KILLS)
    send(brokers, "clicks", [("last", {"at": BASE_MS + 100 * HOUR_MS})])
    run("sessions", asked, tmp_path, kills=0)
    found = [(user, row["first"], row["last"], row["clicks"]) for user, row in committed(brokers, "sessions")]
    assert sorted(found) == sorted(expected)


@full_form
def test_scoring(brokers: LocalCluster, tmp_path: Path) -> None:
    create(brokers, "trips-done", "trips", "estimated")
    trips = [(f"trip-{at}", at * 7919 % 400 / 10, at % 7) for at in range(3_000)]

    def minutes(km: float, stops: int) -> float:
        return 4 + 1.5 * km + 2.25 * stops

    done = ((key, {"km": km, "stops": stops, "minutes": minutes(km, stops)}) for key, km, stops in trips[:500])
    send(brokers, "trips-done", done)
    send(brokers, "trips", ((key, {"km": km, "stops": stops}) for key, km, stops in trips))
    asked = words(brokers, len(trips), training="trips-done", source="trips", target="estimated")
    run("scoring", asked, tmp_path, kills=KILLS)
    found = sorted(
        (key, row["km"], row["stops"], round(row["minutes"], 6)) for key, row in committed(brokers, "estimated")
    )
    assert found == sorted((key, km, stops, round(minutes(km, stops), 6)) for key, km, stops in trips)


@full_form
def test_topic_to_parquet(brokers: LocalCluster, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    create(brokers, "events")
    count = 8_000
    send(brokers, "events", ((str(at), str(at)) for at in range(count)))
    directory = tmp_path / "events"
    asked = ["--brokers", brokers.bootstrap_servers, "--source", "events", "--directory", str(directory)]
    run("topic_to_parquet", [*asked, "--per-trigger", str(count // 16), "--merge", "4"], tmp_path, kills=KILLS)
    parts = [path for path in directory.iterdir() if not path.name.startswith("_")]
    files = [file for path in parts for file in path.glob("*.parquet")]
    found = [value for file in files for value in parquet.read_table(file)["value"].to_pylist()]
    assert Counter(found) == Counter(str(at).encode() for at in range(count))
    assert len(files) == len(parts) <= 4 + 4, "small files were not put together"


@full_form
def test_table_join(brokers: LocalCluster, tmp_path: Path) -> None:
    create(brokers, "bought", "enriched")
    create(brokers, "accounts", cleanup_policy="compact")
    owners = [(f"account-{at}", f"owner-{at}-{version}") for version in range(3) for at in range(50)]
    gone: list[tuple[str, str | None]] = [(f"account-{at}", None) for at in range(0, 50, 10)]
    send_by_key(brokers, "accounts", [*owners, *gone])
    paid = amounts(6_000)
    send(brokers, "bought", ((account, str(amount)) for account, amount in paid))
    asked = words(brokers, len(paid), source="bought", table="accounts", target="enriched")
    run("table_join", asked, tmp_path, kills=KILLS)
    found = committed(brokers, "enriched")
    assert set(Counter(row["source"] for _, row in found).values()) == {1}
    assert totals([(account, row["amount"]) for account, row in found]) == totals(paid)
    for account, row in found:
        number = int(account.partition("-")[2])
        assert row.get("owner") == (None if number % 10 == 0 else f"owner-{number}-2")
