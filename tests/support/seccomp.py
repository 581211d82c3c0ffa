"""A filter of system calls as systemd sets one, without systemd: those of SystemCallFilter=~@privileged @resources fail with EPERM.

The groups are systemd's own (`systemd-analyze syscall-filter`); the numbers are those of x86-64. A process that took the filter hands it
to its children. For a `preexec_fn`; or `python seccomp.py unit|host|container COMMAND…` takes a filter and becomes the command.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable

RESOURCES = {
    "sched_setparam": 142,
    "sched_setscheduler": 144,
    "setpriority": 141,
    "setrlimit": 160,
    "sched_setaffinity": 203,
    "mbind": 237,
    "set_mempolicy": 238,
    "ioprio_set": 251,
    "migrate_pages": 256,
    "move_pages": 279,
    "sched_setattr": 314,
}
OF_A_HOST = ("sched_setaffinity", "setrlimit")
"""Of those, what the unit of a host allows."""
PRIVILEGED = {
    "setuid": 105,
    "setgid": 106,
    "setreuid": 113,
    "setregid": 114,
    "setgroups": 116,
    "setresuid": 117,
    "setresgid": 119,
    "setfsuid": 122,
    "setfsgid": 123,
    "capset": 126,
    "vhangup": 153,
    "pivot_root": 155,
    "_sysctl": 156,
    "acct": 163,
    "chroot": 161,
    "settimeofday": 164,
    "mount": 165,
    "swapon": 167,
    "reboot": 169,
    "quotactl": 179,
    "clock_settime": 227,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "bpf": 321,
}
CONTAINER = {
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "perf_event_open": 298,
    "setns": 308,
    "unshare": 272,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "mount": 165,
    "umount2": 166,
    "bpf": 321,
    "pivot_root": 155,
    "reboot": 169,
    "swapon": 167,
    "settimeofday": 164,
    "clock_settime": 227,
    "mbind": 237,
    "set_mempolicy": 238,
    "move_pages": 279,
}
"""What the default profile of Docker and of containerd (Kubernetes' RuntimeDefault) refuses a process without capabilities, in part."""
IS_POSSIBLE = platform.machine() == "x86_64"
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_PR_SET_MDWE, _REFUSE_EXEC_GAIN = 65, 1


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]  # ctypes wants a list


def refuse_as_the_unit_does() -> None:
    """Set the filter for this process and its children. Raises OSError."""
    refuse({*RESOURCES.values(), *PRIVILEGED.values()})


def refuse_as_the_hosts_unit_does() -> None:
    """The same but for what a host needs. Raises OSError."""
    refuse({*RESOURCES.values(), *PRIVILEGED.values()} - {RESOURCES[name] for name in OF_A_HOST})


def refuse_as_containers_do() -> None:
    """The same for a container's. Raises OSError."""
    refuse(CONTAINER.values())


def refuse(calls: Iterable[int]) -> None:
    """EPERM for these, for good. Raises OSError."""
    numbers = sorted({*calls})
    code = [struct.pack("HBBI", _LOAD, 0, 0, 0)]  # the number of the call
    code += [struct.pack("HBBI", _JUMP_IF_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    code += [struct.pack("HBBI", _RETURN, 0, 0, _ALLOW), struct.pack("HBBI", _RETURN, 0, 0, _ERRNO | errno.EPERM)]
    buffer = ctypes.create_string_buffer(b"".join(code))
    program = _Program(len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program))):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def deny_write_execute() -> None:
    """MemoryDenyWriteExecute: no page becomes code that was data; where the kernel knows that (6.3)."""
    ctypes.CDLL(None).prctl(_PR_SET_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0)


if __name__ == "__main__":
    if sys.argv[1] in ("unit", "host"):
        refuse_as_the_unit_does() if sys.argv[1] == "unit" else refuse_as_the_hosts_unit_does()
        deny_write_execute()
    else:
        refuse_as_containers_do()
    os.execvp(sys.argv[2], sys.argv[2:])
