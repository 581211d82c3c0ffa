"""What a host keeps on disk: which nodes run, by locks, and where its nodes and operators find it.

May touch:  files and sockets below host.directory.   Must not touch: the nodes' own directories.
Invariants: one process supervises a directory; a node's lock is held exactly while its process lives, whoever its parent is.
Read next:  supervisor.py.

    host.lock            locked by the process that supervises
    status               stream socket: words, answered by a JSON object (supervisor.py)
    NAME.properties      of the node, written before each start of the host
    NAME.notify          datagram socket that the node tells that it is ready and alive (sd_notify(3)); a new parent
                         binds it again
    NAME.lock            locked (flock) by the node; in it {"pid", "digest"}, written by the node's process first of all
    NAME.ready           the pid of the process that has said that it is ready

Not obvious: a lock belongs to the open file, which a child inherits with its number and keeps when the parent is gone. Proof of life is
the lock, never the pid in it; that is true while the lock is held. None of these files outlives a boot with a meaning: after one no lock is
held. Missing or unreadable they make a host start what is not locked, and wait for what is.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from barnabas_broker.config.keys import ConfigError
from barnabas_wire.java_properties import property_line
from barnabas_wire.lazy_dataclass import dataclass

PATH_MAX = 103
"""Characters of a socket's path that every system takes."""
HOST_LOCK = "host.lock"
STATUS = "status"


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a node's lock."""

    pid: int
    digest: str
    """The digest of the properties that the node was started with."""


class HostDirectory:
    """One host.directory. Only its owner reads it: properties may hold passwords."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError."""
        self.path = Path(path).absolute()
        longest = len(os.fsencode(self.path)) + len("/controller-2147483647.notify")
        if longest > PATH_MAX:
            raise ConfigError(
                f"host.directory={path} is too long by {longest - PATH_MAX} characters for the sockets in it: name a shorter one"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
        except OSError as error:
            raise ConfigError(f"host.directory={path}: {error.strerror}; name one that this user may write") from error

    def lock(self) -> int:
        """Become the one that supervises; returns the descriptor that says so while it is open. Raises ConfigError."""
        descriptor = self._locked(HOST_LOCK)
        if descriptor is None:
            raise ConfigError(
                f"another process supervises {self.path} already: stop it, or name another host.directory"
            )
        return descriptor

    def lock_node(self, name: str) -> int | None:
        """A descriptor with the node's lock, for its process; None while another process has it."""
        descriptor = self._locked(f"{name}.lock")
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
        return descriptor

    def is_held(self, name: str) -> bool:
        """Whether a process of this node lives."""
        descriptor = self._locked(f"{name}.lock")
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    def holder(self, name: str) -> Holder | None:
        """The holder of the lock, where `is_held`; None until that process has said so."""
        try:
            found = json.loads((self.path / f"{name}.lock").read_text())
            return Holder(int(found["pid"]), str(found["digest"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def names_held(self) -> list[str]:
        """The names of all nodes that live, also of those that no properties name any more."""
        names = sorted(each.stem for each in self.path.glob("*.lock") if each.name != HOST_LOCK)
        return [name for name in names if self.is_held(name)]

    def was_ready(self, name: str, pid: int) -> bool:
        """Whether this process has said that it is ready."""
        try:
            return (self.path / f"{name}.ready").read_text() == str(pid)
        except OSError:
            return False

    def note_ready(self, name: str, pid: int) -> None:
        """This process has said that it is ready."""
        (self.path / f"{name}.ready").write_text(str(pid))

    def properties_file(self, name: str) -> Path:
        """The node's server.properties."""
        return self.path / f"{name}.properties"

    def write_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Write the properties of a node for its next start."""
        target = self.properties_file(name)
        draft = target.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write("# Written by `barnabas-server host` at each start from its host.properties.\n")
            stream.writelines(property_line(key, value) for key, value in sorted(properties.items()))
        draft.replace(target)

    def notify_path(self, name: str) -> Path:
        """What the node's NOTIFY_SOCKET names."""
        return self.path / f"{name}.notify"

    def open_notify(self, name: str) -> socket.socket:
        """The socket that hears this node, whoever bound it before."""
        return self._bound(self.notify_path(name), socket.SOCK_DGRAM)

    def open_status(self) -> socket.socket:
        """The socket for who asks how the host is."""
        found = self._bound(self.path / STATUS, socket.SOCK_STREAM)
        found.listen()
        return found

    def _bound(self, path: Path, kind: socket.SocketKind) -> socket.socket:
        path.unlink(missing_ok=True)
        found = socket.socket(socket.AF_UNIX, kind)
        found.setblocking(False)
        found.bind(str(path))
        return found

    def _locked(self, name: str) -> int | None:
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor
