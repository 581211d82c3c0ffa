"""A former version of this project from the repository's own history, made to run beside this one.

May touch:  a directory it is given, git (reading), pip for what the former code needs newer.   Must not touch: this tree, its environment.
Invariants: the former code comes first on the path of its interpreter; third-party packages are those of this environment, but for
            protobuf and grpcio where the former generated code does not load under an older one.
Read next:  versions.py, which mixes it with this version.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


PIN = re.compile(r'"(protobuf|grpcio)==([\d.]+)"')
"""In pyproject.toml of a commit that pinned what it runs with."""
INSTALL_TIMEOUT_S = 120.0


class NotInThisCloneError(Exception):
    """The commit is not in this repository, or what it needs is not to be had."""


def make_former(commit: str, directory: Path) -> Path:
    """The interpreter of an environment that runs the code of a commit.

    Args:
        commit: of this repository.
        directory: empty; keeps the tree and the environment.

    Raises:
        NotInThisCloneError: the clone is shallow or no clone at all, with the command that mends it, or what it needs is not there.
    """
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if known.returncode != 0:
        raise NotInThisCloneError(f"commit {commit} is not in this clone; fetch it with `git fetch --unshallow`")
    archive = directory / "tree.tar"
    subprocess.run(["git", "archive", "--output", str(archive), commit], cwd=ROOT, check=True)
    tree = directory / "tree"
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    archive.unlink()
    environment = directory / "venv"
    venv.create(environment, symlinks=True, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    rooms = sorted(room for room in tree.iterdir() if any(room.glob("barnabas_*/__init__.py")))
    _install_newer(tree, site)
    # This environment's packages are a plain directory here: its .pth files, which name this tree, are not read.
    places = [*rooms, *dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))]
    (site / "former.pth").write_text("".join(f"{place}\n" for place in places), encoding="utf-8")
    return environment / "bin" / "python"


def _install_newer(tree: Path, site: Path) -> None:
    """What the commit pinned newer than this environment has: code that was generated for it does not load under less."""
    pins = PIN.findall((tree / "pyproject.toml").read_text(encoding="utf-8"))
    newer = [f"{name}=={pin}" for name, pin in pins if _numbers(pin) > _numbers(version(name))]
    if not newer:
        return
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), *newer]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise NotInThisCloneError(f"the commit needs {' and '.join(newer)}, which pip cannot install: {words}")


def _numbers(found: str) -> tuple[int, ...]:
    return tuple(int(part) for part in found.split(".") if part.isdigit())


def server_of(python: Path) -> tuple[str, ...]:
    """The command line of `barnabas-server` under an interpreter. -E, -P: neither PYTHONPATH nor the working directory is on its path."""
    return (str(python), "-E", "-P", "-m", "barnabas_broker.main")


def home_of(python: Path) -> Path:
    """Where an interpreter finds the broker's code."""
    words = [str(python), "-E", "-P", "-c", "import barnabas_broker; print(barnabas_broker.__file__)"]
    return Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()).parents[1]
