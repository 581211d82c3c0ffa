"""`barnabas pki`: a certificate authority of the cluster's own, and certificates of its nodes and users.

May touch:  the directory that is named.      Must not touch: the cluster.
Invariants: no private key is printed.
Read next:  ../pki.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.invocation import errors_end_the_process, output_option
from barnabas_admin.output import print_fields, print_json, print_table, talk

if TYPE_CHECKING:
    from barnabas_admin.pki import CertificateFacts

DIRECTORY = click.Path(path_type=Path, file_okay=False)
directory_option = click.option(
    "-d", "--directory", type=DIRECTORY, default=Path("pki"), help="Where the authority is; default ./pki."
)
days_option = click.option("--days", type=click.IntRange(1, 3650), help="How long it is valid.")


@click.command()
@click.argument("directory", type=DIRECTORY, default=Path("pki"))
@days_option
@output_option
def init(directory: Path, days: int | None, output: str) -> None:
    """Make the authority: its certificate and its private key, which belongs offline."""
    with errors_end_the_process(is_json=output == "json"):
        from barnabas_admin import pki

        with _in_words():
            file = pki.init(directory, days=days or pki.AUTHORITY_DAYS)
        _show(file, output)
        talk(f"next: barnabas pki issue -d {directory} node-1 --host HOST")


@click.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Name or address of a node, repeatable; none: a user's certificate.",
)
@click.option(
    "--node",
    type=click.IntRange(min=0),
    metavar="ID",
    help="The node.id that it is of: the other nodes' gRPC listeners demand it, with --cluster-id.",
)
@click.option("--cluster-id", metavar="ID", help="The cluster of the node; from: barnabas storage random-uuid.")
@directory_option
@days_option
@output_option
def issue(
    name: str,
    hosts: tuple[str, ...],
    node: int | None,
    cluster_id: str | None,
    directory: Path,
    days: int | None,
    output: str,
) -> None:
    """Make a private key and its certificate, in one file."""
    with errors_end_the_process(is_json=output == "json"):
        from barnabas_admin import pki

        if (node is None) != (cluster_id is None):
            raise WrongUsage(
                "--node and --cluster-id belong together",
                hint="a node's name in its certificate says which node of which cluster",
            )
        if node is not None and cluster_id is not None:
            from barnabas_wire.rpc.peers import peer_name

            try:
                hosts = (*hosts, peer_name(node, cluster_id))
            except ValueError as error:
                raise WrongUsage(
                    f"{cluster_id!r} is no cluster id: {error}",
                    hint="`barnabas cluster info` shows that of one that runs",
                ) from None
        with _in_words():
            file = pki.issue(directory, name, hosts=hosts, days=days or pki.CERTIFICATE_DAYS)
        _show(file, output)


@click.command()
@click.argument("name", metavar="NAME")
@directory_option
@days_option
@output_option
def renew(name: str, directory: Path, days: int | None, output: str) -> None:
    """Replace a key and its certificate, for the same hosts; a broker that runs takes the new one by itself."""
    with errors_end_the_process(is_json=output == "json"):
        from barnabas_admin import pki

        with _in_words():
            file = pki.renew(directory, name, days=days or pki.CERTIFICATE_DAYS)
        _show(file, output)


@click.command()
@click.argument("directory", type=DIRECTORY, default=Path("pki"))
@output_option
def show(directory: Path, output: str) -> None:
    """List the certificates of a directory: whose, for which hosts, until when."""
    is_json = output == "json"
    with errors_end_the_process(is_json=is_json):
        from barnabas_admin import pki

        now = datetime.now(UTC)
        files = sorted(file for file in directory.glob("*.pem") if not file.name.endswith("-key.pem"))
        if not files:
            raise AdminError(
                f"{directory} has no certificates", hint=f"make an authority: barnabas pki init {directory}"
            )
        with _in_words():
            found = [pki.show(file) for file in files]
        if is_json:
            print_json({"certificates": [_fields(facts, now) for facts in found]})
            return
        rows = [[Path(facts.path).name, facts.subject, ", ".join(facts.hosts), facts.days_left(now)] for facts in found]
        print_table(["FILE", "SUBJECT", "HOSTS", "DAYS LEFT"], rows)


def _show(file: Path, output: str) -> None:
    from barnabas_admin import pki

    fields = _fields(pki.show(file), datetime.now(UTC))
    if output == "json":
        print_json(fields)
    else:
        print_fields(fields)


def _fields(facts: CertificateFacts, now: datetime) -> dict[str, object]:
    return {
        "file": facts.path,
        "subject": facts.subject,
        "issuer": facts.issuer,
        "hosts": list(facts.hosts),
        "is_authority": facts.is_authority,
        "valid_until": facts.not_after.isoformat(),
        "days_left": facts.days_left(now),
    }


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """A refusal of pki.py as the command line's error."""
    from barnabas_admin.pki import PkiError

    try:
        yield
    except PkiError as error:
        raise AdminError(str(error), hint=error.hint) from error
    except OSError as error:
        raise AdminError(f"cannot write {error.filename}: {error.strerror}") from error
