"""When a follower counts as heard from."""

from __future__ import annotations

from barnabas_replication.leader.follower_contacts import FollowerContacts
from barnabas_wire.kafka.ids import BrokerId

ME, OTHER, THIRD = map(BrokerId, (1, 2, 3))


def test_a_parked_fetch_vouches_until_it_is_answered() -> None:
    heard = FollowerContacts(ME)
    heard.note(OTHER, 1_500)
    assert heard.until_ms(OTHER) == 1_500
    assert heard.until_ms(THIRD) < 0, "a time long ago"
    assert heard.is_any_heard_since(1_499)
    assert not heard.is_any_heard_since(1_500)


def test_this_broker_itself_is_never_silent() -> None:
    heard = FollowerContacts(ME)
    heard.note(OTHER, 1_000)
    assert not heard.is_any_silent((ME, OTHER), now_ms=1_100, silence_ms=100)
    assert heard.is_any_silent((ME, OTHER), now_ms=1_101, silence_ms=100)
    assert heard.is_any_silent((ME, OTHER, THIRD), now_ms=1_000, silence_ms=100)


def test_time_in_which_this_process_stood_still_is_given_back() -> None:
    heard = FollowerContacts(ME)
    heard.note(OTHER, 1_000)
    heard.give_back(500)
    assert heard.until_ms(OTHER) == 1_500
    assert heard.until_ms(THIRD) < 0
