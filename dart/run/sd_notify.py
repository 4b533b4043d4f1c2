"""sd_notify(3): the state of the daemon for its service manager, one datagram to the socket it names."""

import os
import socket
from collections.abc import Mapping


def notify(**fields: str | int) -> None:
    """Send fields such as `READY=1`. Does nothing without a service manager."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    where = "\0" + address[1:] if address.startswith("@") else address  # an abstract name begins with a zero
    lines = (f"{name}={value}" for name, value in fields.items())
    message = "\n".join(line.replace("\n", " ") for line in lines)  # a line break would begin another field
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        try:
            sender.sendto(message.encode(), where)
        except OSError:
            return


def watchdog_every_s(environment: Mapping[str, str], pid: int) -> float | None:
    """Half the time in which the service manager expects a sign of life; None if it expects none."""
    limit_us = environment.get("WATCHDOG_USEC", "")
    wanted_of = environment.get("WATCHDOG_PID", str(pid))
    if not limit_us.isdecimal() or int(limit_us) == 0 or wanted_of != str(pid):
        return None
    return int(limit_us) / 2e6
