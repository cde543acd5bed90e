"""A socket as a channel: the page's code, beside a server that says four lines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

pytestmark = pytest.mark.spark

LINES = (
    "sensor-1 2026-01-01T10:00:00Z 21.5",
    "sensor-2 2026-01-01T09:58:00Z 19.0",
    "sensor-1 2026-01-01T10:02:30Z 21.7",
    "sensor-2 yesterday 19.1",
    "sensor-2 2026-01-01T09:59:00Z 19.2",
)


@pytest.fixture
def server() -> Iterator[int]:
    """Tells its lines to everybody who connects, and stays on the line; its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    connections = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connections.append(connection)
            connection.sendall("".join(f"{line}\n" for line in LINES).encode())

    thread = threading.Thread(target=serve)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()
    for connection in connections:
        connection.close()


@pytest.mark.drawn("pages")
def test_the_page_prints_what_it_says(run_page: Callable[..., tuple[str, str]], server: int) -> None:
    printed, said = run_page("socket", **{"localhost": "127.0.0.1", "9999 ": f"{server} "})
    assert printed == said
