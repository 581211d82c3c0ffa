"""`barnabas quorum`: the controllers' metadata quorum, as its leader sees it, and who votes in it.

May touch:  the admin client.         Must not touch: the quorum's own service.
Invariants: what is not known is null in JSON and "-" in text, never 0; a change is reported as done when it is committed.
Read next:  cluster.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from typing import Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import print_fields, print_json, print_line, print_table, talk
from barnabas_admin.patience import patiently
from barnabas_wire.kafka.errors import ErrorCode

REPLACEMENT_WAIT_S = 600.0
SUCCESSOR_LAG_MAX = 100
"""Records that a controller may lag by when it is given a vote: a busy log is never caught up with to the last one."""
SUCCESSOR_PAUSE_S = 0.3


@click.command()
@common_options
def status(invocation: Invocation) -> None:
    """Show leader, epoch, high watermark and lag of the quorum."""
    found = invocation.admin.describe_quorum()
    rows = [_describe(replica, found.described_at_ms) for replica in found.replicas]
    voters = [row for row in rows if row["role"] != "observer"]
    followers = [row for row in rows if row["role"] != "leader"]
    lags = [row["lag_records"] for row in followers if row["lag_records"] is not None]
    times = [row["lag_ms"] for row in followers if row["lag_ms"] is not None]
    fields = {
        "cluster_id": found.cluster_id,
        "leader_id": found.leader_id if found.leader_id >= 0 else None,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "max_follower_lag": max(lags, default=None),
        "max_follower_lag_ms": max(times, default=None),
        "voters": [{key: row[key] for key in ("id", "directory_id", "endpoint")} for row in voters],
        "observers": [{key: row[key] for key in ("id", "directory_id")} for row in rows if row["role"] == "observer"],
    }
    if invocation.is_json:
        print_json(fields)
        return
    fields["voters"] = " ".join(f"{row['id']}@{row['endpoint']}:{row['directory_id']}" for row in voters)
    fields["observers"] = " ".join(str(row["id"]) for row in rows if row["role"] == "observer")
    print_fields(fields)


@click.command()
@common_options
def replicas(invocation: Invocation) -> None:
    """List voters and observers with their log end and lag."""
    found = invocation.admin.describe_quorum()
    rows = [_describe(replica, found.described_at_ms) for replica in found.replicas]
    if invocation.is_json:
        print_json({"leader_id": found.leader_id, "leader_epoch": found.leader_epoch, "replicas": rows})
        return
    columns = ["NODE", "ROLE", "LEO", "LAG", "LAG_TIME", "LAST_FETCH", "CAUGHT_UP", "DIRECTORY_ID", "ENDPOINT"]
    print_table(
        columns,
        [
            [
                row["id"],
                row["role"],
                row["log_end_offset"],
                row["lag_records"],
                _duration(row["lag_ms"]),
                _ago(row["last_fetch_ms_ago"]),
                _ago(row["last_caught_up_ms_ago"]),
                row["directory_id"],
                row["endpoint"],
            ]
            for row in rows
        ],
    )


@click.command("add-voter")
@click.argument("voter", metavar="ID@HOST:PORT[:DIRECTORY_ID]")
@common_options
def add_voter(invocation: Invocation, voter: str) -> None:
    """Let a controller vote.

    It must run, formatted with --no-initial-controllers, and have caught up (its lag in `barnabas quorum replicas` is 0).
    HOST:PORT is its controller listener. Without a directory id, the one it fetches with is taken.
    """
    found = re.fullmatch(r"(\d+)@(\[[^]]+\]|[^:@]+):(\d+)(?::([\w-]{22}))?", voter)
    if found is None:
        raise click.UsageError(f"{voter}: write ID@HOST:PORT or ID@HOST:PORT:DIRECTORY_ID, as in 4@10.0.0.4:9093")
    node_id, host, port, directory_id = found.groups()
    done = invocation.admin.add_voter(
        int(node_id), host=host.strip("[]"), port=int(port), directory_id=directory_id or ""
    )
    _print_change(invocation, done, "votes now", is_voter=True)


@click.command("remove-voter")
@click.argument("voter", metavar="ID[:DIRECTORY_ID]")
@yes_option
@common_options
def remove_voter(invocation: Invocation, voter: str, yes: bool) -> None:
    """Take a controller's vote.

    It continues as an observer until it is stopped. Without a directory id, that of the voter with this id is taken. A replaced
    disk: remove the voter, then add it with the directory id of the new disk. Asks where the quorum bears fewer losses afterwards.
    """
    found = re.fullmatch(r"(\d+)(?::([\w-]{22}))?", voter)
    if found is None:
        raise click.UsageError(f"{voter}: write ID or ID:DIRECTORY_ID, as `barnabas quorum replicas` shows them")
    health = invocation.admin.describe_health()
    lost = lost_tolerance(health.voters, health.voters_down, int(found[1]))
    if lost is not None:
        confirm(f"without voter {found[1]} {lost}", typed=found[1], yes=yes)
    done = invocation.admin.remove_voter(int(found[1]), directory_id=found[2] or "")
    _print_change(invocation, done, "votes no more", is_voter=False)


def lost_tolerance(voters: Collection[int], down: Collection[int], removed: int) -> str | None:
    """What a quorum bears less once this voter is removed, as the end of a sentence; None where it bears as much, as where it does not
    answer anyway."""
    if removed not in voters or len(voters) < 2:
        return None
    alive = len(voters) - len({*voters} & {*down})
    left, left_alive = len(voters) - 1, alive - (removed not in down)
    spare = left_alive - (left // 2 + 1)
    if spare >= alive - (len(voters) // 2 + 1) and left > 1:
        return None
    needed = f"{left // 2 + 1} of {left} voters {'is' if left == 1 else 'are'} needed for a leader"
    if spare < 0:
        return f"{needed}, and only {left_alive} answers: no leader can be elected"
    if spare:
        return f"{needed}, so {spare} of them may fail"
    alone = ", and nobody else keeps the metadata" if left == 1 else ""
    return f"{needed}, so none of them may fail{alone}"


@click.command("replace-voter")
@click.argument("voter_id", type=click.IntRange(min=0), metavar="ID")
@click.option(
    "--by",
    "successor_id",
    type=click.IntRange(min=0),
    metavar="ID",
    help="Another controller; default: the same id, on a new disk.",
)
@click.option(
    "--wait-max",
    "wait_s_max",
    type=click.FloatRange(min=0, min_open=True),
    default=REPLACEMENT_WAIT_S,
    metavar="SECONDS",
    help="How long the new one may take to catch up; default 600.",
)
@common_options
def replace_voter(invocation: Invocation, voter_id: int, successor_id: int | None, wait_s_max: float) -> None:
    """Replace a voter whose disk or host is gone by one that runs and has caught up.

    The new one is formatted with --no-initial-controllers and started, as ID or, with --by, as another. It is waited for until it has
    caught up; then the votes change: with the same id the old vote goes first, with another the new one comes first.
    """
    wanted = voter_id if successor_id is None else successor_id
    old, new = _wait_for_successor(invocation, voter_id, wanted, wait_s_max=wait_s_max)
    host, port = _controller_endpoint(invocation, wanted)
    if wanted == voter_id:
        invocation.admin.remove_voter(voter_id, directory_id=old.directory_id)
        talk(f"node {voter_id} with directory {old.directory_id} votes no more")
    done = patiently(lambda: invocation.admin.add_voter(wanted, host=host, port=port, directory_id=new.directory_id))
    if wanted != voter_id:
        talk(f"node {wanted} with directory {new.directory_id} votes now")
        patiently(lambda: invocation.admin.remove_voter(voter_id, directory_id=old.directory_id))
    if invocation.is_json:
        print_json(
            {
                "replaced": {"id": voter_id, "directory_id": old.directory_id},
                "by": {"id": done.id, "directory_id": done.directory_id},
            }
        )
    else:
        print_line(
            f"node {done.id} with directory {done.directory_id} votes in place of node {voter_id}, {old.directory_id}"
        )


def _wait_for_successor(invocation: Invocation, voter_id: int, wanted: int, *, wait_s_max: float) -> tuple[Any, Any]:
    """(the voter that goes, the observer that comes), once the latter has caught up."""
    deadline = time.monotonic() + wait_s_max
    reported = ""
    while True:
        replicas = patiently(lambda: invocation.admin.describe_quorum()).replicas
        voters = {replica.id: replica for replica in replicas if replica.role != "observer"}
        if voter_id not in voters:
            raise AdminError(
                f"node {voter_id} is no voter",
                code=ErrorCode.VOTER_NOT_FOUND,
                hint=f"voters are {', '.join(map(str, sorted(voters)))}; `barnabas quorum add-voter` adds one",
            )
        if wanted != voter_id and wanted in voters:
            raise AdminError(f"node {wanted} votes already", code=ErrorCode.DUPLICATE_VOTER)
        found = [r for r in replicas if r.role == "observer" and r.id == wanted and r.directory_id]
        found = sorted(found, key=lambda r: -r.last_fetch_timestamp_ms)[:1]  # others are disks that it had before
        ready = [r for r in found if 0 <= r.lag_records <= SUCCESSOR_LAG_MAX]
        if ready:
            return voters[voter_id], ready[0]
        state = f"it lags by {found[0].lag_records} records" if found else "it does not fetch yet"
        if time.monotonic() > deadline:
            raise AdminError(
                f"node {wanted} has not caught up within {wait_s_max:g} s: {state}; no vote was changed",
                code=ErrorCode.REQUEST_TIMED_OUT,
                hint="format its new directory with `barnabas storage format --no-initial-controllers` and start it",
            )
        if state.split(" by ")[0] != reported:
            reported = state.split(" by ")[0]
            talk(f"waiting for node {wanted}: {state}")
        time.sleep(SUCCESSOR_PAUSE_S)


def _controller_endpoint(invocation: Invocation, node_id: int) -> tuple[str, int]:
    for controller in patiently(lambda: invocation.admin.describe_cluster()).controllers:
        if controller.id == node_id and controller.listeners:
            return controller.listeners[0].host, controller.listeners[0].port
    raise AdminError(
        f"the controller listener of node {node_id} is not known: it has not registered",
        code=ErrorCode.RESOURCE_NOT_FOUND,
        hint=f"`barnabas quorum remove-voter` and `barnabas quorum add-voter {node_id}@HOST:PORT` do it by hand",
    )


def _print_change(invocation: Invocation, done: Any, what: str, *, is_voter: bool) -> None:
    if invocation.is_json:
        print_json({"id": done.id, "directory_id": done.directory_id, "is_voter": is_voter})
    else:
        print_line(f"node {done.id} with directory {done.directory_id} {what}")


def _describe(replica: Any, now_ms: int) -> dict[str, Any]:
    is_leader = replica.role == "leader"

    def since(timestamp_ms: int) -> int | None:
        return None if timestamp_ms < 0 or is_leader else max(0, now_ms - timestamp_ms)

    lag = 0 if is_leader else replica.lag_records
    caught_up = since(replica.last_caught_up_timestamp_ms)
    return {
        "id": replica.id,
        "role": replica.role,
        "log_end_offset": replica.log_end_offset if replica.log_end_offset >= 0 else None,
        "lag_records": lag if lag >= 0 else None,
        "lag_ms": 0 if lag == 0 else caught_up,
        "last_fetch_ms_ago": since(replica.last_fetch_timestamp_ms),
        "last_caught_up_ms_ago": caught_up,
        "directory_id": replica.directory_id,
        "endpoint": replica.endpoint or None,
    }


def _duration(ms: int | None) -> str | None:
    if ms is None:
        return None
    return f"{ms}ms" if ms < 1000 else f"{ms / 1000:.1f}s"


def _ago(ms: int | None) -> str | None:
    text = _duration(ms)
    return None if text is None else f"{text} ago"
