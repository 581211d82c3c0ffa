"""`barnabas completion`: the script that completes commands, options, topics and groups in a shell.

May touch:  the shell's completion variables, the cluster for names.   Must not touch: files.
Invariants: a cluster that does not answer within COMPLETION_TIMEOUT_S completes nothing and says nothing.
Read next:  ../main.py, where completers are put on arguments.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, errors_end_the_process, output_option
from barnabas_admin.output import print_json

COMPLETION_TIMEOUT_S = 1.5


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@output_option
@click.pass_context
def completion(context: click.Context, shell: str, output: str) -> None:
    """Print the completion script of a shell.

    For bash, in ~/.bashrc: eval "$(barnabas completion bash)". Topics and groups of the cluster are completed too.
    """
    with errors_end_the_process(is_json=output == "json"):
        found = get_completion_class(shell)
        assert found is not None, "click has these three"
        script = found(context.find_root().command, {}, "barnabas", "_BARNABAS_COMPLETE").source()
        if output == "json":
            print_json({"shell": shell, "script": script})
        else:
            click.echo(script)


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topics whose name begins so."""
    with _invocation(context) as invocation:
        names = [topic.name for topic in invocation.admin.list_topics()]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []


def complete_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Groups whose name begins so."""
    from barnabas_admin.groups import list_groups
    from barnabas_admin.kafka import run_with_cluster

    with _invocation(context) as invocation:
        names = [found["group"] for found in run_with_cluster(invocation, list_groups)]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []


class _invocation:
    """One of the half-typed line's options. Whatever the cluster does, a shell gets no traceback."""

    def __init__(self, context: click.Context) -> None:
        given = context.params
        self._invocation = Invocation(
            output="text",
            admin=given.get("admin"),
            brokers=given.get("brokers"),
            timeout_s=COMPLETION_TIMEOUT_S,
            client_config=given.get("client_config"),
            profile=given.get("profile"),
        )

    def __enter__(self) -> Invocation:
        return self._invocation

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self._invocation.close()
        return isinstance(error, AdminError | OSError | ValueError)
