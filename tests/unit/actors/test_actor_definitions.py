"""A class that no actor can be is refused where it is written, with the remedy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, receives
from actors.codec import message
from actors.errors import ActorError
from actors.testing import InMemorySystem
from actors.thespian_host import actor_class


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    pass


class Painter(Actor):
    """What the bad classes below are written like, but for one mistake each."""

    @receives(Paint)
    def paint(self, call: Paint, sender: Sender) -> None:
        pass


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path) as bench:
        yield bench


def refusal(definition: Callable[[], Any], error: type[Exception] = TypeError) -> str:
    with pytest.raises(error) as refused:
        definition()
    return str(refused.value)


def test_receives_without_parentheses_is_refused() -> None:
    def paint(self: Actor, call: Paint, sender: Sender) -> None:
        pass

    assert refusal(lambda: receives(paint)) == (  # type: ignore[arg-type]
        "@receives needs the type of the message in parentheses, got the function 'paint'; "
        "write @receives(MessageType) above it"
    )


@pytest.mark.parametrize("kind", [str, dict, Exception])
def test_receives_of_a_type_that_is_no_message_is_refused(kind: type) -> None:
    assert refusal(lambda: receives(kind)) == (
        f"@receives({kind.__name__}): {kind.__name__} is no message and no actor can send one; "
        "declare a dataclass with @message and name that"
    )


def test_two_handlers_for_one_type_are_refused() -> None:
    def define() -> None:
        class Painter(Actor):
            @receives(Paint)
            def paint(self, call: Paint, sender: Sender) -> None:
                pass

            @receives(Paint)
            def paint_too(self, call: Paint, sender: Sender) -> None:
                pass

    assert refusal(define) == (
        "Painter has two handlers for Paint, 'paint' and 'paint_too'; "
        "one message goes to one handler, so keep one"
    )


def test_a_subclass_may_handle_a_type_in_another_way() -> None:
    class Careful(Painter):
        @receives(Paint)
        def paint_slowly(self, call: Paint, sender: Sender) -> None:
            pass

    assert Careful._handlers[Paint] == "paint_slowly"


def test_a_handler_that_cannot_be_called_with_message_and_sender_is_refused() -> None:
    def define_short() -> None:
        class Painter(Actor):
            @receives(Paint)
            def paint(self, call: Paint) -> None:
                pass

    def define_long() -> None:
        class Painter(Actor):
            @receives(Paint)
            def paint(self, call: Paint, sender: Sender, color: str) -> None:
                pass

    remedy = "a handler is called with the message and its sender: def paint(self, message, sender)"
    assert refusal(define_short) == f"Painter.paint takes (self, call), but {remedy}"
    assert refusal(define_long) == f"Painter.paint takes (self, call, sender, color), but {remedy}"


def test_a_handler_may_take_more_that_has_defaults() -> None:
    class Painter(Actor):
        @receives(Paint)
        def paint(self, call: Paint, sender: Sender, color: str = "red", *rest: Any) -> None:
            pass

    assert Painter._handlers[Paint] == "paint"


@pytest.mark.parametrize(
    "name", ["turn", "beat", "board", "log", "clock", "tell", "stop", "args", "_handlers"]
)
def test_a_subclass_that_takes_a_name_of_the_base_class_is_refused(name: str) -> None:
    message = refusal(lambda: type("Painter", (Actor,), {name: lambda self: None}))
    assert message.startswith(f"Painter.{name} hides what Actor uses under that name; call it something else")


def test_a_mixin_that_takes_a_name_of_the_base_class_is_refused() -> None:
    class Drawing:
        log = "a drawing"

    message = refusal(lambda: type("Painter", (Drawing, Actor), {}))
    assert message.startswith("Painter.log (of Drawing) hides what Actor uses under that name")


@pytest.mark.parametrize("name", ["on_start", "on_probe", "on_stop", "on_foreign"])
def test_a_hook_is_there_to_be_overridden(name: str) -> None:
    hook: Any = lambda self, *_: None  # noqa: E731
    assert getattr(type("Painter", (Actor,), {name: hook}), name) is hook


@pytest.mark.parametrize("name", ["turn", "used", "board", "clock", "identity"])
def test_an_actor_that_sets_a_name_of_the_base_class_is_told_at_that_line(
    bench: InMemorySystem, name: str
) -> None:
    painter = bench.start(Painter, "painter")
    message = refusal(lambda: setattr(painter, name, 7), ActorError)
    assert message == (
        f"Painter sets self.{name}, which Actor uses under that name; call it something else (self._{name})"
    )


def test_an_actor_may_have_another_logger_and_nothing_else_for_a_log(bench: InMemorySystem) -> None:
    painter = bench.start(Painter, "painter")
    painter.log = painter.log.bind(room=3)
    assert "Painter sets self.log" in refusal(lambda: setattr(painter, "log", []), ActorError)


def test_a_path_that_names_no_actor_is_refused_by_its_process() -> None:
    assert refusal(lambda: actor_class("fractions:Fraction")) == (
        "'fractions:Fraction' names no actor: <class 'fractions.Fraction'> is no subclass of actors.Actor"
    )
