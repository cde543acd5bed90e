"""File systems in image files, to see what a disk has at a moment of a power cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


@lru_cache(maxsize=1)
def can_mount() -> bool:
    """Whether this process may mount an image, which a container may forbid even to root: it is tried."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder, "image")
        try:
            make_disk(image)
            with mounted(image, Path(folder, "disk")):
                return True
        except subprocess.CalledProcessError:
            return False


def make_disk(image: Path) -> None:
    with image.open("wb") as file:
        file.truncate(200 << 20)
    run("mkfs.ext4", "-q", image)


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    run("mount", "-o", "loop", image, folder)
    try:
        yield folder
    finally:
        run("umount", "--lazy", folder)  # a killed query's workers may end a moment later
