"""The console's page of a simulated run: it steps through a journal by links alone, and needs no cluster."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from barnabas_admin.commands.console import console
from barnabas_admin.console.application import make_application
from barnabas_admin.console.run import step_page
from barnabas_admin.errors import WrongUsage
from tests.support.journals import small_journal


@pytest.fixture
def client() -> httpx.AsyncClient:
    application = make_application(None, journal=small_journal())
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://localhost", follow_redirects=True
    )


async def test_the_run_is_all_there_is_without_a_cluster(client: httpx.AsyncClient) -> None:
    page = await client.get("/")
    assert page.url.path == "/sim" and page.status_code == 200
    assert "Simulated run" in page.text and "/topics" not in page.text
    assert (await client.get("/topics")).status_code == 404
    assert (await client.get("/livez")).status_code == 200, "for probes"


async def test_steps_are_linked_and_records_are_left_out_until_asked_for(client: httpx.AsyncClient) -> None:
    page = (await client.get("/sim", params={"step": "1"})).text
    assert 'rel="next" accesskey="n" href="/sim?step=3"' in page and 'rel="prev"' not in page
    page = (await client.get("/sim", params={"step": "1", "all": "1"})).text
    assert 'rel="next" accesskey="n" href="/sim?step=2&amp;all=1"' in page
    page = (await client.get("/sim", params={"step": "3"})).text
    assert 'rel="prev" accesskey="p" href="/sim?step=1"' in page and 'rel="next"' not in page


async def test_a_step_shows_beliefs_changes_cut_links_and_why(client: httpx.AsyncClient) -> None:
    page = (await client.get("/sim", params={"step": "3"})).text
    assert "Node 3 is cut off from &lt;nodes&gt; {1, 2}" in page
    assert "cut from 1<" in page and "Two of three voted for it." in page
    assert '<dd class="changed">5</dd>' in page  # the log end of node 2
    assert 'value="/sim?step=3"' in page  # the theme's way back
    found = (await client.get("/sim.json", params={"step": "3"})).json()
    assert found["api_version"] == "v1" and found["cut"] == [[1, 3], [3, 1]]
    (_, second, third) = found["nodes"]
    states = [each["state"] for each in second["records"]]
    assert states == ["committed", "flushed", "written", "written", "written"]
    assert "log_end" in second["changed"] and third["is_up"] is False and "is_up" in third["changed"]


async def test_no_foreign_script_and_no_style_of_its_own(client: httpx.AsyncClient) -> None:
    page = await client.get("/sim")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "<script>" not in page.text and "style=" not in page.text and "onclick" not in page.text


@pytest.mark.parametrize("step", ["0", "4", "x", "-1", "1e3", "９"])
async def test_a_step_that_is_none_is_refused(client: httpx.AsyncClient, step: str) -> None:
    page = await client.get("/sim", params={"step": step})
    assert page.status_code == 400 and "1 to 3" in page.text
    with pytest.raises(WrongUsage):
        step_page(small_journal(), {"step": step})


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("flights\n")
    refused = CliRunner().invoke(console, ["--journal", str(path)])
    assert refused.exit_code == 2 and isinstance(refused.exception, SystemExit | WrongUsage)
