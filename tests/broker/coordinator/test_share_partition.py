"""One share partition on its leader, rule by rule (KIP-932, 1191, 1206, 1222). Names say the rule."""

from __future__ import annotations

from barnabas_coordination.share.description import describe
from barnabas_coordination.share.window import NOT_EXAMINED
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Offset
from tests.broker.coordinator.share_partitions import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    Driven,
    state_batch,
)

REFUSED = ErrorCode.INVALID_RECORD_STATE
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE

# ---- acquiring ---------------------------------------------------------------------------------------------------------


def test_a_fetch_acquires_whole_batches_and_may_pass_max_records_by_less_than_one() -> None:
    one = Driven()
    assert one.fetch(most=12) == [(0, 19, 1)]
    assert one.text == "0: 0-19 ACQUIRED 1 a"
    assert one.fetch("b", most=1) == [(20, 29, 1)]


def test_by_record_limit_a_fetch_acquires_no_more_than_it_asked_for() -> None:
    one = Driven()
    assert one.fetch(most=12, strict=True) == [(0, 11, 1)]
    assert one.fetch("b", most=3, strict=True) == [(12, 14, 1)]
    assert one.core.fetch_offset() == 15


def test_ranges_end_where_a_batch_begins_once_they_have_the_asked_size() -> None:
    one = Driven([(0, 3), (4, 7), (8, 11), (12, 15)])
    assert one.fetch(size=5) == [(0, 7, 1), (8, 15, 1)]
    one = Driven([(0, 3), (4, 7), (8, 11)])
    assert one.fetch(size=1) == [(0, 3, 1), (4, 7, 1), (8, 11, 1)]


def test_nobody_else_gets_what_is_acquired() -> None:
    one = Driven([(0, 9)])
    one.fetch("a")
    assert one.fetch("b") == []


def test_the_window_ends_at_its_bound_by_record_limit_and_less_than_a_batch_behind_it_else() -> None:
    batches = [(first, first + 9) for first in range(0, 200, 10)]
    one = Driven(batches, partition_max_record_locks=105)
    assert one.fetch() == [(0, 109, 1)]
    assert one.fetch("b") is None
    one = Driven(batches, partition_max_record_locks=105)
    assert one.fetch(strict=True) == [(0, 104, 1)]
    assert one.fetch("b") is None


def test_a_full_window_still_delivers_again_what_is_in_it() -> None:
    one = Driven([(first, first + 9) for first in range(0, 200, 10)], partition_max_record_locks=100)
    one.fetch()
    one.ack(50, 54, RELEASE)
    assert one.fetch("b") == [(50, 54, 2)]
    assert one.fetch("b") is None


def test_one_stuck_record_at_the_start_stops_new_ones_after_the_whole_window() -> None:
    one = Driven([(first, first + 9) for first in range(0, 200, 10)], partition_max_record_locks=100)
    one.fetch()
    assert one.ack(1, 99) == 0
    assert one.core.window.start == 0
    assert one.fetch("b") is None
    assert describe(one.core).is_full
    one.ack(0, 0)
    assert (one.core.window.start, one.fetch("b")) == (100, [(100, 199, 1)])


def test_offsets_that_the_log_does_not_hold_are_archived_and_take_no_place() -> None:
    one = Driven([(0, 4), (10, 14)])
    assert one.fetch(most=10, strict=True) == [(0, 4, 1), (10, 14, 1)]
    assert one.text == "0: 0-4 ACQUIRED 1 a, 5-9 ARCHIVED 0, 10-14 ACQUIRED 1 a"
    assert one.ack(0, 14) == 0, "an acknowledgement may go over them"
    assert one.text == "15:"


def test_an_empty_window_begins_at_the_first_offset_that_the_log_has() -> None:
    one = Driven([(7, 9)])
    assert one.fetch() == [(7, 9, 1)]
    assert one.core.window.start == 7


def test_a_hole_that_does_not_fit_waits_until_the_window_is_empty() -> None:
    one = Driven([(0, 9), (5000, 5009)], partition_max_record_locks=100)
    assert one.fetch() == [(0, 9, 1)]
    assert one.fetch("b") == []
    one.ack(0, 9)
    assert (one.fetch("b"), one.core.window.start) == ([(5000, 5009, 1)], 5000)


def test_released_records_that_compaction_took_are_archived() -> None:
    one = Driven([(0, 9), (10, 19)])
    one.fetch()
    one.ack(0, 19, RELEASE)
    one.batches = [(10, 19)]
    assert one.fetch() == [(10, 19, 2)]
    assert one.text == "0: 0-9 ARCHIVED 1, 10-19 ACQUIRED 2 a"
    assert one.write() == "start 0 complete 10: 0-9 ARCHIVED 1"
    assert one.core.window.start == 10


def test_records_of_aborted_transactions_are_archived_and_not_delivered() -> None:
    one = Driven()
    one.aborted = {10}
    assert one.fetch() == [(0, 9, 1), (20, 29, 1)]
    assert one.write() == "start 0 complete 10: 10-19 ARCHIVED 0"
    one = Driven([(0, 9)])
    one.aborted = {0}
    assert one.fetch() == []
    one.write()
    assert one.core.window.start == 10


# ---- acknowledging -----------------------------------------------------------------------------------------------------


def test_what_is_accepted_counts_once_it_is_written() -> None:
    one = Driven()
    one.fetch(most=10)
    one.ack(0, 9, keep=False)
    assert one.text == "0: 0-9 ACQUIRED→ACKNOWLEDGED 1 a"
    assert one.write() == "start 0 complete 10: 0-9 ACKNOWLEDGED 1"
    assert one.text == "10:"


def test_the_start_offset_stops_at_what_is_not_complete() -> None:
    one = Driven()
    one.fetch()
    one.ack(0, 3)
    one.ack(6, 9)
    assert one.text == "4: 4-5 ACQUIRED 1 a, 6-9 ACKNOWLEDGED 1, 10-29 ACQUIRED 1 a"
    one.ack(4, 5)
    assert one.core.window.start == 10


def test_a_write_that_fails_gives_the_records_back_to_their_member() -> None:
    one = Driven([(0, 9)])
    one.fetch()
    one.ack(0, 9, keep=False)
    one.write(UNAVAILABLE)
    assert one.text == "0: 0-9 ACQUIRED 1 a"
    assert one.ack(0, 9) == 0


def test_a_write_that_fails_after_the_lock_ended_makes_the_records_available() -> None:
    """KAFKA-19476: the delivery limit holds then, too."""
    one = Driven([(0, 9)])
    one.fetch()
    one.ack(0, 9, keep=False)
    one.now_ms += LOCK_MS
    one.core.tick(one.now_ms)
    assert one.text == "0: 0-9 ACQUIRED→ACKNOWLEDGED 1 a", "a lock does not end while its record is in transition"
    one.write(UNAVAILABLE)
    assert one.text == "0: 0-9 AVAILABLE 1"
    one = Driven([(0, 9)], delivery_count_limit=2, known=[state_batch(0, 9, AVAILABLE, 1)])
    one.fetch()
    one.ack(0, 9, RELEASE, keep=False)
    one.now_ms += LOCK_MS
    one.write(UNAVAILABLE)
    assert one.text == "0: 0-9 ARCHIVED 2"


def test_who_does_not_have_a_record_cannot_acknowledge_it() -> None:
    one = Driven([(0, 9)])
    assert one.ack(0, 9) == REFUSED, "nothing was ever delivered"
    one.fetch("a")
    assert one.ack(0, 9, member="b") == REFUSED
    assert one.ack(0, 10) == ErrorCode.INVALID_REQUEST, "past what was delivered"
    assert one.ack(0, 4, keep=False) == 0
    assert one.ack(0, 4) == REFUSED, "in transition"
    assert one.acks([(5, 6, GAP), (6, 7, GAP)]) == REFUSED, "twice in one request"
    assert one.text == "0: 0-4 ACQUIRED→ACKNOWLEDGED 1 a, 5-9 ACQUIRED 1 a"


def test_a_request_that_fails_changes_nothing_its_renewals_included() -> None:
    one = Driven([(0, 9)])
    one.fetch()
    one.wait(20_000)
    assert one.acks([(0, 4, RENEW), (5, 5, RELEASE), (6, 12, GAP)]) == ErrorCode.INVALID_REQUEST
    one.wait(10_000)
    assert one.text == "0: 0-9 AVAILABLE 1"


def test_what_lies_below_the_start_offset_is_taken_and_ignored() -> None:
    one = Driven()
    one.fetch()
    one.ack(0, 9)
    assert one.ack(0, 5, member="b") == 0
    assert one.ack(5, 12) == 0
    assert one.core.window.start == 13


def test_a_released_record_is_delivered_again_until_the_limit() -> None:
    one = Driven([(0, 0)], delivery_count_limit=3)
    for count in (1, 2, 3):
        assert one.fetch() == [(0, 0, count)]
        one.ack(0, 0, RELEASE)
    assert one.text == "1:"


def test_a_gap_or_a_rejected_record_is_archived() -> None:
    one = Driven([(0, 9)])
    one.fetch()
    one.acks([(0, 0, GAP), (1, 1, REJECT), (2, 2, RELEASE)], keep=False)
    assert one.write() == "start 0 complete 2: 0-1 ARCHIVED 1, 2-2 AVAILABLE 1"
    assert one.text == "2: 2-2 AVAILABLE 1, 3-9 ACQUIRED 1 a"


def test_requests_that_come_while_a_write_is_under_way_go_out_together() -> None:
    one = Driven()
    one.fetch()
    one.ack(0, 0, keep=False)
    first = one.core.take_write(one.now_ms)
    assert first is not None and len(first.changes) == 1
    for offset in (1, 2, 5):
        one.ack(offset, offset, keep=False)
    assert one.core.take_write(one.now_ms) is None
    one.core.written(None, now_ms=one.now_ms)
    assert one.write() == "start 1 complete 3: 1-2 ACKNOWLEDGED 1, 5-5 ACKNOWLEDGED 1"


# ---- locks -------------------------------------------------------------------------------------------------------------


def test_a_lock_ends_and_its_records_go_to_another() -> None:
    one = Driven([(0, 9)])
    one.fetch("a")
    assert one.core.alarm_ms == one.now_ms + LOCK_MS
    one.wait(LOCK_MS - 1)
    assert one.fetch("b") == []
    one.wait(1)
    assert one.fetch("b") == [(0, 9, 2)]
    assert one.ack(0, 9, member="a") == REFUSED
    assert one.write() == "start 0 complete 0: 0-9 AVAILABLE 1", "what was let go of, though it is acquired again"
    assert one.ack(0, 9, member="b") == 0


def test_a_lock_that_ends_at_the_limit_archives_its_records() -> None:
    one = Driven([(0, 9)], delivery_count_limit=2, known=[state_batch(0, 9, AVAILABLE, 1)])
    one.fetch()
    one.wait(LOCK_MS)
    assert one.text == "0: 0-9 ARCHIVED 2"
    one.write()
    assert one.text == "10:"


def test_a_renewed_lock_lasts_as_long_as_a_new_one() -> None:
    one = Driven([(0, 9)])
    one.fetch()
    one.wait(20_000)
    assert one.ack(0, 4, RENEW) == 0
    assert one.write() == "nothing"
    one.wait(10_000)
    assert one.text == "0: 0-4 ACQUIRED 1 a, 5-9 AVAILABLE 1"
    one.wait(20_000)
    assert one.text == "0: 0-9 AVAILABLE 1"
    one.set(may_renew=False)
    one.fetch()
    assert one.ack(0, 4, RENEW) == REFUSED


def test_a_member_that_leaves_lets_go_of_its_records_at_once_and_keeps_what_it_acknowledged() -> None:
    one = Driven()
    one.fetch("a", most=10)
    one.fetch("b", most=10)
    one.ack(0, 4, keep=False)
    one.core.release("a", now_ms=one.now_ms)
    assert one.text == "0: 0-4 ACQUIRED→ACKNOWLEDGED 1, 5-9 AVAILABLE 1, 10-19 ACQUIRED 1 b"
    assert one.write() == "start 0 complete 5: 0-4 ACKNOWLEDGED 1, 5-9 AVAILABLE 1"


def test_a_write_that_fails_gives_a_member_that_has_left_nothing_back() -> None:
    one = Driven()
    one.fetch("a", most=10)
    one.ack(0, 4, keep=False)
    one.core.release("a", now_ms=one.now_ms)
    one.write(UNAVAILABLE)
    assert one.text == "0: 0-9 AVAILABLE 1"


def test_what_waits_for_its_time_passes_no_bound() -> None:
    one = Driven([(0, 29)], partition_max_record_locks=10, delayed_records_max=5, deliver_at_header="at")
    soon, late = one.now_ms + 1_000, one.now_ms + 10**9
    due = [(Offset(each), soon if each < 3 else late) for each in (0, 1, 2, 3, 4, 15, 16, 17)]
    one.core.delay(Offset(0), Offset(29), due, now_ms=one.now_ms)
    one.fetch("a", strict=True, most=10)
    assert (one.core.window.start, one.core.window.end) == (0, 14)
    one.wait(1_000)
    one.fetch("a")
    one.fetch("a")
    assert one.core.window.end == 14, "three that wait no more have made room for none"


def test_what_was_let_go_of_is_written_again_until_it_is_kept() -> None:
    one = Driven([(0, 9)])
    one.fetch()
    one.core.release("a", now_ms=one.now_ms)
    one.write(UNAVAILABLE)
    assert one.write() == "nothing"
    assert one.core.alarm_ms == one.now_ms + 1_000
    one.wait(1_000)
    assert one.write() == "start 0 complete 0: 0-9 AVAILABLE 1"
    assert one.write() == "nothing"


# ---- poison records ----------------------------------------------------------------------------------------------------


def test_records_on_their_last_attempts_are_delivered_in_halving_parts_and_the_last_attempt_alone() -> None:
    one = Driven([(0, 7)], known=[state_batch(0, 7, AVAILABLE, 3)])
    assert one.fetch("a") == [(0, 3, 4)]
    assert one.fetch("b") == [(4, 7, 4)]
    one.ack(0, 3, RELEASE)
    one.ack(4, 7, RELEASE, "b")
    assert [one.fetch() for _ in range(3)] == [[(0, 0, 5)], [(1, 1, 5)], [(2, 2, 5)]]


def test_throttled_records_do_not_travel_with_others() -> None:
    one = Driven(known=[state_batch(0, 1, AVAILABLE, 1), state_batch(2, 9, AVAILABLE, 3)])
    assert one.fetch() == [(0, 1, 2)]
    assert one.fetch() == [(2, 5, 4)]
    one = Driven([(0, 9)], delivery_count_limit=2, known=[state_batch(0, 9, AVAILABLE, 1)])
    assert one.fetch() == [(0, 9, 2)], "a limit of 2 throttles nothing"


# ---- loading, and the log's start --------------------------------------------------------------------------------------


def test_gaps_between_states_that_were_read_are_delivered_like_new_records() -> None:
    one = Driven(start=3, known=[state_batch(5, 7, ACKNOWLEDGED), state_batch(12, 14, AVAILABLE, 2)])
    assert one.text == "3: 3-4 AVAILABLE 0, 5-7 ACKNOWLEDGED 1, 8-11 AVAILABLE 0, 12-14 AVAILABLE 2"
    assert one.fetch() == [(3, 4, 1), (8, 11, 1), (12, 14, 3), (15, 29, 1)]
    assert one.ack(8, 11, member="b") == REFUSED


def test_offsets_never_delivered_cannot_be_acknowledged_after_a_leader_moved() -> None:
    one = Driven(start=0, known=[state_batch(5, 9, ACKNOWLEDGED)])
    assert one.ack(0, 4) == REFUSED


def test_the_start_offset_goes_over_what_is_complete_at_load() -> None:
    assert Driven(known=[state_batch(0, 4, ACKNOWLEDGED), state_batch(5, 9, ARCHIVED)]).text == "10:"


def test_the_logs_start_takes_what_is_below_with_it() -> None:
    one = Driven()
    one.fetch("a")
    one.ack(0, 3, keep=False)
    one.core.log_starts_at(Offset(15))
    one.batches = [(10, 19), (20, 29)]
    assert one.text == "15: 15-29 ACQUIRED 1 a"
    assert one.write() == "start 15 complete 0: "
    assert one.ack(4, 14) == 0
    one.core.log_starts_at(Offset(40))
    assert one.text == "40:"
    one.batches = [(40, 49)]
    assert one.fetch() == [(40, 49, 1)]


# ---- dead letters ------------------------------------------------------------------------------------------------------


def test_a_rejected_record_is_archiving_until_its_dead_letter_is_written() -> None:
    one = Driven([(0, 9)], dead_letter_topic="dlq.x")
    one.fetch()
    one.ack(0, 1, REJECT, keep=False)
    assert one.letters() == [], "nothing is written before the state is"
    assert one.write() == "start 0 complete 0: 0-1 ARCHIVING 1"
    assert one.core.window.start == 0
    assert one.letters() == [(0, 1, True), (1, 1, True)]
    assert one.write() == "start 0 complete 2: 0-1 ARCHIVED 1"
    assert one.core.window.start == 2


def test_an_exhausted_record_becomes_a_dead_letter_once_its_state_is_written() -> None:
    one = Driven([(0, 0)], dead_letter_topic="dlq.x", delivery_count_limit=2, known=[state_batch(0, 0, AVAILABLE, 1)])
    one.fetch()
    one.wait(LOCK_MS)
    assert one.text == "0: 0-0 ARCHIVING 2"
    one.write(UNAVAILABLE)
    assert one.letters() == []
    one.wait(1_000)
    one.write()
    assert one.letters() == [(0, 2, False)]


def test_a_dead_letter_that_cannot_be_written_holds_its_record_and_is_tried_again() -> None:
    one = Driven([(0, 0)], dead_letter_topic="dlq.x")
    one.fetch()
    one.ack(0, 0, REJECT)
    for wait_ms in (1_000, 2_000, 4_000):
        assert one.letters(fails=True) == [(0, 1, True)]
        assert one.letters() == []
        assert one.core.alarm_ms == one.now_ms + wait_ms or one.core.alarm_ms is not None
        assert (describe(one.core).archiving, describe(one.core).held_letters) == (1, 1)
        one.wait(wait_ms)
    assert one.letters() == [(0, 1, True)]
    one.write()
    assert one.text == "1:"


def test_a_group_that_archives_on_failure_gives_the_dead_letter_up() -> None:
    one = Driven([(0, 0)], dead_letter_topic="dlq.x", holds_on_dead_letter_failure=False)
    one.fetch()
    one.ack(0, 0, REJECT)
    one.letters(fails=True)
    assert one.text == "0: 0-0 ARCHIVED 1"


def test_dead_letters_go_on_after_a_load_and_are_archived_where_the_group_has_none_any_more() -> None:
    known = [state_batch(0, 1, ARCHIVING, 5), state_batch(2, 2, ARCHIVING, 1)]
    one = Driven(dead_letter_topic="dlq.x", known=known)
    assert one.letters() == [(0, 5, False), (1, 5, False), (2, 1, True)]
    one = Driven(known=known)
    assert one.letters() == []
    assert one.text == "0: 0-1 ARCHIVED 5, 2-2 ARCHIVED 1"


def test_a_dead_letter_outlives_its_record() -> None:
    one = Driven([(0, 9)], dead_letter_topic="dlq.x")
    one.fetch()
    one.ack(0, 0, REJECT, keep=False)
    one.core.log_starts_at(Offset(5))
    one.write()
    assert one.letters() == [(0, 1, True)]


# ---- delay -------------------------------------------------------------------------------------------------------------


def test_a_released_record_waits_longer_each_time_and_blocks_nobody() -> None:
    one = Driven([(0, 0), (1, 1)], retry_backoff_ms=1_000, retry_backoff_factor=3.0, retry_backoff_max_ms=5_000)
    for wait_ms in (1_000, 3_000, 5_000):
        one.fetch(most=1)
        one.ack(0, 0, RELEASE, keep=False)
        assert f"due {wait_ms}" in one.write()
        assert describe(one.core).delayed == 1
        one.wait(wait_ms - 1)
        assert one.core.fetch_offset() == 1
        one.wait(1)
        assert one.core.fetch_offset() == 0


def test_a_due_time_that_was_read_holds() -> None:
    one = Driven([(0, 9)], known=[state_batch(0, 4, AVAILABLE, 1, due_ms=1_005_000)])
    assert one.fetch() == [(5, 9, 1)]
    one.wait(5_000)
    assert one.fetch() == [(0, 4, 2)]


def test_records_that_are_not_due_wait_without_blocking_those_behind_them() -> None:
    one = Driven([(0, 9), (10, 19)], deliver_at_header="at")
    assert one.fetch() == []
    assert one.core.examine_from() == 0
    one.core.delay(Offset(0), Offset(9), [(Offset(3), one.now_ms + 500)], now_ms=one.now_ms)
    assert one.core.examine_from() is None
    assert one.fetch() == [(0, 2, 1), (4, 9, 1)]
    assert one.core.examine_from() == 10
    assert one.core.alarm_ms == one.now_ms + 500
    one.wait(500)
    assert one.fetch() == [(3, 3, 1)]


def test_delayed_records_do_not_count_as_locked_and_are_bounded_by_themselves() -> None:
    one = Driven([(0, 299)], deliver_at_header="at", partition_max_record_locks=100, delayed_records_max=3)
    due = [(Offset(offset), one.now_ms + 1_000) for offset in (0, 1, 2, 150)]
    one.core.delay(Offset(0), Offset(299), due, now_ms=one.now_ms)
    assert one.fetch(most=50, strict=True) == [(3, 52, 1)]
    one.ack(3, 52)
    assert describe(one.core).in_flight == 50, "of 53 offsets three wait"
    assert one.fetch(most=500, strict=True) == [(53, 102, 1)]
    one.wait(1_000)
    assert one.fetch(most=500, strict=True) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    one.ack(0, 2)
    one.ack(53, 102)
    assert one.fetch(most=500, strict=True) == [(103, 202, 1)], "150 was due meanwhile"


def test_at_the_bound_of_delayed_records_nothing_new_is_delivered_and_it_says_so() -> None:
    one = Driven([(0, 9)], deliver_at_header="at", delayed_records_max=2)
    due = [(Offset(offset), one.now_ms + 1_000) for offset in (0, 2, 5)]
    one.core.delay(Offset(0), Offset(9), due, now_ms=one.now_ms)
    assert one.fetch() == [(1, 1, 1), (3, 4, 1)]
    assert one.fetch() is None
    assert describe(one.core).is_bound_by_delayed
    one.wait(1_000)
    assert one.fetch() == [(0, 0, 1), (2, 2, 1), (5, 9, 1)]


def test_after_a_load_gaps_are_opened_again() -> None:
    one = Driven(known=[state_batch(5, 9, ACKNOWLEDGED)], deliver_at_header="at")
    assert one.core.window.runs[0].due_ms == NOT_EXAMINED
    assert (one.core.examine_from(), one.core.fetch_offset()) == (0, 10)
    one.core.delay(Offset(0), Offset(9), [(Offset(1), one.now_ms + 5)], now_ms=one.now_ms)
    assert one.fetch() == [(0, 0, 1), (2, 4, 1)]
    one.set(deliver_at_header="")
    assert one.fetch() == [(10, 29, 1)]


def test_a_description_says_what_is_in_flight_and_since_when() -> None:
    one = Driven(known=[state_batch(0, 4, AVAILABLE, 1)])
    one.fetch(most=10)
    one.wait(1_000)
    one.fetch("b", most=10)
    told = describe(one.core)
    assert (told.start_offset, told.end_offset, told.in_flight, told.acquired) == (0, 19, 20, 20)
    assert told.oldest_lock_ms == one.now_ms - 1_000
    assert told.deliveries == ((1, 15), (2, 5))
