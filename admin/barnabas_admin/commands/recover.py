"""`barnabas quorum recover` and `rejoin`: recovery from the loss of a majority, by the offline verbs of `barnabas-server`.

May touch:  subprocesses.             Must not touch: the directories themselves, a running cluster.
Invariants: what the server says is passed on word for word, its exit status too.
Read next:  quorum.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from barnabas_admin.invocation import output_option
from barnabas_admin.local_node import server_command

directory_type = click.Path(path_type=Path)


@click.command()
@click.argument("directories", nargs=-1, required=True, type=directory_type, metavar="METADATA_DIR…")
@click.option(
    "--inspect", is_flag=True, help="Only say what the directories hold; -o json makes a report for --report."
)
@click.option("--report", "reports", multiple=True, type=directory_type, help="A report of another host's survivor.")
@click.option("--from", "chosen", type=directory_type, help="Recover from this directory; default: the best.")
@click.option("--yes", metavar="DIRECTORY_ID", help="Do it; type the directory id of the chosen one.")
@output_option
def recover(
    directories: tuple[Path, ...],
    inspect: bool,
    reports: tuple[Path, ...],
    chosen: Path | None,
    yes: str | None,
    output: str,
) -> None:
    """Begin the quorum again from a survivor when a majority is lost for good.

    Run it where the survivor's metadata directory is, with every controller that is left stopped: look at each with --inspect,
    bring the reports to the host of the best one, and recover there. Without --yes it is a dry run. `barnabas explain leader`
    says whether it is needed: a majority that can still be started needs no recovery.

    Old voters that are not part of it must not be started unchanged where they reach nobody of the recovered quorum: two of three
    could elect each other until the first contact stops them. Wipe their disks, or keep them off.

    After two recoveries that did not know of each other, stop both, and recover the one that shall stay once more, with the
    report of the other.
    """
    arguments = [*map(str, directories), "-o", output]
    if inspect:
        arguments.append("--inspect")
    for report in reports:
        arguments += ["--report", str(report)]
    if chosen is not None:
        arguments += ["--from", str(chosen)]
    if yes is not None:
        arguments.append(f"--yes={yes}")
    _run_server("quorum", "recover", *arguments)


@click.command()
@click.argument("directory", type=directory_type, metavar="METADATA_DIR")
@output_option
def rejoin(directory: Path, output: str) -> None:
    """Set aside the metadata log of a voter that the quorum was recovered without.

    Its identity and its data stay. Start the node then, and give it its vote with `barnabas quorum add-voter`.
    """
    _run_server("quorum", "rejoin", str(directory), "-o", output)


def _run_server(*arguments: str) -> None:
    raise SystemExit(subprocess.run(server_command(*arguments), stdin=subprocess.DEVNULL, check=False).returncode)
