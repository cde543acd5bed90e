"""The live page: a small server that only reads, for one machine. Requests cannot name a path."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_address
from typing import NoReturn

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.page import errors
from strandline.page.look import Looker
from strandline.page.render import main_html, page_html, static_text

__all__ = ["application", "serve"]

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Guard:
    """Refuses requests that name another host, which a page of another site makes through DNS rebinding. Adds headers.

    Args:
        app: The application.
        hosts: The names by which the page may be reached, besides ``localhost``.
        remote: Whether other machines may ask. Then every address is accepted too: only names can be rebound.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] = (), *, remote: bool = False) -> None:
        self._app, self._hosts, self._remote = app, {"localhost", *(host.lower() for host in hosts)}, remote

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        answer: ASGIApp = self._app
        if len(hosts) != 1 or not self._accepts(hosts[0]):
            answer = PlainTextResponse("This host name is not served here. Start it with --allow-host NAME.", 421)
        elif scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("Nothing can be changed here.", 405, {"Allow": "GET, HEAD"})
        await answer(scope, receive, with_headers)

    def _accepts(self, host: str) -> bool:
        name = host.lower()
        if name.startswith("["):
            name, _, rest = name[1:].partition("]")
            port = rest.removeprefix(":") if rest.startswith(":") or not rest else "?"
        else:
            name, _, port = name.partition(":")
        if port and not (port.isascii() and port.isdigit()):
            return False
        if name in self._hosts:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return self._remote or address.is_loopback


def application(looker: Looker, *, interval: float = 1.0, hosts: Collection[str] = (), remote: bool = False) -> Starlette:
    """Return the application: ``/``, its part ``/main``, and ``/page.json``.

    Args:
        looker: What makes the page.
        interval: After how many seconds the page asks for what is new.
        hosts: The names by which it may be reached, besides ``localhost`` and addresses of this machine.
        remote: Whether other machines may ask.
    """

    def whole(_: Request) -> Response:
        return Response(page_html(looker.look(), interval=interval), media_type="text/html")

    def part(_: Request) -> Response:
        return Response(main_html(looker.look()), media_type="text/html")

    def model(_: Request) -> Response:
        return JSONResponse(looker.look().to_json())

    def static(request: Request) -> Response:
        name = request.url.path[1:]
        return Response(static_text(name), media_type=_STATIC[name])

    routes = [
        Route("/", whole),
        Route("/main", part),
        Route("/page.json", model),
        *(Route(f"/{each}", static) for each in _STATIC),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, hosts=hosts, remote=remote)])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        PageError: ``STRANDLINE_PAGE_ADDRESS``.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)  # whoever reads the address may ask at once
    except (OSError, UnicodeError, OverflowError) as error:
        _refused(host, port, error)
    return bound


def serve(app: Starlette, bound: socket.socket) -> None:
    """Serve an application until the process is told to end (Ctrl-C, or SIGTERM)."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none")
    with suppress(KeyboardInterrupt):  # uvicorn raises it again when it has ended
        uvicorn.Server(config).run(sockets=[bound])


def _refused(host: str, port: int, error: Exception) -> NoReturn:
    raise errors.page_address(host, port, error) from error
