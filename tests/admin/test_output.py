"""What a command prints of others' texts: no name, record or error moves the operator's terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest

from barnabas_admin.commands.consume import open_output
from barnabas_admin.errors import AdminError
from barnabas_admin.output import print_error, print_fields, print_json, print_line, print_table, printable, talk

HOSTILE = "a\x1b]0;owned\x07\x9b2J\u202eb\x7f\rc"
SHOWN = r"a\x1b]0;owned\x07\x9b2J\u202eb\x7f\x0dc"


@pytest.mark.attack("A9", "terminal escapes of others are shown as text")
def test_control_characters_are_shown_and_lines_are_kept() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("zwei\tSpalten\nÄ 漢字") == "zwei\tSpalten\nÄ 漢字"


@pytest.mark.attack("A9", "no way of printing lets terminal escapes pass")
def test_no_way_out_lets_them_pass(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(HOSTILE)
    talk(HOSTILE)
    print_table(["NAME"], [[HOSTILE], [[HOSTILE]], [{"key": HOSTILE}]])
    print_fields({"name": HOSTILE + "\nforged  line"})
    print_error(AdminError(HOSTILE, hint=HOSTILE), is_json=False)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count(SHOWN) == 8
    assert (
        not set(shown.out + shown.err) & set(HOSTILE[1:]) - set("]0;owned2Jbc")
        and "forged" in shown.out.splitlines()[-1]
    )


@pytest.mark.attack("A9", "JSON output has no raw control character")
def test_json_has_none_and_reads_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": HOSTILE})
    print_error(AdminError(HOSTILE), is_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["name"] == HOSTILE and json.loads(shown.err)["error"]["message"] == HOSTILE
    assert (shown.out + shown.err).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("is_terminal", "is_raw", "is_shown"), [(True, False, True), (True, True, False), (False, False, False)]
)
@pytest.mark.attack("A9", "records reach a terminal as text")
async def test_records_reach_a_terminal_as_text_and_a_pipe_as_bytes(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, is_raw: bool, is_shown: bool
) -> None:
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(out, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", out)
    async with open_output(None, is_raw=is_raw) as write:
        await write(HOSTILE.encode() + b"\xff\n")
    assert out.buffer.getvalue() == (SHOWN.encode() + b"\\xff\n" if is_shown else HOSTILE.encode() + b"\xff\n")
