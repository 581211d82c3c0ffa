"""Which requests of a connection have their batches opened: the first ones, some at random, and all of who sent an unsound one.

May touch:  its arguments.            Must not touch: asyncio, clocks, its own randomness.
Invariants: a connection that sent an unsound batch is looked at for good; what is drawn depends on nothing that the client can see.
Read next:  batch_work.py, which asks and draws; appends.py, which counts down.
"""

from __future__ import annotations

from random import Random

FIRST_REQUESTS = 2
"""Requests at the beginning of a connection whose batches are opened. Two, since many clients' first batch is a single record, in which
what is wrong between records cannot show. Measured for each of them, on two busy cores: 0.25 to 0.4 ms more with 16 KiB of
100-byte records (p50 0.19 -> 0.55 ms), some 20 ms more with 512 KiB, which the process walks over."""
DRAWN_ONE_IN = 256
"""One in so many of the later requests is opened, on average. Measured: to open 16 KiB costs about 0.4 ms of CPU, so
one in 256 adds 1.6 us to the 106 us of a request (client included), within the noise of that; with 5,000 batches a
minute a client that turns bad is found within seconds."""
UNTOUCHED_REQUESTS = 16
"""After a request that was due and had nothing to open (validate.batches=header) so many go by unseen."""


class Scrutiny:
    """What one connection is trusted with."""

    __slots__ = ("_first_left", "_is_suspect", "left")

    def __init__(self) -> None:
        self.left = 0
        """Requests that may go by before one is due; counted down by whoever appends."""
        self._first_left = FIRST_REQUESTS
        self._is_suspect = False

    @property
    def is_due(self) -> bool:
        """Whether the batches of the request at hand are to be opened."""
        return self.left == 0

    def draw(self, random: Random, *, has_looked: bool) -> None:
        """A request that was due is being looked at; has_looked: whether it had a batch to open."""
        if self._is_suspect:
            return
        if not has_looked:
            self.left = UNTOUCHED_REQUESTS
            return
        if self._first_left > 1:
            self._first_left -= 1
            return
        self.left = 1 + int(random.random() * (2 * DRAWN_ONE_IN - 1))

    def suspect(self) -> None:
        """The connection sent an unsound batch."""
        self._is_suspect = True
        self.left = 0
