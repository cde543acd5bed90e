"""Ports that nobody on this machine uses."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

__all__ = ["free_ports"]

_RANDOM = random.SystemRandom()  # no test may seed it
_PORTS = range(20_000, 32_000)
"""Below those that the system gives to clients: else a client may take the port of a server that is not started yet, or again."""


def free_ports(count: int) -> list[int]:
    """``count`` different ports."""
    ports: list[int] = []
    with ExitStack() as taken:
        while len(ports) < count:
            port, probe = _RANDOM.choice(_PORTS), taken.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports
