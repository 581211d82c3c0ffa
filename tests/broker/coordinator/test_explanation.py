"""Why a group is not stable: each thing that a group can wait for is found, with its times, and nothing else is."""

from __future__ import annotations

from barnabas_coordination.group.consumer.messages import Finding, FindingKind
from tests.broker.coordinator.consumer_driver import INTERVAL_MS, TIMEOUT_MS, Consumer, ConsumerDriver
from tests.broker.coordinator.group_driver import GROUP, TOPIC
from tests.broker.coordinator.test_consumer_group import two_members

SESSION_MS = 45_000


def found(driver: ConsumerDriver) -> list[Finding]:
    described = driver.shard.reads.describe_consumers(GROUP, explains=True, now_ms=driver.now_ms)
    assert driver.shard.reads.describe_consumers(GROUP).findings == ()
    return list(described.findings)


def kinds(driver: ConsumerDriver) -> list[tuple[str, str]]:
    return [(finding.kind.value, finding.member_id) for finding in found(driver)]


def test_a_stable_group_needs_no_explanation() -> None:
    driver = ConsumerDriver()
    two_members(driver)
    assert found(driver) == []


def test_who_has_not_given_up_is_named_with_who_waits_for_it() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    a.beat()
    b.join()
    assert kinds(driver) == [("behind", "a"), ("waiting", "b")]
    a.beat()  # it hears that it has to give up, and is slow to
    driver.advance(4_000)
    driver.beat("a", a.epoch)
    b.beat()
    revoking, waiting = found(driver)
    flights = driver.topic_id(TOPIC)
    assert revoking == Finding(
        FindingKind.REVOKING, "a", {flights: (2, 3)}, ("b",), since_ms=4_000, ends_in_ms=TIMEOUT_MS - 4_000
    )
    assert waiting == Finding(FindingKind.WAITING, "b", {flights: (2, 3)}, ("a",))
    driver.fail_over(loses_uncommitted=False)
    revoking, _ = found(driver)
    assert (revoking.member_id, revoking.since_ms, revoking.ends_in_ms) == ("a", None, None), "a new coordinator"
    a.beat()
    assert kinds(driver) == [("waiting", "b")]
    b.beat()
    assert kinds(driver) == []


def test_only_what_is_missing_is_waited_for_and_each_wait_begins_anew() -> None:
    driver = ConsumerDriver({TOPIC: 6})
    a, b, c = (Consumer(driver, name, TOPIC) for name in "abc")
    a.join()
    b.join()
    driver.settle((a, b))
    driver.advance(INTERVAL_MS)
    c.join()
    for member in (a, b):
        member.beat()  # each hears that it has to give up
    driver.advance(100)
    driver.beat("b", b.epoch)
    a.beat()
    c.beat()
    (revoking, waiting) = found(driver)
    flights = driver.topic_id(TOPIC)
    assert (revoking.kind, revoking.member_id, revoking.others) == (FindingKind.REVOKING, "b", ("c",))
    assert revoking.since_ms == 100, "not since b had joined"
    assert waiting == Finding(FindingKind.WAITING, "c", revoking.partitions, ("b",)), "c has the other half"
    assert sum(map(len, revoking.partitions.values())) == 1 and len(c.numbers()) == 1
    assert flights in revoking.partitions
    b.beat()
    c.beat()
    driver.settle((a, b, c))
    driver.advance(INTERVAL_MS)
    for name in "de":
        Consumer(driver, name, TOPIC).join()
    b.beat()
    (again,) = (finding for finding in found(driver) if finding.kind is FindingKind.REVOKING)
    assert (again.member_id, again.since_ms) == ("b", 0)


def test_an_assignment_that_an_interval_holds_back_says_when_it_comes() -> None:
    driver = ConsumerDriver(group_consumer_assignment_interval_ms=1_000)
    a, b = Consumer(driver, "a", TOPIC), Consumer(driver, "b", TOPIC)
    a.join()
    driver.advance(400)
    b.join()
    assert found(driver) == [Finding(FindingKind.UNASSIGNED, ends_in_ms=600)]
    driver.advance(700)
    assert found(driver) == [Finding(FindingKind.UNASSIGNED, ends_in_ms=0)]
    a.beat()
    assert FindingKind.UNASSIGNED not in [finding.kind for finding in found(driver)]


def test_a_late_member_is_named_until_it_is_put_out() -> None:
    driver = ConsumerDriver()
    a, b = two_members(driver)
    a.beat()
    b.beat()
    driver.advance(7_500)
    assert found(driver) == [], "one and a half intervals"
    a.beat()
    driver.advance(1)
    assert found(driver) == [Finding(FindingKind.SILENT, "b", since_ms=7_501, ends_in_ms=SESSION_MS - 7_501)]
    while "b" in driver.group.members:
        driver.advance(INTERVAL_MS)
        a.beat()
    driver.settle((a,))
    assert found(driver) == []
    assert driver.group.soft.last_heartbeat_ms.keys() == {"a"}


def test_a_static_member_that_is_away_is_named_with_what_it_keeps() -> None:
    driver = ConsumerDriver()
    a, b = Consumer(driver, "a", TOPIC, instance="one"), Consumer(driver, "b", TOPIC)
    a.join()
    b.join()
    driver.settle((a, b))
    a.leave_for_a_while()
    b.beat()
    (away,) = found(driver)
    assert (away.kind, away.member_id, away.others) == (FindingKind.AWAY, "a", ())
    assert away.partitions == {driver.topic_id(TOPIC): (0, 1)}
    assert away.ends_in_ms is not None and 0 < away.ends_in_ms <= SESSION_MS


def test_an_unresolved_regular_expression_and_an_empty_group_are_told() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", regex="fl.*")
    a.join()
    driver.group.regexes.clear()
    assert Finding(FindingKind.UNRESOLVED, others=("a",)) in found(driver)
    a.leave()
    assert found(driver) == [Finding(FindingKind.EMPTY)]
