"""Whether a host name means a machine of the user's own network, before anything that may cost money is sent there."""

from __future__ import annotations

import ipaddress
import socket

# RFC 1918, RFC 4193, link-local, and the shared space of RFC 6598 that clusters use for pods. Not Python's is_private:
# it also holds the documentation networks, which nobody owns.
_NEARBY = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/32", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "::/128",
         "fc00::/7", "fe80::/10"),
    )
)  # fmt: skip


def is_nearby(host: str, port: int | None = None) -> bool | None:
    """Whether every address of the host is loopback or private; None when the name has no address here."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return all(_is_nearby(str(address[0])) for *_, address in found)


def _is_nearby(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or any(address in network for network in _NEARBY if network.version == address.version)
