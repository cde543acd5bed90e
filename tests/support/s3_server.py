"""An S3 server for tests: ``s3_server.py PORT``. It is moto, with what tests need around it.

Requests are answered one after another, because moto looks for an object and then writes it. A bucket whose name begins with
``careless`` ignores ``If-None-Match``, as a store without put-if-absent does. ``/_requests`` returns the requests since the last
time. Three keys are known: :data:`WRITER` may do all, :data:`READER` may read, :data:`NO_DATA` may read all but Parquet.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from threading import Lock, Thread
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

NO_DATA = "AKIATESTNODATA"
READER = "AKIATESTREADER"
WRITER = "AKIATESTWRITER"
_DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message>'
    b"<RequestId>1</RequestId></Error>"
)


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        pass


class Server:
    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = Lock()
        self._requests: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            if path == "/_requests":
                body = json.dumps(self._requests).encode()
                self._requests = []
                start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
                return [body]
            conditional = " if-none-match" if "HTTP_IF_NONE_MATCH" in environ else ""
            self._requests.append(f"{method} {path}?{environ.get('QUERY_STRING', '')}{conditional}")
            key = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
            reads = method == "HEAD" or (method == "GET" and (key == READER or not path.endswith(".parquet")))
            if not (key == WRITER or (key in (READER, NO_DATA) and reads)):
                start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(_DENIED)))])
                return [_DENIED]
            if path.startswith("/careless"):
                environ.pop("HTTP_IF_NONE_MATCH", None)
            return list(self._moto(environ, start_response))


def _end_with_parent() -> None:
    sys.stdin.read()  # the tests hold the other end
    os._exit(0)


if __name__ == "__main__":
    Thread(target=_end_with_parent, daemon=True).start()
    run_simple("127.0.0.1", int(sys.argv[1]), Server(), threaded=True, request_handler=_Silent)
