"""What the hosts' actors check before they obey: who the sender is, and which placement was the last here."""

from actors.actor import Sender
from actors.board import Board
from supervision.placement import INCARNATIONS_PER_PLACEMENT


def is_here(board: Board, sender: Sender) -> bool:
    """Whether it is an actor of this machine, or its launcher: names from elsewhere have a route."""
    slot = board.find(sender.name)
    return "@" not in sender.name and (slot is None or not board.get(slot, "route"))


def is_own(board: Board, sender: Sender, *names: str) -> bool:
    return sender.name in names and is_here(board, sender)


def not_from(sender: Sender, who: str) -> str:
    return f"this is taken from {who} only, not from {sender.name!r}"


def last_placement(board: Board, name: str) -> int:
    """The placement that an actor on this board was last seen under."""
    slot = board.find(name)
    return 0 if slot is None else int(board.get(slot, "incarnation")) // INCARNATIONS_PER_PLACEMENT
