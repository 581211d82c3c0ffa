"""Where the core dependencies install without a compiler: `python -m tests.package.platforms [--json FILE]` (make platforms).

May touch:  the package index, through pip.     Must not touch: this environment: nothing is installed or fetched but metadata.
Invariants: every run-time dependency, and what it depends on, is asked for on every platform and Python named here; exit status 1
            where one has no wheel and MISSING does not say so, or MISSING says so and it has one.
Read next:  pyproject.toml (dependencies, requires-python).

pip resolves for a foreign platform what `--only-binary` allows, one question for each platform and Python. What has no wheel is named by
pip, left out, and the rest is asked again. A wheel that is pure Python or for the stable ABI is found by the same question.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
PLATFORMS = {
    "Linux x86-64, glibc": [f"manylinux_2_{minor}_x86_64" for minor in (34, 28, 27, 26, 24, 17)]
    + ["manylinux2014_x86_64"],
    "Linux aarch64, glibc": [f"manylinux_2_{minor}_aarch64" for minor in (34, 28, 27, 26, 24, 17)]
    + ["manylinux2014_aarch64"],
    "Linux x86-64, musl": ["musllinux_1_2_x86_64", "musllinux_1_1_x86_64"],
    "Linux aarch64, musl": ["musllinux_1_2_aarch64", "musllinux_1_1_aarch64"],
    "macOS arm64": ["macosx_14_0_arm64"],
}
MISSING: dict[str, frozenset[tuple[str, str]]] = {}
"""By distribution: (platform, Python) for which it is known to have no wheel. A new hole fails, and so does one that was filled."""
ASKED_S_MAX = 300


def core_dependencies() -> list[str]:
    """What `pip install barnabas` needs, without extras."""
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return found


def name_of(requirement: str) -> str:
    """The distribution that a requirement names, in its normal form."""
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[; ]", requirement.strip())[0]).lower()


def missing_wheels(requirements: list[str], platform: str, python: str) -> set[str]:
    """The distributions that have no wheel there. Raises RuntimeError where pip fails for another reason."""
    left, missing = list(requirements), set[str]()
    while True:
        answer = _ask(left, PLATFORMS[platform], python)
        if answer is None:
            return missing
        refused = re.findall(r"No matching distribution found for (\S+)", answer)
        name = name_of(refused[-1]) if refused else ""
        if not name:
            raise RuntimeError(f"pip failed for {platform}, Python {python}:\n{answer}")
        missing.add(name)
        kept = [each for each in left if name_of(each) != name]
        if kept == left:  # a dependency of one of them: what needs it cannot be had either
            raise RuntimeError(
                f"{name} has no wheel for {platform}, Python {python}, and is needed by another:\n{answer}"
            )
        left = kept


def _ask(requirements: list[str], tags: list[str], python: str) -> str | None:
    """None when pip finds wheels for all, else what it said."""
    with TemporaryDirectory() as nowhere:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--quiet",
            "--ignore-installed",
            "--target",
            nowhere,
        ]
        command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
        command += [word for tag in tags for word in ("--platform", tag)]
        try:
            done = subprocess.run(
                [*command, *requirements], capture_output=True, text=True, timeout=ASKED_S_MAX, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"pip had no answer within {ASKED_S_MAX} s: run it again") from error
    return None if done.returncode == 0 else done.stderr


def main() -> int:
    """Ask, print the table."""
    parser = argparse.ArgumentParser(prog="tests.package.platforms", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the table there too")
    options = parser.parse_args()
    requirements = core_dependencies()
    table: dict[str, dict[str, list[str]]] = {}
    status = 0
    print(f"{'':22}" + "".join(f"{python:>26}" for python in PYTHONS))
    for platform in PLATFORMS:
        try:
            row = {python: sorted(missing_wheels(requirements, platform, python)) for python in PYTHONS}
        except RuntimeError as error:
            status = 1
            print(f"{platform:22}{'not answered':>26}\n{error}", file=sys.stderr)
            continue
        table[platform] = row
        print(f"{platform:22}" + "".join(f"{', '.join(names) or 'all':>26}" for names in row.values()), flush=True)
        for python, names in row.items():
            known = {name for name, where in MISSING.items() if (platform, python) in where}
            for name in sorted(known ^ set(names)):
                status = 1
                what = "has a wheel now: take it out of MISSING" if name in known else "has no wheel"
                print(f"{name} {what}: {platform}, Python {python}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps({"requirements": requirements, "missing": table}, indent=2) + "\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
