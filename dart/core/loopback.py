"""Recognises hosts that only their own machine can reach."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host is loopback, which only this machine can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
