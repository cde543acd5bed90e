"""Writes an object only if it does not exist, which decides who commits a version in an object store."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import Enum
from threading import Lock
from typing import Any
from urllib.parse import urlparse

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, UnknownConfigurationKeyError
from obstore.store import from_url

from strandline.delta import errors
from strandline.delta.store_errors import cause_of, meant, without_secrets

__all__ = ["Put", "PutIfAbsent"]

_SCHEMES = {"s3", "s3a", "az", "azure", "adl", "abfs", "abfss", "gs"}
_PREFIX = re.compile(r"^(aws|azure|google)_")
_CLIENT = {"allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "timeout"}
_RETRY = {"max_retries", "retry_timeout"}
_UNITS = {"s": 1, "m": 60, "h": 3600}
_FOLDER = "_probe"  # Delta's readers, and VACUUM, skip names that begin with an underscore

_LOG = logging.getLogger(__name__)
_told: set[str] = set()
_lock = Lock()
_proven: set[tuple[object, ...]] = set()


class Put(Enum):
    """What became of a request to create an object."""

    MADE = "made"
    EXISTS = "exists"
    """Nothing was written: the object exists, or must not exist."""
    UNSUPPORTED = "unsupported"
    """Nothing was written: this storage cannot create an object as a whole."""


class PutIfAbsent:
    """Writes objects below a URL, each only if it does not exist. The options are those of deltalake.

    deltalake's own commit lists the log first, and reads it again afterwards. This is one request.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url
        self._options = options
        place = urlparse(url)
        if place.scheme.lower() not in _SCHEMES:
            raise errors.store_overwrites_unknown_scheme(url, _SCHEMES)
        self._key = (place.scheme.lower().replace("s3a", "s3"), place.netloc, frozenset(options.items()))
        with self._errors(""):
            self._store: Any = _open(url, options)

    def prove(self) -> None:
        """Raise unless the store refuses to write an object that exists. Each process asks once for a bucket and its options.

        Raises:
            ChannelError: ``STRANDLINE_STORE_OVERWRITES`` if the store would replace the object. Nothing was written.
            StorageError: The store failed.
        """
        with _lock:
            if self._key not in _proven:
                self._probe()
                _proven.add(self._key)

    def create(self, path: str, data: bytes) -> Put:
        """Create an object with this content. Raises :class:`StorageError`."""
        try:
            with self._errors(path):
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return Put.EXISTS
        return Put.MADE

    def _probe(self) -> None:
        """Write the same new object twice, and remove it."""
        path, text = f"{_FOLDER}/{uuid.uuid4().hex}", b"Strandline looks whether this store refuses to write an object twice."
        try:
            answers = [self.create(path, text) for _ in range(2)]
        finally:
            with suppress(BaseError):  # a writer need not have the right to delete, and nobody reads the object
                obstore.delete(self._store, path)
        if answers[1] is Put.MADE:
            raise errors.store_overwrites_probe(self._url)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except AlreadyExistsError:
            raise
        except NotImplementedError:
            raise errors.store_overwrites_option(self._url) from None
        except (BaseError, OSError, ValueError) as error:
            raise errors.storage_failed("write", f"{self._url}/{path}".rstrip("/"), cause_of(error, self._options)) from None


def _open(url: str, options: Mapping[str, str]) -> Any:
    client: dict[str, Any] = {}
    retry: dict[str, Any] = {}
    config: dict[str, str] = {}
    for name, value in options.items():
        bare = _PREFIX.sub("", name.lower())
        if bare in _CLIENT:
            client[bare] = value.strip().lower() == "true" if bare.startswith("allow") else value
        elif bare in _RETRY:
            retry[bare] = _seconds(value) if bare == "retry_timeout" else int(value)
        else:
            config[name] = value
    open_url: Any = from_url  # its options are typed for each store
    while True:
        try:
            return open_url(url, config=config, client_options=client, retry_config=retry or None)
        except UnknownConfigurationKeyError as error:  # noqa: PERF203 - an option that only deltalake knows, or nobody
            unknown = {name for name in config if f"'{name.lower()}'" in str(error)}
            if not unknown:
                raise
            _warn(url, unknown)
            config = {name: value for name, value in config.items() if name not in unknown}


def _warn(url: str, unknown: Iterable[str]) -> None:
    """Warn of names that are misspelt, once each. Others may be deltalake's: it does not say which it knows."""
    for name in unknown:
        if (right := meant(name)) is not None and name not in _told:
            _told.add(name)
            _LOG.warning("The storage option %s of %s is not known. Did you mean %s?", name, without_secrets(url), right)


def _seconds(value: str) -> timedelta:
    found = re.fullmatch(r"(\d+)\s*([smh])", value.strip())
    if found is None:
        raise ValueError(f"retry_timeout is {value!r}, not such as 30s")
    return timedelta(seconds=int(found.group(1)) * _UNITS[found.group(2)])
