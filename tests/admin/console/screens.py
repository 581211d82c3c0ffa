"""The console's screens, by the names that their pictures have; the browser's tests and the pictures go through all of them.

May touch:  its arguments.            Must not touch: everything else.
Invariants: each route of the console has a screen here, forms and the page of a run too; but the sign-in, which is the only page of
            a console that has it.
Read next:  pictures.py, test_browser.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.routing import compile_path

from barnabas_admin.console.application import PAGES, RUN
from barnabas_admin.console.writes import FORMS

ACL = "principal=User:ada&permission=allow&operation=read&resource=topic&name=flights&pattern=literal&host=*"


def screens(*, topic: str, group: str, transactional_id: str, step: int, record_step: int) -> Mapping[str, str]:
    """Name -> address. Raises LookupError for a route that none of them is of.

    step, record_step: of the run that the console steps through; the second is one of a record, shown with every record's way.
    """
    of_topic = f"/topics/{topic}"
    found = {
        "overview": "/",
        "quorum": "/quorum",
        "brokers": "/brokers",
        "broker": "/brokers/1",
        "topics": "/topics",
        "topic": of_topic,
        "topic-messages": f"{of_topic}?tab=messages&start=newest&limit=8",
        "topic-consumers": f"{of_topic}?tab=consumers",
        "topic-config": f"{of_topic}?tab=config",
        "topic-metrics": f"{of_topic}?tab=metrics",
        "topic-explain": f"{of_topic}?tab=explain",
        "topic-tail": f"{of_topic}/tail",
        "topic-new": "/topics/new",
        "topic-produce": f"{of_topic}/produce",
        "topic-config-set": f"{of_topic}/config?key=retention.ms",
        "topic-delete": f"{of_topic}/delete",
        "groups": "/groups",
        "group": f"/groups/{group}",
        "group-offsets": f"/groups/{group}/offsets",
        "transactions": "/transactions",
        "transaction": f"/transaction?id={transactional_id}",
        "transaction-abort": f"/transactions/abort?id={transactional_id}",
        "acls": "/access?tab=acls",
        "acl-new": "/access/acls/new",
        "acl-delete": f"/access/acls/delete?{ACL}",
        "users": "/access?tab=users",
        "user-set": "/access/users/set",
        "user-delete": "/access/users/delete?name=ada&mechanism=SCRAM-SHA-512",
        "quotas": "/access?tab=quotas",
        "quota-set": "/access/quotas/set",
        "events": "/events",
        "explain": "/explain",
        "big-screen": "/tv",
        "run": f"{RUN}?step={step}",
        "run-records": f"{RUN}?step={record_step}&all=1",
        "not-there": "/nothing",
    }
    paths = [each.partition("?")[0] for each in found.values()]
    for pattern in (*PAGES, *FORMS, RUN):
        if not any(compile_path(pattern)[0].match(path) for path in paths):
            raise LookupError(f"{pattern} has no screen: add one to tests/admin/console/screens.py")
    return found
