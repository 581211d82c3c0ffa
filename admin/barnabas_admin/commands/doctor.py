"""`barnabas doctor`: what keeps a client from its records, asked from where the client is.

May touch:  the brokers.              Must not touch: the admin service; nothing is changed.
Invariants: works with any cluster that speaks Kafka's protocol; exit status 10 where something was found.
Read next:  ../doctor/reaching.py, ../doctor/standing.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import ExitCode, print_json, print_line, talk

if TYPE_CHECKING:
    from barnabas_admin.doctor.finding import Finding


@click.command()
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Look at this topic; default: at all.")
@click.option("-g", "--group", "groups", multiple=True, metavar="GROUP", help="Look at this group; default: at all.")
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=1, max=600),
    metavar="SECONDS",
    help="Watch the groups for so long; default 6, and only those that rebalance at the first look.",
)
@common_options
def doctor(invocation: Invocation, topics: tuple[str, ...], groups: tuple[str, ...], watch_s: float | None) -> None:
    """Say what is wrong between a client here and the cluster, and what to type.

    Asks what a client would ask, with its configuration (--client-config): names, ports, TLS, logins, advertised addresses; then how
    topics, groups and open transactions stand. Ends with 10 where it found something.
    """
    import asyncio

    from barnabas_admin.doctor.reaching import CLIENT_ID, look_around
    from barnabas_admin.doctor.rebalancing import WATCH_S, watch
    from barnabas_admin.doctor.standing import examine
    from barnabas_admin.errors import WrongUsage
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.client.metadata import parse_bootstrap

    security = invocation.client_security()
    try:
        servers = parse_bootstrap(invocation.bootstrap_servers())
    except ValueError as error:
        raise WrongUsage(str(error), hint="name brokers as HOST:PORT,HOST:PORT with -b or BARNABAS_BROKERS") from None

    async def run() -> tuple[list[Finding], list[str], int]:
        seen, found = await look_around(servers, security)
        answering = [each.address for each in seen if each.finding is None]
        brokers = len({broker.id for each in seen for broker in each.brokers})
        if not answering:
            return found, ["topics and groups: no address answers a client"], brokers
        client = ClusterClient(
            [f"{host}:{port}" for host, port in answering],
            client_id=CLIENT_ID,
            timeout_s=invocation.timeout_s,
            security=security,
        )
        try:
            standing = await examine(client, topics=topics, groups=groups, now_ms=int(time.time() * 1000))
            watched = standing.rebalancing if watch_s is None or not groups else list(groups)
            if watched:
                seconds = watch_s or WATCH_S
                talk(f"watching {', '.join(watched)} for {seconds:g} s")
                found += await watch(client, watched, seconds=seconds)
            return found + standing.findings, standing.skipped, brokers
        finally:
            await client.close()

    found, skipped, brokers = asyncio.run(run())
    _show(invocation, found, skipped, brokers)


def _show(invocation: Invocation, found: list[Finding], skipped: list[str], brokers: int) -> None:
    if invocation.is_json:
        fields: dict[str, Any] = {
            "findings": [each._asdict() | {"cause": each.cause.value} for each in found],
            "not_looked_at": skipped,
            "brokers": brokers,
        }
        print_json(fields)
    else:
        for each in found:
            print_line(f"{each.where}: {each.what}")
            print_line(f"    {each.fix}  [{each.cause.value}]")
        for what in skipped:
            talk(f"not looked at: {what}")
        if not found:
            print_line(f"nothing wrong was found: {brokers} brokers, reached at the addresses that they advertise")
    if found:
        raise SystemExit(ExitCode.UNHEALTHY)
