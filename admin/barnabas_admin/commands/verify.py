"""`barnabas quorum verify`: whether every node has the same metadata, and if not, who differs in what.

May touch:  the admin client of every node.   Must not touch: anything that changes the cluster but one hash in its log.
Invariants: a node that was not asked is never taken for one that agrees; exit status 1 = somebody differs, 10 = not everybody
            could say.
Read next:  quarantine.py.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import ExitCode, print_json, print_line, print_table, talk

if TYPE_CHECKING:
    from barnabas_admin.client import AdminClient

POLL_S = 0.1
ENTITIES_SHOWN_MAX = 50


@click.command()
@click.option("--recompute", is_flag=True, help="Each node counts its whole metadata anew, too: finds rot in memory.")
@common_options
def verify(invocation: Invocation, recompute: bool) -> None:
    """Have every node compare its metadata with the active controller's.

    The active controller writes what its metadata hashes to; every node compares when it reads that. Asked are the nodes whose
    admin listeners are known: give all of them with --admin. Exit status 1 when a node differs, 10 when one could not say.
    """
    nodes = invocation.every_admin()
    try:
        report = _verify(invocation, nodes, is_recomputed=recompute)
    finally:
        for client in nodes.values():
            client.close()
    if invocation.is_json:
        print_json(report)
    else:
        _print(report, is_recomputed=recompute)
    raise SystemExit(int(report["exit_status"]))


def _verify(invocation: Invocation, nodes: Mapping[str, AdminClient], *, is_recomputed: bool) -> dict[str, Any]:
    views, silent = _ask_all(nodes, is_recomputed=False)
    if not views:
        raise next(iter(silent.values()))
    first = nodes[next(iter(views))]
    offset, notes = _agree(first, views)
    deadline = time.monotonic() + invocation.timeout_s
    while any(_comparison(view, offset) is None and not view.HasField("blocked") for view in views.values()):
        if offset < 0 or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
        views, silent = _ask_all(nodes, is_recomputed=False)
    if is_recomputed:
        views, silent = _ask_all(nodes, is_recomputed=True)
    rows = [_row(address, view, offset) for address, view in views.items()]
    rows += [
        {"address": address, "node": None, "state": f"unreachable: {error.message}"}
        for address, error in silent.items()
    ]
    rows += _not_asked(first, {view.node_id for view in views.values()}, is_any_silent=bool(silent))
    rows.sort(key=lambda row: (row["node"] is None, row["node"] or 0))
    wrong = [row for row in rows if row["state"] in ("DIFFERS", "ROTTEN")]
    if wrong and all(row["state"] == "DIFFERS" for row in rows if row["node"] is not None) and len(rows) > 1:
        notes.append(
            "every node differs from the hash that the active controller wrote: the active controller's own metadata is the "
            "wrong one; restart it"
        )
    differences = _find_differences(nodes, views, rows, offset)
    undecided = [row for row in rows if row["state"] not in ("agrees", "DIFFERS", "ROTTEN")]
    status = ExitCode.ERROR if wrong else ExitCode.UNHEALTHY if undecided else ExitCode.OK
    return {
        "is_consistent": status is ExitCode.OK,
        "offset": offset if offset >= 0 else None,
        "nodes": rows,
        "differences": differences,
        "notes": notes,
        "exit_status": int(status),
    }


def _ask_all(nodes: Mapping[str, AdminClient], *, is_recomputed: bool) -> tuple[dict[str, Any], dict[str, AdminError]]:
    from barnabas_wire.rpc import inspection_pb2 as pb

    views: dict[str, Any] = {}
    silent: dict[str, AdminError] = {}
    for address, client in nodes.items():
        try:
            views[address] = client.inspect("DescribeImage", pb.DescribeImageRequest(recompute=is_recomputed))
        except AdminError as error:
            silent[address] = error
    return views, silent


def _agree(client: AdminClient, views: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The offset at which all compare: a new one; without an active controller that can write, the last that all have."""
    from barnabas_wire.rpc import inspection_pb2 as pb

    try:
        return client.inspect("CompareImages", pb.CompareImagesRequest()).offset, []
    except AdminError as error:
        known = [{each.offset for each in view.comparisons} for view in views.values()]
        common = set.intersection(*known) if known else set()
        offset = max(common, default=-1)
        refusal = f"the active controller wrote no new hash ({error.message})"
        found = f"compared at the last one that all have, at offset {offset}" if common else "nothing could be compared"
        return offset, [f"{refusal}; {found}"]


def _comparison(view: Any, offset: int) -> Any:
    return next((each for each in view.comparisons if each.offset == offset), None)


def _row(address: str, view: Any, offset: int) -> dict[str, Any]:
    comparison = _comparison(view, offset)
    rotten = [part.part for part, now in zip(view.parts, view.recomputed, strict=False) if part.hash != now.hash]
    if rotten:
        state = "ROTTEN"
    elif view.HasField("blocked"):
        state = "blocked"
    elif comparison is None:
        state = "not compared"
    else:
        state = "agrees" if comparison.matches else "DIFFERS"
    agreed = {} if comparison is None else {part.part: part.hash for part in comparison.agreed}
    own = {} if comparison is None else {part.part: part.hash for part in comparison.own}
    return {
        "node": view.node_id,
        "roles": list(view.roles),
        "address": address,
        "state": state,
        "hash": _digest(own.values()) if own else None,
        "agreed_hash": _digest(agreed.values()) if agreed else None,
        "differing_parts": rotten or [part for part in own if own[part] != agreed.get(part)],
        "part_hashes": {part: value.hex() for part, value in own.items()},
        "applied_offset": view.applied_offset,
        "compared": view.compared,
        "mismatched": view.mismatched,
        "blocked_at": view.blocked.record.offset if view.HasField("blocked") else None,
        "is_leader": view.leader_id == view.node_id,
    }


def _not_asked(client: AdminClient, asked: set[int], *, is_any_silent: bool) -> list[dict[str, Any]]:
    """Nodes that the cluster has and nobody asked. Which node an address that is silent belongs to is not known."""
    why = "not asked: unless it is one of those that are unreachable, " if is_any_silent else "not asked: "
    cluster = client.describe_cluster()
    known = {broker.id for broker in cluster.brokers} | {controller.id for controller in cluster.controllers}
    return [
        {"address": None, "node": node, "state": f"{why}name its admin listener with --admin"}
        for node in sorted(known - asked)
    ]


def _find_differences(
    nodes: Mapping[str, AdminClient], views: Mapping[str, Any], rows: list[dict[str, Any]], offset: int
) -> list[dict[str, Any]]:
    """Entity by entity, against a node that agrees."""
    good = next((row for row in rows if row["state"] == "agrees"), None)
    found: list[dict[str, Any]] = []
    for row in rows:
        if row["state"] != "DIFFERS":
            continue
        reference = good or next((each for each in rows if each.get("is_leader") and each is not row), None)
        for part in row["differing_parts"]:
            if reference is None:
                continue
            try:
                own = _entities(nodes[row["address"]], part, offset)
                theirs = _entities(nodes[reference["address"]], part, offset)
            except AdminError as error:
                found.append({"node": row["node"], "part": part, "entity": None, "what": error.message})
                continue
            for name in sorted({*own, *theirs}):
                if own.get(name) != theirs.get(name):
                    what = "differs" if name in own and name in theirs else "missing" if name in theirs else "too much"
                    found.append(
                        {
                            "node": row["node"],
                            "compared_with": reference["node"],
                            "part": part,
                            "entity": name,
                            "what": what,
                        }
                    )
    return found


def _entities(client: AdminClient, part: str, offset: int) -> dict[str, bytes]:
    from barnabas_wire.rpc import inspection_pb2 as pb

    request = pb.ListEntitiesRequest(part=part, comparison_offset=offset)
    return {each.name: each.hash for page in client.inspect_stream("ListEntities", request) for each in page.entities}


def _digest(hashes: Iterable[bytes]) -> str:
    return hashlib.blake2b(b"".join(hashes), digest_size=8).hexdigest()


def _print(report: dict[str, Any], *, is_recomputed: bool) -> None:
    offset = report["offset"]
    columns = [
        "NODE",
        "ROLES",
        "OFFSET",
        "HASH",
        "ACTIVE_CONTROLLER",
        "STATE",
        "PARTS",
        "APPLIED",
        "COMPARED",
        "MISMATCHED",
    ]
    print_table(
        columns,
        [
            [
                row["node"],
                row.get("roles"),
                offset if row.get("hash") else None,
                row.get("hash"),
                row.get("agreed_hash"),
                row["state"].partition(":")[0] if row.get("blocked_at") is None else f"blocked at {row['blocked_at']}",
                row.get("differing_parts"),
                row.get("applied_offset"),
                row.get("compared"),
                row.get("mismatched"),
            ]
            for row in report["nodes"]
        ],
    )
    differences = report["differences"]
    if differences:
        print_line()
        print_table(
            ["NODE", "PART", "ENTITY", "WHAT"],
            [[d["node"], d["part"], d["entity"], d["what"]] for d in differences[:ENTITIES_SHOWN_MAX]],
        )
        if len(differences) > ENTITIES_SHOWN_MAX:
            print_line(f"… and {len(differences) - ENTITIES_SHOWN_MAX} more; -o json has all")
    for note in report["notes"]:
        talk(f"note: {note}")
    for row in report["nodes"]:
        if ":" in row["state"]:
            talk(f"{row['address'] if row['node'] is None else 'node ' + str(row['node'])}: {row['state']}")
        if row["state"] == "blocked":
            talk(
                f"next: barnabas quorum quarantine list        # node {row['node']} stopped at offset {row['blocked_at']}"
            )
        elif row["state"] == "ROTTEN":
            talk(f"next: restart node {row['node']}: its metadata in memory differs from its log")
        elif row["state"] == "DIFFERS":
            talk(
                f"next: restart node {row['node']} (it replays its own snapshot and log). If it differs still, its disk holds "
                "the wrong metadata: stop it, move its __cluster_metadata-0 away and start it; a voter is first taken out with "
                f"`barnabas quorum remove-voter {row['node']}`, formatted anew, and added again"
            )
    if report["is_consistent"]:
        more = "; each hashed its own metadata anew" if is_recomputed else ""
        talk(f"all {len(report['nodes'])} nodes have the same metadata at offset {offset}{more}")
