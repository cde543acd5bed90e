"""The storage of a table: plain files for a local path, deltalake's file system for everything else."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from strandline.delta import errors
from strandline.delta.put_if_absent import Put, PutIfAbsent
from strandline.delta.store_errors import cause_of, native, without_secrets
from strandline.delta.turn import turn
from strandline.errors import ChannelError, StorageError

__all__ = ["LOG_DIR", "Store", "commit_name", "inside", "open_store", "storage_errors"]

LOG_DIR = "_delta_log"
_CHECKPOINT_HINT = "_last_checkpoint"
_NO_SYNC_OF_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF}  # from some network file systems
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}  # Hadoop's names for schemes
_TELLING = (FileNotFoundError, NotADirectoryError)
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_MOST_BYTES = 255  # no file system allows a longer name
_unsettled: dict[str, set[str]] = {}
"""By a table's location, the commits of this process whose sync failed."""
_unsynced_folders: dict[str, int] = {}
"""By a table's location, how many folders this process has made there, if it could not sync their names."""
_INSIDE = re.compile(r"(?![A-Za-z][A-Za-z0-9+.-]*:)(?:(?!\.\.?(?:/|\Z))[^/\x00]+(?:/(?!\Z)|\Z))+")


def commit_name(version: int) -> str:
    """Return the path of a commit's file inside its table.

    >>> commit_name(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"{LOG_DIR}/{version:020d}.json"


def inside(path: str) -> str:
    """Return ``path`` if it names something below the table: relative, with ``/``, without ``.`` and ``..``.

    Every path from a log or a state is checked here before it is opened, deleted or passed to the JVM. The path is already
    decoded, in the form in which it will be used. Raises :class:`ChannelError` ``STRANDLINE_PATH_OUTSIDE_TABLE``.

    >>> inside("k=a b/part-1.parquet")
    'k=a b/part-1.parquet'
    >>> inside("../salaries.parquet")
    Traceback (most recent call last):
    strandline.errors.ChannelError: [STRANDLINE_PATH_OUTSIDE_TABLE] ...
    """
    if _INSIDE.fullmatch(path) and max(map(len, path.encode("utf-8", "surrogatepass").split(b"/"))) <= _MOST_BYTES:
        return path
    raise errors.path_outside_table(path)


@contextmanager
def storage_errors(
    doing: str, path: str, but: tuple[type[OSError], ...] = _TELLING, options: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Convert errors of the operating system and of object stores to Strandline's errors, except those in ``but``.

    Errors in ``but`` are answers: something exists, or does not exist. The text contains none of the ``options``' secrets.
    Raises :class:`StorageError` ``STRANDLINE_STORAGE_FAILED``.

    >>> with storage_errors("read", "/lake/flights"):
    ...     raise OSError(errno.EIO, os.strerror(errno.EIO))
    Traceback (most recent call last):
    strandline.errors.StorageError: [STRANDLINE_STORAGE_FAILED] Cannot read '/lake/flights': Input/output error. ...
    """
    try:
        yield
    except but:
        raise
    except OSError as error:
        # An object store's own error may show secrets, and a traceback shows the cause.
        raise errors.storage_failed(doing, path, cause_of(error, options), error.errno) from (None if "://" in path else error)


class Store(ABC):
    """The few operations that a channel needs from its storage. Paths are relative to the table, with ``/`` (:func:`inside`)."""

    location: str
    """The table's location in the form that deltalake accepts."""
    options: Mapping[str, str] = MappingProxyType({})
    """The options with which deltalake opens it. They may be secret."""
    writes_late = False
    """Whether an object may appear after :meth:`create` raised an error: a request may still be under way."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the object's size in bytes, or ``None`` if it does not exist."""

    @abstractmethod
    def modified(self, path: str) -> float | None:
        """Return when the object was written, in seconds since 1970, or ``None`` if it does not exist."""

    @abstractmethod
    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most ``limit`` bytes of the object, or ``None`` if it does not exist."""

    @abstractmethod
    def open_output(self, path: str) -> pa.NativeFile:
        """Return a file for writing the object from its beginning."""

    @abstractmethod
    def open_input(self, path: str) -> pa.NativeFile:
        """Return a file for reading the object. Raises ``FileNotFoundError``."""

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """Return the names directly in ``folder``, in no particular order. The list is empty if the folder does not exist.

        The empty text is the store's own folder.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove the object if it exists."""

    @abstractmethod
    def create(self, path: str, data: bytes, unless: Callable[[], bool] = lambda: False) -> Put:
        """Create an object, all of it or nothing.

        A store of this machine asks ``unless`` immediately before. If it is true, the object is as one that exists.
        """

    def require_create(self) -> None:  # noqa: B027 - file systems never do
        """Raise if the store may replace an object that exists. A writer calls this before deltalake writes."""

    @abstractmethod
    def sync(self, *paths: str) -> None:
        """Return when these objects will survive a loss of power."""

    @property
    def unsettled(self) -> bool:
        """Whether this process has made a commit here whose sync failed. It is there, and a loss of power may undo it."""
        return False

    def settle(self) -> None:  # noqa: B027 - most stores have nothing to do
        """Write the commits anew whose sync failed. Raises :class:`StorageError` if that fails too."""

    def sync_commit(self, path: str, *, content: bool = True) -> None:
        """Return when a commit's file will survive a loss of power. If this fails, the store is :attr:`unsettled`.

        Without ``content``, the content was synced before.
        """
        self.sync(path)

    def make_folders(self) -> None:  # noqa: B027 - most stores have no folders
        """Make the folder of a new table and those above it. Return when their names will survive a loss of power."""

    @abstractmethod
    def errors(self, doing: str, path: str = "") -> AbstractContextManager[None]:
        """Convert errors while something is done to ``path``, or to the table (:func:`storage_errors`)."""

    def turn(self, meanwhile: Callable[[], object]) -> AbstractContextManager[object]:
        """Wait for this writer's turn at the log, and hold it (:func:`~strandline.delta.turn.turn`). This store has no turns."""
        return nullcontext()

    def last_checkpoint(self) -> int:
        """Return the version in Delta's ``_last_checkpoint`` hint, or 0. A damaged hint costs time, but nothing else."""
        try:
            version = json.loads(self.read(f"{LOG_DIR}/{_CHECKPOINT_HINT}", 1 << 20) or b"{}").get("version", 0)
        except (ValueError, AttributeError, RecursionError, ChannelError):
            return 0
        return version if type(version) is int and 0 < version < 1 << 63 else 0


class LocalStore(Store):
    """A directory of this machine.

    Without ``durable`` nothing is synced. Then data that was not yet written to disk is lost if the machine loses power.
    """

    def __init__(self, path: str, *, durable: bool = True) -> None:
        self.location = path
        self.durable = durable

    def errors(self, doing: str, path: str = "") -> AbstractContextManager[None]:
        return storage_errors(doing, f"{self.location}/{path}".rstrip("/"))

    def _full(self, path: str) -> str:
        return f"{self.location}/{inside(path)}"

    def _file(self, path: str) -> str:
        """Return the full path of a regular file. Raises ``FileNotFoundError`` if it does not exist.

        Anything else is refused. For example, opening a pipe would wait for its writer. So is a link out of the table: who may
        write to the table need not have the right to read everything that this process may read.
        """
        full = self._full(path)
        mode = os.lstat(full).st_mode
        if stat.S_ISLNK(mode) or ("/" in path and self._leads_through_link(path)):
            mode = os.stat(full).st_mode
            self._refuse_outside(full)
        if not stat.S_ISREG(mode):
            raise errors.not_a_file(full, mode)
        return full

    def _refuse_outside(self, full: str) -> None:
        if not os.path.realpath(full).startswith(f"{os.path.realpath(self.location).rstrip('/')}/"):
            raise errors.path_outside_table_by_link(full)

    def check_links(self) -> bool:
        """Raise :class:`ChannelError` ``STRANDLINE_PATH_OUTSIDE_TABLE`` if the log has a link out of the table.

        deltalake follows links of commits and checkpoints. It also waits for the writer of a pipe that has the name of its hint
        to the newest checkpoint, so this must be a file (``STRANDLINE_NOT_A_FILE``). Returns whether the log has ``.crc`` files
        of other engines: to look for them separately would cost another listing.
        """
        crc = False
        for folder in (f"{self.location}/{LOG_DIR}", f"{self.location}/{LOG_DIR}/_sidecars"):
            with suppress(*_TELLING), storage_errors("list", folder):
                if os.path.islink(folder):
                    self._refuse_outside(folder)
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.is_symlink():
                            self._refuse_outside(entry.path)
                        if entry.name == _CHECKPOINT_HINT and not entry.is_file():
                            with suppress(FileNotFoundError):
                                self._file(f"{LOG_DIR}/{entry.name}")
                        crc = crc or entry.name.endswith(".crc")
        return crc

    def _leads_through_link(self, path: str) -> bool:
        folder = self.location
        for name in path.split("/")[:-1]:  # the folder of the table itself may be a link
            folder = f"{folder}/{name}"
            if stat.S_ISLNK(os.lstat(folder).st_mode):
                return True
        return False

    def size(self, path: str) -> int | None:
        full = self._full(path)
        try:
            with storage_errors("get the size of", full):
                return os.stat(full).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, path: str) -> float | None:
        full = self._full(path)
        try:
            with storage_errors("get the age of", full):
                return os.stat(full).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str, limit: int) -> bytes | None:
        try:
            with storage_errors("read", f"{self.location}/{path}"), open(self._file(path), "rb") as file:
                size = os.fstat(file.fileno()).st_size  # Python allocates all that it is asked for
                data = file.read(min(limit, size + 1))
                return data if len(data) <= size else data + file.read(limit - len(data))  # it has grown
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_output(self, path: str) -> pa.NativeFile:
        full = self._full(path)
        with storage_errors("write", full, but=()):
            Path(full).parent.mkdir(parents=True, exist_ok=True)
            return pa.OSFile(full, "wb")

    def open_input(self, path: str) -> pa.NativeFile:
        with storage_errors("read", f"{self.location}/{path}"):
            return pa.OSFile(self._file(path), "rb")

    def list(self, folder: str) -> list[str]:
        full = self._full(folder) if folder else self.location
        try:
            with storage_errors("list", full):
                return os.listdir(full)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, path: str) -> None:
        full = self._full(path)
        with storage_errors("delete", full):
            Path(full).unlink(missing_ok=True)

    def create(self, path: str, data: bytes, unless: Callable[[], bool] = lambda: False) -> Put:
        """Create a file with this content, all of it or nothing.

        This uses a hard link, which fails if the name exists. A file system without links does not support it. The content
        is synced before it gets the name. The name is not synced.
        """
        full = self._full(path)
        draft = _draft(full)
        try:
            with storage_errors("write", full, but=(FileExistsError,)):
                self._write(draft, data)
                if unless():
                    return Put.EXISTS
                os.link(draft, full)
        except FileExistsError:
            return Put.EXISTS
        except StorageError as error:
            if getattr(error.__cause__, "errno", None) in _NO_LINKS:
                return Put.UNSUPPORTED
            raise
        finally:
            with suppress(OSError):
                os.unlink(draft)
        return Put.MADE

    def _write(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)
        if self.durable:
            _sync(path)

    def turn(self, meanwhile: Callable[[], object]) -> AbstractContextManager[object]:
        return turn(f"{self.location}/{LOG_DIR}", meanwhile)

    @property
    def unsettled(self) -> bool:
        return bool(_unsettled.get(self.location))

    def sync_commit(self, path: str, *, content: bool = True) -> None:
        self.settle()
        try:
            if content:
                self.sync(path)
            else:
                self.sync_names(PurePosixPath(path).parent.as_posix())
        except StorageError:
            _unsettled.setdefault(self.location, set()).add(path)
            raise

    def settle(self) -> None:
        """Write the commits anew whose sync failed.

        After a failed sync the system may have dropped what it could not write, and a second sync would report success. So the
        same content gets the same name once more.
        """
        for path in sorted(_unsettled.get(self.location, ())):
            full = self._full(path)
            draft = _draft(full)
            try:
                with storage_errors("write", full):
                    self._write(draft, Path(full).read_bytes())
                    os.replace(draft, full)
                self.sync(path)
            except _TELLING:
                pass  # somebody deleted the table, or cleaned its log up after a later commit
            finally:
                with suppress(OSError):
                    os.unlink(draft)
            _unsettled[self.location].discard(path)

    def sync(self, *paths: str) -> None:
        """Sync first the files, then the folders that contain their names, up to the table's own folder."""
        if self.durable:
            for path in paths:
                with storage_errors("sync", self._full(path), but=()):
                    _sync(self._full(path))
        folders = {folder for path in paths for folder in PurePosixPath(path).parents}
        for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
            self.sync_names(folder.as_posix())

    def make_folders(self) -> None:
        folder, missing = Path(self.location), 0
        with storage_errors("create the folder", self.location, but=()):
            while not folder.exists() and folder.parent != folder:
                folder, missing = folder.parent, missing + 1
            os.makedirs(self.location, exist_ok=True)
        # An earlier call may have made folders, and then failed to sync their names.
        made = _unsynced_folders[self.location] = max(missing, _unsynced_folders.get(self.location, 1))
        for above in range(1, made + 1):
            self.sync_names("/".join([".."] * above))
        del _unsynced_folders[self.location]

    def sync_names(self, folder: str) -> None:
        """Sync the names in a folder, if the file system can do this.

        ``..`` is the folder that contains the table's own name.
        """
        if self.durable:
            with storage_errors("sync", f"{self.location}/{folder}", but=()):
                try:
                    _sync(f"{self.location}/{folder}")
                except OSError as error:
                    if error.errno not in _NO_SYNC_OF_FOLDERS:
                        raise


class ObjectStore(Store):
    """Any location that deltalake can open, by its URL and storage options."""

    writes_late = True

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.location = url
        self.options = dict(options or {})
        _check_options(self.options)
        self._puts: PutIfAbsent | None = None
        try:
            with self.errors("open"):
                self._files = pafs.PyFileSystem(DeltaStorageHandler(self.location, self.options))
        except (DeltaError, ValueError) as error:  # deltalake calls an unknown scheme a table that it does not find
            raise errors.storage_url_invalid_for_deltalake(url, cause_of(error, self.options)) from None

    @contextmanager
    def errors(self, doing: str, path: str = "") -> Iterator[None]:
        location = f"{self.location}/{path}".rstrip("/")
        with native(location, self.options), storage_errors(doing, location, options=self.options):
            yield

    def size(self, path: str) -> int | None:
        with self.errors("get the size of", path):
            info: Any = self._files.get_file_info(inside(path))
        return int(info.size) if info.type == pafs.FileType.File else None

    def modified(self, path: str) -> float | None:
        with self.errors("get the age of", path):
            info: Any = self._files.get_file_info(inside(path))
        return None if info.type != pafs.FileType.File or info.mtime is None else info.mtime.timestamp()

    def read(self, path: str, limit: int) -> bytes | None:
        try:
            with self.errors("read", path), self._files.open_input_file(inside(path)) as file:
                return bytes(file.read(limit))
        except FileNotFoundError:
            return None

    def open_output(self, path: str) -> pa.NativeFile:
        with self.errors("write", path):
            return self._files.open_output_stream(inside(path))

    def open_input(self, path: str) -> pa.NativeFile:
        with self.errors("read", path):
            return self._files.open_input_file(inside(path))

    def list(self, folder: str) -> list[str]:
        selector = pafs.FileSelector(folder and inside(folder), allow_not_found=True)
        with self.errors("list", folder):
            return [info.base_name for info in self._files.get_file_info(selector)]

    def delete(self, path: str) -> None:
        if self.size(path) is not None:
            with self.errors("delete", path):
                self._files.delete_file(inside(path))

    def create(self, path: str, data: bytes, unless: Callable[[], bool] = lambda: False) -> Put:
        """Create an object with this content, in one request.

        Raises :class:`ChannelError` ``STRANDLINE_STORE_OVERWRITES`` if the store does not refuse to replace objects.
        """
        self.require_create()
        assert self._puts is not None  # noqa: S101
        with native(self.location, self.options):
            return self._puts.create(inside(path), data)

    def require_create(self) -> None:
        if self._puts is None:
            with native(self.location, self.options):
                self._puts = PutIfAbsent(self.location, self.options)
        with native(self.location, self.options):
            self._puts.prove()

    def sync(self, *paths: str) -> None:
        """Do nothing: the store acknowledges an object only when it will survive a loss of power."""


def open_store(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
    """Return the store of a table's path: a local path, a ``file:`` URL, or any URL of deltalake (``s3://``, ``abfss://``, …).

    A local store has the option ``durable``, ``true`` or ``false`` (:class:`LocalStore`). The other options are deltalake's.
    Raises :class:`ChannelError` ``STRANDLINE_STORAGE_OPTION_INVALID``.
    """
    location = location_of(path)
    return ObjectStore(location, options) if "://" in location else LocalStore(location, durable=_durable(options or {}))


def _check_options(options: Mapping[str, str]) -> None:
    """Raise :class:`ChannelError` for values that are no texts, or that no request may contain. The value is not shown."""
    for name, value in options.items():
        if not isinstance(value, str):
            raise errors.storage_option_invalid_type(name, value)
        if name.lower().endswith(("endpoint", "endpoint_url")) and not value.strip():
            raise errors.storage_option_invalid_empty(name)
        if value != value.strip() or (not value.startswith("{") and _CONTROL.search(value)):
            raise errors.storage_option_invalid_text(name)


def _durable(options: Mapping[str, str]) -> bool:
    values = [str(value) for name, value in options.items() if name.lower() == "durable"]
    if values and values[-1].lower() not in ("true", "false"):
        raise errors.storage_option_invalid_durable(values[-1])
    return not values or values[-1].lower() == "true"


def _draft(full: str) -> str:
    """Return the name of a file beside another. Delta's readers ignore it, because it begins with a dot."""
    return f"{os.path.dirname(full)}/.strandline-{uuid.uuid4().hex}.tmp"


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def location_of(path: str | os.PathLike[str]) -> str:
    """Return a table's path in its canonical form: an absolute path, or a URL.

    This form is the same for all ways to write the path. Raises :class:`ChannelError` ``STRANDLINE_STORAGE_URL_INVALID``.

    >>> location_of("file:///lake/../lake/flights/"), location_of("s3://lake/flights/")
    ('/lake/flights', 's3://lake/flights')
    """
    text = path if isinstance(path, str) else os.fspath(path)
    try:
        if "\0" in text:
            raise ValueError("it has the character NUL")
        text.encode()
        url = urlparse(text)
    except ValueError as error:  # of a host in brackets that is no address, or of a half of a character
        raise errors.storage_url_invalid(without_secrets(ascii(text)), error) from None
    if url.scheme == "file":
        return os.path.abspath(unquote(url.path))
    if "://" not in text:
        return os.path.abspath(text)
    if url.query or url.fragment or ":" in url.netloc.rpartition("@")[0]:
        shown = without_secrets(f"{url.scheme}://{url.netloc}{url.path}")
        raise errors.storage_url_invalid_parts(shown)
    return text.rstrip("/")


def storage_of(path: str) -> tuple[str, str]:
    """Return the storage of a path that has one set of credentials: this machine's files, or the scheme with a bucket or host."""
    location = location_of(path)
    url = urlparse(location)
    return (_SCHEMES.get(url.scheme, url.scheme), url.netloc) if "://" in location else ("", "")
