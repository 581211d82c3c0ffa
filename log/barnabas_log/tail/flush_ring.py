"""fdatasync begun from the loop, without a thread of ours: through the kernel's io_uring.

May touch:  ctypes, three system calls, one eventfd.     Must not touch: File objects (disk.py keeps them open meanwhile).
Invariants: every flush that was taken is reported once, on the loop, later; at most ENTRIES in flight, so no ring overflows.
Read next:  flush_workers.py, which makes the kernel's workers run in time; stalled_flushes.py, for when they take nothing;
            disk.py, which takes threads where the kernel or a sandbox refuses.

Why: a thread needs the GIL to begin a flush and again to report its end, and a busy loop lets go of it only for system calls
that take long. Measured: 0.4 to 1 ms from the request to the fdatasync, as long as that itself takes, and the disk is idle
meanwhile. The kernel's workers (threads of this process, named iou-wrk) need no GIL. Measured in turn with threads, durable, RF 3
on a busy machine: more MB/s in 12 of 12 pairs (15 to 40 % by case), 5 to 10 % less CPU per MB with 16 KiB batches, none with 1 MiB.

The layout is the kernel's ABI (linux/io_uring.h), the same on every architecture. No fences are needed: the kernel reads our
entries within io_uring_enter, and wrote its own before the eventfd became readable.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import mmap
import os
import struct

from barnabas_log.tail.flush_workers import FlushWorkers
from barnabas_log.tail.stalled_flushes import OnFlushed, flush_aside
from barnabas_wire.host_system import has_linux

logger = logging.getLogger(__name__)

ENTRIES = 64
"""Flushes in flight at most."""
LOOK_S = 5.0
"""Completions that have waited for so long were not announced, and are taken all the same."""
STALLED_LOOKS = 3
"""After so many looks in a row that find flushes in flight and none ended, a warning says so. If no worker of the kernel has one in hand
either, a thread does them, and the ring is used no more. Seen twice in chaos runs on Linux 6.18, for minutes."""
_IO_URING_SETUP, _IO_URING_ENTER, _IO_URING_REGISTER = 425, 426, 427
_REGISTER_EVENTFD = 4
_FEATURE_SINGLE_MMAP = 1
_OPERATION_FSYNC = 3
_FSYNC_DATASYNC = 1
_ENTRIES_OFFSET = 0x10000000
_ENTRY_BYTES = 64
_COMPLETION_BYTES = 16
_params = struct.Struct("=30I")
"""io_uring_params: ten words, then ten for the submission ring's offsets and ten for the completion ring's."""
_entry = struct.Struct("=BBHiQQIIQ24x")
"""io_uring_sqe: operation, flags, priority, descriptor, offset, address, length, fsync flags, user data."""
_completion = struct.Struct("=QiI")
"""io_uring_cqe: user data, result, flags."""
_word = struct.Struct("=I")


class FlushRing:
    """One ring, used on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError or AttributeError where io_uring is not to be had."""
        if not has_linux():
            raise OSError("io_uring is Linux's")
        self.loop = loop
        self._waiting: dict[int, OnFlushed] = {}
        self._descriptors = [-1] * ENTRIES
        """What each flush that waits is of."""
        self._free = list(range(ENTRIES))
        self._workers = FlushWorkers()
        # PyDLL: these calls take microseconds, and letting go of the GIL for them is what this file is to avoid.
        self._syscall = ctypes.PyDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._syscall.argtypes = [ctypes.c_long] * 7
        params = ctypes.create_string_buffer(_params.size)
        self._descriptor = self._call(_IO_URING_SETUP, ENTRIES, ctypes.addressof(params))
        try:
            self._map(_params.unpack(params.raw))
            self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except BaseException:
            os.close(self._descriptor)
            raise
        try:
            event = ctypes.c_int(self._event)
            self._call(_IO_URING_REGISTER, self._descriptor, _REGISTER_EVENTFD, ctypes.addressof(event), 1)
            loop.add_reader(self._event, self._on_event)
        except BaseException:
            os.close(self._event)
            os.close(self._descriptor)
            raise
        self._looked_at = (self._ended_head, self._ended_head)
        self._stalled_looks = 0
        self._timer = loop.call_later(LOOK_S, self._look)

    def _map(self, params: tuple[int, ...]) -> None:
        entry_count, completion_count, features = params[0], params[1], params[5]
        if not features & _FEATURE_SINGLE_MMAP:
            raise OSError("its rings are two mappings, as before Linux 5.4")
        _, self._tail_at, mask_at, _, _, _, array_at = params[10:17]
        self._ended_head_at, self._ended_tail_at, ended_mask_at, _, _, self._ended_at = params[20:26]
        size = max(array_at + 4 * entry_count, self._ended_at + _COMPLETION_BYTES * completion_count)
        self._ring = mmap.mmap(self._descriptor, size)
        self._entries = mmap.mmap(self._descriptor, _ENTRY_BYTES * entry_count, offset=_ENTRIES_OFFSET)
        for index in range(entry_count):
            _word.pack_into(self._ring, array_at + 4 * index, index)
        self._mask = self._read_word(mask_at)
        self._ended_mask = self._read_word(ended_mask_at)
        self._tail = self._read_word(self._tail_at)
        self._ended_head = self._read_word(self._ended_head_at)

    def fdatasync(self, descriptor: int, on_flushed: OnFlushed) -> bool:
        """Begin one; `on_flushed` is called on the loop, later. False where there is no room: nothing was begun."""
        if not self._free:
            return False
        token = self._free.pop()
        tail = self._tail
        position = (tail & self._mask) * _ENTRY_BYTES
        _entry.pack_into(self._entries, position, _OPERATION_FSYNC, 0, 0, descriptor, 0, 0, 0, _FSYNC_DATASYNC, token)
        _word.pack_into(self._ring, self._tail_at, (tail + 1) & 0xFFFF_FFFF)
        self._waiting[token] = on_flushed
        self._descriptors[token] = descriptor
        try:
            taken = self._call(_IO_URING_ENTER, self._descriptor, 1)
        except OSError:  # out of memory, or the completions are behind
            taken = 0
        if not taken:  # the next will take its place
            del self._waiting[token]
            self._free.append(token)
            return False
        self._tail = (tail + 1) & 0xFFFF_FFFF
        self._workers.shorten_slices(self.loop.time())
        return True

    def _on_event(self) -> None:
        try:  # no suppress(): it costs as much as the call
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        self._report_ended()

    def _look(self) -> None:
        """Take what has waited since the last look: seen once, that no flush of a node was reported any more, for minutes."""
        self._timer = self.loop.call_later(LOOK_S, self._look)
        head, tail = looked_at = self._ended_head, self._read_word(self._ended_tail_at)
        if head != tail and head == self._looked_at[0] != self._looked_at[1]:
            logger.warning("the kernel did not announce that flushes had ended; they are taken %.0f s late", LOOK_S)
            self._report_ended()
        self._stalled_looks = self._stalled_looks + 1 if self._waiting and looked_at == self._looked_at else 0
        self._looked_at = looked_at
        if self._stalled_looks and self._stalled_looks % STALLED_LOOKS == 0:
            with contextlib.suppress(OSError):  # out of descriptors, or no /proc: looked at again later
                self._on_stalled()

    def _on_stalled(self) -> None:
        """Tell what the kernel says of its workers and of the ring; what no worker has in hand is done by a thread. Raises OSError."""
        states = self._workers.states()
        is_at_work = any(state.split()[1] in "DR" for state in states)
        logger.warning(
            "%d flushes have not ended for %.0f s or longer (%s). The kernel's flush workers: %s; its ring: %s",
            len(self._waiting),
            STALLED_LOOKS * LOOK_S,
            "look at the disk and the kernel's log"
            if is_at_work
            else "a thread does them now, and threads do all later ones",
            ", ".join(states) or "none",
            self._state(),
        )
        if not is_at_work:
            self._timer.cancel()
            self.loop.remove_reader(self._event)
            waiting = [(self._descriptors[token], on_flushed) for token, on_flushed in self._waiting.items()]
            self._waiting.clear()
            self._free.clear()  # nothing is taken from now on
            flush_aside(self.loop, waiting)

    def _state(self) -> str:
        """The ring's heads and tails, as the kernel's fdinfo has them and as we do: they tell who lost a flush. Raises OSError."""
        with open(f"/proc/self/fdinfo/{self._descriptor}") as facts:
            told = [line.split() for line in facts]
        kept = " ".join(
            f"{fact[0]}{fact[1]}" for fact in told if len(fact) == 2 and fact[0][:2] in ("Sq", "Cq", "Ca", "SQ", "CQ")
        )
        return f"{kept}, ours: SqTail:{self._tail} CqHead:{self._ended_head}"

    def _report_ended(self) -> None:
        """Report every flush that ended."""
        head, tail = self._ended_head, self._read_word(self._ended_tail_at)
        ended: list[tuple[OnFlushed, int]] = []
        while head != tail:
            position = self._ended_at + (head & self._ended_mask) * _COMPLETION_BYTES
            token, result, _ = _completion.unpack_from(self._ring, position)
            ended.append((self._waiting.pop(token), result))
            self._free.append(token)
            head = (head + 1) & 0xFFFF_FFFF
        self._ended_head = head
        _word.pack_into(self._ring, self._ended_head_at, head)
        for on_flushed, result in ended:
            try:
                on_flushed(None if result >= 0 else OSError(-result, os.strerror(-result)))
            except Exception as bug:  # of one flush: those behind it have ended too, and must be reported
                self.loop.call_exception_handler({"message": "in the callback of a flush", "exception": bug})

    def close(self) -> None:
        """Let go; what is still in flight is not reported."""
        self._timer.cancel()
        if not self.loop.is_closed():
            self.loop.remove_reader(self._event)
        self._waiting.clear()
        self._ring.close()
        self._entries.close()
        os.close(self._event)
        os.close(self._descriptor)

    def _read_word(self, position: int) -> int:
        value: int = _word.unpack_from(self._ring, position)[0]
        return value

    def _call(self, number: int, *arguments: int) -> int:
        result: int = self._syscall(number, *arguments, *(0,) * (6 - len(arguments)))
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result
