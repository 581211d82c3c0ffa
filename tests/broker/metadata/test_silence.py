"""Who is taken for silent by a lane that may itself not have run."""

from __future__ import annotations

from barnabas_broker.metadata.silence import LATE_MS, UNANSWERED_MAX, Silence


def begun() -> Silence:
    silence = Silence(patience_ms=1500)
    silence.begin(now_ms=0)
    return silence


def test_a_controller_that_answers_nothing_is_silent_after_the_patience() -> None:
    silence = begun()
    assert silence.left_ms(now_ms=1400) == 100
    silence.note_heard(now_ms=1400)
    assert silence.left_ms(now_ms=2900) == 0


def test_time_in_which_this_lane_did_not_run_says_nothing_of_the_controller() -> None:
    silence = begun()
    silence.note_woke(due_ms=1000, now_ms=1000 + LATE_MS - 1)
    assert silence.left_ms(now_ms=1500) == 0, "as late as any lane may wake"
    silence.note_woke(due_ms=1500, now_ms=1500 + LATE_MS)
    assert silence.left_ms(now_ms=1500 + LATE_MS) == 1500


def test_a_lane_that_is_always_late_counts_heartbeats() -> None:
    silence = begun()
    for number in range(UNANSWERED_MAX):
        assert silence.left_ms(now_ms=700 * number) > 0
        silence.note_sent(now_ms=700 * number)
        silence.note_woke(due_ms=700 * number + 500, now_ms=700 * (number + 1))
    assert silence.left_ms(now_ms=700 * UNANSWERED_MAX) == 0
    assert silence.note_answered() == 0
    assert silence.left_ms(now_ms=700 * UNANSWERED_MAX) > 0
    silence.begin(now_ms=0)
    assert silence.note_answered() is None, "another stream's"


def test_one_stop_that_two_tasks_saw_counts_once() -> None:
    silence = begun()
    assert silence.data_lane_ms(tick_ms=100, now_ms=600) == 500
    silence.note_woke(due_ms=1000, now_ms=5000)
    silence.note_woke(due_ms=1200, now_ms=5000)
    assert silence.data_lane_ms(tick_ms=100, now_ms=5000) == 900
    silence.note_woke(due_ms=5500, now_ms=6000)
    assert silence.data_lane_ms(tick_ms=100, now_ms=6000) == 1400, "a second stop counts too"
    assert silence.data_lane_ms(tick_ms=5500, now_ms=6000) == 0
    assert silence.data_lane_ms(tick_ms=6000, now_ms=8000) == 2000, "what was before its tick is forgotten"
