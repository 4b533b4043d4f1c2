"""A supervision tree as text, from the board: readable while every actor of it hangs."""

from collections.abc import Iterator, Sequence

from actors.board import ActorState, Board, Vitals


def tree_lines(board: Board) -> list[str]:
    """One line per actor: name, state, incarnation, and why it was last restarted."""
    rows = [row for row in board.rows() if row.state is not ActorState.FREE]
    names = {row.name for row in rows}
    roots = [row for row in rows if row.parent not in names and row.state is not ActorState.STOPPED]
    return [line for root in roots for line in _branch(root, rows, "", "")]


def _branch(row: Vitals, rows: Sequence[Vitals], first: str, rest: str) -> Iterator[str]:
    yield f"{first}{_line(row)}".rstrip()
    children = [child for child in rows if child.parent == row.name and child is not row]
    for child in children:
        is_last = child is children[-1]
        yield from _branch(
            child, rows, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  ")
        )


def _line(row: Vitals) -> str:
    state = row.state.value if row.ready or row.state is not ActorState.RUNNING else "running, not ready"
    again = f"  restarted {row.restarts}x: {row.last_reason}" if row.restarts else ""
    return f"{row.name}  {state}{again}"
