"""`barnabas profile`: clusters by name.

May touch:  the profiles file.        Must not touch: network.
Invariants: a profile that is created replaces none without --replace.
Read next:  ../known_clusters.py.
"""

from __future__ import annotations

from typing import Any

import click

from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.invocation import confirm, errors_end_the_process, output_option, yes_option
from barnabas_admin.known_clusters import Profile, find_profile, read_profiles, write_profiles
from barnabas_admin.output import print_json, print_line, print_table
from barnabas_wire.kafka.errors import ErrorCode


@click.command("list")
@output_option
def list_profiles(output: str) -> None:
    """List the profiles; `*` marks the one that is used."""
    with errors_end_the_process(is_json=output == "json"):
        profiles = read_profiles()
        rows: list[dict[str, Any]] = [
            {
                "name": name,
                "current": name == profiles.current,
                "admin": profile.admin,
                "brokers": profile.brokers,
                "client_config": profile.client_config,
            }
            for name, profile in sorted(profiles.named.items())
        ]
        if output == "json":
            print_json({"profiles": rows})
        elif rows:
            cells = [
                [f"{r['name']}*" if r["current"] else r["name"], r["admin"], r["brokers"], r["client_config"]]
                for r in rows
            ]
            print_table(["PROFILE", "ADMIN", "BROKERS", "CLIENT_CONFIG"], cells)
        else:
            print_line("there are no profiles: `barnabas profile create NAME -b HOST:PORT` makes one")


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--admin", metavar="HOST:PORT,…", help="gRPC admin listeners.")
@click.option("-b", "--brokers", metavar="HOST:PORT,…", help="Kafka listeners; the admin ones are found from them.")
@click.option("--client-config", metavar="FILE", help="Kafka client properties: TLS and the login.")
@click.option("--replace", is_flag=True, help="One of that name is replaced.")
@output_option
def create(
    name: str, admin: str | None, brokers: str | None, client_config: str | None, replace: bool, output: str
) -> None:
    """Make a profile, and use it when it is the first."""
    with errors_end_the_process(is_json=output == "json"):
        if not admin and not brokers:
            raise click.UsageError("name --admin or -b: one address is enough")
        profiles = read_profiles()
        if name in profiles.named and not replace:
            raise AdminError(
                f"profile {name!r} exists", code=ErrorCode.TOPIC_ALREADY_EXISTS, hint="--replace replaces it"
            )
        profiles.named[name] = Profile(admin=admin, brokers=brokers, client_config=client_config)
        profiles.current = profiles.current or name
        write_profiles(profiles)
        _say(output, {"profile": name, "current": profiles.current == name}, f"profile {name} is made")


@click.command()
@click.argument("name", metavar="NAME")
@output_option
def use(name: str, output: str) -> None:
    """Use a profile where a command names no cluster; `-` for none."""
    with errors_end_the_process(is_json=output == "json"):
        profiles = read_profiles()
        if name == "-":
            profiles.current = None
        else:
            find_profile(name)
            profiles.current = name
        write_profiles(profiles)
        said = f"commands ask {name}" if profiles.current else "no profile is used"
        _say(output, {"current": profiles.current}, said)


@click.command()
@click.argument("name", metavar="NAME")
@yes_option
@output_option
def delete(name: str, yes: bool, output: str) -> None:
    """Delete a profile."""
    with errors_end_the_process(is_json=output == "json"):
        profiles = read_profiles()
        if name not in profiles.named:
            raise WrongUsage(f"there is no profile {name!r}")
        confirm(f"this deletes profile {name}", typed=name, yes=yes)
        del profiles.named[name]
        profiles.current = None if profiles.current == name else profiles.current
        write_profiles(profiles)
        _say(output, {"profile": name, "deleted": True}, f"profile {name} is deleted")


def _say(output: str, fields: dict[str, Any], text: str) -> None:
    if output == "json":
        print_json(fields)
    else:
        print_line(text)
