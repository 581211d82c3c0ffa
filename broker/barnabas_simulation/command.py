"""`barnabas-server sim`: a whole cluster on virtual time, and its journal to step through.

May touch:  stdout, stdin of --step, the journal's file.   Must not touch: a cluster that runs.
Invariants: exit status 0 when every law held, 1 when one was broken, 2 for a refusal that names the fix.
Read next:  scripted.py, which runs; journal_text.py, which shows.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.run_journal import BYTES_MAX, Journal, NotAJournal, read_journal

DEFAULT_SCENARIO = "leader-dies"
SEED_MAX = 2**63 - 1
WIDTH_CHARS = 120
"""Where the output is no terminal."""
WIDTH_CHARS_MIN = 60
LAW_BROKEN = 1


def add_verbs(verbs: Any) -> None:
    """Put `sim` into the command line of barnabas-server."""
    sim = verbs.add_parser(
        "sim",
        help="run a whole cluster on virtual time: a leader dies, a network splits, a disk rots, two voters are lost",
        description="Run three nodes of this very code on virtual time, over a simulated network and disks, through a bundled scenario, "
        "and show what happened: what each node believed, when, and why the laws of Raft and of the in-sync set held. The same seed is "
        "the same run. It takes a few seconds and touches nothing.",
    )
    actions = sim.add_subparsers(dest="action", metavar="{list,replay}")
    sim.add_argument(
        "--scenario", default=DEFAULT_SCENARIO, metavar="NAME", help=f"see `sim list`; default {DEFAULT_SCENARIO}"
    )
    sim.add_argument(
        "--seed", type=_seed, default=1, metavar="N", help="everything that the scenario leaves open; default 1"
    )
    sim.add_argument(
        "--out", metavar="FILE", help="write the journal there too: for `sim replay` and `barnabas console --journal`"
    )
    _add_view(sim)
    listing = actions.add_parser("list", help="the bundled scenarios")
    listing.add_argument("-o", "--output", choices=("text", "json"), default="text")
    replay = actions.add_parser("replay", help="show a journal that --out wrote")
    replay.add_argument("file", metavar="FILE")
    replay.add_argument(
        "--step", action="store_true", help="one step at a time: Enter goes on, p back, a number there, q ends"
    )
    _add_view(replay)


def _add_view(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", dest="has_details", action="store_true", help="show the way of every record too")
    parser.add_argument("--why", dest="has_reasons", action="store_true", help="say at each step why the law held")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json: the journal itself, one object per line"
    )


def run(options: argparse.Namespace) -> int:
    """Carry out one of the verbs; returns the exit status. Raises KafkaError with what is refused."""
    if options.action == "list":
        return _list(options)
    journal = _read(options.file) if options.action == "replay" else _simulate(options)
    if options.output == "json":
        for line in journal.lines():
            print(line)
    elif options.action == "replay" and options.step:
        _step_through(journal)
    else:
        from barnabas_simulation.journal_text import overview

        lines = overview(journal, width=_width(), has_details=options.has_details, has_reasons=options.has_reasons)
        for line in lines:
            print(line)
        if options.action is None and not options.out:
            again = f"barnabas-server sim --scenario {journal.scenario} --seed {journal.seed} --out run.jsonl"
            print(f"\nnext  {again}; barnabas-server sim replay run.jsonl --step")
    return 0 if journal.is_kept else LAW_BROKEN


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > SEED_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: give a whole number from 0 to {SEED_MAX}")
    return int(text)


def _width() -> int:
    return max(WIDTH_CHARS_MIN, shutil.get_terminal_size((WIDTH_CHARS, 0)).columns)


def _list(options: argparse.Namespace) -> int:
    from barnabas_simulation.scenarios import SCENARIOS

    if options.output == "json":
        rows = [{"name": each.name, "title": each.title, "about": each.about} for each in SCENARIOS.values()]
        print(json.dumps({"api_version": "v1", "scenarios": rows}, indent=2))
        return 0
    name_chars = max(map(len, SCENARIOS))
    for each in SCENARIOS.values():
        print(f"{each.name:{name_chars}}  {each.title}")
    print("\nnext  barnabas-server sim --scenario NAME --seed N")
    return 0


def _simulate(options: argparse.Namespace) -> Journal:
    from barnabas_simulation.scenarios import SCENARIOS
    from barnabas_simulation.scripted import ScriptedRun

    scenario = SCENARIOS.get(options.scenario)
    if scenario is None:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"there is no scenario {options.scenario!r}; there are: {', '.join(SCENARIOS)}"
        )
    with _silence():
        journal = ScriptedRun(scenario, options.seed).journal()
    if options.out:
        text = "".join(f"{line}\n" for line in journal.lines())
        try:
            Path(options.out).write_text(text, encoding="utf-8")
        except OSError as error:
            raise KafkaError.of(
                ErrorCode.KAFKA_STORAGE_ERROR, f"--out {options.out}: {error.strerror}; name a file that can be written"
            ) from None
    return journal


@contextmanager
def _silence() -> Iterator[None]:
    """The nodes log what happens to them, at virtual times and all at once: the journal says it better."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that a node's death leaves unawaited
            yield
    finally:
        logging.disable(before)


def _read(path: str) -> Journal:
    try:
        with open(path, "rb") as file:
            return read_journal(file.read(BYTES_MAX + 1))
    except NotAJournal as error:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{path}: {error}") from None
    except OSError as error:
        raise KafkaError.of(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{path}: {error.strerror}; make a journal with `barnabas-server sim --scenario NAME --out {path}`",
        ) from None


def _step_through(journal: Journal) -> None:
    from barnabas_simulation.journal_text import one_step

    at, count = 0, len(journal.steps)
    while count:
        print("\n".join(one_step(journal, journal.steps[at], width=_width())))
        try:
            word = input(f"\n[{at + 1}/{count}] Enter next, p previous, a number, q quit: ").strip().lower()
        except EOFError:
            print()
            return
        print()
        if word in ("q", "quit"):
            return
        if word.isascii() and word.isdigit() and 1 <= int(word) <= count:
            at = int(word) - 1
        elif word == "p":
            at = max(0, at - 1)
        elif word in ("", "n"):
            if at == count - 1:
                return
            at += 1
        else:
            print(f"{word!r} is none of these; a number is from 1 to {count}\n")
