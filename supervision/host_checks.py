"""Checks before the actors of a host obey an order: who sent it, and the last placement on this board."""

from actors.actor import Sender
from actors.board import INCARNATIONS_PER_PLACEMENT, Board


def is_here(board: Board, sender: Sender) -> bool:
    """Whether the sender is an actor of this machine or its launcher, and not an actor of another host."""
    slot = board.find(sender.name)
    return "@" not in sender.name and (slot is None or not board.get(slot, "route"))


def is_own(board: Board, sender: Sender, *names: str) -> bool:
    return sender.name in names and is_here(board, sender)


def not_from(sender: Sender, who: str) -> str:
    return f"this message is accepted from {who} only, not from {sender.name!r}"


def last_placement(board: Board, name: str) -> int:
    """The number of the last placement of this name that the board has seen; 0 if there was none."""
    slot = board.find(name)
    return 0 if slot is None else int(board.get(slot, "incarnation")) // INCARNATIONS_PER_PLACEMENT
