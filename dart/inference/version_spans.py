"""Which policy version sampled which token of an answer. Pure."""

from collections.abc import Iterable

from dart.core.types import VersionSpan


def spans_of(reported: Iterable[tuple[str, int, int]], tokens: int) -> tuple[VersionSpan, ...]:
    """Spans from an engine's own (version, first token, token after the last) of an answer.

    tokens    of the answer
    Raises ValueError when the spans are not one after the other up to the last token, or there are none:
    weights may have changed under the answer, and the version at its end says nothing of its first token.
    """
    spans = [(int(name), int(start), int(end)) for name, start, end in reported if end > start]
    ends = [end for _, _, end in spans]
    if [start for _, start, _ in spans] != [0, *ends][: len(spans)] or ends[-1:] != [tokens]:
        raise ValueError(f"expected spans that cover {tokens} tokens one after the other, got {spans}")
    return tuple(VersionSpan(version=number, end=end) for number, _, end in spans)


def oldest(spans: Iterable[VersionSpan]) -> int:
    """The version an answer counts as: the freshness bound holds for every token of it."""
    return min(span.version for span in spans)
