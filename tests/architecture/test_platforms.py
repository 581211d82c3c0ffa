"""How the answers of pip become a table; pip itself is not asked."""

from __future__ import annotations

import pytest

from tests.package import platforms
from tests.package.platforms import MISSING, PLATFORMS, core_dependencies, missing_wheels, name_of


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("click>=8.4,<9", "click"),
        ("google_re2>=1; python_version < '3.15'", "google-re2"),
        ("barnabas[spark]", "barnabas"),
    ],
)
def test_a_requirement_names_its_distribution(requirement: str, name: str) -> None:
    assert name_of(requirement) == name


def test_every_hole_that_is_known_is_of_a_dependency() -> None:
    assert MISSING.keys() <= {name_of(each) for each in core_dependencies()}


def test_what_pip_does_not_find_is_left_out_and_the_rest_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(requirements: list[str], tags: list[str], python: str) -> str | None:
        asked.append(list(requirements))
        absent = [each for each in requirements if each in ("b>=1", "d")]
        return f"ERROR: No matching distribution found for {absent[0]}\n" if absent else None

    monkeypatch.setattr(platforms, "_ask", ask)
    assert missing_wheels(["a", "b>=1", "c", "d"], next(iter(PLATFORMS)), "3.11") == {"b", "d"}
    assert asked[-1] == ["a", "c"]


def test_what_a_dependency_needs_and_what_else_goes_wrong_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, word in (("ERROR: No matching distribution found for cffi", "cffi"), ("ERROR: no route", "no route")):
        monkeypatch.setattr(platforms, "_ask", lambda *_, said=said: said)
        with pytest.raises(RuntimeError, match=word):
            missing_wheels(["a"], next(iter(PLATFORMS)), "3.11")
