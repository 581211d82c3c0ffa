"""`barnabas quorum quarantine`: committed metadata records that cannot be replayed, and the sign-off that puts one aside.

May touch:  the admin client of every node.   Must not touch: the rules (the active controller has them).
Invariants: nothing is signed that was not looked at: the sign-off names the bytes that the nodes hold; it needs a reason and
            --yes.
Read next:  verify.py.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import ExitCode, print_fields, print_json, print_line, print_table, talk
from barnabas_wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas_admin.client import AdminClient


@click.group()
def quarantine() -> None:
    """Look at committed records that cannot be replayed, and sign them off.

    Every node stands right before such a record, serves with the metadata it had, and waits for a sign-off.
    """


@quarantine.command("list", short_help="Show which nodes stopped at which record; status 10 if any.")
@common_options
def list_blocked(invocation: Invocation) -> None:
    """Show which nodes stopped at which record; exit status 10 when one did."""
    views, silent = _ask(invocation)
    blocked = [view for view in views if view.HasField("blocked")]
    if invocation.is_json:
        print_json(
            {
                "nodes": [_view(view) for view in views],
                "unreachable": {address: error.message for address, error in silent.items()},
            }
        )
    else:
        print_table(
            ["NODE", "STATE", "OFFSET", "FAULT", "ERROR", "DIGEST", "APPLIED", "READ"],
            [
                [view.node_id, "blocked", *_of(view.blocked.record), view.applied_offset, view.blocked.read_offset]
                if view.HasField("blocked")
                else [view.node_id, "sound", None, None, None, None, view.applied_offset, view.high_watermark - 1]
                for view in views
            ],
        )
        for address, error in silent.items():
            talk(f"{address}: {error.message}")
        _print_following(blocked)
        _print_passed_over(views)
        if blocked:
            talk(_next(blocked, views))
    raise SystemExit(int(ExitCode.UNHEALTHY if blocked else ExitCode.OK))


@quarantine.command()
@click.argument("offset", type=click.IntRange(min=0))
@common_options
def show(invocation: Invocation, offset: int) -> None:
    """Show all that is known of a record that cannot be replayed."""
    views, _ = _ask(invocation)
    records = {view.node_id: record for view in views for record in _records(view) if record.offset == offset}
    if not records:
        raise AdminError(
            f"no node has stopped at a record at offset {offset}",
            code=ErrorCode.RESOURCE_NOT_FOUND,
            hint="`barnabas quorum quarantine list` shows what is blocked",
        )
    record = next(iter(records.values()))
    fields = {
        **_record(record),
        "blocked_nodes": sorted(records),
        "replayed_by": sorted(view.node_id for view in views if view.applied_offset >= offset),
    }
    if invocation.is_json:
        print_json(fields)
        return
    print_fields(fields)
    talk(f"neighbours: barnabas quorum log --from {max(0, record.batch_offset - 2)} -n 10")


@quarantine.command("sign-off")
@click.argument("offsets", type=click.IntRange(min=0), nargs=-1, required=True, metavar="OFFSET…")
@click.option("--reason", required=True, help="Why the record may be passed over; stays in the log.")
@yes_option
@common_options
def sign_off(invocation: Invocation, offsets: tuple[int, ...], reason: str, yes: bool) -> None:
    """Let every node pass over a record that none can replay.

    What the record said is lost; its neighbours in the log are replayed. The sign-off is a record of the log itself, with your
    name and reason, and cannot be taken back.
    """
    from barnabas_wire.rpc import inspection_pb2 as pb

    views, silent = _ask(invocation)
    looked_at = []
    for offset in sorted(set(offsets)):
        found = {record.digest: record for view in views for record in _records(view) if record.offset == offset}
        able = sorted(view.node_id for view in views if view.applied_offset >= offset)
        if len(found) != 1 or (able and not next(iter(found.values())).is_in_snapshot):
            raise _refusal(offset, found, able)
        (record,) = found.values()
        talk(f"offset {offset}: {record.reason}: {record.error}")
        if record.entity:
            talk(f"  it says: {record.entity}")
        looked_at.append(record)
    for address, error in silent.items():
        talk(f"{address} was not asked: {error.message}")
    which = ",".join(str(record.offset) for record in looked_at)
    confirm(f"this signs off offset {which}: what it said is lost, for ever", typed=which, yes=yes)
    done = []
    signed = f"{reason} (typed by {getpass.getuser()} on {socket.gethostname()})"
    for record in looked_at:
        request = pb.SignOffRequest(offset=record.offset, digest=record.digest, reason=signed)
        answer = invocation.admin.inspect("SignOff", request)
        done.append(
            {"offset": record.offset, "digest": record.digest.hex(), "signed_at_offset": answer.signed_at_offset}
        )
    if invocation.is_json:
        print_json({"signed": done})
        return
    print_table(["OFFSET", "DIGEST", "SIGNED_AT"], [[d["offset"], d["digest"], d["signed_at_offset"]] for d in done])
    talk("next: barnabas quorum verify")


def _replayed(nodes: list[int]) -> str:
    if len(nodes) == 1:
        return f"node {nodes[0]} has replayed"
    return f"nodes {', '.join(map(str, nodes))} have replayed"


def _refusal(offset: int, found: Mapping[bytes, Any], able: list[int]) -> AdminError:
    if able:
        return AdminError(
            f"{_replayed(able)} the record at offset {offset}: it is not bad",
            code=ErrorCode.INVALID_REQUEST,
            hint="nodes that stopped at it have an older version (upgrade them) or a damaged disk",
        )
    if not found:
        return AdminError(
            f"no node has stopped at a record at offset {offset}",
            code=ErrorCode.RESOURCE_NOT_FOUND,
            hint="`barnabas quorum quarantine list` shows what is blocked",
        )
    return AdminError(
        f"nodes hold different bytes at offset {offset}: one of their disks is damaged, or a log was cut by hand",
        code=ErrorCode.INVALID_REQUEST,
        hint=f"compare them: `barnabas quorum quarantine show {offset}` with --admin of one node each",
    )


def _ask(invocation: Invocation) -> tuple[list[Any], dict[str, AdminError]]:
    from barnabas_wire.rpc import inspection_pb2 as pb

    nodes: Mapping[str, AdminClient] = invocation.every_admin()
    views, silent = [], {}
    for address, client in nodes.items():
        try:
            views.append(client.inspect("DescribeImage", pb.DescribeImageRequest()))
        except AdminError as error:
            silent[address] = error
        finally:
            client.close()
    if not views:
        raise next(iter(silent.values()))
    return sorted(views, key=lambda view: int(view.node_id)), silent


def _records(view: Any) -> list[Any]:
    return [view.blocked.record, *view.blocked.following] if view.HasField("blocked") else []


def _of(record: Any) -> list[Any]:
    return [record.offset, record.reason, record.error, record.digest.hex()]


def _record(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "epoch": record.epoch,
        "fault": record.reason,
        "error": record.error,
        "digest": record.digest.hex(),
        "size": record.size,
        "head": record.head.hex() or None,
        "says": record.entity or None,
        "batch_offset": record.batch_offset,
        "batch_end_offset": record.batch_end_offset,
    }


def _view(view: Any) -> dict[str, Any]:
    return {
        "node": view.node_id,
        "is_blocked": view.HasField("blocked"),
        "applied_offset": view.applied_offset,
        "read_offset": view.blocked.read_offset if view.HasField("blocked") else view.high_watermark - 1,
        "record": _record(view.blocked.record) if view.HasField("blocked") else None,
        "following": [_record(each) for each in view.blocked.following],
        "passed_over": [
            {"offset": each.offset, "digest": each.digest.hex(), "principal": each.principal, "reason": each.reason}
            for each in view.passed_over
        ],
    }


def _print_following(blocked: list[Any]) -> None:
    following = {each.offset: each for view in blocked for each in view.blocked.following}
    if following:
        print_line()
        print_line("Bad too, once that is passed over:")
        print_table(["OFFSET", "FAULT", "ERROR", "DIGEST"], [_of(following[offset]) for offset in sorted(following)])


def _print_passed_over(views: list[Any]) -> None:
    passed = {each.offset: each for view in views for each in view.passed_over}
    if passed:
        print_line()
        print_line("Passed over since these processes started:")
        print_table(
            ["OFFSET", "DIGEST", "WHO", "WHY"],
            [[each.offset, each.digest.hex(), each.principal, each.reason] for each in passed.values()],
        )


def _next(blocked: list[Any], views: list[Any]) -> str:
    record = min((view.blocked.record for view in blocked), key=lambda each: each.offset)
    offset = record.offset
    able = [view.node_id for view in views if view.applied_offset >= offset]
    if able and record.is_in_snapshot:
        return (
            f"{_replayed(able)} what the snapshots of the others say wrongly: upgrade those that are older, else give them new "
            "metadata directories, one after the other. A sign-off gives up what the record says"
        )
    if able:
        return f"{_replayed(able)} offset {offset}: upgrade the nodes that stopped at it; a sign-off would be refused"
    return (
        f"next: barnabas quorum quarantine show {offset}        # then, if what it says may be lost:\n"
        f"      barnabas quorum quarantine sign-off {offset} --reason WHY --yes"
    )
