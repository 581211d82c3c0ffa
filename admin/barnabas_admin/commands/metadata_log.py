"""`barnabas quorum log` and `quorum diff`: the metadata log as it is written, and what it came to between two offsets.

May touch:  the admin client.         Must not touch: log files (barnabas log dump reads those).
Invariants: only committed records are shown, without secrets; JSON is one object per record, a line each.
Read next:  quarantine.py.
"""

from __future__ import annotations

import json
from typing import Any

import click

from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import (
    API_VERSION,
    json_text,
    local_time,
    print_json,
    print_line,
    print_table,
    printable,
    talk,
)


@click.command()
@click.option("--from", "start", type=click.IntRange(min=0), help="First offset; default: the newest records.")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Newest so many; with --from, the first.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on as records are committed, until Ctrl-C.")
@click.option("--noops", is_flag=True, help="Show the no-op records of an idle cluster too.")
@common_options
def log(invocation: Invocation, start: int | None, last: int, follow: bool, noops: bool) -> None:
    """Print the committed records of the metadata log.

    They are read from the log of the node that is asked, which has what the leader has committed. -o json prints one object a
    line. No secret is shown.
    """
    from barnabas_wire.rpc import inspection_pb2 as pb

    request = pb.ReadLogRequest(**{"from": -1 if start is None else start}, follow=follow, with_noops=noops, last=last)
    left = None if follow or start is None else last
    try:
        for page in invocation.admin.inspect_stream("ReadLog", request, is_endless=follow):
            if not page.entries and not invocation.is_json:
                leader = page.leader_id if page.leader_id >= 0 else "not known"
                talk(
                    f"from the log of node {page.node_id}; committed up to {page.high_watermark - 1}; leader: {leader}"
                )
            for entry in page.entries:
                if left == 0:
                    return
                left = None if left is None else left - 1
                _print_entry(entry, is_json=invocation.is_json)
    except KeyboardInterrupt:
        talk("")


def _print_entry(entry: Any, *, is_json: bool) -> None:
    fields = json.loads(entry.json)
    if is_json:
        shown = {
            "api_version": API_VERSION,
            "offset": entry.offset,
            "epoch": entry.epoch,
            "timestamp_ms": entry.timestamp_ms,
            "batch_offset": entry.batch_offset,
            "kind": entry.kind,
            "fields": fields,
        }
        print(json_text(shown), flush=True)
        return
    at = local_time(entry.timestamp_ms, is_dated=True)
    print(
        printable(f"{entry.offset:>8}  {entry.epoch:>3}  {at}  {entry.kind:<30} {text_of(fields)}".rstrip()), flush=True
    )


@click.command(context_settings={"ignore_unknown_options": True})  # or -1 were taken for an option
@click.argument("start", metavar="FROM", type=click.IntRange(min=-1))
@click.argument("end", metavar="[TO]", type=click.IntRange(min=0), required=False)
@common_options
def diff(invocation: Invocation, start: int, end: int | None) -> None:
    """Show what changed in the metadata between two offsets.

    From the metadata after record FROM to that after record TO (default: the newest). FROM -1 is the empty metadata. Records that
    were written in one batch or transaction took effect together: within one, the metadata before it counts, and the answer says
    from where to where it compared. What a snapshot has replaced in this node's log cannot be distinguished any more.
    """
    from barnabas_wire.rpc import inspection_pb2 as pb

    request = pb.DiffImagesRequest(**{"from": start}, to=-1 if end is None else end)
    found = invocation.admin.inspect("DiffImages", request)
    first = getattr(found, "from")
    if invocation.is_json:
        print_json(
            {
                "from": first,
                "to": found.to,
                "from_ms": found.from_ms,
                "to_ms": found.to_ms,
                "records": found.records,
                "answered_by": found.answered_by,
                "changes": [
                    {
                        "part": change.part,
                        "entity": change.name,
                        "change": change.change,
                        "fields": {
                            field.field: {
                                "before": json.loads(field.before) if field.before else None,
                                "after": json.loads(field.after) if field.after else None,
                            }
                            for field in change.fields
                        },
                    }
                    for change in found.changes
                ],
            }
        )
        return
    begin = "the beginning" if first < 0 else f"{first} ({local_time(found.from_ms)})"
    talk(
        f"from {begin} to {found.to} ({local_time(found.to_ms)}): {found.records} records, "
        f"{len(found.changes)} entities differ; reported by node {found.answered_by}"
    )
    if not found.changes:
        print_line("no difference")
        return
    print_table(
        ["PART", "CHANGE", "ENTITY", "FIELDS"],
        [[change.part, change.change, change.name, _fields_text(change)] for change in found.changes],
    )


def _fields_text(change: Any) -> str:
    """`leader 1 -> 2` of a change; of what came or went, what it is."""
    if change.change == "changed":
        return "  ".join(f"{field.field} {_value(field.before)} -> {_value(field.after)}" for field in change.fields)
    return text_of({field.field: json.loads(field.after or field.before) for field in change.fields})


def _value(text: str) -> str:
    return _short(json.loads(text)) if text else "(nothing)"


def text_of(fields: dict[str, Any]) -> str:
    """Fields on a line for people: without empty lists, hashes of nothing, and with features and endpoints in short."""
    shown = {name: value for name, value in fields.items() if value != []}
    if "parts" in shown and "format" in shown:
        hashes = {part["part"]: part["hash"] for part in shown["parts"] if part["hash"].strip("0")}
        return " ".join(f"{part}={value[:12]}…" for part, value in hashes.items())
    if "endpoints" in shown:
        shown["endpoints"] = [f"{each['listener']}://{each['host']}:{each['port']}" for each in shown["endpoints"]]
    if "features" in shown:
        shown["features"] = [f"{each['name']}:{each['min_level']}-{each['max_level']}" for each in shown["features"]]
    return " ".join(f"{name}={_short(value)}" for name, value in shown.items())


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return "[" + ",".join(str(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
