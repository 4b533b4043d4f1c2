"""The grammar writes every action so that it reads back equal, and never crashes on text."""

from hypothesis import given
from hypothesis import strategies as st

from dart.core import actions as a

pixels = st.integers(0, a.MAX_COORDINATE)
points = st.tuples(pixels, pixels)
keys = st.sampled_from([*a.NAMED_KEYS, *a.MODIFIERS, *a.KEY_CHARACTERS])
several_keys = st.lists(keys, min_size=1, max_size=5, unique=True)
contents = st.text(st.characters(exclude_categories=["Cc", "Cs"], include_characters="\n\t"), min_size=1)
directions = st.sampled_from(a.DIRECTIONS)

any_action = st.one_of(
    points.map(lambda p: a.Click(*p)),
    points.map(lambda p: a.LeftDouble(*p)),
    points.map(lambda p: a.RightSingle(*p)),
    st.tuples(points, points).map(lambda pq: a.Drag(*pq[0], *pq[1])),
    points.map(lambda p: a.Hover(*p)),
    several_keys.map(lambda k: a.Hotkey(tuple(k))),
    keys.map(a.KeyDown),
    keys.map(a.KeyUp),
    contents.map(a.Type),
    st.tuples(points, directions).map(lambda p: a.Scroll(*p[0], p[1])),
    directions.map(a.ScrollHere),
    st.just(a.Wait()),
    st.just(a.Finished()),
    st.just(a.CallUser()),
)


@given(any_action)
def test_every_action_reads_back_as_it_was_written(action: a.Action) -> None:
    assert a.parse_action(a.format_action(action)) == action


@given(any_action)
def test_an_action_is_one_line_of_text(action: a.Action) -> None:
    assert "\n" not in a.format_action(action)


fragments = st.sampled_from(
    [*a.GRAMMAR, "(", ")", "start_box=", "'(1,2)'", "content='", "\\", "'", "\n", " ", "é"]
)


@given(st.one_of(st.text(), st.lists(fragments).map("".join)))
def test_any_text_is_an_action_or_a_parse_error_that_names_it(text: str) -> None:
    try:
        action = a.parse_action(text)
    except a.ActionParseError as error:
        shown = error.text
    else:
        shown = text
        assert a.parse_action(a.format_action(action)) == action
    assert shown == text
