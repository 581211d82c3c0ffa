"""Commands that an operator has run for a node: what the node says of itself is data there."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_admin.errors import AdminError
from barnabas_admin.node_control import run_command


@pytest.mark.parametrize("host", ["-oProxyCommand=touch", "$(touch pwned)", "a b", "a;b", "a\nb", "`touch`"])
@pytest.mark.attack("A3", "cluster roll runs no command with a hostile host")
def test_no_command_runs_with_a_host_that_is_none(host: str, tmp_path: Path) -> None:
    with pytest.raises(AdminError, match="no command is run"):
        run_command(f"touch {tmp_path / 'ran'} {{host}}", node_id=1, host=host)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("host", ["kafka-1.example", "10.0.0.1", "fe80::1%eth0", "bücher.example", "a_b"])
@pytest.mark.attack("A3", "a host is quoted in the restart command")
def test_hosts_are_put_into_the_command(host: str, tmp_path: Path) -> None:
    run_command(f"printf %s {{host}} > {tmp_path / 'ran'}", node_id=1, host=host)
    assert (tmp_path / "ran").read_text() == host
