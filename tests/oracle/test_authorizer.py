"""Kafka's StandardAuthorizer and ours, asked the same about the same entries."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from barnabas_quorum.image.acls import AccessControlEntry
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_wire.kafka.ids import Uuid
from tests.metadata_quorum.test_authorizer import ASKED, HOSTS, NAMES, PRINCIPALS, TYPES, changed
from tests.oracle import apache

pytestmark = pytest.mark.skipif(apache.missing() is not None, reason=apache.missing() or "")
SOURCE = Path(__file__).with_name("AskAuthorizer.java")
SETS = 1500
QUESTIONS = 12


def test_kafkas_own_authorizer_says_the_same() -> None:
    random = Random(21)
    lines: list[str] = []
    said: list[tuple[bool, object]] = []
    for _ in range(SETS):
        allows = random.random() < 0.3
        super_users = ("User:bob",) if random.random() < 0.1 else ()
        ours = Authorizer(super_users=super_users, allows_everyone_if_no_acl=allows)
        lines.append(f"new\t{str(allows).lower()}\t{';'.join(super_users)}")
        entries: dict[Uuid, AccessControlEntry] = {}
        for _ in range(2):
            before, entries = entries, changed(random, entries)
            lines += [f"remove\t{acl_id}" for acl_id in before if acl_id not in entries]
            for acl_id, each in entries.items():
                if acl_id not in before:
                    lines.append(
                        f"add\t{acl_id}\t{each.resource_type.name}\t{each.pattern_type.name}\t{each.resource_name}\t"
                        f"{each.principal}\t{each.host}\t{each.operation.name}\t{each.permission.name}"
                    )
            ours.follow(entries)
            for _ in range(QUESTIONS):
                principal, host = random.choice(PRINCIPALS[:2]), random.choice(HOSTS[:2])
                operation, kind_asked, name = random.choice(ASKED), random.choice(TYPES), random.choice(NAMES)
                lines.append("\t".join(("ask", principal, host, operation.name, kind_asked.name, name)))
                verdict = ours.authorize(principal, host, operation, kind_asked, name)
                said.append((verdict.is_allowed, (lines[-1], verdict.rule, sorted(entries.values()))))
            principal, operation, kind_asked = random.choice(PRINCIPALS[:2]), random.choice(ASKED), random.choice(TYPES)
            lines.append("\t".join(("any", principal, HOSTS[0], operation.name, kind_asked.name)))
            verdict = ours.authorize_any(principal, HOSTS[0], operation, kind_asked)
            said.append((verdict.is_allowed, (lines[-1], verdict.rule, sorted(entries.values()))))
    done = subprocess.run(
        ["java", *apache.JAVA_FLAGS, apache.LOG_FLAG + "off", str(SOURCE)],
        env=apache.java_environment(),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = done.stdout.split()
    assert len(theirs) == len(said)
    differing = [
        (answer, why)
        for answer, (ours_says, why) in zip(theirs, said, strict=True)
        if (answer == "true") is not ours_says
    ]
    assert not differing, f"{len(differing)} of {len(said)}; Kafka says {differing[0]}"
