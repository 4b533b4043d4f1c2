"""Checks of a subclass of Actor when its class is made: a mistake raises an error at its definition."""

from collections.abc import Callable, Mapping
from inspect import isfunction, signature
from typing import Any

from actors.codec import is_message

HOOKS = frozenset(
    {"on_start", "on_probe", "on_stop", "on_foreign", "forks", "traps_exits", "prints_to_stderr"}
)
"""What a subclass is meant to define."""

GIVEN_ATTRIBUTES = frozenset({"identity", "args", "clock", "log", "board", "runtime"})
"""Attributes that every actor is given when it is made."""

Handler = Callable[..., Any]


def receives(message_type: type) -> Callable[[Handler], Handler]:
    """Mark a method as the handler of one message type. Raises TypeError for a type that is no message."""
    _check_message_type(message_type)

    def mark(handler: Handler) -> Handler:
        handler.__dict__.setdefault("receives", []).append(message_type)
        return handler

    return mark


def handlers_in(cls: type) -> dict[type, str]:
    """The methods that `@receives` marked in a class, its bases left out. Raises TypeError for bad ones."""
    table: dict[type, str] = {}
    for name, attribute in vars(cls).items():
        for message_type in getattr(attribute, "receives", ()):
            if message_type in table:
                raise TypeError(
                    f"{cls.__name__} has two handlers for {message_type.__name__}, {table[message_type]!r} "
                    f"and {name!r}; one message goes to one handler, so keep one"
                )
            _check_handler(f"{cls.__name__}.{name}", attribute)
            table[message_type] = name
    return table


def taken_names(base: type) -> frozenset[str]:
    """The names of `Actor` that a subclass must not define. Private names are free: Python mangles them."""
    mangled = f"_{base.__name__}__"
    names = {name for name in vars(base) if not name.startswith(("__", mangled)) and name not in HOOKS}
    return GIVEN_ATTRIBUTES | names


def check_names(cls: type, base: type, taken: frozenset[str]) -> None:
    """Raise TypeError when a class, or a mixin of it, defines a name that `base` uses."""
    unchecked = [cls, *(origin for origin in cls.__mro__ if not issubclass(origin, base))]
    for origin in unchecked:
        for name in sorted(taken & vars(origin).keys() - vars(object).keys()):
            of = "" if origin is cls else f" (of {origin.__name__})"
            raise TypeError(
                f"{cls.__name__}.{name}{of} hides what {base.__name__} uses under that name; "
                f"call it something else (hooks to override: {', '.join(sorted(HOOKS))})"
            )


def is_overwritten(attributes: Mapping[str, Any], name: str, value: object) -> bool:
    """Whether setting a taken name hides an attribute of `Actor`.

    The first assignment, by `Actor` itself, does not; nor does another logger in `log`.
    """
    if name in GIVEN_ATTRIBUTES and name not in attributes:
        return False
    # `bind` first: a lazy logger of structlog has it, and any other name makes it open its stream.
    return name != "log" or not (hasattr(value, "bind") or hasattr(value, "warning"))


def _check_message_type(message_type: object) -> None:
    if not isinstance(message_type, type):
        given = f"the function {message_type.__name__!r}" if isfunction(message_type) else repr(message_type)
        raise TypeError(
            f"@receives needs the type of the message in parentheses, got {given}; "
            "write @receives(MessageType) above it"
        )
    if not is_message(message_type):
        name = message_type.__name__
        raise TypeError(
            f"@receives({name}): {name} is no message and no actor can send one; "
            "declare a dataclass with @message and name that"
        )


def _check_handler(name: str, handler: Handler) -> None:
    if not isfunction(handler):
        return
    shape = signature(handler)
    try:
        shape.bind("self", "message", "sender")
    except TypeError:
        raise TypeError(
            f"{name} takes ({', '.join(shape.parameters)}), but a handler is called with the message and its "
            f"sender: def {name.rpartition('.')[2]}(self, message, sender)"
        ) from None
