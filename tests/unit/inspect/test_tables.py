"""Tables on a narrow terminal: which columns are cut, and which stay whole."""

from io import StringIO

from rich.console import Console

from dart.inspect.tables import Column, table

LONG = "BrowserDied: the machine 10.12.0.150:5000 refused the connection (3 tries within 90 s)"
ROWS = ((12, "osworld/libreoffice_calc/0b77d43a-746c-2b68-5d7d-cde9c8a38e7b", LONG), (12345, "env-150", ""))
COLUMNS: tuple[Column[tuple[int, str, str]], ...] = (
    Column("id", lambda row: row[0], is_number=True),
    Column("task", lambda row: row[1]),
    Column("state", lambda _: "quarantined"),
    Column("restarts", lambda row: row[0], is_number=True),
    Column("last reason", lambda row: row[2]),
)


def lines_of(width: int) -> list[str]:
    console = Console(file=StringIO(), width=width)
    with console.capture() as captured:
        console.print(table(ROWS, COLUMNS))
    return captured.get().splitlines()


def test_a_narrow_table_cuts_its_longest_texts_and_no_number() -> None:
    heading, first, second = lines_of(80)
    assert heading.split() == ["id", "task", "state", "restarts", "last", "reason"]
    assert first.startswith("   12  osworld/libreoffice_ca…")
    assert second.startswith("12345  env-150")
    assert all("quarantined" in line and len(line) <= 80 for line in (first, second))
    assert first.count("…") == 2


def test_a_row_is_one_line_however_narrow_the_table_is() -> None:
    assert len(lines_of(30)) == 1 + len(ROWS)


def test_a_table_that_fits_cuts_nothing() -> None:
    assert LONG in lines_of(200)[1]
