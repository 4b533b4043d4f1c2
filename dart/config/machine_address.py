"""The addresses of virtual machines and of a server that lends them, as a configuration writes them."""

from dataclasses import dataclass
from urllib.parse import urlsplit

SERVER_PORT, CHROMIUM_PORT, VNC_PORT, VLC_PORT = 5000, 9222, 8006, 8080
"""Ports on which OSWorld's guest server, Chromium, VNC and VLC listen inside a virtual machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAddress:
    """The host and the ports at which a machine is reached."""

    host: str
    server: int = SERVER_PORT
    chromium: int = CHROMIUM_PORT
    vlc: int = VLC_PORT

    def __str__(self) -> str:
        return f"{self.host}:{self.server}"


def parse_address(text: str) -> MachineAddress:
    """Parse a host with up to three ports, ``host:server-port:chromium-port:vlc-port``.

    Ports that are not given have the defaults of OSWorld. Raises ValueError for any other text.
    """
    host, *ports = text.split(":")
    is_right = len(ports) <= 3 and all(port.isascii() and port.isdigit() for port in ports)
    numbers = [int(port[:6]) for port in ports] if is_right else []
    if not host or not is_right or not all(0 < number < 2**16 for number in numbers):
        raise ValueError(f"expected host:port, or host:port:chromium-port:vlc-port, got {text!r}")
    names = ("server", "chromium", "vlc")
    return MachineAddress(host=host, **dict(zip(names, numbers or [SERVER_PORT], strict=False)))


def machine_of(text: str) -> str:
    """Return host and server port of an address in one spelling; empty if the address is not valid."""
    try:
        return str(parse_address(text)).lower()
    except ValueError:
        return ""


def is_server_url(text: str) -> bool:
    """Whether a text is the URL of a server: http or https, a host, and perhaps a port and a path.

    A URL with a user or a password is none: it would be kept in config.toml and shown in messages.
    """
    try:
        found = urlsplit(text)
        is_web = found.scheme in ("http", "https") and bool(found.hostname)
        return is_web and found.port != 0 and "@" not in text
    except ValueError:  # a port that is none
        return False
