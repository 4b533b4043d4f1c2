"""Statements and text on their way to PostgreSQL's driver and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.store import browse_queries, queries
from dart.store.postgresql_text import escaped, translated, unescaped


@pytest.mark.parametrize(
    ("statement", "for_the_driver"),
    [
        ("SELECT :key", "SELECT %(key)s"),
        ("kind = :kind AND event_id >= :first", "kind = %(kind)s AND event_id >= %(first)s"),
        ("version % :every = 0", "version %% %(every)s = 0"),
        ("a::text = :a", "a::text = %(a)s"),
        ("name LIKE 'a:b%' AND \"odd:name\" = :name", "name LIKE 'a:b%%' AND \"odd:name\" = %(name)s"),
        ("'it''s :quoted' || :free", "'it''s :quoted' || %(free)s"),
        ("IN (:keys_0, :keys_1)", "IN (%(keys_0)s, %(keys_1)s)"),
    ],
)
def test_parameters_are_written_as_the_driver_does(statement: str, for_the_driver: str) -> None:
    assert translated(statement) == for_the_driver


def test_every_statement_of_the_record_can_be_given_its_values() -> None:
    """A sign that the driver would read as a parameter and that has no value is an error of Python's `%`."""
    statements = [
        value
        for module in (queries, browse_queries)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and "SELECT" in value
    ]
    assert len(statements) > 40

    class Any_(dict[str, str]):
        def __missing__(self, key: str) -> str:
            return "value"

    for statement in statements:
        assert "%(" not in translated(statement) % Any_()


@given(st.text(alphabet=st.one_of(st.sampled_from("\0\x1a01"), st.characters(codec="utf-8"))))
def test_any_text_comes_back_and_holds_no_nul_in_between(text: str) -> None:
    assert "\0" not in escaped(text)
    assert unescaped(escaped(text)) == text


def test_text_without_these_characters_stays_as_it_is() -> None:
    assert escaped("Enter \"50%\" & press 'OK'\n") == "Enter \"50%\" & press 'OK'\n"
