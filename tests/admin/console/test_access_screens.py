"""Transactions, ACLs, users and quotas on the console's screens, over a real cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from barnabas_admin.local_cluster import LocalCluster
from tests.admin.console.conftest import Console

PASSWORD = "only-its-salted-form-leaves"


@pytest.mark.parametrize("path", ["/transactions", "/access", "/access?tab=users", "/access?tab=quotas"])
def test_every_screen_has_a_twin(console: Console, path: str) -> None:
    page = console.client.get(path)
    assert page.status_code == 200 and "style=" not in page.text
    address, _, query = path.partition("?")
    assert console.client.get(f"{address}.json?{query}").json()["api_version"] == "v1"


def test_an_open_transaction_is_seen_and_aborted_only_by_its_typed_id(console: Console, cluster: LocalCluster) -> None:
    console.post("/topics/new", name="orders", partitions="1", replicas="3")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "billing/1"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"1")
    producer.flush(20)
    (row,) = console.client.get("/transactions.json?state=Ongoing").json()["transactions"]
    assert row["transactional_id"] == "billing/1"
    found = console.client.get("/transaction.json", params={"id": "billing/1"}).json()
    assert found["is_open"] and found["partitions"] == [{"topic": "orders", "partition": 0}]
    assert found["open_for_ms"] >= 0

    refused = console.post("/transactions/abort", id="billing/1", typed="billing")
    assert refused.status_code == 400 and "type billing/1" in refused.text
    assert console.client.get("/transaction.json", params={"id": "billing/1"}).json()["is_open"]
    assert console.post("/transactions/abort", id="billing/1", typed="billing/1").status_code == 303
    assert not console.client.get("/transaction.json", params={"id": "billing/1"}).json()["is_open"]
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(20)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert console.client.get("/transaction.json", params={"id": "never"}).status_code == 404


def test_a_user_gets_a_password_that_no_page_shows(console: Console) -> None:
    differing = console.post("/access/users/set", name="ada", mechanism="SCRAM-SHA-512", password=PASSWORD, again="x")
    assert differing.status_code == 400 and PASSWORD not in differing.text and "differ" in differing.text
    made = console.post("/access/users/set", name="ada", mechanism="SCRAM-SHA-512", password=PASSWORD, again=PASSWORD)
    assert made.status_code == 303
    twin = console.client.get("/access.json?tab=users")
    assert {"user": "ada", "mechanism": "SCRAM-SHA-512", "iterations": 8192} in twin.json()["users"]
    assert PASSWORD not in twin.text
    kept = console.post("/access/users/delete", name="ada", mechanism="SCRAM-SHA-512", typed="adam")
    assert kept.status_code == 400
    assert console.post("/access/users/delete", name="ada", mechanism="SCRAM-SHA-512", typed="ada").status_code == 303
    assert console.client.get("/access.json?tab=users").json()["users"] == []


def test_an_acl_is_made_shown_and_deleted(console: Console) -> None:
    asked = {"principal": "User:ada", "permission": "allow", "operation": "read", "resource": "topic", "name": "or"}
    assert console.post("/access/acls/new", **(asked | {"principal": "ada"})).status_code == 400
    assert console.post("/access/acls/new", **asked, prefixed="yes").status_code == 303
    (row,) = console.client.get("/access.json?tab=acls").json()["acls"]
    assert (row["principal"], row["pattern"], row["host"]) == ("User:ada", "prefixed", "*")
    only = asked | {"pattern": "prefixed", "host": "*"}
    assert console.post("/access/acls/delete", **(only | {"operation": "write"})).status_code == 400
    assert console.post("/access/acls/delete", **only).status_code == 303
    assert console.client.get("/access.json?tab=acls").json()["acls"] == []


def test_a_quota_is_set_and_removed(console: Console) -> None:
    asked = {"user": "ada", "key": "producer_byte_rate"}
    assert console.post("/access/quotas/set", **asked, bound="many").status_code == 400
    assert console.post("/access/quotas/set", key="producer_byte_rate", bound="1").status_code == 400
    assert console.post("/access/quotas/set", **asked, bound="1000").status_code == 303
    (row,) = console.client.get("/access.json?tab=quotas").json()["quotas"]
    assert row == {"entity": {"user": "ada"}, "quotas": {"producer_byte_rate": 1000.0}}
    assert console.post("/access/quotas/set", **asked, bound="").status_code == 303
    assert console.client.get("/access.json?tab=quotas").json()["quotas"] == []
