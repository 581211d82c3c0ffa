"""The table of `make attack`: every finding has an attack, and nothing is said to hold that did not run and hold."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tests.attack import __main__ as attack
from tests.attack.__main__ import FINDINGS, MARK, files, main

CASES = """
    import pytest

    @pytest.mark.attack("A1", "all cases hold")
    @pytest.mark.parametrize("case", [1, 2])
    def test_holds(case): ...

    @pytest.mark.attack("A1", "one case of two does not")
    @pytest.mark.parametrize("case", [1, 2])
    def test_breaks(case):
        assert case == 1

    @pytest.mark.attack("A1", "a machine without the tool")
    def test_skips():
        pytest.skip("no tool")

    @pytest.fixture
    def left_behind():
        yield
        assert False, "left behind"

    @pytest.mark.attack("A1", "what is left behind")
    def test_ends_badly(left_behind): ...

    def test_is_no_attack():
        raise AssertionError
"""


def marks() -> list[tuple[str, list[object]]]:
    """File and arguments of every mark."""
    found = []
    for file in files():
        for node in ast.walk(ast.parse(Path(file).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == f"pytest.mark.{MARK}":
                found.append((file, [ast.literal_eval(each) for each in node.args]))
    return found


def test_every_finding_has_an_attack_and_every_attack_a_finding() -> None:
    found = [arguments for file, arguments in marks() if Path(file) != Path(__file__)]
    assert {finding for finding, _ in found} == FINDINGS.keys()
    assert all(isinstance(what, str) and len(what) < 110 for _, what in found)


def test_only_what_held_in_all_cases_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_cases.py"
    file.write_text(dedent(CASES))
    monkeypatch.setattr(attack, "files", lambda: [str(file)])
    assert main(["A1", "A2"]) == 1
    said = [line.split()[0:3] for line in capsys.readouterr().out.splitlines() if line.startswith("A")]
    words = [(first, f"{second} {third}" if second == "NOT" else second) for first, second, third in said]
    assert words == [("A1", "held"), ("A1", "NOT HELD"), ("A1", "NOT RUN"), ("A1", "NOT HELD"), ("A2", "NOT RUN")]
    assert main(["A1", "--budget", "-1"]) == 1
    assert "0 of 4 held" in capsys.readouterr().out


def test_all_held_is_exit_0_and_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_case.py"
    file.write_text('import pytest\n@pytest.mark.attack("A3", "it holds")\ndef test_it(): ...\n')
    monkeypatch.setattr(attack, "files", lambda: [str(file)])
    assert main(["A3", "--json"]) == 0
    assert '"held": true' in capsys.readouterr().out
    file = tmp_path / "test_broken.py"
    file.write_text("import no_such_module\n")
    assert main(["A3", "--json"]) == 1
