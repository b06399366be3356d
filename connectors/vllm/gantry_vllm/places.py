"""Where prefillers may be. Clients can write any address into a request, and a sidecar shows its token where it calls."""

from __future__ import annotations

import ipaddress
import re
from typing import Optional


class Places:
    """`allowed`: networks (10.0.0.0/8), names, and ends of names (.svc.cluster.local). None: private addresses, and no name."""

    def __init__(self, allowed: Optional[list[str]] = None) -> None:
        self._networks = None if allowed is None else [found for found in map(_network, allowed) if found is not None]
        self._names = [] if allowed is None else [place.lower() for place in allowed if _network(place) is None]

    def why_not(self, address: str) -> Optional[str]:
        """Why no prefiller may be at "HOST:PORT". None: one may; a socket of this node, "unix:PATH", is always allowed."""
        if address.startswith("unix:"):
            return None
        host, _, _ = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]").lower()
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            if any(host == name or name.startswith(".") and host.endswith(name) for name in self._names):
                return None
            return f"{host or address} is not one of the peer_addresses"
        ip = getattr(ip, "ipv4_mapped", None) or ip
        if self._networks is None:
            return None if _is_private(ip) else f"{ip} is no private address"
        return None if any(ip in network for network in self._networks) else f"{ip} is in none of the peer_addresses"


def check_places(allowed: object) -> None:
    """Raises ValueError for what is no list of networks and names."""
    if allowed is None:
        return
    wrong = [place for place in allowed if not _is_place(place)] if isinstance(allowed, list) else [allowed]
    if wrong:
        raise ValueError(f"peer_addresses of kv_connector_extra_config is no list of networks and names: {wrong[0]!r} is neither "
                         "(the host bits of a network are 0)")


def _is_place(place: object) -> bool:
    return isinstance(place, str) and (_network(place) is not None or
                                       re.fullmatch(r"\.?([A-Za-z0-9_-]+\.)*[A-Za-z][A-Za-z0-9_-]*", place) is not None)


def _is_private(ip: "ipaddress.IPv4Address | ipaddress.IPv6Address") -> bool:
    """Those of pods and of this machine; not those of a link (169.254.169.254), and none that stands for another one."""
    if ip.is_loopback:
        return True
    wrapped = getattr(ip, "sixtofour", None) or getattr(ip, "teredo", None)
    return not (ip.is_global or ip.is_link_local or ip.is_multicast or ip.is_reserved or ip.is_unspecified or wrapped)


def _network(place: str) -> "Optional[ipaddress.IPv4Network | ipaddress.IPv6Network]":
    try:
        return ipaddress.ip_network(place)
    except ValueError:
        return None
