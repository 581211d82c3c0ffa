"""`barnabas cluster features`, `… upgrade`, `… downgrade`, and `barnabas cluster unregister-controller`.

May touch:  the admin client; brokers, for which groups a downgrade strands.    Must not touch: anything else of theirs.
Invariants: nothing is raised that was not named: `upgrade` without --feature raises metadata.version alone, to the highest
            level that every node serves.
Read next:  cluster.py.
"""

from __future__ import annotations

from typing import Any

import click

from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.main import LazyGroup
from barnabas_admin.output import print_json, print_table, talk
from barnabas_wire.kafka.errors import KafkaError

METADATA_VERSION = "metadata.version"
STRANDED = {
    "group.version": (
        "consumer",
        "of group.protocol=consumer",
        "restart its consumers with group.protocol=classic",
    ),
    "share.version": (
        "share",
        "a share group",
        "how far it is stays kept, and counts again once share.version is raised",
    ),
}
"""Feature -> the type of groups that nobody serves without it, what they are called, what helps."""
UPGRADE, SAFE_DOWNGRADE = 1, 2


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.pass_context
@common_options
def features(context: click.Context, invocation: Invocation) -> None:
    """Show feature levels, what all nodes support, and which node blocks a level."""
    if context.invoked_subcommand is not None:
        return
    views = invocation.admin.describe_features()
    if invocation.is_json:
        print_json({"features": [_fields(view) for view in views]})
        return
    rows = [[view.name, view.finalized, f"{view.min_level}-{view.max_level}", _note(view)] for view in views]
    print_table(["FEATURE", "LEVEL", "SERVED_BY_ALL", "NOTE"], rows)


def find_metadata_version(invocation: Invocation) -> Any:
    """The FeatureView of metadata.version, which every node reports."""
    return next(view for view in invocation.admin.describe_features() if view.name == METADATA_VERSION)


def _fields(view: Any) -> dict[str, Any]:
    return {
        "name": view.name,
        "finalized": view.finalized,
        "min_level": view.min_level,
        "max_level": view.max_level,
        "nodes": [{"node": item.node, "min_level": item.min_level, "max_level": item.max_level} for item in view.nodes],
    }


def _note(view: Any) -> str:
    highest = max((item.max_level for item in view.nodes), default=0)
    behind = [item.node for item in view.nodes if item.max_level < highest]
    if behind:
        return f"held at {view.max_level} by {', '.join(behind)}"
    if highest == 0:
        return "not built yet"
    return f"may be upgraded to {highest}" if view.finalized < highest else ""


def _parse(pairs: tuple[str, ...]) -> dict[str, int]:
    levels = {}
    for pair in pairs:
        name, equals, level = pair.partition("=")
        if not (name and equals and level.isdecimal()):
            raise click.BadParameter(f"{pair!r}: write NAME=LEVEL, metadata.version=2", param_hint="--feature")
        levels[name] = int(level)
    return levels


feature_option = click.option(
    "-f", "--feature", "pairs", multiple=True, metavar="NAME=LEVEL", help="Feature and its new level; repeatable."
)
dry_option = click.option("--dry", is_flag=True, help="Only say whether it could be done.")


@features.command()
@feature_option
@dry_option
@common_options
def upgrade(invocation: Invocation, pairs: tuple[str, ...], dry: bool) -> None:
    """Raise feature levels, all or none; without --feature metadata.version to what every node serves."""
    levels = _parse(pairs)
    if not levels:
        view = find_metadata_version(invocation)
        if view.max_level <= view.finalized:
            talk(f"{METADATA_VERSION} is {view.finalized}, the highest that every registered node serves")
            if invocation.is_json:
                print_json({"features": [], "dry": dry})
            return
        levels = {METADATA_VERSION: view.max_level}
    _change(invocation, levels, kind=UPGRADE, dry=dry)


@features.command()
@feature_option
@dry_option
@common_options
def downgrade(invocation: Invocation, pairs: tuple[str, ...], dry: bool) -> None:
    """Lower feature levels where nothing is lost by it, all or none."""
    levels = _parse(pairs)
    if not levels:
        raise click.UsageError("name what to lower: --feature NAME=LEVEL")
    stranded = [
        (group, what, help_)
        for name, (kind, what, help_) in STRANDED.items()
        if levels.get(name) == 0
        for group in _groups(invocation, kind, what)
    ]
    _change(invocation, levels, kind=SAFE_DOWNGRADE, dry=dry)
    for (group, has_members), what, help_ in stranded:
        talk(
            f"warning: group {group} is {what}{'' if has_members else ', empty'}: "
            f"{'would be' if dry else 'is'} refused from now on; {help_}"
        )


def _groups(invocation: Invocation, kind: str, what: str) -> list[tuple[str, bool]]:
    """(name, whether it has members) of each group of a type; nothing where brokers do not answer."""
    from barnabas_admin.groups import list_groups
    from barnabas_admin.kafka import run_with_cluster

    try:
        groups = run_with_cluster(invocation, list_groups)
    except (KafkaError, OSError) as error:
        talk(f"warning: which groups are {what} could not be asked: {error}")
        return []
    return [(each["group"], each["state"] != "Empty") for each in groups if each["type"] == kind]


def _change(invocation: Invocation, levels: dict[str, int], *, kind: int, dry: bool) -> None:
    from barnabas_admin.client import error_from_detail

    outcomes = invocation.admin.update_features(levels, kind=kind, validate_only=dry)
    refused = [outcome for outcome in outcomes if outcome.HasField("error")]
    if refused:
        for outcome in refused[1:]:
            talk(f"error: {outcome.error.name}: {outcome.error.message}")
        raise error_from_detail(refused[0].error)
    if invocation.is_json:
        fields = [{"name": item.name, "before": item.before, "level": item.level} for item in outcomes]
        print_json({"features": fields, "dry": dry})
        return
    for item in outcomes:
        talk(f"{item.name}: {item.before} -> {item.level}{' (would be; nothing is changed)' if dry else ''}")


@click.command("unregister-controller")
@click.argument("controller_id", metavar="ID", type=int)
@yes_option
@common_options
def unregister_controller(invocation: Invocation, controller_id: int, yes: bool) -> None:
    """Forget a controller that is gone for good, so that feature levels wait for it no more."""
    what = f"this forgets controller {controller_id}; one that still runs registers itself again"
    confirm(what, typed=str(controller_id), yes=yes)
    invocation.admin.unregister_controller(controller_id)
    if invocation.is_json:
        print_json({"controller_id": controller_id, "unregistered": True})
        return
    talk(f"controller {controller_id} is forgotten")
