"""The leader's answers about its hosts, cut so that each fits into a message. Pure."""

from collections.abc import Iterator, Sequence
from itertools import islice

from actors.codec import MAX_MESSAGE_BYTES, packed_bytes
from supervision.host_messages import HostNow, HostsNow
from supervision.placement import PlacementCore

HOSTS_PER_ANSWER = 64
UNPLACED_PER_ANSWER = 20
CARRIED_PER_HOST = 32

UNPLACED_REASON_BYTES = 1000
HOST_REASON_BYTES = 400

HOSTS_BYTES = MAX_MESSAGE_BYTES // 2
"""The most bytes that the hosts in one answer take; the rest is left for the actors without a host."""


def hosts_now(core: PlacementCore, offset: int, now_s: float, *, refused: int) -> HostsNow:
    """The hosts from `offset` on, by name: as many as fit into one answer, at least one if any is left.

    refused   the number of messages that were refused because their sender may not send them
    """
    unplaced = sorted(core.unplaced.items())[:UNPLACED_PER_ANSWER]
    return HostsNow(
        hosts=tuple(_page(core, sorted(core.hosts)[offset : offset + HOSTS_PER_ANSWER], now_s)),
        total=len(core.hosts),
        unplaced={name: _cut(reason, UNPLACED_REASON_BYTES) for name, reason in unplaced},
        unplaced_total=len(core.unplaced),
        late=core.late,
        refused=refused,
    )


def _page(core: PlacementCore, names: Sequence[str], now_s: float) -> Iterator[HostNow]:
    carries: dict[str, list[str]] = {name: [] for name in names}
    for actor, at in core.carried.items():
        if at.host in carries:
            carries[at.host].append(actor)
    used_bytes = 0
    for name in names:
        host = _host_now(core, name, sorted(carries[name]), now_s)
        used_bytes += packed_bytes(host)
        if used_bytes > HOSTS_BYTES and name != names[0]:
            return
        yield host


def _host_now(core: PlacementCore, name: str, carries: Sequence[str], now_s: float) -> HostNow:
    record = core.hosts[name]
    return HostNow(
        host=name,
        epoch=record.epoch,
        capabilities=dict(record.capabilities),
        carries=tuple(islice(carries, CARRIED_PER_HOST)),
        carries_total=len(carries),
        state=record.state(now_s).value,
        losses=record.losses,
        retry_in_s=max(0.0, record.free_at_s() - now_s),
        reason=_cut(record.reason, HOST_REASON_BYTES),
    )


def _cut(text: str, most_bytes: int) -> str:
    """The text, or as much of its beginning as fits into `most_bytes` bytes of UTF-8."""
    return text.encode()[:most_bytes].decode(errors="ignore")
