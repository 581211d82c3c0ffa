"""What becomes of a host's nodes: restarts, back-off, the order of a stop, silence, and what the service manager hears."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.host.layout import NodePlan
from barnabas_broker.host.supervision import (
    BACKOFF_FIRST_MS,
    BACKOFF_MAX_MS,
    HAS_PROCESS,
    LOOK_MS,
    STEADY_MS,
    Finish,
    Intention,
    NodeState,
    Signal,
    Start,
    Supervision,
    Tell,
    Wish,
    backoff_ms,
)

NODES = [
    NodePlan(id=1, role="controller", properties={}),
    NodePlan(id=2, role="broker", properties={}),
    NodePlan(id=3, role="broker", properties={}),
]
NAMES = [plan.name for plan in NODES]
WATCHDOG_MS = 5000
STOP_MS = 10_000


def supervision() -> Supervision:
    return Supervision(NODES, watchdog_ms=WATCHDOG_MS, stop_timeout_ms=STOP_MS, now_ms=0)


def serving() -> Supervision:
    """All nodes in service, said so."""
    found = supervision()
    for pid, name in enumerate(NAMES, 100):
        found.started(name, pid, 0)
        found.heard(name, ["READY=1", "STATUS=in service"], 0)
    found.decide(0)
    return found


def told(intentions: list[Intention]) -> list[str]:
    return [line for each in intentions if isinstance(each, Tell) for line in each.lines]


def without_words(intentions: list[Intention]) -> list[Intention]:
    return [each for each in intentions if not isinstance(each, Tell)]


def signals(intentions: list[Intention]) -> list[tuple[str, int]]:
    return [(each.name, each.number) for each in intentions if isinstance(each, Signal)]


def test_every_node_is_started_and_readiness_is_said_once_when_all_serve() -> None:
    host = supervision()
    assert without_words(host.decide(0)) == [Start(name) for name in NAMES]
    for pid, name in enumerate(NAMES, 100):
        host.started(name, pid, 0)
    for name in NAMES[:2]:
        assert host.heard(name, ["READY=1"], 10)
    assert "READY=1" not in told(host.decide(10))
    host.heard(NAMES[2], ["STATUS=starting: no quorum"], 20)
    assert told(host.decide(20)) == ["STATUS=2 of 3 nodes in service; broker-3 starting: no quorum"]
    host.heard(NAMES[2], ["READY=1"], 30)
    assert told(host.decide(30)) == ["READY=1", "STATUS=3 of 3 nodes in service"]
    assert host.decide(40) == []


def test_a_node_that_dies_is_started_again_after_a_back_off_that_doubles() -> None:
    host, now_ms = serving(), 0
    waits = []
    for _ in range(9):
        host.ended("broker-2", -signal.SIGSEGV, now_ms)
        began_ms = now_ms
        while Start("broker-2") not in host.decide(now_ms):
            now_ms += host.wait_ms(now_ms) or 1
        waits.append(now_ms - began_ms)
        host.started("broker-2", 7, now_ms)
    assert waits == [min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << each) for each in range(9)]
    assert host.nodes["broker-2"].reason == "was killed by SIGSEGV"
    host.heard("broker-2", ["READY=1"], now_ms)
    host.ended("broker-2", 1, now_ms + STEADY_MS)
    assert host.nodes["broker-2"].start_ms == now_ms + STEADY_MS + BACKOFF_FIRST_MS


def test_a_node_that_somebody_stopped_in_order_is_started_at_once_but_not_in_circles() -> None:
    host = serving()
    host.ended("broker-2", 0, 10)
    assert without_words(host.decide(10)) == [Start("broker-2")]
    host.started("broker-2", 7, 10)
    host.ended("broker-2", 0, 20)
    assert without_words(host.decide(20)) == []


def test_a_refused_node_is_left_with_its_reason_and_the_host_serves_without_it() -> None:
    host = supervision()
    for pid, name in enumerate(NAMES, 100):
        host.started(name, pid, 0)
        host.heard(name, ["STATUS=log.dirs: no such device"] if name == "broker-3" else ["READY=1"], 0)
    host.ended("broker-3", 2, 5)
    said = told(host.decide(5))
    assert (
        said[0] == "READY=1"
        and "broker-3 refused: exited with status 2; it last said: log.dirs: no such device" in said[1]
    )
    assert without_words(host.decide(10**9)) != [Start("broker-3")]
    assert host.nodes["broker-3"].state is NodeState.REFUSED


def test_a_host_all_of_whose_nodes_are_refused_ends_as_they_did() -> None:
    host = supervision()
    for name in NAMES:
        host.started(name, 1, 0)
        host.ended(name, 2, 1)
    assert host.decide(2)[-1] == Finish(2)


def test_brokers_stop_first_then_the_controller_and_the_late_are_killed() -> None:
    host = serving()
    host.stop(100)
    first = host.decide(100)
    assert signals(first) == [("broker-2", signal.SIGTERM), ("broker-3", signal.SIGTERM)]
    assert told(first)[0] == "STOPPING=1"
    host.ended("broker-2", 0, 200)
    assert signals(host.decide(200)) == []
    assert signals(host.decide(100 + STOP_MS)) == [("broker-3", signal.SIGKILL)]
    assert signals(host.decide(101 + STOP_MS)) == []
    host.ended("broker-3", -9, 102 + STOP_MS)
    assert signals(host.decide(103 + STOP_MS)) == [("controller-1", signal.SIGTERM)]
    host.ended("controller-1", 0, 104 + STOP_MS)
    assert host.decide(105 + STOP_MS)[-1] == Finish(0)


def test_asked_twice_in_a_moment_is_once_and_later_it_does_not_wait() -> None:
    host = serving()
    host.stop(100)
    host.decide(100)
    host.stop(600)
    assert signals(host.decide(600)) == []
    host.stop(1200)
    killed = {name for name, number in signals(host.decide(1200)) if number == signal.SIGKILL}
    assert killed == set(NAMES)


def test_a_silent_node_is_killed_once_and_says_why() -> None:
    host, now_ms = serving(), 0
    while now_ms < WATCHDOG_MS + 500:
        now_ms += LOOK_MS
        for name in ("controller-1", "broker-3"):
            host.heard(name, ["WATCHDOG=1"], now_ms)
        found = signals(host.decide(now_ms))
        if found:
            break
    assert found == [("broker-2", signal.SIGKILL)] and now_ms > WATCHDOG_MS
    assert signals(host.decide(now_ms + LOOK_MS)) == []
    host.ended("broker-2", -9, now_ms + LOOK_MS)
    assert "event loops did not turn for 5 s" in host.nodes["broker-2"].reason


def test_time_for_which_the_host_did_not_run_is_nobodys_silence() -> None:
    host = serving()
    assert signals(host.decide(60 * WATCHDOG_MS)) == []


def test_an_adopted_node_is_watched_from_when_it_was_found() -> None:
    host = supervision()
    host.adopted("broker-2", 44, was_ready=True, now_ms=0)
    host.adopted("broker-3", 45, was_ready=False, now_ms=0)
    assert without_words(host.decide(0)) == [Start("controller-1")]
    host.heard("broker-3", ["WATCHDOG=1"], 10)
    assert host.nodes["broker-3"].state is NodeState.IN_SERVICE, "only a node in service says that it is alive"
    host.ended("broker-2", None, 20)
    assert "it was adopted" in host.nodes["broker-2"].reason


def test_a_node_restarts_or_stops_at_an_operators_wish_and_is_killed_when_late() -> None:
    host = serving()
    host.wants("broker-2", Wish.RESTART, 10)
    assert signals(host.decide(10)) == [("broker-2", signal.SIGTERM)]
    assert signals(host.decide(STOP_MS)) == []
    assert signals(host.decide(10 + STOP_MS)) == [("broker-2", signal.SIGKILL)]
    host.ended("broker-2", -9, 20 + STOP_MS)
    assert without_words(host.decide(20 + STOP_MS)) == [Start("broker-2")], "without a back-off"
    host.wants("broker-3", Wish.STOP, 30)
    assert signals(host.decide(30)) == [("broker-3", signal.SIGTERM)]
    host.ended("broker-3", 0, 40)
    assert host.nodes["broker-3"].state is NodeState.STOPPED
    assert Start("broker-3") not in host.decide(10**9)
    host.wants("broker-3", Wish.RESTART, 10**9)
    assert Start("broker-3") in host.decide(10**9)


def test_a_refused_node_is_started_when_an_operator_has_mended_it() -> None:
    host = serving()
    host.ended("broker-2", 2, 10)
    host.wants("broker-2", Wish.RESTART, 20)
    assert without_words(host.decide(20)) == [Start("broker-2")]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["end", "refuse", "ready", "alive", "stop", "look", "wants restart", "wants stop"]),
        st.sampled_from(NAMES),
        st.integers(1, 30_000),
    ),
    max_size=60,
)


@given(EVENTS)
def test_whatever_happens_no_second_process_is_started_and_a_stop_comes_to_its_end(
    events: list[tuple[str, str, int]],
) -> None:
    host, now_ms = supervision(), 0
    pids: dict[str, int] = {}

    def look() -> list[Intention]:
        found = host.decide(now_ms)
        for each in found:
            if isinstance(each, Start):
                assert each.name not in pids
                pids[each.name] = len(pids) + 100
                host.started(each.name, pids[each.name], now_ms)
            elif isinstance(each, Signal):
                assert each.name in pids
                if each.number == signal.SIGKILL:
                    del pids[each.name]
                    host.ended(each.name, -9, now_ms)
        return found

    for what, name, later_ms in events:
        now_ms += later_ms
        if what == "stop":
            host.stop(now_ms)
        elif what.startswith("wants"):
            host.wants(name, Wish(what.partition(" ")[2]), now_ms)
        elif name in pids and what in ("end", "refuse"):
            del pids[name]
            host.ended(name, 2 if what == "refuse" else 1, now_ms)
        elif name in pids and what in ("ready", "alive"):
            host.heard(name, ["READY=1" if what == "ready" else "WATCHDOG=1"], now_ms)
        if any(isinstance(each, Finish) for each in look()):
            break
    else:
        host.stop(now_ms)
        for _ in range(10):
            now_ms += STOP_MS
            if Finish(0) in look():
                break
        else:
            raise AssertionError("it does not stop")
    assert not [name for name, node in host.nodes.items() if node.state in HAS_PROCESS]


def test_the_back_off_never_falls_and_has_a_bound() -> None:
    waits = [backoff_ms(each) for each in range(100)]
    assert waits == sorted(waits) and waits[-1] == BACKOFF_MAX_MS
