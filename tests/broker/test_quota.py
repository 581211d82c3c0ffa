"""The arithmetic of client quotas: which one counts, how fast somebody was, how long he rests."""

from __future__ import annotations

from random import Random

import pytest

from barnabas_broker.quota import MutationBucket, QuotaConfig, RateWindow, address_quota, quota_of
from barnabas_quorum.image.quotas import QuotasImage
from barnabas_quorum.records_security import QuotaEntityPart

KEY = "producer_byte_rate"


def entity(**parts: str | None) -> tuple[QuotaEntityPart, ...]:
    return tuple(QuotaEntityPart(kind.replace("_", "-"), name) for kind, name in sorted(parts.items()))


PRECEDENCE = (
    entity(user="ann", client_id="app"),
    entity(user="ann", client_id=None),
    entity(user="ann"),
    entity(user=None, client_id="app"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="app"),
    entity(client_id=None),
)
"""Kafka's, the most precise first."""


@pytest.mark.parametrize("place", range(len(PRECEDENCE)))
def test_the_most_precise_quota_counts(place: int) -> None:
    image = QuotasImage(entities={each: {KEY: float(index)} for index, each in enumerate(PRECEDENCE) if index >= place})
    found = quota_of(image, KEY, "ann", "app")
    assert found is not None and found.bound == place
    assert [part.type for part in found.entity] == [part.type for part in PRECEDENCE[place]]
    assert all(part.name in ("ann", "app") for part in found.entity), "each client has a window of his own"
    assert quota_of(image, "consumer_byte_rate", "ann", "app") is None


def test_a_default_means_each_and_not_all_together() -> None:
    image = QuotasImage(entities={entity(user=None): {KEY: 1.0}})
    windows = {quota_of(image, KEY, user, "app") for user in ("ann", "bob")}
    assert len({found.entity for found in windows if found is not None}) == 2


def test_an_address_has_its_own_or_the_default() -> None:
    image = QuotasImage(
        entities={
            entity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
            entity(ip=None): {"connection_creation_rate": 2.0},
        }
    )
    assert (address_quota(image, "10.0.0.1"), address_quota(image, "10.0.0.2")) == (5.0, 2.0)
    assert address_quota(QuotasImage(entities={}), "10.0.0.1") is None


def test_a_first_burst_counts_over_all_windows_but_one() -> None:
    window = RateWindow(11, 1000)
    window.record(20_000, 0)
    assert window.rate(0) == 2000
    assert window.throttle_ms(1000, 0) == 10_000
    assert window.throttle_ms(2000, 0) == 0


def test_what_was_long_ago_does_not_count() -> None:
    window = RateWindow(11, 1000)
    window.record(20_000, 0)
    assert window.rate(10_999) > 0
    assert window.rate(11_000) == 0


@pytest.mark.parametrize("seed", range(20))
def test_who_rests_as_long_as_he_is_reported_keeps_to_his_quota(seed: int) -> None:
    """Whatever he sends at once: over a long time he is within a window's worth of his bound."""
    random = Random(seed)
    bound = random.choice((100.0, 10_000.0, 5e6))
    window, now_ms, sent = RateWindow(11, 1000), 0.0, 0.0
    while now_ms < 300_000:
        amount = random.uniform(0, 3 * bound)
        window.record(amount, now_ms)
        sent += amount
        now_ms += window.throttle_ms(bound, now_ms) + random.uniform(0, 50)
    assert sent <= bound * now_ms / 1000 * 1.1 + 15 * bound
    assert sent >= bound * now_ms / 1000 * 0.5, "and is not kept far below it"


def test_mutations_may_be_saved_and_spent_at_once_and_no_more() -> None:
    config = QuotaConfig()
    bucket = MutationBucket(config, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 0
    bucket.spend(30)  # of 22 that there are: who has any may overdraw
    assert bucket.throttle_ms(2.0, 0) == 4000
    assert bucket.throttle_ms(2.0, 3000) == 1000
    assert bucket.throttle_ms(2.0, 4000) == 0
    assert bucket.throttle_ms(2.0, 1e9) == 0 and bucket.tokens == 22


@pytest.mark.parametrize("field", ["window_num", "window_size_seconds", "mutation_window_num"])
def test_windows_are_at_least_one(field: str) -> None:
    with pytest.raises(ValueError, match=r"quota\.window"):
        QuotaConfig(**{field: 0})
