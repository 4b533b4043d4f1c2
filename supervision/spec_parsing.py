"""Making specs and flags from plain data. Errors name every unknown key. Pure."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from actors.codec import from_plain, to_plain
from actors.errors import MalformedMessage
from supervision.child_spec import Backoff, Breaker, Budget, ChildSpec, Retirement, SupervisorFlags
from supervision.errors import InvalidChildSpec

T = TypeVar("T", ChildSpec, SupervisorFlags)

_PARTS: Mapping[str, type] = {
    "backoff": Backoff,
    "breaker": Breaker,
    "preemptions": Budget,
    "retirement": Retirement,
}


def parse(plain: Mapping[str, Any], cls: type[T]) -> T:
    """A spec or flags from plain data. Raises InvalidChildSpec naming the key or the value that is wrong."""
    _refuse_unknown(plain, cls, "")
    for name, part in _PARTS.items():
        if isinstance(plain.get(name), Mapping) and cls is ChildSpec:
            _refuse_unknown(plain[name], part, f"{name}.")
    budgets = plain.get("budgets", {})
    for kind, budget in budgets.items() if isinstance(budgets, Mapping) else ():
        if isinstance(budget, Mapping):
            _refuse_unknown(budget, Budget, f"budgets.{kind}.")
    try:
        return from_plain(plain, cls)
    except MalformedMessage as error:
        raise InvalidChildSpec(str(error)) from error


def changed(value: T, changes: Mapping[str, Any]) -> T:
    """A copy with some fields changed; a nested policy keeps the fields that are not named."""
    return parse(_merged(to_plain(value), changes), type(value))


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, change in changes.items():
        before = old.get(key)
        is_nested = isinstance(before, Mapping) and isinstance(change, Mapping) and key != "args"
        merged[key] = _merged(before or {}, change) if is_nested else change
    return merged


def _refuse_unknown(plain: Mapping[str, Any], cls: type, prefix: str) -> None:
    known = [field.name for field in fields(cls)]
    for key in plain:
        if not isinstance(key, str):
            raise InvalidChildSpec(f"{key!r} is no field of {cls.__name__}; the names of fields must be text")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {prefix + near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            raise InvalidChildSpec(f"{prefix + key!r} is no field of {cls.__name__}; {hint}")
