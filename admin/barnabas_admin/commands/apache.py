"""`barnabas kafka-topics` and five more: Kafka's scripts by their names and flags.

May touch:  the command tree.         Must not touch: what commands do.
Invariants: the line that is run is one of ours, and a failure is that line's.
Read next:  ../apache_flags.py, which translates.
"""

from __future__ import annotations

import click

from barnabas_admin.apache_flags import SCRIPTS
from barnabas_admin.invocation import errors_end_the_process


def script(name: str) -> click.Command:
    """The command that stands for one of Kafka's scripts."""

    @click.command(
        name,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
        help=f"{name}.sh of Kafka, with its flags: {SCRIPTS[name].__doc__}",
        hidden=True,
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run(context: click.Context, words: tuple[str, ...]) -> None:
        with errors_end_the_process(is_json=False):
            line = SCRIPTS[name](words)
        root = context.find_root().command
        root.main(line, prog_name="barnabas", standalone_mode=True)

    return run
