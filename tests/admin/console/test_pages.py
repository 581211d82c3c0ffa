"""Each page over a real cluster: what it shows, its JSON twin, its forms, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas_admin.local_cluster import LocalCluster
from tests.admin.console.conftest import Console

TOPIC = "seen"
PAGES = (
    "/",
    "/quorum",
    "/brokers",
    "/brokers/1",
    "/topics",
    "/topics/seen",
    "/groups",
    "/events",
    "/explain",
    "/tv",
    "/sim",
)


@pytest.fixture(scope="module", autouse=True)
def topic(console: Console) -> None:
    made = console.post("/topics/new", name=TOPIC, partitions="3", replicas="3", configs="retention.ms=86400000")
    assert made.status_code == 303, made.text
    assert made.headers["location"] == "/topics/seen"
    assert eventually(lambda: console.client.get("/topics/seen").status_code == 200)


def eventually(is_so: Callable[[], bool], *, within_s: float = 60) -> bool:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_twin_and_runs_no_foreign_script(console: Console, path: str) -> None:
    page = console.client.get(path)
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "<script>" not in page.text and "style=" not in page.text and "onclick" not in page.text
    twin = console.client.get("/overview.json" if path == "/" else f"{path}.json")
    assert twin.status_code == 200
    assert twin.json()["api_version"] == "v1"


@pytest.mark.parametrize("path", ["/topics/new", "/topics/seen/produce", "/access/users/set", "/topics/none"])
def test_what_has_no_twin_names_none(console: Console, path: str) -> None:
    assert ".json" not in console.client.get(path).text
    assert 'href="/topics/seen.json"' in console.client.get("/topics/seen").text


def test_numbers_and_sentences_are_written_for_people(console: Console) -> None:
    console.post("/access/quotas/set", user="eve", key="producer_byte_rate", bound="5000000")
    page = console.client.get("/access?tab=quotas").text
    assert "5\u202f000\u202f000" in page and "e+06" not in page
    console.post("/access/quotas/set", user="eve", key="producer_byte_rate", bound="")
    assert '<p class="sentence">Controller ' in console.client.get("/explain").text
    assert '<p class="sentence">seen-0 ' in console.client.get("/topics/seen?tab=explain").text


@pytest.mark.parametrize("tab", ["partitions", "messages", "consumers", "config", "metrics", "explain"])
def test_every_tab_of_a_topic(console: Console, tab: str) -> None:
    assert console.client.get("/topics/seen", params={"tab": tab}).status_code == 200
    assert console.client.get("/topics/seen.json", params={"tab": tab}).json()["tab"] == tab


def test_the_controller_is_the_quorums(console: Console, cluster: LocalCluster) -> None:
    quorum = console.client.get("/quorum.json").json()
    overview = console.client.get("/overview.json").json()
    assert quorum["leader_id"] == overview["health"]["controller_id"] in (1, 2, 3)
    assert {each["id"] for each in quorum["voters"]} == {1, 2, 3}


def test_a_produced_record_is_found_by_offset_time_and_filter_and_tailed(console: Console) -> None:
    tail = console.client.get("/topics/seen/tail.json").json()
    assert tail["records"] == []
    for number in range(5):
        sent = console.post(
            "/topics/seen/produce", key=f"k{number}", value=f'{{"n": {number}}}', headers="by=test", partition="1"
        )
        assert sent.status_code == 303, sent.text
    tail = console.client.get("/topics/seen/tail.json", params={"cursor": tail["cursor"]}).json()
    assert [each["key"]["text"] for each in tail["records"]] == ["k0", "k1", "k2", "k3", "k4"]

    def read(**asked: str) -> list[str]:
        found = console.client.get("/topics/seen.json", params={"tab": "messages", **asked}).json()["found"]
        return [each["key"]["text"] for each in found["records"]]

    assert read(start="newest", limit="2", partition="1") == ["k4", "k3"]
    assert read(start="oldest") == ["k0", "k1", "k2", "k3", "k4"]
    assert read(start="3", partition="1") == ["k3", "k4"]
    assert read(start="oldest", q='"n": 2') == ["k2"]
    assert read(start=f"@{tail['records'][0]['timestamp_ms']}") == ["k0", "k1", "k2", "k3", "k4"]
    assert read(start=f"@{int(time.time() * 1000) + 3_600_000}") == []
    record = tail["records"][0]
    assert record["value"] == {"kind": "json", "text": '{"n": 0}', "cut": False}
    assert record["headers"] == [{"name": "by", "value": {"kind": "text", "text": "test", "cut": False}}]


def test_reading_goes_on_where_a_page_ended(console: Console) -> None:
    for number in range(7):
        console.post("/topics/seen/produce", value=f"page {number}", partition="2")
    seen: list[int] = []
    asked = {"start": "oldest"}
    for _ in range(4):
        found = console.client.get(
            "/topics/seen.json", params={"tab": "messages", "partition": "2", "limit": "3", **asked}
        )
        part = found.json()["found"]
        seen += [each["offset"] for each in part["records"]]
        if part["is_done"]:
            break
        asked = {"cursor": part["cursor"]}
    assert seen == list(range(7))


def test_newest_is_the_newest_of_all_partitions_and_goes_back_to_the_first(
    console: Console, cluster: LocalCluster
) -> None:
    console.post("/topics/new", name="long", partitions="6", replicas="1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    first_ms = int(time.time() * 1000) - 100_000
    for number in range(3000):  # the later ones in the last partitions
        value = b"needle" if number == 7 else b"x%d" % number
        producer.produce("long", value, partition=number // 500, timestamp=first_ms + number)
    assert producer.flush(30) == 0

    def read(**asked: str) -> dict[str, Any]:
        found = console.client.get("/topics/long.json", params={"tab": "messages", "start": "newest", **asked})
        return dict(found.json()["found"])

    newest = read(limit="2")
    assert [each["value"]["text"] for each in newest["records"]] == ["x2999", "x2998"] and newest["left"] == 2998
    found = read(limit="50", q="needle")
    assert [each["offset"] for each in found["records"]] == [7] and found["left"] == 0
    seen: list[int] = []
    asked: dict[str, str] = {}
    for _ in range(7):
        part = read(limit="500", **asked)
        seen += [each["timestamp_ms"] - first_ms for each in part["records"]]
        asked = {"cursor": part["cursor"]}
    assert seen == list(reversed(range(3000))) and part["is_done"]


def test_oldest_and_a_time_are_merged_over_the_partitions(console: Console, cluster: LocalCluster) -> None:
    console.post("/topics/new", name="merged", partitions="3", replicas="1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    first_ms = int(time.time() * 1000) - 100_000
    for number in range(300):  # partition 0 alone would fill a page
        producer.produce("merged", b"%d" % number, partition=number % 3, timestamp=first_ms + number)
    assert producer.flush(30) == 0

    def read(**asked: str) -> dict[str, Any]:
        found = console.client.get("/topics/merged.json", params={"tab": "messages", "limit": "100", **asked})
        return dict(found.json()["found"])

    def values(found: dict[str, Any]) -> list[int]:
        return [int(each["value"]["text"]) for each in found["records"]]

    seen: list[int] = []
    asked = {"start": "oldest"}
    for _ in range(3):
        part = read(**asked)
        seen += values(part)
        asked = {"cursor": part["cursor"]}
    assert seen == list(range(300)) and part["is_done"]
    moment = datetime.fromtimestamp((first_ms + 150) / 1000, UTC).replace(tzinfo=None).isoformat()
    assert values(read(start=f"@{moment}", limit="2")) == [150, 151], "a moment without a zone is UTC's"
    assert values(read(start="@-1h", limit="2")) == [0, 1]
    assert values(read(start="-1")) == [297, 298, 299]
    assert values(read(start="newest", until=f"@{first_ms + 150}", limit="2")) == [149, 148]
    assert values(read(start="oldest", until=f"@{first_ms + 2}")) == [0, 1]
    part = read(start="oldest", limit="2")
    assert part["total"] == 300 and part["left"] == 298 and part["reached_ms"] is not None


def test_records_are_filtered_as_the_command_line_does_and_shown_by_field(
    console: Console, cluster: LocalCluster
) -> None:
    console.post("/topics/new", name="filtered", partitions="2", replicas="1")
    for number in range(4):
        value = f'{{"user": "u{number}", "to": {{"code": "JFK"}}, "n": {number}}}'
        sent = console.post("/topics/filtered/produce", key=f"k{number}", value=value, headers=f"by=t{number}")
        assert sent.status_code == 303, sent.text
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("filtered", b"\x00\x00\x00\x00\x07alice", "a\u202egnp.exe", partition=0)
    assert producer.flush(30) == 0

    def keys(**asked: str) -> set[str]:
        found = console.client.get("/topics/filtered.json", params={"tab": "messages", "start": "newest", **asked})
        return {each["key"]["text"] for each in found.json()["found"]["records"]}

    assert keys(field="user=u2") == {"k2"}
    assert keys(field="to.code=J* n=3") == {"k3"}
    assert keys(key="k[01]") == {"k0", "k1"} and keys(header="by=t1") == {"k1"}
    assert console.client.get("/topics/filtered?tab=messages&start=newest&field=user").status_code == 400
    page = {"tab": "messages", "start": "newest"}
    lines = console.client.get("/topics/filtered", params=page).text
    assert "schema 7" in lines and "\u202e" not in lines and "a\\u202egnp.exe" in lines
    assert "00 00 00 00 07 61 6c 69" in console.client.get("/topics/filtered", params=page | {"bytes": "hex"}).text
    table = console.client.get("/topics/filtered.json", params=page | {"view": "table"}).json()["table"]
    assert table["names"] == ["user", "to", "n"]
    assert ["u3", '{"code": "JFK"}', "3"] in [each["fields"] for each in table["rows"]]


def test_usual_settings_have_fields_and_the_list_shows_bytes_policy_and_rate(
    console: Console, cluster: LocalCluster
) -> None:
    form = {
        "cleanup.policy": "compact",
        "retention.ms": "2h",
        "min.insync.replicas": "1",
        "configs": "segment.ms=60000",
    }
    assert console.post("/topics/new", name="usual", partitions="2", replicas="3", **form).status_code == 303
    assert "Keep for" in console.client.get("/topics/new").text
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("usual", b"x" * 1000, b"key")
    assert producer.flush(30) == 0

    def row(name: str) -> dict[str, Any]:
        return next(each for each in console.client.get("/topics.json").json()["topics"] if each["name"] == name)

    found = row("usual")
    assert found["overrides"] == {
        "cleanup.policy": "compact",
        "retention.ms": "7200000",
        "min.insync.replicas": "1",
        "segment.ms": "60000",
    }
    assert found["policy"] == "compact" and row(TOPIC)["policy"] == "delete"
    assert found["size_bytes"] > 1000
    assert eventually(lambda: row("usual")["rate"] is not None, within_s=120), "the second look gives a rate"


def test_configs_that_somebody_set_come_first_and_are_searched(console: Console) -> None:
    broker = console.client.get("/brokers/1.json").json()["configs"]
    is_default = [each["source"] == "default" for each in broker]
    assert not is_default[0] and is_default == sorted(is_default)
    found = console.client.get("/brokers/1.json?q=RETENTION").json()["configs"]
    assert {"log.retention.ms", "log.retention.bytes"} <= {each["key"] for each in found} and len(found) < len(broker)
    page = console.client.get("/brokers/1").text
    assert "log.retention.bytes" not in page and f"Show all {len(broker)}" in page
    assert "log.retention.bytes" in console.client.get("/brokers/1?all=yes").text
    found = console.client.get("/topics/seen.json?tab=config&q=retention.ms").json()["configs"]
    assert found[0]["key"] == "retention.ms", "it was set"


def test_what_was_written_together_is_one_event_with_the_topics_name(console: Console) -> None:
    events = console.client.get("/events.json").json()["events"]
    made = next(each for each in events if each["sentence"].startswith("Topic seen was created with 3 partitions"))
    assert made["more"] == "/topics/seen" and made["count"] >= 5
    assert made["records"][0]["kind"] == "TopicRecord"
    assert made["sentence"] in console.client.get("/events").text


def test_nothing_is_fetched_before_it_is_asked_for(console: Console) -> None:
    assert console.client.get("/topics/seen.json?tab=messages").json()["found"] is None


def test_a_config_is_set_and_taken_back(console: Console) -> None:
    def value() -> dict[str, str]:
        entries = console.client.get("/topics/seen.json?tab=config").json()["configs"]
        return next(each for each in entries if each["key"] == "max.message.bytes")

    assert console.post("/topics/seen/config", key="max.message.bytes", value="2000").status_code == 303
    assert eventually(lambda: value()["value"] == "2000" and value()["source"] == "topic")
    refused = console.post("/topics/seen/config", key="max.message.bytes", value="many")
    assert refused.status_code == 400
    assert "many" in refused.text
    assert console.post("/topics/seen/config", key="max.message.bytes", remove="yes").status_code == 303
    assert eventually(lambda: value()["source"] != "topic")


def test_offsets_are_previewed_then_set_and_never_under_a_members_feet(console: Console, cluster: LocalCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "moved", "enable.auto.commit": False}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    console.post("/topics/seen/produce", value="x", partition="0")
    consumer.subscribe([TOPIC])
    assert consumer.poll(20) is not None
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    form = {"offset:seen:0": "0"}
    refused = console.post("/groups/moved/offsets", **form, step="commit")
    assert refused.status_code == 400
    assert "stop them, then set the offsets" in refused.text, (
        "by the console itself: the group's coordinator would refuse too"
    )
    consumer.close()
    assert eventually(lambda: console.client.get("/groups/moved.json").json()["state"] == "Empty")
    preview = console.post("/groups/moved/offsets", **form, step="preview")
    assert "-1" in preview.text
    assert "Commit these offsets" in preview.text

    def committed() -> int:
        rows = console.client.get("/groups/moved.json").json()["partitions"]
        return next(each["committed"] for each in rows if each["partition"] == 0)

    assert committed() == 1, "a preview changes nothing"
    assert console.post("/groups/moved/offsets", **form, step="commit").status_code == 303
    assert committed() == 0
    listed = console.client.get("/groups.json").json()["groups"]
    assert next(each for each in listed if each["group"] == "moved")["topics"] == [TOPIC]


def test_a_dead_broker_is_seen_and_explained_until_it_is_back(console: Console, cluster: LocalCluster) -> None:
    cluster.kill(2)
    try:
        assert eventually(lambda: not console.client.get("/overview.json").json()["health"]["healthy"])

        def is_under_replicated() -> bool:
            rows = console.client.get("/topics.json").json()["topics"]
            return any(each["under_replicated"] for each in rows if each["name"] == TOPIC)

        assert eventually(is_under_replicated)
        assert "why?" in console.client.get("/topics/seen").text
        explained = console.client.get("/topics/seen.json?tab=explain&partition=0").json()["explanation"]
        assert "2" in explained["summary"]
        assert console.client.get("/brokers/2.json").json()["broker"]["state"] == "fenced"
    finally:
        cluster.start_node(2)
    assert eventually(lambda: console.client.get("/overview.json").json()["health"]["healthy"])


def test_a_topic_is_deleted_only_by_its_typed_name(console: Console) -> None:
    console.post("/topics/new", name="gone", partitions="1")
    assert eventually(lambda: console.client.get("/topics/gone").status_code == 200)
    kept = console.post("/topics/gone/delete", typed="gon")
    assert kept.status_code == 400
    assert console.client.get("/topics/gone").status_code == 200
    assert console.post("/topics/gone/delete", typed="gone").status_code == 303
    assert eventually(lambda: console.client.get("/topics/gone").status_code == 404)


def test_a_form_of_another_site_is_refused(console: Console) -> None:
    console.client.get("/")
    for fields in ({}, {"token": "guessed"}):
        refused = console.client.post("/topics/new", data={"name": "forged", **fields})
        assert refused.status_code == 403
    without = httpx.post(f"{console.address}/topics/new", data={"name": "forged", "token": ""})
    assert without.status_code == 403
    assert console.client.get("/topics/forged").status_code == 404


def test_another_host_name_is_refused(console: Console) -> None:
    assert console.client.get("/", headers={"host": "attacker.example"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/topics/none", 404, "none"),
        ("/topics/seen?tab=nothing", 400, "partitions, messages"),
        ("/topics?sort=luck", 400, "sort by"),
        ("/topics/seen?tab=messages&start=soon", 400, "newest, oldest"),
        ("/topics/seen?tab=messages&cursor=x", 400, "cursor"),
        ("/brokers/9", 404, "9"),
        ("/groups/nobody", 404, "nobody"),
        ("/explain?subject=weather", 400, "leader, broker or partition"),
        ("/nothing", 404, "no such page"),
    ],
)
def test_what_cannot_be_shown_says_why(console: Console, path: str, status: int, words: str) -> None:
    page = console.client.get(path)
    assert page.status_code == status
    assert words in page.text


def test_a_name_of_a_topic_is_never_markup(console: Console) -> None:
    page = console.client.get("/topics", params={"q": "<script>alert(1)</script>"})
    assert page.status_code == 200
    assert "<script>alert" not in page.text


def test_a_name_that_turns_the_direction_of_text_is_shown_as_it_is_written(
    console: Console, cluster: LocalCluster
) -> None:
    name = "paid\u202egnp.exe"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    consumer.close()
    for path in ("/groups", f"/groups/{quote(name)}"):
        page = console.client.get(path).text
        assert "paid\\u202egnp.exe" in page, path
        assert "\u202e" not in re.sub(r"<[^>]*>", "", page), path


def test_a_read_only_console_has_no_form(cluster: LocalCluster) -> None:
    console = Console(cluster, "--read-only")
    try:
        assert console.client.get("/topics/seen").status_code == 200
        assert "Produce" not in console.client.get("/topics/seen").text
        assert console.post("/topics/seen/produce", value="x").status_code in (404, 405)
        assert console.post("/topics/new", name="more").status_code in (404, 405)
        assert console.client.get("/topics/more").status_code == 404
    finally:
        console.close()


def test_every_profile_has_a_console_that_links_to_the_others(cluster: LocalCluster, tmp_path: Path) -> None:
    known = {name: {"admin": cluster.admin_addresses} for name in ("prod", "test")}
    (tmp_path / "barnabas").mkdir()
    profiles = {"api_version": "v1", "current": None, "profiles": known}
    (tmp_path / "barnabas" / "profiles.json").write_text(json.dumps(profiles))
    command = [sys.executable, "-m", "barnabas_admin.main", "console", "--profiles", "--no-history", "--port", "0"]
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    process = subprocess.Popen([*command, "-o", "json"], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        told = [json.loads(process.stdout.readline()) for _ in known]
        assert [each["profile"] for each in told] == ["prod", "test"]
        for each in told:
            page = httpx.get(each["address"], timeout=60).text
            assert all(f'<a href="{other["address"]}/"' in page for other in told)
            assert f'<a href="{each["address"]}/" aria-current="true">{each["profile"]}</a>' in page
    finally:
        process.terminate()
        assert process.wait(60) is not None
        process.stdout.close()


def test_a_console_beyond_loopback_wants_a_word(cluster: LocalCluster) -> None:
    from click.testing import CliRunner

    from barnabas_admin.commands.console import console

    refused = CliRunner().invoke(console, ["--host", "0.0.0.0", "--admin", cluster.admin_addresses])
    assert refused.exit_code == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = CliRunner().invoke(console, ["--port", port, "--admin", cluster.admin_addresses])
    assert refused.exit_code != 0


def test_charts_show_what_the_console_saw(console: Console) -> None:
    """Looks are ten seconds apart: the first gives the ends, the second a rate."""

    def points() -> list[list[float | None]]:
        charts = console.client.get("/topics/seen.json", params={"tab": "metrics"}).json()["charts"]
        return list(charts[0]["points"])

    assert eventually(lambda: len(points()) >= 1, within_s=120)
    console.post("/topics/seen/produce", value="counted", partition="0")
    assert eventually(lambda: any(value for _, value in points()), within_s=120)
    page = console.client.get("/topics/seen", params={"tab": "metrics"}).text
    assert "<polyline" in page and 'data-points="[[' in page
    days = console.client.get("/topics/seen.json", params={"tab": "metrics"}).json()["days"]
    assert days[0]["records"] >= 1
    assert console.client.get("/?span=6h").status_code == 200
    assert console.client.get("/?span=week").status_code == 400
    assert eventually(lambda: any(each["points"] for each in console.client.get("/brokers.json").json()["charts"]))
    assert [each["unit"] for each in console.client.get("/brokers/1.json").json()["charts"]] == ["ms", "MiB"]
    overview = console.client.get("/tv.json").json()
    assert overview["charts"][0]["unit"] == "records/s"
