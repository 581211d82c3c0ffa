"""`barnabas log`: log files, by the offline verbs of `barnabas-server`.

May touch:  subprocesses.             Must not touch: the files themselves.
Invariants: what the server says is passed on as it comes, its exit status too.
Read next:  metadata_log.py for a running cluster.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from barnabas_admin.invocation import confirm, output_option, yes_option
from barnabas_admin.local_node import server_command


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option("--metadata", is_flag=True, help="Decode the records of the metadata log: segments and snapshots.")
@click.option("--from", "start", type=click.IntRange(min=0), help="First offset that is shown.")
@click.option("--to", "end", type=click.IntRange(min=0), help="Last offset that is shown.")
@click.option("--records", is_flag=True, help="Show the records of data logs too, not only their batches.")
@click.option("--noops", is_flag=True, help="Show the no-op records of an idle cluster too.")
@output_option
def dump(
    paths: tuple[Path, ...],
    metadata: bool,
    records: bool,
    start: int | None,
    end: int | None,
    noops: bool,
    output: str,
) -> None:
    """Print what stands in log files: batches, records, indexes, snapshots, checkpoints; a directory means all that is in it.

    Records of __consumer_offsets, __transaction_state and __share_group_state are decoded, and with --metadata those of the metadata
    log. Damage is shown where it is, and what stands behind it is still read. Exit status 1 when there is any. No secret is shown.
    """
    arguments = ["log", "dump", "-o", output, *map(str, paths)]
    arguments += [flag for flag, is_set in (("--metadata", metadata), ("--records", records)) if is_set]
    if start is not None:
        arguments += ["--from", str(start)]
    if end is not None:
        arguments += ["--to", str(end)]
    if noops:
        arguments.append("--noops")
    raise SystemExit(subprocess.run(server_command(*arguments), check=False).returncode)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIRECTORY…")
@output_option
def verify(paths: tuple[Path, ...], output: str) -> None:
    """Check every batch in log directories (log.dirs), or in partition directories, on this host.

    Reads only, beside a running node too; brokers do the same in the background. Damage is listed with its offsets, and ends
    with exit status 1.
    """
    raise SystemExit(
        subprocess.run(server_command("log", "verify", "-o", output, *map(str, paths)), check=False).returncode
    )


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIRECTORY…")
@click.option("--dry-run", is_flag=True, help="Say what would be repaired, and how; change nothing.")
@output_option
def repair(paths: tuple[Path, ...], dry_run: bool, output: str) -> None:
    """Say how the damage in log directories on this host will be repaired.

    Only --dry-run is offered: a broker that runs repairs its replicas from their leaders, by itself.
    """
    if not dry_run:
        raise click.UsageError(
            "name --dry-run: the sound records are on other brokers, so start the broker, which repairs its replicas from "
            "their leaders"
        )
    arguments = ["log", "repair", "--dry-run", "-o", output, *map(str, paths)]
    raise SystemExit(subprocess.run(server_command(*arguments), check=False).returncode)


@click.command()
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="LOG_DIR…")
@output_option
def strays(directories: tuple[Path, ...], output: str) -> None:
    """List logs that brokers on this host have set aside, and replicas that lost records.

    A log is set aside when nobody can say of which topic it is, or when the cluster knows no replica of it here. It is kept until
    `log adopt` or `log delete-stray` names it. Reads only, beside a running node too.
    """
    raise SystemExit(
        subprocess.run(server_command("log", "strays", "-o", output, *map(str, directories)), check=False).returncode
    )


@click.command()
@click.argument("stray", type=click.Path(path_type=Path), metavar="STRAY")
@click.option("--topic-id", help="Of the topic; without it, that of the log which is in its place now.")
@output_option
def adopt(stray: Path, topic_id: str | None, output: str) -> None:
    """Put a log that was set aside back into its place (its broker is stopped).

    What is there now is set aside in its turn. Where no other replica leads, `topic elect --unclean` lets it lead afterwards.
    """
    arguments = ["log", "adopt", "-o", output, str(stray)]
    if topic_id is not None:
        arguments += ["--topic-id", topic_id]
    raise SystemExit(subprocess.run(server_command(*arguments), check=False).returncode)


@click.command("delete-stray")
@click.argument("stray", type=click.Path(path_type=Path), metavar="STRAY")
@yes_option
@output_option
def delete_stray(stray: Path, yes: bool, output: str) -> None:
    """Remove a log that was set aside, for good. Its records may be nowhere else."""
    confirm(f"the log in {stray} is removed for good", typed=stray.name, yes=yes)
    raise SystemExit(
        subprocess.run(server_command("log", "delete-stray", "--yes", "-o", output, str(stray)), check=False).returncode
    )
