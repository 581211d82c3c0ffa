"""Processes as systemd, Docker and Kubernetes start them, without any of the three: another user without capabilities, a root that is
read only, directories that are mounted, a network of their own, names of hosts, a filter of system calls.

Needs root, and namespaces of mounts and networks (`unshare`, `nsenter`, `setpriv`, `ip`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support import seccomp

BIN = Path(sys.executable).parent
IS_POSSIBLE = (
    seccomp.IS_POSSIBLE
    and os.geteuid() == 0
    and all(shutil.which(each) for each in ("unshare", "nsenter", "setpriv", "ip"))
    and subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True).returncode == 0
)


class Confinement:
    """A file system and a network. `writable`: path there -> directory here, owned by `user`; their parents are empty but for them."""

    def __init__(
        self,
        directory: Path,
        *,
        user: int,
        kind: str,
        writable: Mapping[str, Path],
        read_only: Mapping[str, Path] | None = None,
        hosts: Sequence[str] = (),
        has_bare_proc: bool = False,
    ) -> None:
        """kind: of filter, `unit`, `host` or `container`. hosts: names of this very place. has_bare_proc: ProcSubset=pid and
        ProtectProc=invisible."""
        self._directory = directory
        self._user = user
        self._kind = kind
        self._mounts = {**writable, **(read_only or {})}
        for each in writable.values():
            each.mkdir(parents=True, exist_ok=True)
            os.chown(each, user, user)
        self._writable = set(writable)
        self._hosts = directory / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {name}\n" for name in hosts))
        self._has_bare_proc = has_bare_proc

    def __enter__(self) -> Confinement:
        words = ["unshare", "--mount", "--net", "sh", "-c", f"{self._set_up()}; echo ready; exec sleep 900"]
        self._holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            raise RuntimeError(self._holder.stderr.read())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.kill()
        self._holder.wait()

    def words(self, *command: str) -> list[str]:
        """The command, as it is started there."""
        there = ["nsenter", "--target", str(self._holder.pid), "--mount", "--net"]
        user = [f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups", "--no-new-privs"]
        nothing = ["--bounding-set=-all", "--inh-caps=-all"]
        filtered = [sys.executable, str(Path(seccomp.__file__)), self._kind]
        return [*there, "setpriv", *user, *nothing, *filtered, *command]

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """The process; its output goes to the log."""
        with log.open("ab") as output:
            return subprocess.Popen(
                self.words(*command), env=self._environment(environment), stdout=output, stderr=output, cwd="/"
            )

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end there, confined as all are."""
        return subprocess.run(
            self.words(*command),
            env=self._environment(environment or {}),
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
        )

    def _environment(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {"PATH": f"{BIN}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **wanted}

    def _set_up(self) -> str:
        """The interpreter may be where only root looks: it is shown to all. What is mounted is taken hold of before /tmp is hidden."""
        q = shlex.quote
        base = Path(sys.base_prefix)
        kept = self._directory / "kept"
        kept.mkdir()
        steps = [
            "set -e",
            "mount --make-rprivate /",
            "ip link set lo up",
            f"mount --bind {q(str(self._hosts))} /etc/hosts",
        ]
        for number, here in enumerate(self._mounts.values()):
            (kept / str(number)).mkdir()
            steps.append(f"mount --bind {q(str(here))} {q(str(kept / str(number)))}")
        if base.parts[1] == "root":
            (kept / "base").mkdir()
            steps += [
                f"mount --bind {q(str(base))} {q(str(kept / 'base'))}",
                "mount -t tmpfs -o mode=755 none /root",
                f"mkdir -p {q(str(base))}",
                f"mount --bind {q(str(kept / 'base'))} {q(str(base))}",
            ]
        for parent in sorted({str(Path(there).parent) for there in self._mounts}):
            steps.append(f"mount -t tmpfs -o mode=755 none {parent}")
        for number, there in enumerate(self._mounts):
            steps += [f"mkdir -p {there}"]
            steps.append(f"mount --bind {q(str(kept / str(number)))} {there}")
            if there not in self._writable:
                steps.append(f"mount -o remount,bind,ro {there}")
        steps += ["mount -o remount,bind,ro /", "mount -t tmpfs -o mode=1777 none /tmp"]
        if self._has_bare_proc:
            steps.append("mount -t proc -o subset=pid,hidepid=invisible proc /proc")
        return "; ".join(steps)
