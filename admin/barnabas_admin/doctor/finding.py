"""What the doctor found, and the words for each cause that docs/faq.md is sorted by.

May touch:  its arguments.            Must not touch: everything else.
Invariants: a cause is one of Cause; docs/faq.md has a section for each, and a scenario of tests/scenarios/doctor finds it.
Read next:  reaching.py.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Cause(Enum):
    """What is wrong; the value is a word of the JSON output and a heading of docs/faq.md."""

    NAME_UNKNOWN = "name-unknown"
    NOTHING_LISTENS = "nothing-listens"
    NO_ANSWER = "no-answer"
    OTHER_LISTENER = "other-listener"
    TLS_WANTED = "tls-wanted"
    TLS_UNWANTED = "tls-unwanted"
    CERTIFICATE_REFUSED = "certificate-refused"
    LOGIN_WANTED = "login-wanted"
    LOGIN_REFUSED = "login-refused"
    ADVERTISED_UNREACHABLE = "advertised-unreachable"
    OTHER_CLUSTER = "other-cluster"
    OTHER_BROKER = "other-broker"
    TOPIC_UNKNOWN = "topic-unknown"
    NO_RIGHT = "no-right"
    NO_LEADER = "no-leader"
    ACKS_ALL_REFUSED = "acks-all-refused"
    OFFSETS_DELETED = "offsets-deleted"
    MEMBERS_IDLE = "members-idle"
    GROUP_REBALANCES = "group-rebalances"
    TRANSACTION_OPEN = "transaction-open"
    HOT_KEY = "hot-key"
    CLOCK_AHEAD = "clock-ahead"


class Finding(NamedTuple):
    """One thing that is wrong."""

    cause: Cause
    where: str
    """An address, a topic, a partition, a group."""
    what: str
    fix: str
    """What to do, or to type."""
