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
from barnabas_wire.lazy_dataclass import COMPILE_AT, compile_all, dataclass

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


@pytest.fixture(params=["late", "compiled", "at once"])
def classes(request: pytest.FixtureRequest) -> Any:
    made = make(dataclasses.dataclass if request.param == "at once" else LATE)
    if request.param == "compiled":
        compile_all()
    return made


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


@pytest.mark.parametrize(
    ("which", "args", "given", "said"),
    [
        (0, (), {}, "missing 1 required positional argument: 'name'"),
        (0, ("a", [], "r", "more"), {}, "takes from 2 to 4 positional arguments but 5 were given"),
        (0, ("a",), {"name": "b"}, "multiple values for argument 'name'"),
        (0, ("a",), {"other": 1}, "unexpected keyword argument 'other'"),
        (1, (1,), {}, "takes 1 positional argument but 2 were given"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    classes: Any, which: int, args: tuple[Any, ...], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        classes[which](*args, **given)


def test_the_first_object_has_its_fields(classes: Any) -> None:
    plain, value, longer = classes
    with pytest.raises(ValueError, match="negative"):
        value(first=1, second=-1)
    assert vars_of(plain("a", rack="r")) == {"name": "a", "tags": [], "rack": "r"}
    assert vars_of(longer(first=1)) == {"third": 3}


def vars_of(made: Any) -> dict[str, Any]:
    """Its fields, without asking its class for them."""
    return {name: getattr(made, name) for name in type(made).__slots__}


def test_a_frozen_one_refuses_what_a_dataclass_refuses(classes: Any) -> None:
    _, value, longer = classes
    for made in (value(first=1), longer(first=1)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
            made.first = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
            del made.first
        assert made.first == 1


@pytest.mark.parametrize("kind", [LATE, dataclasses.dataclass])
def test_methods_of_its_own_stay(kind: Any) -> None:
    class Source:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, named) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return 7

    named: Any = kind(slots=True)(Source)
    assert repr(named("a")) == "<a>" and named("a") == named("A") and hash(named("a")) == 7


def test_a_frozen_one_with_an_equality_of_its_own_has_a_hash() -> None:
    @dataclass(frozen=True, slots=True)
    class Folded:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Folded)

    assert hash(Folded("a")) == hash(Folded("a"))


def test_ordered_ones_have_an_order() -> None:
    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        first: int
        second: int

    assert sorted([Ordered(2, 1), Ordered(1, 3), Ordered(1, 2)]) == [Ordered(1, 2), Ordered(1, 3), Ordered(2, 1)]
    assert (
        Ordered(1, 2) <= Ordered(1, 2) < Ordered(1, 3)
        and Ordered(2, 0) > Ordered(1, 9)
        and Ordered(1, 1) >= Ordered(1, 1)
    )


def test_the_first_object_matches_by_place() -> None:
    plain, _, _ = make(LATE)
    match plain("a", ["t"]):
        case plain(name, tags):
            assert (name, tags) == ("a", ["t"])
        case _:
            pytest.fail("it did not match")


def test_nothing_is_compiled_until_many_objects_are_made_or_a_method_is_called() -> None:
    plain, value, longer = make(LATE)
    for _ in range(COMPILE_AT):
        plain("a")
    assert plain in lazy_dataclass._sources
    plain("a")
    assert plain not in lazy_dataclass._sources
    assert [one.name for one in dataclasses.fields(value)] == ["first", "second"]
    assert dataclasses.replace(value(first=1), second=5).second == 5
    assert value in lazy_dataclass._sources
    assert repr(value(first=1))
    assert value not in lazy_dataclass._sources and longer in lazy_dataclass._sources


def test_it_has_what_a_dataclass_has_and_keeps_its_identity() -> None:
    late: Any
    for late, at_once in zip(make(LATE), make(dataclasses.dataclass), strict=True):
        assert [one.name for one in dataclasses.fields(late)] == [one.name for one in dataclasses.fields(at_once)]
        for _ in ("not compiled", "compiled"):
            assert vars(late).keys() - OURS_ALONE == vars(at_once).keys() - OURS_ALONE
            compile_all()
        assert late.__slots__ == at_once.__slots__ and late.__match_args__ == at_once.__match_args__


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
    compile_all()
    assert dataclasses.is_dataclass(plain) and dataclasses.is_dataclass(longer)
    assert not lazy_dataclass._sources
