"""`python -m tests.chaos.relay OUTER INNER --delay S --jitter S --loss SHARE`: frames between two TAP devices, late or never.

May touch:  the two devices, which it makes.   Must not touch: what is in a frame.
Invariants: a frame leaves when its own delay is over, so jitter reorders, as a network does; bytes in flight are bounded by
            QUEUE_FRAMES_MAX, beyond which frames are lost.
Read next:  network.py, which plugs the devices in. The kernel here has no netem.

Says "ready" when both devices are there, and at its end how many frames it passed and lost.
"""

from __future__ import annotations

import argparse
import fcntl
import heapq
import os
import select
import signal
import struct
import sys
import time
from random import Random

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
FRAME_BYTES_MAX = 65536
QUEUE_FRAMES_MAX = 20_000


def open_tap(name: str) -> int:
    """A TAP device of this name; it goes when the descriptor is closed. Raises OSError where that is not permitted."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return descriptor


class Relay:
    """Two devices and what is on its way between them."""

    def __init__(self, names: tuple[str, str], *, delay_s: float, jitter_s: float, loss: float, seed: int) -> None:
        first, second = (open_tap(name) for name in names)
        self._other = {first: second, second: first}
        self._delay_s = delay_s
        self._jitter_s = jitter_s
        self._loss = loss
        self._random = Random(seed)
        self._queue: list[tuple[float, int, int, bytes]] = []
        self._is_over = False
        self.passed = 0
        self.lost = 0

    def stop(self, *_: object) -> None:
        """End `run`."""
        self._is_over = True

    def run(self) -> None:
        """Relay until stopped."""
        while not self._is_over:
            wait_s = max(0.0, self._queue[0][0] - time.monotonic()) if self._queue else 0.2
            readable, _, _ = select.select(list(self._other), [], [], min(wait_s, 0.2))
            for descriptor in readable:
                self._take(descriptor)
            self._give()

    def _take(self, descriptor: int) -> None:
        for _ in range(256):
            try:
                frame = os.read(descriptor, FRAME_BYTES_MAX)
            except (BlockingIOError, OSError):  # nothing more, or the device is not up yet
                return
            if self._random.random() < self._loss or len(self._queue) >= QUEUE_FRAMES_MAX:
                self.lost += 1
                continue
            due = time.monotonic() + self._delay_s + self._random.uniform(-self._jitter_s, self._jitter_s)
            heapq.heappush(self._queue, (due, self.passed, self._other[descriptor], frame))
            self.passed += 1

    def _give(self) -> None:
        now = time.monotonic()
        while self._queue and self._queue[0][0] <= now:
            _, _, descriptor, frame = heapq.heappop(self._queue)
            try:
                os.write(descriptor, frame)
            except OSError:
                self.lost += 1  # its device is full, or goes down


def main() -> int:
    """Relay until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs=2)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--jitter", type=float, default=0.0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    relay = Relay(
        (options.devices[0], options.devices[1]),
        delay_s=options.delay,
        jitter_s=options.jitter,
        loss=options.loss,
        seed=options.seed,
    )
    signal.signal(signal.SIGTERM, relay.stop)
    print("ready", flush=True)
    relay.run()
    print(f"{relay.passed} {relay.lost}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
