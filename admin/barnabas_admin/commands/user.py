"""`barnabas user`: SCRAM credentials of users, by the Kafka protocol.

May touch:  the brokers, standard input for passwords.    Must not touch: the admin service, but to find brokers.
Invariants: a password is read from standard input or a prompt, never from the command line, and is shown nowhere; only its
            salted form leaves this process.
Read next:  ../kafka.py.
"""

from __future__ import annotations

import sys

import click

from barnabas_admin.access import ITERATIONS, MECHANISMS, deletion_request, password_request, user_rows
from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import print_json, print_table, talk
from barnabas_wire.kafka.errors import ErrorCode

mechanism_option = click.option(
    "--mechanism", type=click.Choice(list(MECHANISMS)), default="SCRAM-SHA-512", help="Default SCRAM-SHA-512."
)


@click.command("list")
@common_options
def list_users(invocation: Invocation) -> None:
    """List the users that have SCRAM credentials."""
    from barnabas_admin.kafka import call_any_broker, check
    from barnabas_wire.kafka.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

    answer = call_any_broker(invocation, DescribeUserScramCredentialsRequest(users=None))
    for item in (answer, *answer.results):
        check(item)
    rows = user_rows(answer)
    if invocation.is_json:
        print_json({"users": rows})
        return
    print_table(["USER", "MECHANISM", "ITERATIONS"], [list(row.values()) for row in rows])


@click.command()
@click.argument("name", metavar="NAME")
@mechanism_option
@click.option("--iterations", type=click.IntRange(4096, 16384), default=ITERATIONS, help="4096 to 16384; default 8192.")
@common_options
def create(invocation: Invocation, name: str, mechanism: str, iterations: int) -> None:
    """Give a user a credential, or replace it; the password is read from standard input."""
    give_password(invocation, name, _password(), mechanism=mechanism, iterations=iterations)
    _say(invocation, name, mechanism, "created")


@click.command()
@click.argument("name", metavar="NAME")
@mechanism_option
@yes_option
@common_options
def delete(invocation: Invocation, name: str, mechanism: str, yes: bool) -> None:
    """Take a credential from a user."""
    confirm(f"this deletes the {mechanism} credential of {name}", typed=name, yes=yes)
    _alter(invocation, deletion_request(name, mechanism=mechanism))
    _say(invocation, name, mechanism, "deleted")


def give_password(
    invocation: Invocation, name: str, password: str, *, mechanism: str, iterations: int = ITERATIONS
) -> None:
    """Give a user a credential, or replace it. Raises AdminError, KafkaError."""
    _alter(invocation, password_request(name, password, mechanism=mechanism, iterations=iterations))


def _password() -> str:
    if sys.stdin.isatty():
        answer: str = click.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
        return answer
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise AdminError(
            "no password on standard input",
            code=ErrorCode.UNACCEPTABLE_CREDENTIAL,
            hint="type it at a terminal, or give it as the first line: `barnabas user create NAME < FILE`",
        )
    return password


def _alter(invocation: Invocation, request: object) -> None:
    from barnabas_admin.kafka import call_any_broker, check

    for result in call_any_broker(invocation, request).results:
        check(result)


def _say(invocation: Invocation, name: str, mechanism: str, what: str) -> None:
    if invocation.is_json:
        print_json({"user": name, "mechanism": mechanism, what: True})
        return
    talk(f"{mechanism} credential of {name} {what}")
