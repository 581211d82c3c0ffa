"""`make node-fuzz IMAGES= SEED=`: damage each durable file of a real cluster in every small way, start it, read it, judge it.

May touch:  tmpfs, forks.              Must not touch: running clusters of others.
Invariants: a failing image prints the line that replays it; the same seed damages the same files in the same ways.
Read next:  world.py (what the cluster has), damage.py, images.py, laws.py.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import re
import select
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tests.node_fuzz import damage, decoders, images, laws, world

WORKERS = 4
"""Images at a time: most of one is waiting for elections."""
SHORT_TWICE = (
    "partition.metadata",
    "topic witness",
    "meta.properties",
    "recovery points",
    "log starts",
    "checkpoints and twins",
    "leader epochs",
    "segment",
    "index",
    "aborted index",
    "quorum-state",
    "strange name",
)
Image = tuple[damage.Choice, damage.Damage]
SHARED_MEMORY = Path("/dev/shm")
NAMES_MAX = 20_000
"""A pattern that matches none of so many images matches none at all: each file comes with each kind of damage many times among them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every image keeps the laws."""
    parser = argparse.ArgumentParser(prog="make node-fuzz", description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--image", type=int, help="only this number of the seed, with what the nodes log")
    parser.add_argument("--file", help="only images whose file and kind match this pattern")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--short", action="store_true", help="some images of each file, as the tests take")
    parser.add_argument("--json", type=Path, help="write everything there")
    options = parser.parse_args(arguments)
    is_whole = options.image is not None
    if options.file is not None and not any(
        re.search(options.file, str(each)) for each in islice(damage.choices(options.seed), NAMES_MAX)
    ):
        parser.error(
            f"no image matches --file '{options.file}': they are named like '{next(damage.choices(options.seed))}'"
        )
    content = Content()
    if not is_whole and options.file is None:
        _report_decoders(content)
    with made_world() as (copies, truth):
        drawn = damage.choices(options.seed)
        if is_whole:
            drawn = islice(drawn, options.image, options.image + 1)
        elif options.file is not None:
            drawn = (each for each in drawn if re.search(options.file, str(each)))
        effective = ((choice, done) for choice in drawn if (done := damage.plan(choice, copies)) is not None)
        chosen = short_form(effective) if options.short else islice(effective, options.images)
        content.files = sorted({str(path) for state in world.STATES for path in world.files_of(copies / state)})
        results = run(chosen, copies, truth, workers=options.workers, is_loud=is_whole)
        broken = report(results, content, is_whole=is_whole)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(content), indent=1) + "\n")
    return 1 if broken or any(content.decoders.values()) else 0


@dataclass
class Content:
    """What the tests read."""

    files: list[str] = field(default_factory=list)
    """Of all nodes, below their directories."""
    decoders: dict[str, list[str]] = field(default_factory=dict)
    """What each takes wrongly."""
    images: list[dict[str, Any]] = field(default_factory=list)


def short_form(drawn: Iterator[Image]) -> Iterator[Image]:
    """The first of each file, and the second of those that say most."""
    wanted = Counter([*damage.FILES, "strange name", *SHORT_TWICE])
    while wanted.total():
        choice, done = next(drawn)
        if wanted[choice.file] > 0:
            wanted[choice.file] -= 1
            yield choice, done


class made_world:
    """A cluster's copies on tmpfs, and their truth; removed at the end."""

    def __enter__(self) -> tuple[Path, world.Truth]:
        for name in ("barnabas_broker.api.registry", "barnabas_admin.client"):
            importlib.import_module(name)
        importlib.import_module("barnabas_broker.api.registry").load_handlers()
        gc.freeze()
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._copies = Path(tempfile.mkdtemp(prefix="node-fuzz-", dir=parent))
        making = images.in_child(None, self._copies / "making", lambda: _make(self._copies))
        verdict = making.finish()
        if not (self._copies / "truth").exists():
            shutil.rmtree(self._copies, ignore_errors=True)
            raise SystemExit(f"node-fuzz: no cluster to damage: {verdict}")
        return self._copies, world.Truth.load(self._copies)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._copies, ignore_errors=True)


def _make(copies: Path) -> images.Verdict:
    import asyncio

    asyncio.run(world.make_world(copies))
    return images.Verdict("made")


def run(
    chosen: Iterator[Image], copies: Path, truth: world.Truth, *, workers: int, is_loud: bool = False
) -> Iterator[tuple[damage.Choice, images.Verdict]]:
    """Judge images, some at a time."""
    running: list[images.Running] = []
    while True:
        while len(running) < workers and (image := next(chosen, None)) is not None:
            running.append(images.launch(*image, copies, truth, is_loud=is_loud))
        if not running:
            return
        ready, _, _ = select.select([each.pipe for each in running], [], [])
        for each in [each for each in running if each.pipe in ready]:
            running.remove(each)
            yield each.choice, each.finish()


def report(results: Iterator[tuple[damage.Choice, images.Verdict]], content: Content, *, is_whole: bool = False) -> int:
    """Print progress and failures; how many images broke a law."""
    began, cpu_s, count = time.monotonic(), 0.0, 0
    classes: Counter[str] = Counter()
    broken = 0
    for choice, verdict in results:
        cpu_s += verdict.cpu_s
        count += 1
        known = {each: laws.reason_of(f"{choice.file} {choice.kind}: {each}") for each in verdict.broken}
        verdict.broken = [each for each, reason in known.items() if reason is None]
        for each, reason in known.items():
            if reason is not None:
                print(f"{choice.line}   # left out: {each}: {reason}")
        content.images.append({"line": choice.line, **choice._asdict(), **asdict(verdict), "heard": verdict.heard[:20]})
        if is_whole:
            print("\n".join(verdict.heard))
            print(f"refusal: {verdict.refusal or 'none'}; {'HEALTHY' if verdict.is_healthy else 'not healthy'}")
        if verdict.broken:
            broken += 1
            told = sorted({each.partition(":")[0] for each in verdict.broken})
            classes[f"{choice.file} {choice.kind}: {', '.join(told)}"] += 1
            print(f"{choice.line}   # {choice.copy}, {choice.form}, node {choice.node}: {verdict.what}")
            for each in verdict.broken[: None if is_whole else 3]:
                print(f"    {each}")
        if count % 50 == 0:
            took_s = time.monotonic() - began
            print(
                f"{count} images, {count / took_s:.1f}/s, {cpu_s / count:.2f} CPU s each: {broken} broke a law",
                flush=True,
            )
    took_s = max(0.001, time.monotonic() - began)
    print(
        f"{count} images in {took_s:.0f} s ({count / took_s:.1f}/s, {cpu_s / max(1, count):.2f} CPU s each): {broken} broke a law"
    )
    for name, number in sorted(classes.items()):
        print(f"  {number:4} {name}")
    return broken


def _report_decoders(content: Content) -> None:
    began = time.process_time()
    for name, count, wrong in decoders.judge_all():
        print(f"{name}: {count} forms, {len(wrong)} wrong")
        content.decoders[name] = wrong
        for each in wrong[:3]:
            print(f"    {each}")
    print(f"decoders took {time.process_time() - began:.1f} CPU s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
