"""`make fuzz BUDGET=60s`: atheris, where it is installed, else mutations by a seeded generator of our own; both from the same seeds.

May touch:  corpus/ (what broke a rule is written there), the clock.     Must not touch: sockets.
Invariants: ends after the budget with status 0, or at the first input that breaks a rule with its file's name.
Read next:  targets.py.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

try:
    import atheris  # type: ignore[import-untyped]
except ImportError:  # without the extra `fuzz`
    atheris = None

INSTRUMENTED = ["barnabas_wire", "barnabas_broker", "barnabas_coordination", "barnabas_quorum", "barnabas_log"]
"""What atheris sees the branches of: it must have seen their import."""

if atheris is not None and __name__ == "__main__" and "--own" not in sys.argv:
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import CORPUS, DECOMPRESSED_BYTES_MAX, TARGETS, run, seeds
else:
    from tests.fuzz.targets import CORPUS, DECOMPRESSED_BYTES_MAX, TARGETS, run, seeds

ALLOCATED_FACTOR, ALLOCATED_BYTES = 16, 64 * 1024
MEASURED_EACH = 200
"""Measuring what is allocated makes an input twenty times as slow: one of so many is."""
NUMBERS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f")
UNITS = {"s": 1, "m": 60, "h": 3600}


def check_memory(data: bytes) -> None:
    """Run one input and raise AssertionError when it allocates more than it may."""
    run(data)  # what is imported and compiled at the first time is kept, and does not count
    tracemalloc.start()
    try:
        run(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    most = ALLOCATED_FACTOR * len(data) + ALLOCATED_BYTES + 2 * DECOMPRESSED_BYTES_MAX
    assert peak <= most, f"{len(data)} bytes had {peak} allocated, {most} are allowed"


def mutated(draw: random.Random, pool: list[bytes]) -> bytes:
    """One of the pool with a few changes: bits, bytes, cuts, repeats, numbers that matter, a piece of another."""
    data = bytearray(draw.choice(pool))
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
            case 1 if data:
                data[at % len(data)] = draw.randrange(256)
            case 2:
                del data[at : at + draw.randrange(1, 9)]
            case 3:
                data[at:at] = data[at : at + draw.randrange(1, 17)] * draw.randrange(1, 5)
            case 4:
                data[at : at + 4] = draw.choice(NUMBERS)
            case 5:
                other = draw.choice(pool)
                data[at:at] = other[draw.randrange(len(other) + 1) :][:64]
            case _:
                data[at:at] = draw.randbytes(draw.randrange(1, 9))
    return bytes(data[:4096])


def fuzz_by_ourselves(budget_s: float, seed: int) -> int:
    """How many inputs were run."""
    draw, pool, count = random.Random(seed), list(seeds()), 0
    ends = time.monotonic() + budget_s
    while time.monotonic() < ends:
        data = mutated(draw, pool)
        count += 1
        try:
            (check_memory if count % MEASURED_EACH == 0 else run)(data)
        except BaseException:
            keep(data)
            raise
    return count


def keep(data: bytes) -> Path:
    """Write an input that broke a rule into the corpus."""
    CORPUS.mkdir(exist_ok=True)
    target = TARGETS[data[0] % len(TARGETS)].name if data else "empty"
    file = CORPUS / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    file.write_bytes(data)
    print(f"kept as {file}: it breaks a rule", file=sys.stderr)
    return file


def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--budget", default="60s", help="time, such as 30s, 10m or 2h")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of our own generator")
    parser.add_argument("--own", action="store_true", help="our own generator, though atheris is there")
    options = parser.parse_args()
    budget_s = float(options.budget.rstrip("smh")) * UNITS.get(options.budget[-1], 1)
    if atheris is None or options.own:
        started = time.monotonic()
        count = fuzz_by_ourselves(budget_s, options.seed)
        seconds = time.monotonic() - started
        print(
            f"{count:,} inputs in {seconds:.0f} s ({count / seconds:,.0f}/s), seed {options.seed}: no rule was broken"
        )
        return
    with tempfile.TemporaryDirectory() as directory:
        for index, data in enumerate(seeds()):
            (Path(directory) / f"{index:05}").write_bytes(data)
        seen = 0

        def one_input(data: bytes) -> None:
            nonlocal seen
            seen += 1
            try:
                (check_memory if seen % MEASURED_EACH == 0 else run)(data)
            except BaseException:
                keep(data)
                raise

        words = [sys.argv[0], f"-max_total_time={int(budget_s)}", "-max_len=4096", "-print_final_stats=1", directory]
        atheris.Setup(words, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
