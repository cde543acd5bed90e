"""The errors of the page."""

from __future__ import annotations

from strandline.errors import PageError


def page_address(host: str, port: int, error: Exception) -> PageError:
    return PageError(
        "STRANDLINE_PAGE_ADDRESS",
        f"The page cannot be served at {host}, port {port}: {error}.",
        "Choose another --port (0 takes a free one), or an address of this machine as --host.",
    )
