"""What failed in a lane of `make test` is run once more, alone: few that pass then are unsteady, and said so; all else is red.

May touch:  the directory that .ci/test made; pytest processes that it starts.   Must not touch: anything else.
Invariants: a test that fails alone is red, and so is a run in which tests of more than UNSTEADY_MAX files fail, or a lane that ended
            otherwise than by failed tests. The last lines name each unsteady test: it has a race, its own or the product's, to be found.
Read next:  ../../.ci/test.

    python -m tests.support.unsteady DIRECTORY

DIRECTORY has `failed`, lines of `<lane> <exit status>`, and for each lane pytest's cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

UNSTEADY_MAX = 3
"""Files with such tests. The lanes share two cores, and what waits for the others may now and then be late; more at once have one cause."""
TESTS_FAILED = 1
"""pytest's exit status where tests ran to their end and some failed."""


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 where every test that failed passes alone."""
    directory = Path(arguments[0])
    lanes = [line.split() for line in (directory / "failed").read_text().splitlines()]
    failed = [test for lane, _ in lanes for test in failed_in(directory / "cache" / lane)]
    if (
        any(int(status) != TESTS_FAILED for _, status in lanes)
        or not 0 < len({test.partition("::")[0] for test in failed}) <= UNSTEADY_MAX
    ):
        print(f"red: {len(failed)} tests failed, lanes ended with", ", ".join(" ".join(lane) for lane in lanes))
        return 1
    print("once more, alone:", *failed, sep="\n  ", flush=True)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False)
    if done.returncode:
        return 1
    print(
        f"UNSTEADY, {len(failed)} failed beside the other lanes and passed alone; find the race:", *failed, sep="\n  "
    )
    return 0


def failed_in(cache: Path) -> list[str]:
    """The tests that failed, as pytest's cache has them."""
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
