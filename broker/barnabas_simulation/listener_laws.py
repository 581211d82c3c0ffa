"""The laws that clients of the Kafka listeners see kept: rights, order, answers in time, no cost of another's bytes.

May touch:  what a node shows.        Must not touch: how the product decides; it looks at the image's entries itself.
Invariants: a client judged by what a node knew is judged by all that it may have known between question and answer.
Read next:  client_calls.py and strangers.py, whose clients are judged; sockets.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas_quorum.image.acls import AccessControlEntry
from barnabas_quorum.records_security import AclOperation, AclPermission, AclResourceType
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_simulation.sockets import StreamEnd
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.primitives import MalformedMessage

CLIENTS_PORT = 9500
"""The port of the listener that clients log in to."""
PASSWORDS = {"app": "of the app", "guest": "of the guest", "slow": "of the slow"}
"""The passwords of users that PLAIN knows, by name."""
RIGHT = "who has no right is neither answered nor refused by mistake"
ORDER = "answers come in the order of their requests, each on its own connection"
ALONE = "what one client sends ends its own connection alone"
ANSWERED = "who waits is answered in the end, throttled or not"
LET_IN = "who has the right password is let in, and nobody else"
ANSWERED_S = 20.0
"""Within which any request is: a produce waits 1.5 s for replicas, a throttle is over in some seconds."""
BLAMELESS = frozenset({"client", "shutdown", "cut_off", "short_read"})
"""Why a broker may end the connection of a client that keeps to the protocol: a reader's file may be cut before its bytes are sent."""
NOT_ALLOWED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AclResourceType.TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AclResourceType.GROUP,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AclResourceType.TRANSACTIONAL_ID,
}
"""For want of a right to what."""


class Moment(NamedTuple):
    """When somebody asked a broker."""

    broker: BrokerId
    life: int
    is_serving: bool
    at_s: float
    stood_still_s: float


class Asked(NamedTuple):
    """What somebody asked for, and when."""

    user: str
    resource: AclResourceType
    operation: AclOperation
    moment: Moment


class _Right:
    """What one life of one node knows of a user's right to one operation."""

    def __init__(self) -> None:
        self.is_given = False
        self.given_until_s = self.lacked_until_s = -1.0


class ListenerLaws:
    """Judges one run."""

    def __init__(self, run: Run, topic: str) -> None:
        self.answers = self.denied = self.throttled = self.refused_logins = self.ended = self.silent_lives = 0
        """Answers to rightful clients; answers for want of rights; answers that make wait; logins refused; connections of those ended
        that sent what is no request; requests to a life of a broker that had ended without a word."""
        self._run = run
        self._topic = topic
        self._rights: dict[tuple[BrokerId, int, str, AclResourceType, AclOperation], _Right] = {}
        self._seen: dict[BrokerId, Any] = {}
        self._reasons: dict[tuple[BrokerId, int], Counter[str]] = {}

    # -- rights ----------------------------------------------------------------------------------------------------

    def now(self, broker: BrokerId) -> Moment:
        """A request to this broker leaves."""
        node, loop = self._run.network.nodes[broker], self._run.loop
        return Moment(broker, node.life, node.is_serving, loop.time(), loop.stood_still_s)

    def asked(self, user: str, broker: BrokerId, resource: AclResourceType, operation: AclOperation) -> Asked:
        """A request to this broker leaves, for which the user needs a right to the topic, or to all that there are of another resource.
        What becomes of that is noted from now on."""
        self._right(user, broker, resource, operation)
        return Asked(user, resource, operation, self.now(broker))

    def look(self) -> None:
        """After each turn: what does each broker know of rights?"""
        for node in self._run.nodes:
            if node.is_up and (image := node.cache.image) is not self._seen.get(node.id):
                self._seen[node.id] = image
                now_s = self._run.loop.time()
                for (broker, life, *what), right in self._rights.items():
                    if broker == node.id and life == node.life:
                        self._note(right, what, image.acls.entries.values(), now_s)

    def _right(self, user: str, broker: BrokerId, resource: AclResourceType, operation: AclOperation) -> _Right:
        node = self._run.network.nodes[broker]
        key = broker, node.life, user, resource, operation
        if key not in self._rights:
            right = self._rights[key] = _Right()
            if node.is_up:
                what = user, resource, operation
                self._note(right, what, node.cache.image.acls.entries.values(), self._run.loop.time())
        return self._rights[key]

    def _note(self, right: _Right, what: Sequence[Any], entries: Any, now_s: float) -> None:
        was_given, right.is_given = right.is_given, any(self._gives(entry, *what) for entry in entries)
        if was_given and not right.is_given:
            right.given_until_s = now_s
        elif right.is_given and not was_given:
            right.lacked_until_s = now_s

    def _gives(self, entry: AccessControlEntry, user: str, resource: AclResourceType, operation: AclOperation) -> bool:
        return (
            entry.principal == f"User:{user}"
            and entry.permission is AclPermission.ALLOW
            and entry.resource_type is resource
            and entry.resource_name in ("*", self._topic)
            and entry.operation in (operation, AclOperation.ALL)
        )

    def judge(self, asked: Asked, error: KafkaError | None, given: str) -> bool:
        """An answer came. False: for want of rights, which may come. Raises LawBroken."""
        moment = asked.moment
        right = self._right(asked.user, moment.broker, asked.resource, asked.operation)
        is_denied = error is not None and NOT_ALLOWED.get(error.code) is asked.resource
        if self._run.network.nodes[moment.broker].life != moment.life:
            return not is_denied  # its last words; what it knew is forgotten
        who = f"{asked.user} at broker {moment.broker}, {asked.operation.name} {asked.resource.name}"
        if is_denied:
            self.denied += 1
            if right.is_given and right.lacked_until_s < moment.at_s:
                raise LawBroken(RIGHT, f"{who}: refused, with every right since {right.lacked_until_s:.3f} s")
            return False
        if error is None and not right.is_given and right.given_until_s < moment.at_s:
            raise LawBroken(RIGHT, f"{who}: got {given}, without a right since {right.given_until_s:.3f} s")
        self.answers += error is None
        return True

    # -- connections -----------------------------------------------------------------------------------------------

    def judge_login(self, user: str, mechanism: str, broker: BrokerId, error: KafkaError) -> None:
        """A login with the right password was refused: SCRAM's a broker may not have heard of yet."""
        if mechanism == "PLAIN":
            raise LawBroken(LET_IN, f"{user} at broker {broker}: {error!r}")

    def judge_loss(self, error: OSError) -> None:
        """A connection is lost, with requests that were not answered."""
        if isinstance(error.__cause__, MalformedMessage):
            raise LawBroken(ORDER, str(error.__cause__))

    def judge_silence(self, since: Moment, life: int, waited_s: float, who: str) -> None:
        """Nothing was heard for so long, over a connection to that life of the broker, which was not lost."""
        if life != since.life:  # its host lost its power, and it may never be told
            self.silent_lives += 1
            return
        if waited_s >= ANSWERED_S and self.is_same_life(since):
            raise LawBroken(ANSWERED, f"{who}: nothing from broker {since.broker} for {waited_s:.0f} s")

    def is_same_life(self, since: Moment) -> bool:
        """Whether the broker has served all the while, and time was there to do so."""
        now = self.now(since.broker)
        return since.is_serving and now._replace(at_s=since.at_s) == since

    def on_closing(self, end: StreamEnd) -> None:
        """A broker closes a connection. Its own count says why."""
        node = next((node for node in self._run.nodes if node.member.host == end.own[0]), None)
        if node is None:  # a client does
            return
        counted = node.listener_stats.connections_closed
        before = self._reasons.get((node.id, node.life), Counter())
        reasons = [reason for reason, count in counted.items() if count > before[reason]]
        self._reasons[node.id, node.life] = Counter(counted)
        who = end.peer[0]
        for reason in reasons:
            if reason == "bug" or (who in USERS and reason not in BLAMELESS and (who, reason) not in NOT_YET):
                self._run.network.failures.append(LawBroken(ALONE, f"broker {node.id} ends {who}'s: {reason}"))


USERS = (*PASSWORDS, "operator")
"""Users that keep to the protocol."""
NOT_YET = (("app", "authentication"),)
"""A broker may not have heard of SCRAM's user yet."""
