"""One image: a copy of the cluster's directories with one file damaged, started, read, judged, in a process of its own.

May touch:  forks, network namespaces, its own directory on tmpfs.   Must not touch: the copies it is made from.
Invariants: an image is a forked process with its own loopback, so that images are judged side by side on the same ports and what one
            leaves behind is gone with it; its verdict comes over a pipe, and without one it has failed.
Read next:  laws.py, which says what is allowed.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import logging
import os
import pickle
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.node_fuzz import damage as damages
from tests.node_fuzz import laws, world
from tests.node_fuzz.cluster import NODES, Heard, RealNodes

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
IMAGE_S = 180.0
"""An image that takes longer is ended, and has failed."""


@dataclass
class Verdict:
    """Of one image."""

    what: str
    """The damage."""
    broken: list[str] = field(default_factory=list)
    """Laws, each with what was seen: `law: words`."""
    heard: list[str] = field(default_factory=list)
    refusal: str = ""
    is_healthy: bool = False
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass
class Running:
    """An image that is being judged."""

    choice: damages.Choice
    pid: int
    pipe: int
    directory: Path
    began_s: float

    def finish(self) -> Verdict:
        """Wait for it. Its directory is removed."""
        with os.fdopen(self.pipe, "rb") as stream:
            data = stream.read()
        _, status, usage = os.wait4(self.pid, 0)
        shutil.rmtree(self.directory, ignore_errors=True)
        try:
            verdict: Verdict = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError):
            verdict = Verdict(str(self.choice), [f"process: it ended with {os.waitstatus_to_exitcode(status)}"])
        verdict.cpu_s = usage.ru_utime + usage.ru_stime
        verdict.wall_s = time.monotonic() - self.began_s
        return verdict


def launch(
    choice: damages.Choice, done: damages.Damage, copies: Path, truth: world.Truth, *, is_loud: bool = False
) -> Running:
    """Fork a process that judges the image. is_loud: what the nodes log goes to standard error."""
    directory = copies / f"image-{choice.number}"
    return in_child(
        choice, directory, lambda: asyncio.run(_judge(choice, done, copies, directory, truth, is_loud=is_loud))
    )


def in_child(choice: Any, directory: Path, work: Callable[[], Any]) -> Running:
    """Fork a process with its own loopback that pickles what `work` returns into a pipe."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            signal.alarm(int(IMAGE_S))
            enter_own_network()
            result = work()
            with os.fdopen(writing, "wb") as stream:
                stream.write(pickle.dumps(result))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    return Running(choice, pid, reading, directory, time.monotonic())


def enter_own_network() -> None:
    """A network namespace with a loopback of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0 and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        raise OSError(
            ctypes.get_errno(), "node-fuzz needs network namespaces: run it as root, or allow user namespaces"
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


async def _judge(
    choice: damages.Choice,
    done: damages.Damage,
    copies: Path,
    directory: Path,
    truth: world.Truth,
    *,
    is_loud: bool,
) -> Verdict:
    for node_id in NODES:
        shutil.copytree(copies / choice.copy / f"node-{node_id}", directory / f"node-{node_id}")
    damages.apply(choice, done, directory)
    heard = Heard()
    logging.getLogger().handlers[:] = [heard]
    logging.getLogger().setLevel(logging.WARNING)
    if is_loud:
        logging.getLogger().addHandler(logging.StreamHandler())
    nodes = RealNodes(directory)
    case = laws.Case(choice, done, nodes, truth, copies / choice.copy, heard)
    if choice.form == "cold":
        nodes.start()
    else:
        nodes.start(each for each in NODES if each != choice.node)
        await laws.settle(case, without={choice.node})
        nodes.start([choice.node])
    broken = await laws.judge(case)
    refusal = nodes.nodes[choice.node].refusal
    return Verdict(
        done.what, broken, heard.lines[:200], "" if refusal is None else refusal.message, case.health_reasons == []
    )
