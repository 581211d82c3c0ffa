"""Who is taken for silent by a lane that may itself not have run."""

from __future__ import annotations

from barnabas_broker.metadata.silence import LATE_MS, UNANSWERED_MAX, Silence


def silence() -> Silence:
    of_controller = Silence(patience_ms=1500)
    of_controller.begin(now_ms=0)
    return of_controller


def test_a_controller_that_answers_nothing_is_silent_after_the_patience() -> None:
    of_controller = silence()
    assert of_controller.left_ms(now_ms=1400) == 100
    of_controller.note_heard(now_ms=1400)
    assert of_controller.left_ms(now_ms=2900) == 0


def test_time_in_which_this_lane_did_not_run_says_nothing_of_the_controller() -> None:
    of_controller = silence()
    of_controller.note_woke(due_ms=1000, now_ms=1000 + LATE_MS - 1)
    assert of_controller.left_ms(now_ms=1500) == 0, "as late as any lane may wake"
    of_controller.note_woke(due_ms=1500, now_ms=1500 + LATE_MS)
    assert of_controller.left_ms(now_ms=1500 + LATE_MS) == 1500


def test_a_lane_that_is_always_late_counts_heartbeats() -> None:
    of_controller = silence()
    for number in range(UNANSWERED_MAX):
        assert of_controller.left_ms(now_ms=700 * number) > 0
        of_controller.note_sent(now_ms=700 * number)
        of_controller.note_woke(due_ms=700 * number + 500, now_ms=700 * (number + 1))
    assert of_controller.left_ms(now_ms=700 * UNANSWERED_MAX) == 0
    assert of_controller.note_answered() == 0
    assert of_controller.left_ms(now_ms=700 * UNANSWERED_MAX) > 0
    of_controller.begin(now_ms=0)
    assert of_controller.note_answered() is None, "another stream's"


def test_one_stop_that_two_tasks_saw_counts_once() -> None:
    of_lane = silence()
    assert of_lane.data_lane_ms(tick_ms=100, now_ms=600) == 500
    of_lane.note_woke(due_ms=1000, now_ms=5000)
    of_lane.note_woke(due_ms=1200, now_ms=5000)
    assert of_lane.data_lane_ms(tick_ms=100, now_ms=5000) == 900
    of_lane.note_woke(due_ms=5500, now_ms=6000)
    assert of_lane.data_lane_ms(tick_ms=100, now_ms=6000) == 1400, "a second stop counts too"
    assert of_lane.data_lane_ms(tick_ms=5500, now_ms=6000) == 0
    assert of_lane.data_lane_ms(tick_ms=6000, now_ms=8000) == 2000, "what was before its tick is forgotten"
