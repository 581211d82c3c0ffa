"""`barnabas-server quorum recover` and `quorum rejoin`: the guided recovery from majority loss, on the survivor's host.

May touch:  stdout, stderr, report files.   Must not touch: directories but through quorum_recovery.py.
Invariants: a dry run by default; nothing is written without --yes and the directory id typed; every refusal names the way out.
Read next:  quorum_recovery.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import shlex
from collections.abc import Sequence
from typing import Any

from barnabas_broker.metadata.meta_properties import StorageError
from barnabas_broker.offline.quorum_recovery import (
    RecoveryPlan,
    SurvivorReport,
    carry_out,
    inspect,
    lost_voters,
    plan_recovery,
    rank,
    rejoin,
)
from barnabas_log.disk import RealDisk
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.moments import iso_text


def add_verbs(verbs: Any) -> None:
    """Put `quorum` into the command line of barnabas-server."""
    quorum = verbs.add_parser("quorum", help="recover a controller quorum that has lost its majority (offline)")
    actions = quorum.add_subparsers(dest="action", required=True)
    recover = actions.add_parser(
        "recover",
        help="begin anew from one survivor when a majority of the voters is lost for good",
        description="Stop every controller that is left. Look at each one's metadata directory with --inspect on its host, bring "
        "the reports to the host of the best one, and recover there. Without --yes nothing is written. Voters that are not part "
        "of the recovery must not be started unchanged where they reach no node of the recovered quorum: two of them could elect "
        "a leader for nodes that see only them, until the first contact stops them. Wipe their disks, or keep them switched off. "
        "After two recoveries that did not know of each other, stop both, and recover the one that shall stay once more, with "
        "the report of the other.",
    )
    recover.add_argument("directories", nargs="*", metavar="METADATA_DIR", help="of survivors, on this host")
    recover.add_argument("--inspect", action="store_true", help="only say what the directories hold")
    recover.add_argument(
        "--report", action="append", default=[], metavar="FILE", help="what --inspect -o json said on another host"
    )
    recover.add_argument(
        "--from", dest="chosen", metavar="METADATA_DIR", help="recover from this one; default: the best"
    )
    recover.add_argument(
        "--yes",
        metavar="DIRECTORY_ID",
        help="do it; the directory id of the chosen one, typed, proves that you mean it",
    )
    recover.add_argument("-o", "--output", choices=("text", "json"), default="text")
    back = actions.add_parser(
        "rejoin", help="set aside the metadata log of a voter that the quorum was recovered without"
    )
    back.add_argument("directory", metavar="METADATA_DIR")
    back.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(options: argparse.Namespace) -> int:
    """Carry out one of the verbs; returns the exit status. Raises KafkaError with what is refused."""
    if options.action == "rejoin":
        return _rejoin(options)
    if not options.directories:
        raise StorageError(
            "name the metadata directory of at least one survivor (metadata.log.dir, or the first of log.dirs)"
        )
    local = [asyncio.run(inspect(os.path.abspath(path))) for path in options.directories]
    if options.inspect:
        _show_reports(options, rank(local))
        return 0
    reports = [*local, *(report for path in options.report for report in _read_reports(path))]
    plan = plan_recovery(reports, chosen=_choose(options, local, reports), recovery_id=Uuid(os.urandom(16)))
    if options.yes is not None and options.yes != plan.chosen.directory_id:
        raise StorageError(
            f"--yes {options.yes} is not the directory id of {plan.chosen.directory}: nothing was written"
        )
    if options.yes is not None:
        asyncio.run(carry_out(plan))
    _show_plan(options, plan, is_done=options.yes is not None)
    return 0


def _choose(
    options: argparse.Namespace, local: Sequence[SurvivorReport], reports: Sequence[SurvivorReport]
) -> SurvivorReport:
    """By path only among those on this host: hosts like to use the same path."""
    if options.chosen:
        path = os.path.abspath(options.chosen)
        found = next((each for each in local if each.directory == path), None)
        if found is None:
            raise StorageError(f"--from {path} is not among the directories that were given")
        return found
    best = rank(reports)[0]
    if best not in local:
        way = (
            "recover there, with the report of this one; or choose a poorer one here with --from"
            if best.is_voter
            else "it does not vote, so choose the best voter with --from; without --yes that says what is missing"
        )
        raise StorageError(f"the best survivor is node {best.node_id}, {best.directory} on another host: {way}")
    return best


def _rejoin(options: argparse.Namespace) -> int:
    directory = os.path.abspath(options.directory)
    with contextlib.closing(RealDisk()) as disk:
        aside = rejoin(disk, directory)
    if options.output == "json":
        print(json.dumps({"api_version": "v1", "directory": directory, "set_aside": aside}, indent=2))
        return 0
    print(f"the metadata log is set aside as {aside}; data and identity are untouched")
    print("next  start the node, wait until its lag is 0, then give it its vote:")
    print("          barnabas quorum replicas")
    print("          barnabas quorum add-voter ID@HOST:PORT")
    return 0


def _read_reports(path: str) -> list[SurvivorReport]:
    try:
        with open(path, encoding="utf-8") as file:
            return [SurvivorReport.from_json(each) for each in json.load(file)["survivors"]]
    except StorageError as error:
        raise StorageError(f"{path}: {error.message}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is no output of `quorum recover --inspect -o json` ({error})") from None


def _show_reports(options: argparse.Namespace, reports: Sequence[SurvivorReport]) -> None:
    if options.output == "json":
        print(json.dumps({"api_version": "v1", "survivors": [dataclasses.asdict(each) for each in reports]}, indent=2))
        return
    _print_reports(reports)
    print("\nnext  keep this for the host of the best survivor, with -o json; there:")
    print("          barnabas-server quorum recover METADATA_DIR --report FILE")


def _print_reports(reports: Sequence[SurvivorReport]) -> None:
    print("survivors, best first (by last epoch, then log end)")
    for place, each in enumerate(reports, 1):
        print(f"  {place}. node {each.node_id}  {each.directory}")
        print(f"     directory id {each.directory_id}" + ("" if each.is_voter else "  (no voter)"))
        print(
            f"     log ends at {each.log_end_offset} in epoch {each.last_epoch}, last written {_time(each.last_record_ms)}"
        )
        print(f"     committed for certain: below {each.committed_offset}" + _incarnation(each))
        if each.has_forgotten:
            print(
                "     EMPTIED: nothing in it says what it held or whom it voted for, so it votes for nobody and is not elected"
            )
        elif each.lost_end_offset >= 0:
            print(
                f"     DAMAGED: its disk has lost what it had flushed up to {each.lost_end_offset} in epoch {each.lost_epoch}"
            )
        if each.is_unfinished:
            print("     a recovery from it was begun and did not end")


def _show_plan(options: argparse.Namespace, plan: RecoveryPlan, *, is_done: bool) -> None:
    if options.output == "json":
        print(json.dumps(_plan_as_json(plan, is_done=is_done), indent=2))
        return
    chosen = plan.chosen
    _print_reports(plan.ranked)
    print(f"\nchosen: node {chosen.node_id}, {chosen.directory}")
    print("\nwhat may be lost")
    for other in plan.given_up:
        print(
            f"  ALL that the quorum of node {other.node_id} took since its own recovery ({other.incarnation}): two were recovered"
        )
    if plan.missing_records:
        print(f"  AT LEAST {plan.missing_records} records that a better survivor above has and the chosen one lacks")
    if plan.can_have_lost:
        names = ", ".join(plan.unasked) or "the voters before the recovery that was begun here"
        print(
            f"  what these voters committed without the survivors from offset {chosen.committed_offset} on; no survivor has it:"
        )
        print(f"    {names}")
    if plan.damaged_records:
        print(
            f"  AT LEAST {plan.damaged_records} records that a disk here had flushed and has lost; they may have been committed"
        )
    if not (plan.can_have_lost or plan.damaged_records or plan.given_up):
        print("  nothing more: every majority of the old voters had one of the survivors in it")
    print(
        f"  {plan.uncertain_records} records from offset {chosen.committed_offset} on may never have been committed; they count "
        "from now on"
    )
    print("\n" + ("done" if is_done else "would be written (DRY RUN, nothing was)"))
    print(f"  incarnation {plan.incarnation}: brokers follow it, other voters ({_ids(plan)}) are refused")
    print(f"  voters {plan.voters} from offset {chosen.log_end_offset} on, in epoch {plan.epoch}")
    gap = plan.record.epoch_gap
    print(
        f"  leader epochs of all partitions rise by {gap}: who has records of a leader that is lost cuts them, and follows"
    )
    print("\nnext")
    if not is_done:
        print("  to do it, with the node stopped and the old voters never to return unchanged:")
        print(f"      {_command(options, plan)}")
        return
    print(f"  1. start node {chosen.node_id}: it leads alone; brokers come to it by themselves")
    print("     (a broker that had read metadata which is lost now stops once, and is to be started again)")
    print("  2. look: barnabas quorum status && barnabas cluster health")
    print("  3. ONE disk holds the metadata now. Give new or emptied controllers a vote, until there are three:")
    print("      barnabas storage format -c FILE --cluster-id " + chosen.cluster_id + " --no-initial-controllers")
    print("      barnabas quorum add-voter ID@HOST:PORT")
    print(
        "  4. an old voter that returns stops by itself; bring its node back with: barnabas-server quorum rejoin METADATA_DIR"
    )


def _plan_as_json(plan: RecoveryPlan, *, is_done: bool) -> dict[str, Any]:
    return {
        "api_version": "v1",
        "is_dry_run": not is_done,
        "survivors": [dataclasses.asdict(each) for each in plan.ranked],
        "chosen": plan.chosen.directory,
        "chosen_directory_id": plan.chosen.directory_id,
        "missing_records": plan.missing_records,
        "damaged_records": plan.damaged_records,
        "can_have_lost": plan.can_have_lost,
        "unasked_voters": list(plan.unasked),
        "uncertain_records": plan.uncertain_records,
        "given_up": [each.directory for each in plan.given_up],
        "incarnation": str(plan.incarnation),
        "epoch": plan.epoch,
        "leader_epoch_gap": plan.record.epoch_gap,
        "voters": str(plan.voters),
    }


def _command(options: argparse.Namespace, plan: RecoveryPlan) -> str:
    """The same question again, with the consent."""
    words = ["barnabas-server", "quorum", "recover", *map(os.path.abspath, options.directories)]
    for report in options.report:
        words += ["--report", os.path.abspath(report)]
    # One word: a directory id may begin with a hyphen.
    return shlex.join([*words, "--from", plan.chosen.directory, f"--yes={plan.chosen.directory_id}"])


def _ids(plan: RecoveryPlan) -> str:
    ids = [*lost_voters(plan), *(report.node_id for report in plan.given_up)]
    return ", ".join(map(str, dict.fromkeys(ids))) or "none"


def _incarnation(report: SurvivorReport) -> str:
    return f"; incarnation {report.incarnation}" if report.incarnation else ""


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "never"
    return iso_text(timestamp_ms, sep=" ")
