"""A class whose methods are made late is what `dataclasses.dataclass` makes of the same source."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import sys
import threading
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

import barnabas_coordination
import barnabas_quorum
import barnabas_wire.kafka.messages
from barnabas_wire import lazy_dataclass
from barnabas_wire.lazy_dataclass import dataclass, realise_all, realised

R = TypeVar("R")
LATE: Any = dataclass
OURS_ALONE = {"__getstate__", "__setstate__"}


class Asked(Generic[R]):
    __slots__ = ()


def make(dataclass: Any) -> tuple[Any, Any, Any]:
    """The same source twice: a plain one, one of values, one that inherits."""

    @dataclass(slots=True)
    class Plain(Asked["int"]):
        kind: ClassVar[int] = 7
        name: str
        tags: list[str] = field(default_factory=list)
        rack: str | None = None

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Value:
        """With words of its own."""

        first: int
        second: int = 2

        def __post_init__(self) -> None:
            if self.second < 0:
                raise ValueError("second is negative")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Longer(Value):
        third: int = 3

    return Plain, Value, Longer


@pytest.fixture(params=["late", "at once"])
def classes(request: pytest.FixtureRequest) -> Any:
    return make(LATE if request.param == "late" else dataclasses.dataclass)


def test_an_object_is_what_a_dataclass_makes(classes: Any) -> None:
    plain, value, longer = classes
    assert plain("a").tags == [] and plain("a").tags is not plain("a").tags
    assert plain("a", rack="r") == plain("a", [], "r") != plain("b")
    assert repr(plain("a")).endswith("Plain(name='a', tags=[], rack=None)")
    assert plain.kind == 7 and not hasattr(plain("a"), "__dict__")
    assert plain.__hash__ is None
    assert hash(value(first=1)) == hash(value(first=1, second=2))
    assert longer(first=1) == longer(first=1, third=3) and longer(first=1) != value(first=1)
    assert dataclasses.replace(longer(first=1), second=5) == longer(first=1, second=5)
    with pytest.raises(ValueError, match="negative"):
        longer(first=1, second=-1)
    with pytest.raises(TypeError):
        plain()
    with pytest.raises(TypeError):
        value(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value(first=1).first = 2
    with pytest.raises(AttributeError):
        plain("a").other = 1


def test_it_has_what_a_dataclass_has_and_keeps_its_identity() -> None:
    late: Any
    for late, at_once in zip(make(LATE), make(dataclasses.dataclass), strict=True):
        assert realised(late) is late
        assert vars(late).keys() - OURS_ALONE == vars(at_once).keys() - OURS_ALONE
        assert late.__slots__ == at_once.__slots__ and late.__match_args__ == at_once.__match_args__  # type: ignore[attr-defined]
        assert [one.name for one in dataclasses.fields(late)] == [one.name for one in dataclasses.fields(at_once)]


def test_who_asks_for_a_subclass_has_its_bases_too() -> None:
    _, value, longer = make(LATE)
    assert [one.name for one in dataclasses.fields(realised(longer))] == ["first", "second", "third"]
    assert value(first=1).second == 2


def test_what_is_no_such_class_stays_as_it_is() -> None:
    assert realised(int) is int


@dataclass(frozen=True, slots=True)
class Sent:
    """Found by its name, for pickles."""

    text: str


@dataclass(slots=True)
class Copied:
    """The same, not frozen."""

    text: str


@pytest.mark.parametrize("kind", [Sent, Copied])
def test_copies_and_pickles_are_equal(kind: Any) -> None:
    sent = kind("t")
    assert pickle.loads(pickle.dumps(sent)) == copy.copy(sent) == copy.deepcopy(sent) == sent


def test_a_pickle_may_be_the_first_object_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class Unseen:
        text: str

    written = pickle.dumps(Sent("t"))
    monkeypatch.setattr(sys.modules[__name__], "Sent", Unseen)
    assert pickle.loads(written) == Unseen("t")


def test_threads_that_make_the_first_objects_together_make_them_all() -> None:
    for _ in range(50):
        _, _, longer = make(LATE)
        made: list[Any] = []
        barrier = threading.Barrier(4)

        def first(longer: Any = longer, made: list[Any] = made, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            made.append(longer(first=1))

        threads = [threading.Thread(target=first) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [longer(first=1)] * 4


def test_before_a_fork_all_are_made() -> None:
    """All of the product: what is wrong with a declaration must not wait for the first object."""
    for package in (barnabas_wire.kafka.messages, barnabas_quorum, barnabas_coordination):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    plain, _, longer = make(LATE)
    realise_all()
    assert dataclasses.is_dataclass(plain) and dataclasses.is_dataclass(longer)
    assert not lazy_dataclass._sources
