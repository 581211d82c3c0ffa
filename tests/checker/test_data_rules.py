"""The rules themselves: every hand-made bad history is accused by the rule it breaks, and no clean history by any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from tests.checker.data_history import (
    ASSIGNED,
    CLIENTS_CUT,
    FAIL,
    FINAL,
    INFO,
    OK,
    SUBSCRIBED,
    Assignment,
    Batch,
    Commit,
    Committed,
    DeleteRecords,
    Event,
    Fault,
    History,
    HistoryWriter,
    ListOffsets,
    Phase,
    Poll,
    Replica,
    Send,
    decode,
    encode,
    read_events,
)
from tests.checker.data_rules import RULES, WAITING, errors, judge
from tests.checker.test_share_rules import BAD as BAD_SHARES
from tests.checker.test_transaction_rules import BAD as BAD_TRANSACTIONS

K = "t-0"
CLEAN_HISTORIES = 100
E = TypeVar("E")


def send(number: int, offset: int, *, outcome: str = OK, client: str = "p", **more: Any) -> Send:
    """Record `number` of a producer, sent at its number and answered half a second later."""
    fields: dict[str, Any] = {
        "begun": float(number),
        "ended": number + 0.5,
        "sequence": number,
        "key": K,
        "value": f"{client}{number}",
    }
    return Send(client=client, outcome=outcome, offset=offset, **(fields | more))


def poll(at: float, *records: tuple[int, str], how: str = ASSIGNED, client: str = "r", **more: Any) -> Poll:
    """One call that took a tenth of a second."""
    fields: dict[str, Any] = {"begun": at, "ended": at + 0.1, "records": {K: list(records)} if records else {}}
    return Poll(client=client, how=how, **(fields | more))


def commit(at: float, offset: int, *, client: str = "m", **more: Any) -> Commit:
    """One answered commit."""
    fields: dict[str, Any] = {"begun": at, "ended": at + 0.1, "outcome": OK, "generation": 1}
    return Commit(client=client, group="g", key=K, offset=offset, **(fields | more))


def listed(at: float, start: int, end: int, *, client: str = "o", epoch: int = 3) -> ListOffsets:
    """One answered ListOffsets."""
    return ListOffsets(client=client, key=K, start=start, end=end, begun=at, ended=at + 0.1, leader_epoch=epoch)


def replica(node: int, *, start: int = 0, end: int = 4, **more: Any) -> Replica:
    """A replica's facts."""
    fields: dict[str, Any] = {"high_watermark": 4, "epochs": [(3, 0), (4, 2)]}
    return Replica(node=node, key=K, start=start, end=end, **(fields | more))


def batch(node: int, base: int, last: int, **more: Any) -> Batch:
    """A batch of producer 7, whose sequence is the offset."""
    fields: dict[str, Any] = {
        "digest": f"d{base}",
        "leader_epoch": 3 + base // 2,
        "producer_id": 7,
        "producer_epoch": 0,
    }
    return Batch(node=node, key=K, base=base, last=last, **({"base_sequence": base} | fields | more))


def clean() -> list[Event]:
    """Four records, acknowledged, read by hand, by a group of two generations and in the end, on two replicas."""
    values = [(offset, f"p{offset}") for offset in range(4)]
    return [
        *(send(number, number) for number in range(4)),
        Assignment(client="r", group="", assignment=0, keys=[K], at=0.0),
        poll(1.0, *values[:1]),
        poll(2.0, *values[1:2]),
        poll(5.0, *values[2:]),
        Phase(at=6.0, name="healthy"),
        Assignment(client="m", group="g", assignment=1, keys=[K], at=1.0, generation=1),
        poll(4.0, *values[:2], how=SUBSCRIBED, client="m", group="g", assignment=1),
        commit(4.2, 2),
        Committed(client="o", group="g", key=K, offset=2, begun=4.5, ended=4.6),
        Assignment(client="n", group="g", assignment=1, keys=[K], at=5.0, generation=2),
        poll(5.5, *values[2:], how=SUBSCRIBED, client="n", group="g", assignment=1),
        commit(5.8, 4, client="n", generation=2),
        Committed(client="o", group="g", key=K, offset=4, begun=6.0, ended=6.1),
        listed(1.0, 0, 1),
        listed(6.0, 0, 4),
        poll(10.0, *values, how=FINAL, client="last"),
        *(replica(node) for node in (1, 2)),
        *(batch(node, base, base + 1) for node in (1, 2) for base in (0, 2)),
    ]


def read_for(member: str, since: float, seconds: int) -> list[Event]:
    """Polls of a member of group g, one a second, each with a record."""
    return [
        poll(since + n, (n, f"p{n}"), how=SUBSCRIBED, client=member, group="g", assignment=2) for n in range(seconds)
    ]


def without(kind: type, where: Callable[[Any], bool] = lambda event: True) -> list[Event]:
    """The clean history but for these events."""
    return [event for event in clean() if not (isinstance(event, kind) and where(event))]


def changed(kind: type[E], where: Callable[[E], bool], **fields: Any) -> list[Event]:
    """The clean history with fields of these events changed."""
    found = [event for event in clean() if isinstance(event, kind) and where(event)]
    assert found, "nothing is changed"
    return [replace(e, **fields) if isinstance(e, kind) and where(e) else e for e in clean()]


def reading(how: str, records: list[tuple[int, str]], client: str | None = None) -> list[Event]:
    """The clean history where readers of a way see these records instead, in one call."""
    first = next(event for event in clean() if isinstance(event, Poll) and event.how == how)
    return [*without(Poll, lambda p: p.how == how), replace(first, records={K: records})]


def is_final(event: Poll) -> bool:
    """Of the last reader."""
    return event.how == FINAL


P = [(offset, f"p{offset}") for offset in range(4)]
BAD: dict[str, tuple[str, list[Event]]] = {
    "lost in the middle": ("E1", reading(FINAL, [P[0], P[2], P[3]])),
    "lost at the front": ("E1", reading(FINAL, P[1:])),
    "lost, and another is in its place": ("E1", [*reading(FINAL, [P[0], (1, "q9"), *P[2:]]), send(9, -1, client="q")]),
    "lost, though its offset was not told": ("E1", [*clean(), send(7, -1)]),
    "lost at the tail": ("E10", [*clean(), send(7, 4)]),
    "nothing is served in the end": (
        "E10",
        [e for e in clean() if not isinstance(e, Poll)] + [poll(10.0, how=FINAL, client="last")],
    ),
    "doubled by retries of an idempotent producer": ("E2", reading(FINAL, [*P, (4, "p3")])),
    "doubled after a restart, seen by two readers": ("E2", [*clean(), poll(11.0, (9, "p0"), client="s")]),
    "two values at one offset, read": ("E3", [*clean(), send(8, -1, outcome=INFO), poll(11.0, (1, "p8"), client="s")]),
    "two values at one offset, acknowledged": ("E3", [*clean(), send(1, 1, client="q")]),
    "acknowledged elsewhere than read": ("E3", changed(Send, lambda e: e.sequence == 2, offset=3)),
    "refused, and read": ("E4", changed(Send, lambda e: e.sequence == 3, outcome=FAIL, offset=-1)),
    "nobody sent it": ("E4i", reading(FINAL, [*P, (4, "x1")])),
    "sent to another partition": ("E4i", changed(Send, lambda e: e.sequence == 3, key="t-1")),
    "read before it was sent": ("E4i", changed(Send, lambda e: e.sequence == 0, begun=50.0, ended=51.0)),
    "a reader by hand goes back": ("E6", [*clean(), poll(7.0, P[1])]),
    "a reader by hand is shown an offset twice": ("E6", [*clean(), poll(7.0, P[3])]),
    "a reader of a group goes back within its assignment": (
        "E6",
        [*clean(), poll(6.0, P[1], how=SUBSCRIBED, client="n", group="g", assignment=1)],
    ),
    "the order within one call": ("E6", reading(ASSIGNED, [P[0], P[2], P[1], P[3]])),
    "a reader by hand passes over a record": ("E6s", reading(ASSIGNED, [P[0], P[2], P[3]])),
    "a reader passes over what was only acknowledged": ("E6s", reading(ASSIGNED, [P[0], P[3]])),
    "a group begins behind its commit": (
        "E6g",
        changed(Poll, lambda e: e.client == "n", records={K: P[1:]}),
    ),
    "a group begins past its commit": ("E6g", changed(Poll, lambda e: e.client == "n", records={K: P[3:]})),
    "a group without commit begins in the middle": (
        "E6g",
        changed(Poll, lambda e: e.client == "m", records={K: P[1:2]}),
    ),
    "reordered by acknowledgements": (
        "E7",
        [*clean(), send(4, 5), send(5, 4), poll(10.2, (4, "p5"), (5, "p4"), how=FINAL, client="last")],
    ),
    "reordered, of which one is known by reading only": (
        "E7",
        [*clean(), send(4, -1, outcome=INFO), send(5, 4), poll(10.2, (4, "p5"), (5, "p4"), how=FINAL, client="last")],
    ),
    "a sequence is left out": ("E7s", changed(Batch, lambda e: e.base == 2, base_sequence=3)),
    "a sequence comes twice": ("E7s", changed(Batch, lambda e: e.base == 2, base_sequence=0)),
    "a reader polls on and is not shown a record": (
        "E12",
        [*without(Poll, lambda e: e.how == ASSIGNED), *(poll(1.0 + n) for n in range(14)), poll(20.0, *P)],
    ),
    "a reader is never shown the last record": (
        "E12",
        [*reading(ASSIGNED, P[:3]), *(poll(6.0 + n, begun=6.0 + n, ended=7.0 + n) for n in range(8))],
    ),
    "the end goes back within an epoch": ("E13", [*clean(), listed(7.0, 0, 3)]),
    "the start goes back within an epoch": ("E13", [*without(ListOffsets), listed(6.0, 1, 4), listed(7.0, 0, 4)]),
    "the leader epoch goes back": ("E13", [*clean(), listed(7.0, 0, 4, epoch=2)]),
    "deleted records return with a new leader": (
        "E13d",
        [
            *clean(),
            DeleteRecords(client="o", key=K, before=2, begun=6.5, ended=6.6, outcome=OK, log_start=2),
            listed(7.0, 1, 4, epoch=4),
        ],
    ),
    "the leader epoch falls within a log": ("E13l", changed(Batch, lambda e: e.base == 2, leader_epoch=2)),
    "a producer's epoch falls within a log": ("E13l", changed(Batch, lambda e: e.base == 0, producer_epoch=1)),
    "two members of one generation own a partition": (
        "E14",
        changed(Assignment, lambda e: e.client == "n", generation=1),
    ),
    "two members of a group read a partition side by side": (
        "E14t",
        [*clean(), *(event for member in "mn" for event in read_for(member, 20.0, 18))],
    ),
    "what is committed falls back": (
        "E14c",
        [*clean(), Committed(client="o", group="g", key=K, offset=2, begun=7.0, ended=7.1)],
    ),
    "what is committed is forgotten": (
        "E14c",
        [*clean(), Committed(client="o", group="g", key=K, offset=-1, begun=7.0, ended=7.1)],
    ),
    "a zombie's commit is accepted": ("E14z", [*clean(), commit(7.0, 3)]),
    "replicas hold other bytes": ("E16", changed(Batch, lambda e: e.node == 2 and e.base == 2, digest="other")),
    "replicas hold other batches": ("E16", [*without(Batch, lambda e: e.node == 2), batch(2, 0, 3)]),
    "a replica lacks the tail": (
        "E16",
        without(Batch, lambda e: e.node == 2 and e.base == 2),
    ),
    "a replica ends below the HW": ("E16", changed(Replica, lambda e: e.node == 2, end=2)),
    "all replicas have the same hole": ("E16", without(Batch, lambda e: e.base == 0)),
    "a replica's batch is rotten": ("E16", changed(Batch, lambda e: e.node == 1 and e.base == 0, is_valid=False)),
    "leader epochs of replicas differ": ("E16e", changed(Replica, lambda e: e.node == 2, epochs=[(3, 0), (4, 1)])),
    "a node ended": ("E18", [*clean(), Fault(who="node 1", what="ended with status 1")]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_accused_by_the_rule_it_breaks(name: str) -> None:
    rule, events = BAD[name]
    findings = errors(judge(History(events)))
    assert rule in {finding.rule for finding in findings}, findings


def test_there_is_a_bad_history_for_every_rule_that_fails_a_run() -> None:
    assert len(BAD) >= 25
    assert {rule for rule, _ in [*BAD.values(), *BAD_TRANSACTIONS.values(), *BAD_SHARES.values()]} == {
        rule.name for rule in RULES if rule.is_error
    }


def test_every_rule_of_the_list_is_judged_or_waits_with_a_reason() -> None:
    named = {name.split()[0] for name in WAITING} | {rule.name.rstrip("rislgcezdt") for rule in RULES}
    assert named == {*(f"E{number}" for number in range(1, 19)), *(f"S{number}" for number in range(1, 8))}
    assert all(WAITING.values())


def test_the_clean_history_is_accused_of_nothing() -> None:
    assert judge(History(clean())) == []


def test_a_doubled_record_of_a_producer_that_is_not_idempotent_is_reported_only() -> None:
    doubled = [*changed(Send, lambda e: True, is_idempotent=False), poll(10.2, (4, "p3"), how=FINAL, client="last")]
    findings = judge(History(doubled))
    assert {finding.rule for finding in findings} == {"E2r"}
    assert errors(findings) == []


def test_an_old_commit_that_a_broken_cluster_tells_is_reported_only() -> None:
    old = Committed(client="o", group="g", key=K, offset=2, begun=7.0, ended=7.1)
    findings = judge(History([*clean(), old, Phase(at=6.9, name="fault"), Phase(at=8.0, name="healthy")]))
    assert {finding.rule for finding in findings} == {"E14s"}
    assert errors(findings) == []


def test_a_commit_that_was_given_up_may_come_late() -> None:
    """Over a connection whose bytes the kernel sends again, after a newer one has brought another."""
    late = Committed(client="o", group="g", key=K, offset=3, begun=7.0, ended=7.1)
    given_up = commit(5.0, 3, outcome=INFO, generation=2)
    assert judge(History([*clean(), given_up, late])) == []
    findings = judge(History([*clean(), replace(given_up, offset=4), late]))
    assert {finding.rule for finding in findings} == {"E14c"}, "but nothing older than it"


def test_a_member_that_wakes_as_a_zombie_reads_for_a_moment() -> None:
    """It was stopped while another read for longer than any session lasts."""
    zombie = [*read_for("m", 20.0, 3), *read_for("m", 60.0, 2)]
    successor = read_for("n", 30.0, 60)
    accused = {finding.rule for finding in judge(History([*clean(), *zombie, *successor]))}
    assert "E14t" not in accused
    slow = [*zombie, *read_for("m", 62.0, 20)]
    assert "E14t" in {finding.rule for finding in judge(History([*clean(), *slow, *successor]))}


def test_what_nobody_knows_may_be_in_the_log_or_not() -> None:
    unknown = send(4, -1, outcome=INFO)
    assert judge(History([*clean(), unknown])) == []
    assert judge(History([*clean(), unknown, poll(10.2, (4, "p4"), how=FINAL, client="last")])) == []


def test_records_before_the_logs_start_are_not_missed() -> None:
    deleted = DeleteRecords(client="o", key=K, before=2, begun=6.5, ended=6.6, outcome=OK, log_start=2)
    assert judge(History([*reading(FINAL, P[2:]), deleted])) == []


def test_a_record_that_retention_took_is_not_due() -> None:
    """Of a log that is empty until the next record comes, seconds later, a reader that polls on is shown nothing."""
    late = [*without(Poll, lambda e: e.how in (ASSIGNED, FINAL)), *(poll(6.0 + n) for n in range(14))]
    assert {finding.rule for finding in errors(judge(History([*late, listed(19.0, 4, 4)])))} == {"E12"}
    assert errors(judge(History([*late, listed(8.0, 4, 4)]))) == []


def test_a_record_that_is_shown_while_the_cluster_is_broken_may_be_late() -> None:
    late = [*without(Poll, lambda e: e.how == ASSIGNED), *(poll(1.0 + n) for n in range(14)), poll(20.0, *P)]
    broken = [event for event in late if not isinstance(event, Phase)]
    assert judge(History([*broken, Phase(at=0.0, name="healthy"), Phase(at=4.0, name="fault")])) == []


@pytest.mark.parametrize(("shown", "is_broken"), [(19.5, False), (22.0, True)])
def test_after_a_cut_of_clients_a_record_is_due_once_tcp_has_sent_again(shown: float, is_broken: bool) -> None:
    """A cut from 0.0 to 6.0: what was lost is sent again at 15.0 at the latest."""
    late = [*without(Poll, lambda e: e.how == ASSIGNED), *(poll(1.0 + n) for n in range(18)), poll(shown, *P)]
    late += [poll(shown - 0.2)]
    assert {finding.rule for finding in errors(judge(History(late)))} == {"E12"}
    findings = errors(judge(History([*late, Phase(at=0.0, name="fault", what=CLIENTS_CUT)])))
    assert {finding.rule for finding in findings} == ({"E12"} if is_broken else set())


def test_a_cut_of_clients_excuses_nothing_after_the_next_healthy_span() -> None:
    late = [*without(Poll, lambda e: e.how == ASSIGNED), *(poll(1.0 + n) for n in range(16)), poll(17.0, *P)]
    phases = [
        Phase(at=0.0, name="fault", what=CLIENTS_CUT),
        Phase(at=3.0, name="healthy"),
        Phase(at=4.0, name="fault", what=""),
    ]
    assert {finding.rule for finding in errors(judge(History([*late, *phases])))} == {"E12"}


@pytest.mark.parametrize("event", clean(), ids=lambda event: event.kind)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    assert decode(encode(event)) == event


def test_a_history_is_read_from_several_files(tmp_path: Path) -> None:
    events = clean()
    for name, part in (("a", events[:5]), ("b", events[5:])):
        writer = HistoryWriter(tmp_path / name)
        for event in part:
            writer.write(event)
        writer.close()
    assert list(read_events([tmp_path / "a", tmp_path / "b"])) == events


@pytest.mark.parametrize("line", ["", "[]", '{"kind":"nothing"}', '{"kind":"fault","who":"x"}'])
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        decode(line)


@pytest.mark.parametrize("seed", range(CLEAN_HISTORIES))
def test_a_correct_cluster_is_accused_of_nothing(seed: int) -> None:
    events = CorrectCluster(Random(seed)).run()
    assert errors(judge(History(events))) == []


class CorrectCluster:
    """A model of a correct cluster under writers, readers, groups and deletions, whose answers get lost now and then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 0.0
        self._keys = [f"t-{index}" for index in range(random.randint(1, 3))]
        self._logs: dict[str, list[str]] = {key: [] for key in self._keys}
        self._starts = dict.fromkeys(self._keys, 0)
        self._batches: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._sequences: dict[tuple[str, str], int] = defaultdict(int)
        self._positions: dict[tuple[str, str], int] = {}
        self._committed: dict[str, int] = {}
        self._owner: dict[str, str] = {}
        self._generation = 0
        self._assignments: dict[str, int] = defaultdict(int)
        self._epoch = 0
        self.events: list[Event] = [
            Phase(at=0.0, name="healthy"),
            *(Assignment(client=f"r{n}", group="", assignment=0, keys=self._keys, at=0.0) for n in range(2)),
        ]

    def run(self) -> list[Event]:
        """A few hundred steps, the last reads and the replicas."""
        steps = (self._write, self._write, self._read, self._read_in_group, self._commit, self._rebalance)
        rare = (self._delete, self._list, self._ask_committed, self._elect)
        for _ in range(self._random.randint(50, 300)):
            self._random.choice(steps if self._random.random() < 0.85 else rare)()
        for client in ("r0", "r1"):
            self._read(client, most=1 << 30)
        for key in self._keys:
            start, end = self._starts[key], len(self._logs[key])
            self.events.append(self._listed(key, "last"))
            records = [(offset, self._logs[key][offset]) for offset in range(start, end)]
            begun, ended = self._pass(), self._pass()
            self.events.append(Poll(client="last", how=FINAL, begun=begun, ended=ended, records={key: records}))
            self._leave(key, start, end)
        return self.events

    def _pass(self) -> float:
        self._now += self._random.uniform(0.001, 0.02)
        return self._now

    def _write(self) -> None:
        key = self._random.choice(self._keys)
        client = self._random.choice(("idempotent-1", "idempotent-2", "plain"))
        log = self._logs[key]
        sequence = self._sequences[(client, key)]
        self._sequences[(client, key)] += 1
        value = f"{client}-{sequence}"
        begun = self._pass()
        outcome = self._random.choices((OK, INFO, FAIL), (20, 2, 1))[0]
        is_idempotent = client != "plain"
        if outcome == OK or (outcome == INFO and self._random.random() < 0.5):
            copies = 2 if not is_idempotent and self._random.random() < 0.1 else 1
            for _ in range(copies):
                producer = ("idempotent-1", "idempotent-2").index(client) if is_idempotent else -1
                known = sum(b["producer_id"] == producer for b in self._batches[key])
                self._batches[key].append(
                    {"base": len(log), "last": len(log), "digest": f"{key}{len(log)}", "leader_epoch": self._epoch}
                    | {"producer_id": producer, "producer_epoch": 0 if is_idempotent else -1}
                    | {"base_sequence": known if is_idempotent else -1}
                )
                log.append(value)
        is_told = outcome == OK and self._random.random() < 0.95
        self.events.append(
            Send(
                client=client,
                key=key,
                value=value,
                sequence=sequence,
                begun=begun,
                ended=self._pass(),
                outcome=outcome,
                offset=len(log) - 1 if is_told else -1,
                is_idempotent=is_idempotent,
            )
        )

    def _shown(self, client: str, key: str, most: int) -> list[tuple[int, str]]:
        first = max(self._positions.get((client, key), 0), self._starts[key])
        last = min(len(self._logs[key]), first + most)
        self._positions[(client, key)] = max(first, last)
        return [(offset, self._logs[key][offset]) for offset in range(first, last)]

    def _read(self, client: str = "", most: int = 7) -> None:
        client = client or self._random.choice(("r0", "r1"))
        begun = self._pass()
        records = {key: shown for key in self._keys if (shown := self._shown(client, key, most))}
        self.events.append(Poll(client=client, how=ASSIGNED, begun=begun, ended=self._pass(), records=records))

    def _rebalance(self) -> None:
        self._generation += 1
        members = self._random.sample(["m0", "m1"], self._random.randint(1, 2))
        self._owner = {key: self._random.choice(members) for key in self._keys}
        for member in members:
            self._assignments[member] += 1
            keys = [key for key, owner in self._owner.items() if owner == member]
            for key in keys:
                self._positions[(member, key)] = self._committed.get(key, 0)
            self.events.append(
                Assignment(
                    client=member,
                    group="g",
                    assignment=self._assignments[member],
                    keys=keys,
                    at=self._pass(),
                    generation=self._generation,
                )
            )

    def _read_in_group(self) -> None:
        for key, member in self._owner.items():
            begun = self._pass()
            if shown := self._shown(member, key, 5):
                self.events.append(
                    Poll(
                        client=member,
                        how=SUBSCRIBED,
                        begun=begun,
                        ended=self._pass(),
                        records={key: shown},
                        assignment=self._assignments[member],
                        group="g",
                    )
                )

    def _commit(self) -> None:
        for key, member in self._owner.items():
            offset = self._positions.get((member, key), 0)
            outcome = self._random.choices((OK, INFO, FAIL), (8, 1, 1))[0]
            begun = self._pass()
            if outcome == OK or (outcome == INFO and self._random.random() < 0.5):
                self._committed[key] = offset
            self.events.append(
                Commit(
                    client=member,
                    group="g",
                    key=key,
                    offset=offset,
                    begun=begun,
                    ended=self._pass(),
                    outcome=outcome,
                    generation=self._generation,
                )
            )

    def _ask_committed(self) -> None:
        for key in self._keys:
            begun = self._pass()
            offset = self._committed.get(key, -1)
            self.events.append(
                Committed(client="o", group="g", key=key, offset=offset, begun=begun, ended=self._pass())
            )

    def _delete(self) -> None:
        key = self._random.choice(self._keys)
        before = self._random.randint(self._starts[key], len(self._logs[key]))
        begun = self._pass()
        self._starts[key] = before
        self.events.append(
            DeleteRecords(
                client="o", key=key, before=before, begun=begun, ended=self._pass(), outcome=OK, log_start=before
            )
        )

    def _listed(self, key: str, client: str) -> ListOffsets:
        begun = self._pass()
        start, end = self._starts[key], len(self._logs[key])
        return ListOffsets(
            client=client, key=key, start=start, end=end, begun=begun, ended=self._pass(), leader_epoch=self._epoch
        )

    def _list(self) -> None:
        self.events.append(self._listed(self._random.choice(self._keys), "o"))

    def _elect(self) -> None:
        self._epoch += 1
        self.events.append(Phase(at=self._pass(), name=self._random.choice(("fault", "healthy"))))

    def _leave(self, key: str, start: int, end: int) -> None:
        epochs: dict[int, int] = {}
        for batch in self._batches[key]:
            epochs.setdefault(batch["leader_epoch"], batch["base"])
        for node in (1, 2, 3):
            behind = self._random.randint(0, start)
            self.events.append(
                Replica(node=node, key=key, start=behind, end=end, high_watermark=end, epochs=sorted(epochs.items()))
            )
            self.events += [Batch(node=node, key=key, **b) for b in self._batches[key] if b["last"] >= behind]
