"""Who is alive."""

from __future__ import annotations

from barnabas_quorum.controller.sessions import BrokerSessions
from barnabas_wire.kafka.ids import BrokerId, Offset

ONE, TWO = BrokerId(1), BrokerId(2)


def sessions() -> BrokerSessions:
    return BrokerSessions(session_timeout_ms=9000, disconnect_grace_ms=1000)


def test_a_new_controller_gives_every_unfenced_broker_a_fresh_session() -> None:
    made = sessions()
    made.begin([(ONE, 5)], now_ms=100)
    assert made.deadline_ms(ONE) == 9100
    assert made.deadline_ms(TWO) is None
    assert made.is_absent(ONE) and not made.is_absent(TWO)


def test_a_silent_open_connection_lasts_for_the_session_time_out() -> None:
    made = sessions()
    made.connect(ONE, 5, now_ms=0)
    made.touch(ONE, 5, metadata_offset=Offset(7), now_ms=2000)
    assert made.deadline_ms(ONE) == 11_000
    assert made.is_live(ONE, now_ms=10_999) and not made.is_live(ONE, now_ms=11_000)


def test_a_broken_connection_lasts_only_for_the_grace() -> None:
    made = sessions()
    made.connect(ONE, 5, now_ms=0)
    assert made.disconnect(ONE, 5, now_ms=500)
    assert made.deadline_ms(ONE) == 1500
    assert not made.is_live(ONE, now_ms=500)


def test_coming_back_within_the_grace_ends_it() -> None:
    made = sessions()
    made.connect(ONE, 5, now_ms=0)
    made.disconnect(ONE, 5, now_ms=500)
    made.connect(ONE, 5, now_ms=900)
    assert made.deadline_ms(ONE) == 9900


def test_the_old_streams_end_after_the_new_one_began_is_no_loss() -> None:
    made = sessions()
    made.connect(ONE, 5, now_ms=0)
    made.connect(ONE, 5, now_ms=100)
    assert not made.disconnect(ONE, 5, now_ms=200)
    assert made.is_live(ONE, now_ms=200)


def test_an_older_process_neither_ends_nor_keeps_the_session_of_a_newer_one() -> None:
    made = sessions()
    made.connect(ONE, 5, now_ms=0)
    made.connect(ONE, 8, now_ms=1000)
    assert not made.disconnect(ONE, 5, now_ms=1100)
    assert made.deadline_ms(ONE) == 10_000


def test_the_time_for_which_the_controller_stood_still_is_given_back_but_never_more() -> None:
    made = sessions()
    made.begin([(ONE, 5), (TWO, 6)], now_ms=0)
    made.connect(ONE, 5, now_ms=0)
    made.disconnect(ONE, 5, now_ms=500)
    made.touch(TWO, 6, metadata_offset=Offset(7), now_ms=6000)
    made.give_back(5000, now_ms=7000)
    assert made.deadline_ms(ONE) == 6500
    assert made.deadline_ms(TWO) == 7000 + 9000, "not ahead of now"
    assert made.is_live(TWO, now_ms=7000) is False, "it has no connection"


def test_the_lowest_offset_counts_brokers_that_reported_none() -> None:
    made = sessions()
    made.touch(ONE, 5, metadata_offset=Offset(7), now_ms=0)
    assert made.lowest_offset([ONE], default=Offset(99)) == 7
    assert made.lowest_offset([ONE, TWO], default=Offset(99)) == -1
    assert made.lowest_offset([], default=Offset(99)) == 99
